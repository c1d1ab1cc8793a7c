"""Reads rankings in JSON: {"query": {"item": score}}, as ranx, pytrec_eval and BEIR write a run,
{"query": ["item", …]}, best first, or {"query": [{"id": "item", "score": 0.9}, …]}. JSON lines,
{"query_id": "query", "hits": […]}, are read too, with any of these forms of lists."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hbench.core.untrusted import (
    MAX_LIST_BYTES,
    parse_json,
    parse_json_lines,
    read_gzip,
    read_json,
    read_text,
)
from hbench.sheets import sheet, words
from hbench.sheets.dialect import is_compressed, suffix_of
from hbench.submissions.rankings.lines import Lines, lines_with_scores

NUMBERS = (int, float)
NAMES = (str, int)
Lists = Mapping[str, Any]  # from a query's id to its list, in one of the forms that files have


def reader(path: Path) -> Callable[[Path], Lines] | None:
    """The function that reads a JSON file as a ranking; None if the file is no ranking, or cannot
    be read. Only the whole content tells this, so it is parsed here, and the returned function
    keeps it."""
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
    """The list of each query, from a file with a JSON object in each line; None if the first object
    has no query or no list, or if some line is no object.

    A line without a query is skipped. Of several lines of one query, the last counts. A line
    without a list gives None as the query's list, and then `_as_run` rejects the file.
    """
    if is_compressed(path):
        text = read_gzip(path).decode("utf-8-sig")
    else:
        # a larger limit than for other lists, since each line holds a query's whole list
        text = read_text(path, most=8 * MAX_LIST_BYTES)
    values = (value for _, value in parse_json_lines(text))
    first = next(values, None)
    if not isinstance(first, dict):
        return None
    # the keys of the first object under which all objects store the query and the list
    query_key = words.first_of(list(first), words.QUERIES)
    list_key = words.first_of(list(first), words.LISTS)
    if not query_key or not list_key:
        return None
    records = [first, *values]
    if not all(isinstance(record, dict) for record in records):
        return None
    return {
        str(record[query_key]): record.get(list_key) for record in records if query_key in record
    }


def _as_run(content: Any) -> Lists | None:
    """The list of each query, if the JSON value `content` is a run; None for any other value.

    All lists have one form: items with scores, {"a": 0.9}, or items in order, ["a", "b"]. Lists of
    records are converted to items with scores.
    """
    if not isinstance(content, dict) or not content or not any(content.values()):
        return None  # if all lists are empty, nothing shows that this is a run
    lists = content.values()
    # `_are` tests the exact types, so True and False are no numbers
    if all(isinstance(held, dict) and _are(NUMBERS, held.values()) for held in lists):
        return content
    if all(isinstance(held, list) and _are(NAMES, held) for held in lists):
        return content
    # lists of records; None if some list is of another form
    scores = {query: _scores_of(held) for query, held in content.items()}
    return None if None in scores.values() else scores


def _scores_of(records: Any) -> dict[str, float] | None:
    """The score of each item in a list of records such as {"id": "a", "score": 0.9}; None for
    anything else. None also if an item is listed twice, since it is not clear which score counts.
    """
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        return None
    found: dict[str, float] = {}
    for record in records:
        # the keys by which tools call the item and its score
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
    """Whether every value has exactly one of these types. Subclasses do not count, so that True and
    False are no numbers."""
    return all(type(value) in types for value in values)


def _lines(path: Path, content: Lists) -> Lines:
    """The lines, one per listed item, of a run. `content` is the list of each query, as `_as_run`
    returns it: either all queries have items in order, best first, or all have items with scores.
    `path` is for errors."""
    pairs = [(query, str(item)) for query, held in content.items() for item in held]
    # chunked, as `lines_with_scores` takes columns of tables
    items = pa.chunked_array([pa.array([item for _, item in pairs], pa.large_string())])
    # all lists have the form of the first
    if isinstance(next(iter(content.values())), list):
        queries = pa.array(list(content), pa.large_string())
        # the index in `queries` of each line's query
        of = np.repeat(np.arange(len(content)), [len(held) for held in content.values()])
        return Lines(
            queries=queries,
            of=of,
            items=items.combine_chunks(),
            scores=None,
            form="JSON lists of items by query",
        )

    names = pa.chunked_array([pa.array([query for query, _ in pairs], pa.large_string())])
    scores = np.array([score for held in content.values() for score in held.values()], np.float64)
    found = lines_with_scores(path, names, items, scores)
    return Lines(
        found.queries,
        found.of,
        found.items,
        found.scores,
        form="JSON scores of items by query",
        order=found.order,  # in words: by score; the default is "in the order of the lists"
    )
