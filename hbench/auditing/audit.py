"""Audits the labels of a dataset by the vectors of a net that was not trained on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from hbench.auditing.copies import copies_of
from hbench.auditing.evidence import Votes
from hbench.auditing.groups import SuspectGroup
from hbench.auditing.names import completions_of, merges_of
from hbench.auditing.pool import Pool, nearest_of, pool_of
from hbench.auditing.repeats import votes_of
from hbench.auditing.suspects import SuspectList, suspects_of, table_of
from hbench.core.arguments import checked
from hbench.core.errors import UsageError
from hbench.core.files import write_text
from hbench.core.tables import write_sheet
from hbench.datasets import Dataset, load
from hbench.engine.settings import Settings
from hbench.engine.similarity import as_vectors
from hbench.submissions import embeddings as embedding_files
from hbench.submissions.embeddings import Embeddings, joined
from hbench.submissions.embeddings.ids import as_ids

NEIGHBOURS = 10
MOST = 1_000  # suspects of each list


@dataclass(frozen=True, repr=False)
class Audit:
    """Suspicious labels of a dataset, and other findings of an audit.

    Attributes:
        suspects: a row per suspect, best first within each of the lists far and near.
        copies: pairs of items that are nearly the same, but have other labels or are in other
            splits.
        completions: items whose labels end early, with the names that their neighbours propose.
        merges: pairs of siblings that cannot be told apart.
        lists: the far and the near list, with the curves of their sureness.
        groups: groups of items of one class that look like one other class, the largest first.
        pool: the items of all splits.
        votes: the neighbours of these items.
        remarks: sentences on splits that were left out, and on results that cannot be trusted.
    """

    suspects: pa.Table
    copies: pa.Table
    completions: pa.Table
    merges: pa.Table
    lists: tuple[SuspectList, SuspectList]
    groups: tuple[SuspectGroup, ...]
    pool: Pool
    votes: Votes
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Audit of {len(self.pool):,} items: {self.in_words()}>"

    def in_words(self) -> str:
        """The numbers of suspects and other findings, in words. For each list, also how many of its
        suspects are wrong with a probability (sureness) of at least .9, and the bounds on the
        number of wrong labels, if they can be trusted."""
        parts = []
        for each in self.lists:
            # the sureness of suspects in groups is NaN, as is every one that cannot be trusted; NaN
            # is not counted, since the comparison is False
            sure = int((each.sureness >= 0.9).sum())
            words = f"{sure:,} at least 90 % sure"
            bounds = in_words(each)  # the function of this module
            words += f", {bounds}" if bounds else ""
            parts.append(f"{len(each.items):,} {each.kind} suspects ({words})")
        parts.append(f"{len(self.groups):,} groups of one class that look like one other")
        parts.append(f"{len(self.copies):,} copies")
        parts.append(f"{len(self.completions):,} completions")
        parts.append(f"{len(self.merges):,} pairs of siblings to merge")
        return ", ".join(parts)

    def summary(self) -> dict[str, Any]:
        """The numbers of findings as plain values, with the keys of audit.json.

        The lists "far" and "near" (suspects whose right class seems to have another parent than the
        label, or to be a sibling) have the number of listed suspects, and bounds on the number of
        wrong labels, including those beyond the list; None where no bound is known. Levels are held
        out if no node has items in two splits. Groups are items of one class that all seem to
        belong to one other class, with the names of both. Completions are items whose labels end
        early, with names for the rest; merges are pairs of siblings that cannot be told apart.
        """
        lists = {
            each.kind: {
                "suspects": len(each.items),
                "wrong_labels_at_least": each.at_least,
                "wrong_labels_at_most": each.at_most,
                "is_calibrated": each.curve.is_trusted,
            }
            for each in self.lists
        }
        splits = dict(zip(*np.unique(self.pool.split.astype(str), return_counts=True), strict=True))
        return {
            "items": len(self.pool),
            "splits": {str(name): int(number) for name, number in splits.items()},
            "neighbours": self.votes.k,
            **lists,
            "groups": [self._of_group(each) for each in self.groups],
            "copies": len(self.copies),
            # numbers of rows in which the two columns differ
            "copies_under_other_labels": _number(self.copies, "label", "copy_label"),
            "copies_across_splits": _number(self.copies, "split", "copy_split"),
            "levels_held_out": list(held_out(self.pool)),
            "completions": len(self.completions),
            "merges": len(self.merges),
            "remarks": list(self.remarks),
        }

    def _of_group(self, group: SuspectGroup) -> dict[str, Any]:
        """A group as plain values: the names of both classes, the first level at which they differ,
        and the ids of the items."""
        label, proposed = group.label, group.proposed  # indices of classes
        return {
            "label": self.pool.labels[label],
            "proposed": self.pool.labels[proposed],
            # the number of levels shared from the top is the index of the first that differs
            "level": self.pool.manifest.levels[int(self.votes.common(label, proposed))],
            "items": self.pool.manifest.items[group.items].tolist(),
        }

    def write(self, folder: str | Path) -> None:
        """Write suspects.csv, copies.csv, completions.csv, merges.csv and audit.json."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for name in ("suspects", "copies", "completions", "merges"):
            write_sheet(getattr(self, name), path / f"{name}.csv")
        text = json.dumps(self.summary(), indent=2, ensure_ascii=False)
        write_text(path / "audit.json", text + "\n")


