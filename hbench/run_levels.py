"""From a submitted ranking to level sequences: its queries and items are joined to a manifest by id.

A query's own id is left out of its list, as are the items of its ignore group, and what is below moves up. An item that
is not in the gallery, or stands in the list a second time, holds its rank and counts for nothing (Google Landmarks).

>>> from hbench import manifest
>>> from hbench.run_files import Ranking
>>> photos = manifest.from_names(["a", "b", "c"], [["x"], ["y"], ["x"]], levels=["class"])
>>> submitted = Ranking(np.array(["a"], object), np.array([0, 3]), np.array(["a", "b", "c"], object), None, "", "run")
>>> [sequence.ranks.tolist() for sequence in levels_of(submitted, photos)]  # c is second when a itself is left out
[[2], [], []]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hbench.canonical import canonical_order, level_ranges
from hbench.id_files import Ids
from hbench.manifest import Manifest
from hbench.problems import Problem, found, likely_cause
from hbench.ranking import LevelSequence, Ties, level_sequence, pessimistic
from hbench.run_files import Ranking
from hbench.tree import levels_of_pairs


def levels_of(ranking: Ranking, manifest: Manifest, *, ties: Ties = pessimistic) -> list[LevelSequence]:
    """One level sequence per query of the manifest, in its order; equal scores are ordered by `ties`.

    `counts` are those of the whole gallery: positives that a list does not hold are in them alone, and a query without
    a list has no ranks.
    """
    tie_key = ties(manifest.tree.depth)
    start = dict(zip(ranking.queries.tolist(), ranking.offsets[:-1].tolist(), strict=True))
    end = dict(zip(ranking.queries.tolist(), ranking.offsets[1:].tolist(), strict=True))
    rows = _rows(ranking.items, manifest.items)
    scores = -np.arange(len(rows), dtype=np.float64) if ranking.scores is None else ranking.scores
    asked = np.flatnonzero(manifest.query).tolist()
    sequences = []
    for query, counts in zip(asked, _gallery_counts(manifest), strict=True):
        name = manifest.items[query]
        listed = np.arange(start.get(name, 0), end.get(name, 0))
        listed = listed[~_left_out(manifest, query, rows[listed])]
        levels = _levels(manifest, query, rows[listed])
        sequences.append(level_sequence(scores[listed], levels, counts, tie_key))
    return sequences


def hold_all_positives(sequences: Sequence[LevelSequence]) -> bool:
    """Whether every list holds all its query's positives, so that metrics of the full ranking can be computed."""
    return all(len(sequence.ranks) == sequence.counts[1:].sum() for sequence in sequences)


def problems(ranking: Ranking, manifest: Manifest, *, known: Collection[str] = ()) -> list[Problem]:
    """Every problem of a ranking at once; what the metrics define (a missing list, a repeat) is a remark.

    Items outside the gallery are a fault unless they are in the manifest or `known` elsewhere. Queries that are not
    asked are a fault when none is, or when they look like misspelt ones.
    """
    return [*_problems_of_queries(ranking, manifest), *_problems_of_items(ranking, manifest, known)]


def _problems_of_queries(ranking: Ranking, manifest: Manifest) -> list[Problem]:
    asked = manifest.items[manifest.query]
    missing = asked[_rows(asked, ranking.queries) < 0]
    unknown = ranking.queries[_rows(ranking.queries, asked) < 0]
    cause = likely_cause(missing.tolist(), unknown.tolist())
    fatal = cause is not None or len(unknown) == len(ranking)
    return [
        *found("queries without a list", missing, len(missing), "they score 0", fatal=False),
        *found(
            "unknown queries", unknown, len(unknown), cause or (None if fatal else "they are left out"), fatal=fatal
        ),
    ]


def _problems_of_items(ranking: Ranking, manifest: Manifest, known: Collection[str]) -> list[Problem]:
    encoded = pa.array(ranking.items, pa.string()).dictionary_encode()
    names = np.asarray(encoded.dictionary.to_numpy(zero_copy_only=False), dtype=object)
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    gallery = manifest.items[manifest.gallery]
    outside = names[_rows(names, gallery) < 0]
    elsewhere = (_rows(outside, manifest.items) >= 0) | (_rows(outside, list(known)) >= 0)
    unknown, other = outside[~elsewhere], outside[elsewhere]
    of = np.repeat(np.arange(len(ranking)), np.diff(ranking.offsets))
    first = np.unique(of * max(1, len(names)) + codes, return_index=True)[1]
    again = np.setdiff1d(np.arange(len(codes)), first)
    own = np.flatnonzero(ranking.items == ranking.queries[of])
    return [
        *found("unknown items", unknown, len(unknown), likely_cause(gallery.tolist(), unknown.tolist())),
        *found("items that are not in the gallery", other, len(other), "they count for nothing", fatal=False),
        *found(
            "items listed again for the same query", ranking.queries[of[again]], len(again),
            "a repeat holds its rank and counts for nothing", fatal=False,
        ),
        *found("queries in their own list", ranking.queries[of[own]], len(own), "they are left out of it", fatal=False),
    ]  # fmt: skip


def _levels(manifest: Manifest, query: int, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The level of every listed item (rows, -1 for none) with a query; 0 outside the gallery and for repeats."""
    levels = levels_of_pairs(manifest.labels[query : query + 1], manifest.labels[rows])[0]
    first = np.zeros(len(rows), bool)
    first[np.unique(rows, return_index=True)[1]] = True
    return np.where(first & (rows >= 0) & manifest.gallery[rows], levels, 0).astype(np.uint8)


def _left_out(manifest: Manifest, query: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows are the query itself or of its ignore group."""
    itself: NDArray[np.bool_] = rows == query
    if manifest.ignore is None or manifest.ignore[query] < 0:
        return itself
    return np.asarray(itself | ((rows >= 0) & (manifest.ignore[rows] == manifest.ignore[query])))


def _gallery_counts(manifest: Manifest) -> NDArray[np.int64]:
    """How many gallery items each query has per level, itself and its ignore group left out; (Q, L+1)."""
    asked, gallery = np.flatnonzero(manifest.query), np.flatnonzero(manifest.gallery)
    labels = manifest.labels[gallery]
    order = canonical_order(labels, np.zeros(len(gallery), np.uint64))
    starts, ends = level_ranges(manifest.labels[asked], labels[order])
    none = np.zeros(len(asked), np.int64)
    at_least = np.column_stack([none + len(gallery), ends - starts, none])
    counts = at_least[:, :-1] - at_least[:, 1:]
    for query, own in zip(asked.tolist(), counts, strict=True):
        group = gallery if manifest.ignore is not None and manifest.ignore[query] >= 0 else np.array([query])
        out = group[_left_out(manifest, query, group) & manifest.gallery[group]]
        own -= np.bincount(levels_of_pairs(manifest.labels[[query]], manifest.labels[out])[0], minlength=len(own))
    return counts


def _rows(names: Ids | Sequence[str], among: Ids | Sequence[str]) -> NDArray[np.int64]:
    """Where each name stands among others, -1 for nowhere."""
    found_at = pc.index_in(pa.array(names, pa.string()), value_set=pa.array(among, pa.string()))
    return np.asarray(found_at.fill_null(-1), dtype=np.int64)
