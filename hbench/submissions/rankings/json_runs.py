"""Reads rankings in JSON: {"query": {"item": score}}, as ranx, pytrec_eval and BEIR hold a run, or
{"query": ["item", …]}, best first."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hbench.core.untrusted import LIST, parse_json, read_gzip, read_json
from hbench.sheets.dialect import is_compressed
from hbench.submissions.rankings.lines import Lines, scored

NUMBERS = (int, float)
NAMES = (str, int)


def reader(path: Path) -> Callable[[Path], Lines] | None:
    """The reader of a JSON file that is a run; None for any other."""
    try:
        content = parse_json(read_gzip(path)) if is_compressed(path) else read_json(path, most=LIST)
    except (ValueError, OSError):
        return None
    return (lambda _: _lines(path, content)) if _is_run(content) else None


def _is_run(content: Any) -> bool:
    if not isinstance(content, dict) or not content:
        return False
    lists = content.values()
    of_scores = all(isinstance(held, dict) and _are(NUMBERS, held.values()) for held in lists)
    of_names = all(isinstance(held, list) and _are(NAMES, held) for held in lists)
    return any(lists) and (of_scores or of_names)


def _are(types: Collection[type], values: Iterable[Any]) -> bool:
    """Whether all values are of these very types: True and False are no numbers."""
    return all(type(value) in types for value in values)


def _lines(path: Path, content: dict[str, Any]) -> Lines:
    pairs = [(query, str(item)) for query, held in content.items() for item in held]
    items = pa.chunked_array([pa.array([item for _, item in pairs], pa.large_string())])
    if isinstance(next(iter(content.values())), list):
        queries = pa.array(list(content), pa.large_string())
        of = np.repeat(np.arange(len(content)), [len(held) for held in content.values()])
        return Lines(queries, of, items.combine_chunks(), None, form="JSON lists of items by query")

    names = pa.chunked_array([pa.array([query for query, _ in pairs], pa.large_string())])
    scores = np.array([score for held in content.values() for score in held.values()], np.float64)
    found = scored(path, names, items, scores)
    return Lines(
        found.queries,
        found.of,
        found.items,
        found.scores,
        form="JSON scores of items by query",
        order=found.order,
    )
