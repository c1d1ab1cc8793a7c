"""Combines the items of all splits of a dataset, with their vectors, and finds their nearest
neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import SubmissionError, UsageError, examples
from hbench.datasets import Dataset
from hbench.datasets.manifest import Manifest, from_names
from hbench.engine.settings import Conditions
from hbench.engine.sides import Side
from hbench.engine.similarity import SelectedRows
from hbench.engine.similarity.unit_vectors import unit_vectors
from hbench.engine.top_k import NO_ITEM, TopResults
from hbench.evaluation.measurement import OnBlock, Retrieval, job_of, measure
from hbench.sheets.paths import JOINED
from hbench.submissions import embeddings as embedding_files
from hbench.submissions.embeddings import Embeddings
from hbench.submissions.problems import refuse
from hbench.tree.names import class_rows
from hbench.tree.partial import known_levels, known_part

Indices = NDArray[np.int64]
PAIRS_AT_ONCE = 1 << 14  # pairs of vectors that are processed together


@dataclass(frozen=True)
class Pool:
    """Items of all splits with vectors, in the order of their names.

    Attributes:
        manifest: the items with their labels in one tree.
        split: the name of each item's split, (N,).
        vectors: of the items, (N, D).
        remarks: sentences on splits that are left out, with the reason.
    """

    manifest: Manifest
    split: NDArray[np.object_]
    vectors: SelectedRows
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.manifest)

    @property
    def classes(self) -> Indices:
        """The class of each item, as an index of the tree's paths, (N,)."""
        return self.manifest.labels[:, -1].astype(np.int64)

    @cached_property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """The names along the path of every class, coarse to fine, down to the last known one."""
        return tuple(map(known_part, class_rows(self.manifest.tree)))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The path of every class as one text."""
        return tuple(map(JOINED.join, self.paths))

    @property
    def known(self) -> Indices:
        """The number of known levels of every class, (C,)."""
        return known_levels(self.manifest.tree).astype(np.int64)


def pool_of(data: Dataset, vectors: Embeddings, *, cosine: bool) -> Pool:
    """Combine the splits of a dataset whose items have vectors. A split without any vector is left
    out, with a remark.

    Raises SubmissionError if some items of a split lack their vectors, an item is in two splits, or
    vectors cannot be ranked; UsageError if items have several paths. `cosine` tells whether the
    similarity is the cosine, so that no vector may be zero.
    """
    if any(manifest.more is not None for manifest in data.manifests.values()):
        raise UsageError(
            "an audit takes items of one path",
            found="items of several paths",
            fix="leave --several out",
        )

    members: list[Member] = []
    remarks = []
    known = set(vectors.ids.tolist())  # the items with a vector
    for name, manifest in data.manifests.items():
        reason = _left_out(manifest, known, data.levels)
        if reason:
            remarks.append(f"{name} is left out: {reason}")
        else:
            members += _members(name, manifest)

    _refuse_items([each.item for each in members], vectors, known, cosine=cosine)
    members.sort()  # by the item's id, so that the order does not depend on that of the splits
    joined = from_names(
        [each.item for each in members], [each.path for each in members], levels=data.levels
    )
    # `picture` opens the image of an item; the images of all splits are in the same folder, so the
    # function of any split opens those of all
    joined = replace(joined, picture=next(iter(data.tests.values())).picture)
    # (N,): the row of each item's vector; the vectors themselves are not copied
    places = embedding_files.align(vectors, joined.items)
    split = np.array([each.split for each in members], dtype=object)
    return Pool(
        manifest=joined,
        split=split,
        vectors=SelectedRows(vectors.vectors, places),
        remarks=tuple(remarks),
    )


class Member(NamedTuple):
    """An item with the names along its path, and its split."""

    item: str
    path: tuple[str, ...]
    split: str


def _members(split: str, manifest: Manifest) -> list[Member]:
    """The items of a split with the names along their paths. Each split has its own tree with its
    own node ids, so that splits can only be combined by names."""
    paths = class_rows(manifest.tree)
    pairs = zip(manifest.items.tolist(), manifest.labels[:, -1].tolist(), strict=True)
    return [Member(item=str(item), path=paths[label], split=split) for item, label in pairs]


def _left_out(manifest: Manifest, known: set[str], levels: tuple[str, ...]) -> str:
    """The reason why a split is left out; "" if it is not. `known` are the ids that have vectors,
    and `levels` those of the dataset."""
    if manifest.levels != levels:
        return f"its levels are {', '.join(manifest.levels)}"
    if not any(item in known for item in manifest.items.tolist()):
        return "the file has no vector of its items"
    return ""


def _refuse_items(items: list[str], vectors: Embeddings, known: set[str], *, cosine: bool) -> None:
    """Raise SubmissionError if there are no items to audit, if an item is in two splits, or if an
    item has no vector that can be ranked.

    `items` are all items of the audited splits. They are empty if no split is audited, as where the
    file has vectors of other items only. `known` are the ids that have vectors. With `cosine`,
    vectors of zeros are refused, too.
    """
    if not items:
        raise SubmissionError(
            f"{vectors.source} has no vector of the dataset's items",
            expected="ids as the items of the dataset",
            found=examples(vectors.ids),
        )
    distinct, counts = np.unique(np.array(items), return_counts=True)
    if (counts > 1).any():
        raise SubmissionError(
            f"{int((counts > 1).sum()):,} items are in several splits",
            expected="each item in one split",
            found=examples(distinct[counts > 1]),
        )
    wanted = np.array(items, dtype=object)
    refuse(
        vectors.source,
        embedding_files.problems(vectors, wanted=wanted, known=known, cosine=cosine),
    )


class Nearest(NamedTuple):
    """The m nearest other items of every item, nearest first."""

    items: Indices  # (N, m)
    cosines: NDArray[np.float64]  # of the vectors of both items, (N, m)

    def first(self, k: int) -> Nearest:
        """Only the k nearest items of every item."""
        return Nearest(self.items[:, :k], self.cosines[:, :k])


def nearest_of(
    pool: Pool,
    conditions: Conditions,
    k: int,
    on_block: OnBlock | None = None,
) -> Nearest:
    """Find the 2 k nearest other items of every item, or all if there are fewer, in one ranking
    pass. They are twice as many as vote, since copies do not vote, and others take their places.

    Raises UsageError for fewer than k + 1 items. `on_block` is called with the number of ranked
    blocks, and the number of all blocks.
    """
    if len(pool) <= k:
        raise UsageError(
            "there are too few items for so many neighbours",
            expected=f"more than {k}",
            found=f"{len(pool)}",
        )
    rows: Any = pool.vectors
    side = Side(rows, pool.manifest.labels)
    # without a gallery or own rows in one (None, None), the items rank each other
    job = job_of(
        Retrieval(queries=side, gallery=None, self_rows=None, ids=pool.manifest.items), conditions
    )
    top = TopResults(len(pool), min(2 * k, len(pool) - 1))
    # `top` collects the nearest items while the metrics of `conditions` are computed. The caller
    # asks for R@1 only, which needs the finest level alone, so that little is sorted.
    measure(replace(job, top=top), on_block=on_block)
    assert (top.items != NO_ITEM).all()  # there are more items than places to fill
    items = top.items.astype(np.int64)
    return Nearest(items, _cosines(pool.vectors, items))


def _cosines(vectors: SelectedRows, nearest: Indices) -> NDArray[np.float64]:
    """The cosine between every item and each of its nearest items, (N, m)."""
    found = np.empty(nearest.shape)
    # some items at a time, so that at most PAIRS_AT_ONCE vectors of nearest items are in memory
    step = max(1, PAIRS_AT_ONCE // nearest.shape[1])
    for start in range(0, len(nearest), step):
        some = slice(start, start + step)
        own = _unit(vectors, np.arange(len(nearest))[some])
        others = _unit(vectors, nearest[some].ravel()).reshape(*nearest[some].shape, -1)
        found[some] = np.einsum("nd,nmd->nm", own, others)
    return found


def _unit(vectors: SelectedRows, items: Indices) -> NDArray[np.float64]:
    """The vectors of items (m,) at length 1, (m, D)."""
    return unit_vectors(vectors.vectors[vectors.rows[items]], np.float64)
