"""A work folder: the files the steps hand to each other, one name each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hbench.datasets.benchmarks.gldv2 import LABELS
from hbench_hgldv2.artefact import checked, read_rows
from hbench_hgldv2.curation import decisions_file
from hbench_hgldv2.curation.decisions import Decisions
from hbench_hgldv2.grouping import encode
from hbench_hgldv2.grouping.cluster import Clustered
from hbench_hgldv2.grouping.encode import Vectors
from hbench_hgldv2.grouping.suggest import suggest
from hbench_hgldv2.labels.label import Label

GROUP = "group:"  # the id prefix of group names among the embeddings
SPLITS = ("train", "index")


@dataclass(frozen=True)
class Work:
    """The files of one rebuild, below `folder`."""

    folder: Path

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def hierarchy(self, split: str) -> Path:
        """The assembled five-column file of a split, where hbench's build looks for the released one."""
        return self.folder / "hierarchy" / LABELS.format(split)

    def assigned(self, split: str) -> Path:
        """The landmarks of a split that images gave a super-category; ids of train and index are different spaces."""
        return self.folder / f"assigned_{split}.csv"

    def labels(self) -> list[Label]:
        return read_rows(self / "labels.csv", Label)

    def vectors(self, labels: Sequence[Label]) -> Vectors:
        return encode.load(checked(self / "embeddings.npz"), labels)

    def clustered(self) -> list[Clustered]:
        return read_rows(self / "clusters.csv", Clustered)

    def clusters(self) -> dict[str, int]:
        return {row.class_id: row.cluster for row in self.clustered()}

    def decisions(self, path: Path | None = None) -> Decisions:
        """The decisions at `path`, or those in the folder, or none yet."""
        default = self / "decisions.yaml"
        return decisions_file.load(path or default) if path or default.exists() else Decisions()

    def suggestions(self, labels: Sequence[Label], decided: dict[str, str]) -> dict[str, tuple[str, ...]]:
        """Up to three groups per label: the nearest among the encoded group names and the labels decided so far."""
        path = self / "embeddings.npz"
        if not path.exists():
            return {}
        names = group_names(path)
        known = [label for label in labels if label.class_id in decided]
        anchors = [*(Label(GROUP + name, name, 0, 0, 0, ()) for name in names), *known]
        if not anchors:
            return {}
        groups = [*names, *(decided[label.class_id] for label in known)]
        found = suggest(self.vectors(labels), encode.load(path, anchors), groups)
        return {label.class_id: best for label, best in zip(labels, found, strict=True)}


def group_names(path: Path) -> list[str]:
    """The group names whose vectors are in an embeddings file."""
    return [name.removeprefix(GROUP) for name in encode.ids_of(path) if name.startswith(GROUP)]


def told(what: str, counts: Mapping[str, int]) -> str:
    """Counts per reason in one line, for a remark.

    >>> told("landmarks", {"kept": 1200, "dropped": 3})
    'landmarks: 3 dropped, 1,200 kept'
    """
    return f"{what}: " + ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