@checked
def audit(
    vectors: str | Path | Embeddings | ArrayLike,
    dataset: str | Path | Dataset,
    *,
    ids: Sequence[str] | None = None,
    neighbours: int = NEIGHBOURS,
    similarity: str | None = None,
    most: int = MOST,
    on_block: Callable[[int, int], None] | None = None,
) -> Audit:
    """Find wrong labels, copies and doubtful names by the nearest neighbours of every item.

    All splits are examined together. There are two lists of suspects: far ones, whose neighbours
    propose another branch of the tree, and near ones, whose neighbours propose a sibling
    (docs/audit.md).

    Args:
        vectors: an embedding file of the items, from a net that was not trained on these labels;
            or, with `ids`, vectors (N, D).
        dataset: a name, a folder, a table, or the result of `hbench.load`.
        ids: the ids of vectors in memory, (N,).
        neighbours: the number of neighbours of each item, at least 3. Default: 10.
        similarity: as in `hbench.score`. Default: the dataset's.
        most: the largest number of suspects in each list. Default: 1,000.
        on_block: is called with the number of ranked blocks, and the number of all blocks.

    Returns:
        An Audit with `write(folder)` and the tables `suspects`, `copies`, `completions` (names for
        the rest of labels that end early) and `merges` (siblings that cannot be told apart).

    Raises:
        SubmissionError: vectors that cannot be ranked, or items without one.
        UsageError: too few items or neighbours, or items of several paths.
        UnknownName: a dataset or similarity that does not exist.
    """
    if neighbours < 3 or most < 1:  # one or two votes do not show what is usual for a class
        raise UsageError(
            "an audit needs neighbours and suspects",
            expected="neighbours ≥ 3, most ≥ 1",
            found=f"neighbours {neighbours}, most {most}",
        )
    given = _embeddings_of(vectors, ids)
    data = dataset if isinstance(dataset, Dataset) else load(dataset)
    if similarity is None:
        similarity = data.protocol.similarity
    # only the neighbours are needed, and R@1 is the cheapest metric to compute while ranking
    conditions = Settings("R@1", similarity=similarity).resolve(data.levels)
    pool = pool_of(data, given, cosine=conditions.words.similarity == "cosine")
    nearest = nearest_of(pool, conditions, neighbours, on_block)
    # the paths (C, L) and known levels (C,) of the classes, and the class of every item (N,)
    labelled = (pool.manifest.tree.paths.astype(np.int64), pool.known, pool.classes)
    # `nearest` has the 2 k nearest items of each item, k = `neighbours`: twice as many as vote,
    # since the copies among them do not vote. Copies are looked for among the first k.
    votes, distances = votes_of(labelled, nearest, neighbours)
    lists, groups = suspects_of(votes, distances, most=most)
    copies = copies_of(pool, votes, nearest.first(neighbours))
    return Audit(
        suspects=table_of(pool, lists, votes),
        copies=copies,
        completions=completions_of(pool, votes),
        merges=merges_of(pool, votes),
        lists=lists,
        groups=groups,
        pool=pool,
        votes=votes,
        remarks=(
            *pool.remarks,
            *_remarks_on_lists(lists),
            *_remark_on_copies_across_splits(pool, copies),
        ),
    )


