"""Makes the review page: the clusters as one self-contained HTML file, for curators to decide on.

Its cards are ordered by landmarks, in each the most doubtful label comes first, with suggestions and examples. The page
exports decisions.yaml.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from hbench_hgldv2.curation.decisions import Decisions, Inputs
from hbench_hgldv2.curation.replay import Curation, replay
from hbench_hgldv2.grouping.cluster import Clustered
from hbench_hgldv2.labels.label import Label, digest, partition_digest

PAGE = Path(__file__).with_name("page")
SCRIPTS = (
    "model.js",
    "view.js",
    "cards.js",
    "grid.js",
    "actions.js",
    "picker.js",
    "marks.js",
    "compare.js",
    "input.js",
)
FACTS = (
    "class id", "in train", "in index", "ambiguous", "cluster", "cluster name", "distance", "silhouette",
    "nearest cluster", "margin", "outlier", "co-association", "suggestions", "subclass of", "examples",
)  # fmt: skip
KEYS = {
    "Go": (
        ("↓ ↑ j k", "next, previous label"),
        ("→ ← l h", "next, previous card"),
        ("/", "search"),
        ("i", "all that is known of the label"),
    ),
    "Select": (
        ("x Space", "the label; Shift+click: a range; Ctrl+click: in other cards too"),
        ("a", "all of the card"),
    ),
    "Undo and keep": (
        ("u Ctrl+Z", "undo; y or Ctrl+Shift+Z: redo"),
        ("c", "say why: a comment on the last decision"),
        ("Shift+H", "all decisions"),
        ("e", "export decisions.yaml"),
        ("?", "this table"),
    ),
    "Decide": (
        ("Enter 1 2 3", "take a suggestion: for the whole cluster, or for the selected labels"),
        ("n", "name the cluster; r: rename the group"),
        ("m", "move the selected labels (or drag them onto a group)"),
        ("s", "split the selected labels off their group"),
        ("g", "merge this card into a group"),
        ("d", "drop the selected labels; Shift+D: the whole cluster"),
        ("b", "the selected labels are ambiguous: both this and that"),
        ("t", "natural ↔ human-made"),
        ("= !", "the selected labels belong together; must not be together"),
        ("v", "approve the group as it is"),
        ("q", "what you and another reviewer disagree on"),
    ),
}


class Second(NamedTuple):
    """Another reviewer of the same labels, to compare with: a name, and the decisions."""

    name: str
    decisions: Decisions


class Material(NamedTuple):
    """What is reviewed: labels, how they are clustered, suggested groups by class id, the groups' known
    kinds, decisions so far, each class's path in the taxonomy, where one was made, and another reviewer's decisions.
    """

    labels: Sequence[Label]
    clustered: Sequence[Clustered]
    suggestions: Mapping[str, Sequence[str]]
    known_kinds: Mapping[str, str]
    decisions: Decisions
    ancestors: Mapping[str, str] = MappingProxyType({})
    second: Second | None = None

    @property
    def clusters(self) -> dict[str, int]:
        return {row.class_id: row.cluster for row in self.clustered}


def page(material: Material, *, title: str = "Review of super-categories", made_with: Inputs | None = None) -> str:
    """The review as one HTML document without any outside resource; labels are text in it, whatever they contain."""
    text = json.dumps(content(material, made_with or Inputs()), ensure_ascii=False)
    safe = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE), autoescape=True, undefined=jinja2.StrictUndefined
    )
    scripts = "\n".join((PAGE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return environment.get_template("review.html.jinja").render(
        title=title,
        keys=KEYS,
        data=Markup(safe),
        css=Markup((PAGE / "review.css").read_text(encoding="utf-8")),
        script=Markup(scripts),
    )


def content(material: Material, made_with: Inputs) -> dict[str, Any]:
    """The page's data: labels in the order of the clusters, and the state the decisions so far lead to."""
    curation = replay(material.labels, material.clusters, material.decisions)
    by_id = {label.class_id: label for label in material.labels}
    return {
        "inputs": inputs_of(material, made_with).model_dump(exclude_none=True),
        "labels": [_entry(rank, by_id[row.class_id], row, material) for rank, row in enumerate(material.clustered)],
        "facts": FACTS,
        "cluster_names": [name for _, name in sorted({(row.cluster, row.name) for row in material.clustered})],
        "known_kinds": dict(material.known_kinds),
        "places": _places(curation),
        "kinds": dict(curation.kinds),
        "other": _second(material),
        **material.decisions.model_dump(include={"groups", "decisions", "approvals"}, exclude_none=True, mode="json"),
    }


def inputs_of(material: Material, made_with: Inputs) -> Inputs:
    """The inputs a page's decisions are made over: these labels and clusters, unless earlier decisions were
    made over others.
    """
    if material.decisions.decisions:
        return material.decisions.inputs
    own = {
        "labels_sha256": digest(label.class_id for label in material.labels),
        "clusters_sha256": partition_digest(material.clusters),
    }
    return made_with.model_copy(update=own)


def _entry(rank: int, label: Label, row: Clustered, material: Material) -> dict[str, Any]:
    suggestions = material.suggestions.get(label.class_id, ())
    facts = (
        label.class_id,
        *(str(count) for count in (label.n_train, label.n_index, label.n_ambiguous)),
        str(row.cluster),
        row.name,
        f"{row.distance:.4f}",
        f"{row.silhouette:.4f}",
        str(row.nearest_cluster),
        f"{row.margin:.4f}",
        str(row.outlier),
        "" if math.isnan(row.coassociation) else f"{row.coassociation:.4f}",
        ", ".join(suggestions),
        material.ancestors.get(label.class_id, ""),
        ", ".join(label.examples),
    )
    return {
        "id": label.class_id,
        "label": label.label,
        "landmarks": label.landmarks,
        "cluster": row.cluster,
        "rank": rank,
        "silhouette": round(row.silhouette, 4),
        "outlier": row.outlier,
        "examples": list(label.examples),
        "suggestions": list(suggestions),
        "text": f"{label.label}\n{label.class_id}".lower(),
        "facts": facts,
    }


def _second(material: Material) -> dict[str, Any] | None:
    """Where the other reviewer has the labels."""
    if material.second is None:
        return None
    curation = replay(material.labels, material.clusters, material.second.decisions)
    return {"name": material.second.name, "places": _places(curation), "kinds": dict(curation.kinds)}


def _places(curation: Curation) -> dict[str, dict[str, str | bool]]:
    """Where labels are that some decision speaks of; `open` marks the ambiguous ones that are left open."""
    return {
        row.class_id: {"status": row.status, "group": row.group} | ({"open": True} if row.reason == "ambiguous" else {})
        for row in curation.rows
        if row.decided_by
    }
