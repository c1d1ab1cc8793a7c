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
    """What is suspicious in the labels of a dataset.

    Attributes:
        suspects: a row per suspect, best first within the lists far and near.
        copies: pairs of items that are nearly the same, under other labels or in other splits.
        completions: items whose labels end early, with what their neighbours say.
        merges: pairs of siblings that are not told apart.
        lists: the two lists, with the curves of their sureness.
        groups: classes many of whose items are said to be one other class, the largest first.
        pool: the items of all splits.
        votes: their neighbours.
        remarks: what is left out, and what cannot be trusted.
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
        """The numbers of what was found."""
        parts = []
        for each in self.lists:
            # of items in groups, and where nothing is to be trusted, sureness is NaN: not counted
            sure = int((each.sureness >= 0.9).sum())
            words = f"{sure:,} at least 90 % sure"
            bounds = in_words(each)
            words += f", {bounds}" if bounds else ""
            parts.append(f"{len(each.items):,} {each.kind} suspects ({words})")
        parts.append(f"{len(self.groups):,} groups of one class that look like one other")
        parts.append(f"{len(self.copies):,} copies")
        parts.append(f"{len(self.completions):,} completions")
        parts.append(f"{len(self.merges):,} pairs of siblings to merge")
        return ", ".join(parts)

    def summary(self) -> dict[str, Any]:
        """The numbers as plain values, with the expected numbers of wrong labels.

        Keys are those of audit.json. By list, "far" and "near": how many suspects are listed, and
        how many labels are wrong at least and at most, also beyond the list, None where that is
        not said.
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
            "copies_under_other_labels": _number(self.copies, "label", "copy_label"),
            "copies_across_splits": _number(self.copies, "split", "copy_split"),
            "levels_held_out": list(held_out(self.pool)),
            "completions": len(self.completions),
            "merges": len(self.merges),
            "remarks": list(self.remarks),
        }

    def _of_group(self, group: SuspectGroup) -> dict[str, Any]:
        """A group as plain values: the names of both classes, the level at which they part, and the
        items' own ids."""
        label, proposed = group.label, group.proposed  # classes, by number
        return {
            "label": self.pool.labels[label],
            "proposed": self.pool.labels[proposed],
            # so many levels are shared from the top: the next one is the first that differs
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

    All splits are taken together. Two lists of suspects: far ones, whose neighbours say another
    branch of the tree, and near ones, whose neighbours say a sibling (docs/audit.md).

    Args:
        vectors: an embedding file of the items, of a net that was not trained on these labels, or,
            with `ids`, vectors (N, D).
        dataset: a name, a folder, a table, or what `hbench.load` returns.
        ids: (N,), of vectors in memory.
        neighbours: how many of each item, at least 3. Default: 10.
        similarity: as in `hbench.score`. Default: the dataset's.
        most: suspects of each list at most. Default: 1,000.
        on_block: is called with the number of blocks ranked and of all blocks.

    Returns:
        An Audit: `suspects`, `copies`, `completions`, `merges`, `write(folder)`.

    Raises:
        SubmissionError: vectors that cannot be ranked, or items without one.
        UsageError: too few items or neighbours, or items of several paths.
        UnknownName: a dataset or similarity that does not exist.
    """
    if neighbours < 3 or most < 1:  # of one or two votes nothing usual of a class can be learned
        raise UsageError(
            "an audit needs neighbours and suspects",
            expected="neighbours ≥ 3, most ≥ 1",
            found=f"neighbours {neighbours}, most {most}",
        )
    given: Any = vectors
    if ids is not None:
        given = joined(as_ids(ids, "ids"), as_vectors(given, "vectors"))
    elif isinstance(given, str | Path):
        given = embedding_files.read(Path(given))
    elif not isinstance(given, Embeddings):
        raise UsageError(
            "vectors in memory need the names of their items",
            expected="ids, one of each row, as the items of the dataset",
            fix="hbench.audit(vectors, dataset, ids=…)",
        )

    data = dataset if isinstance(dataset, Dataset) else load(dataset)
    if similarity is None:
        similarity = data.protocol.similarity
    # no score is asked for: the items are ranked, and R@1 is the metric that costs least beside it
    conditions = Settings("R@1", similarity=similarity).resolve(data.levels)
    pool = pool_of(data, given, cosine=conditions.words.similarity == "cosine")
    nearest = nearest_of(pool, conditions, neighbours, on_block)
    # nodes and known levels of every class, and the class of every item
    labelled = (pool.manifest.tree.paths.astype(np.int64), pool.known, pool.classes)
    # `nearest` has 2 k items, since copies among them have no vote
    votes, distances = votes_of(labelled, nearest, neighbours)
    lists, groups = suspects_of(votes, distances, most=most)
    copies = copies_of(pool, votes, nearest.first(neighbours))
    return Audit(
        table_of(pool, lists, votes),
        copies,
        completions_of(pool, votes),
        merges_of(pool, votes),
        lists,
        groups,
        pool,
        votes,
        (*pool.remarks, *_remarks_on_lists(lists), *_remark_on_copies_across_splits(pool, copies)),
    )


def in_words(suspects: SuspectList) -> str:
    """How many labels are wrong, at least and at most; empty where nothing is to be trusted
    (`at_least` is None). `at_most` alone is None where some mistakes could not be seen.

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
    """Say where sureness is not to be trusted, and which mistakes would not be seen; nothing of a
    list of which neither is so. `lists`: the far and the near one."""
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
    """The levels, by name, at which no split of the `pool`, all items of a dataset, has a node of
    another: what the split promises to hold out."""
    labels = pool.manifest.labels
    splits = np.unique(pool.split.astype(str), return_inverse=True)[1]
    if splits.max(initial=0) == 0:  # a single split holds nothing out
        return ()
    found = []
    for level, name in enumerate(pool.manifest.levels):
        pairs = np.unique(np.stack([labels[:, level], splits]), axis=1)
        # every node stands in one pair, and so in one split
        if len(np.unique(pairs[0])) == pairs.shape[1]:
            found.append(name)
    return tuple(found)


def _remark_on_copies_across_splits(pool: Pool, copies: pa.Table) -> list[str]:
    """Say how many copies lie on both sides of a split that holds a level out; nothing where no
    level is held out, since such a split promises nothing, or no copy lies so. `copies`: a row per
    pair, with the split of each."""
    levels = held_out(pool)
    across = _number(copies, "split", "copy_split")
    if not levels or not across:
        return []
    return [
        f"the split holds {', '.join(levels)} out, and {across:,} pairs of nearly the same items "
        "lie on both sides of it: copies.csv has them"
    ]


def _number(table: pa.Table, first: str, second: str) -> int:
    """In how many rows two columns differ."""
    return int(pc.sum(pc.not_equal(table[first], table[second])).as_py() or 0)