def _embeddings_of(
    vectors: str | Path | Embeddings | ArrayLike, ids: Sequence[str] | None
) -> Embeddings:
    """The embeddings to audit: read from a file, or joined from vectors (N, D) and their `ids`
    (N,); embeddings are returned unchanged. Raises UsageError for vectors without ids."""
    given: Any = vectors
    if ids is not None:
        return joined(as_ids(ids, "ids"), as_vectors(given, "vectors"))
    if isinstance(given, str | Path):
        return embedding_files.read(Path(given))
    if isinstance(given, Embeddings):
        return given
    raise UsageError(
        "vectors in memory need the names of their items",
        expected="ids, one of each row, as the items of the dataset",
        fix="hbench.audit(vectors, dataset, ids=…)",
    )


def in_words(suspects: SuspectList) -> str:
    """The bounds on the number of wrong labels, in words. Empty if none can be trusted (`at_least`
    is None). If some mistakes could not be seen, `at_most` alone is None, and only the lower bound
    is given. A lower bound of 0 is left out, since it says nothing.

    >>> from types import SimpleNamespace as Like
    >>> in_words(Like(at_least=1_200, at_most=1_400)), in_words(Like(at_least=0, at_most=3))
    ('at least 1,200 and at most 1,400 wrong', 'at most 3 wrong')
    """
    if suspects.at_least is None:
        return ""
    ends = [f"at least {suspects.at_least:,}"] if suspects.at_least else []
    if suspects.at_most is not None:
        ends.append(f"at most {suspects.at_most:,}")
    return f"{' and '.join(ends)} wrong" if ends else ""


def _remarks_on_lists(lists: tuple[SuspectList, SuspectList]) -> list[str]:
    """A remark for each list whose probabilities of mistakes ("sureness") cannot be trusted, or in
    which some mistakes would remain unnoticed."""
    said = []
    for each in lists:
        if not each.curve.is_trusted:
            said.append(
                f"no sureness is said of {each.kind} suspects, their order alone: labels made "
                "wrong on purpose do not stand out enough by these vectors, or there are too few"
            )
        elif each.at_most is None:
            said.append(
                f"how many {each.kind} labels are wrong at most is not said: a class that is often "
                "taken for one other would not be seen by these vectors"
            )
    return said


def held_out(pool: Pool) -> tuple[str, ...]:
    """The names of the levels that the splits hold out: those at which no node has items in two
    splits."""
    labels = pool.manifest.labels  # (N, L): the node of every item at every level
    # (N,): the number of each item's split, from 0
    splits = np.unique(pool.split.astype(str), return_inverse=True)[1]
    if splits.max(initial=0) == 0:  # a single split holds nothing out
        return ()
    found = []
    for level, name in enumerate(pool.manifest.levels):
        # the different pairs of a node and a split; if each node has one pair, it is in one split
        pairs = np.unique(np.stack([labels[:, level], splits]), axis=1)
        if len(np.unique(pairs[0])) == pairs.shape[1]:
            found.append(name)
    return tuple(found)


def _remark_on_copies_across_splits(pool: Pool, copies: pa.Table) -> list[str]:
    """A remark on the number of copies in different splits. It is made only if the splits hold a
    level out, since there should be no such copies then. `copies` has a row per pair, with the
    split of each item."""
    levels = held_out(pool)
    across = _number(copies, "split", "copy_split")  # of pairs in which the splits differ
    if not levels or not across:
        return []
    return [
        f"the split holds {', '.join(levels)} out, and {across:,} pairs of nearly the same items "
        "lie on both sides of it: copies.csv has them"
    ]


def _number(table: pa.Table, first: str, second: str) -> int:
    """The number of rows in which two columns of a table differ."""
    return int(pc.sum(pc.not_equal(table[first], table[second])).as_py() or 0)
