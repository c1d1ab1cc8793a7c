"""Reads rankings in JSON: {"query": {"item": score}}, as ranx, pytrec_eval and BEIR hold a run,
{"query": ["item", …]}, best first, or {"query": [{"id": "item", "score": 0.9}, …]}; and lines of
{"query_id": "query", "hits": […]} with the same kinds of lists."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hbench.core.untrusted import MAX_LIST_BYTES, parse_json, read_gzip, read_json, read_text
from hbench.sheets import sheet, words
from hbench.sheets.dialect import is_compressed, suffix_of
from hbench.submissions.rankings.lines import Lines, lines_with_scores

NUMBERS = (int, float)
NAMES = (str, int)
Lists = Mapping[str, Any]  # what each query retrieved, as the file has it


def reader(path: Path) -> Callable[[Path], Lines] | None:
    """The reader of a JSON file that is a run; None for any other. The file is read here to tell
    whether it is one, and so the reader has its content already."""
    try:
        content = _lists_in_lines(path) if suffix_of(path) in sheet.LINES else _content(path)
    except (ValueError, OSError):
        return None
    lists = _as_run(content)
    return None if lists is None else (lambda _: _lines(path, lists))


def _content(path: Path) -> Any:
    """The JSON value in a file, which may be compressed by gzip."""
    if is_compressed(path):
        return parse_json(read_gzip(path))
    return read_json(path, most=MAX_LIST_BYTES)


def _lists_in_lines(path: Path) -> dict[str, Any] | None:
    """The lists of a file with an object in each line, by query; None where the first one has no
    query and list, or a line is no object. A line without a query is passed over, one without a
    list has None, with which the file is no run.
    """
    if is_compressed(path):
        text = read_gzip(path).decode("utf-8-sig")
    else:
        # larger than a list with a record per item: each line has all that a query retrieved
        text = read_text(path, most=8 * MAX_LIST_BYTES)
    lines = [line for line in text.split("\n") if line.strip()]
    first = parse_json(lines[0]) if lines else None
    if not isinstance(first, dict):
        return None
    # the keys of the first object that have a name for a query, and for a list
    query = words.first_of(list(first), words.QUERIES)
    held = words.first_of(list(first), words.LISTS)
    if not query or not held:
        return None
    records = [parse_json(line) for line in lines]
    if not all(isinstance(record, dict) for record in records):
        return None
    return {str(record[query]): record.get(held) for record in records if query in record}


def _as_run(content: Any) -> Lists | None:
    """The lists by query of a JSON value, the `content` of a file, that is a run: items with
    scores, {"a": 0.9}, or items in their order; records become scores by item. None for any other
    value."""
    if not isinstance(content, dict) or not content or not any(content.values()):
        return None  # lists that are all empty tell of no run
    lists = content.values()
    if all(isinstance(held, dict) and _are(NUMBERS, held.values()) for held in lists):
        return content
    if all(isinstance(held, list) and _are(NAMES, held) for held in lists):
        return content
    # all lists must be of one kind
    scores = {query: _scores_of(held) for query, held in content.items()}
    return None if None in scores.values() else scores


def _scores_of(records: Any) -> dict[str, float] | None:
    """The scores by item of a list of records such as {"id": "a", "score": 0.9}; None for anything
    else, also where an item is listed twice: then it is not clear which score counts.
    """
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        return None
    found: dict[str, float] = {}
    for record in records:
        names = list(record)
        item = words.first_of(names, (*words.RETRIEVED, *words.SURE_IDS))
        score = words.first_of(names, words.SCORES)
        if (
            not item
            or not score
            or not _are(NUMBERS, [record[score]])
            or str(record[item]) in found
        ):
            return None
        found[str(record[item])] = record[score]
    return found


def _are(types: Collection[type], values: Iterable[Any]) -> bool:
    """Whether all values are of these very types: True and False are no numbers."""
    return all(type(value) in types for value in values)


def _lines(path: Path, content: Lists) -> Lines:
    """The lines, one per listed item, of a run: from each query to its list, best first, or to
    items with scores; `path` is for errors."""
    pairs = [(query, str(item)) for query, held in content.items() for item in held]
    items = pa.chunked_array([pa.array([item for _, item in pairs], pa.large_string())])
    # all lists are of one kind (`_as_run`): names in order, or scores by name
    if isinstance(next(iter(content.values())), list):
        queries = pa.array(list(content), pa.large_string())
        # the place of the query of each line
        of = np.repeat(np.arange(len(content)), [len(held) for held in content.values()])
        return Lines(queries, of, items.combine_chunks(), None, form="JSON lists of items by query")

    names = pa.chunked_array([pa.array([query for query, _ in pairs], pa.large_string())])
    scores = np.array([score for held in content.values() for score in held.values()], np.float64)
    found = lines_with_scores(path, names, items, scores)
    return Lines(
        found.queries,
        found.of,
        found.items,
        found.scores,
        form="JSON scores of items by query",
        order=found.order,
    )
