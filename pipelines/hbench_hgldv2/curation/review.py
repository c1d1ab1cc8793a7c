"""Makes the review page: one self-contained HTML file with the clusters, in which curators decide.

Cards are ordered by landmarks. On each card, the most doubtful label comes first, with suggestions
and examples. The page exports decisions.yaml.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import jinja2
from markupsafe import Markup

from hbench.cli import terminal
from hbench.core.errors import UsageError
from hbench.core.files import write_text
from hbench.core.schema import build
from hbench.look.pages.folder import shared_asset
from hbench_hgldv2.artefact import csv_text, read_rows, record_of
from hbench_hgldv2.curation import decisions_file, pictures
from hbench_hgldv2.curation.decisions import Decisions, Inputs, kinds_named
from hbench_hgldv2.curation.decisions_file import DecisionsFile, decisions_in
from hbench_hgldv2.curation.pictures import Example
from hbench_hgldv2.curation.replay import Curation, replay, suggestions_for
from hbench_hgldv2.grouping import cluster, encode, taxonomy
from hbench_hgldv2.grouping.fit import Clustered
from hbench_hgldv2.labels import clean, own_table, released
from hbench_hgldv2.labels.clean import CleanedLandmark
from hbench_hgldv2.labels.kinds import LANDMARK_KINDS, OWN_KINDS, usual_kinds_first
from hbench_hgldv2.labels.label import Label, digest, partition_digest

PAGE = Path(__file__).with_name("page")
DEMO = Path(__file__).with_name("demo")
DEMO_CLUSTERS = 45  # for 29 groups
SCRIPTS = ("model", "view", "cards", "grid", "actions", "picker", "marks", "compare", "input")


class Material(NamedTuple):
    """The content of a review: the labels, their clusters, and what is known about them.

    Attributes:
        suggestions: suggested groups by class id.
        known_kinds: the kinds of the groups in the file of names, by group.
        decisions: the decisions so far.
        ancestors: the path of each class in the taxonomy, by class id; empty without a taxonomy.
        other: the name of another reviewer, "" without one.
        other_decisions: the decisions of this reviewer.
        usual_kinds: the kinds to choose from where no others are known.
        counted: the unit of the labels' counts, in the singular.
        examples: example pictures by class id.
    """

    labels: Sequence[Label]
    clustered: Sequence[Clustered]
    suggestions: Mapping[str, Sequence[str]]
    known_kinds: Mapping[str, str]
    decisions: Decisions
    ancestors: Mapping[str, str] = MappingProxyType({})
    other: str = ""
    other_decisions: Decisions = Decisions()
    usual_kinds: Sequence[str] = LANDMARK_KINDS
    counted: str = "landmark"
    examples: Mapping[str, Sequence[Example]] = MappingProxyType({})

    @property
    def clusters(self) -> dict[str, int]:
        return {row.class_id: row.cluster for row in self.clustered}


def run(
    work: Path,
    *,
    decisions: DecisionsFile = None,
    names: encode.Names = None,
    against: Annotated[
        Path | None,
        "Another reviewer's decisions.yaml: the page shows κ and what you two disagree on.",
    ] = None,
    raw: Annotated[
        Path | None,
        "Folder of GLDv2's metadata and images: with it the cards show example pictures.",
    ] = None,
    demo: Annotated[
        bool, "Try it: released labels, two reviewers, in the folder demo of the work folder."
    ] = False,
) -> None:
    """Write the review page.

    \b
    hbench hgldv2 review
    hbench hgldv2 review --against b.yaml
    hbench hgldv2 review --raw gldv2/raw
    hbench hgldv2 review --demo
    """
    if demo and raw is not None:
        raise UsageError(
            "the landmarks of the demo are not numbered as GLDv2's, and have no pictures",
            expected="either --demo or --raw",
        )
    if demo:
        # the demo has its own folder, so that no file of a real curation is touched
        work = work / "demo"
        make_demo(work)
        names = work / "names.csv"
        against = work / "released.yaml"

    material = _material(work, decisions, names, against)
    if raw is not None:
        material = material._replace(examples=_examples(work, raw, material))
    write_text(work / "review.html", page(material, made_with=_made_with(work)))
    terminal.say(
        f"open {work / 'review.html'}, decide, export decisions.yaml to {work}, then replay"
    )


def _material(
    work: Path, decisions: Path | None, names: Path | None, against: Path | None
) -> Material:
    """Read the content of a review from the files of the work folder.

    `decisions` is a file, None for that of the work folder, if there is one. `names` is a file of
    group names with their kinds, None for no names. `against` is the decisions file of another
    reviewer.
    """
    labels = read_rows(work / "labels.csv", Label)
    # for each label its cluster, and how well the label fits there
    clustered = read_rows(work / "clusters.csv", Clustered)
    decided = decisions_in(work, decisions)
    tree = work / "taxonomy.csv"
    # the suggestions for the remaining labels depend on the labels that people have decided
    placed = replay(labels, {row.class_id: row.cluster for row in clustered}, decided).placed()
    # class id -> its path in the taxonomy; the taxonomy is optional
    ancestors = taxonomy.paths(read_rows(tree, taxonomy.Node)) if tree.exists() else {}
    suggestions = suggestions_for(work, labels, placed)
    known_kinds = encode.kinds_in(names)  # group -> kind
    material = Material(labels, clustered, suggestions, known_kinds, decided, ancestors)

    if own_table.is_own(work / "labels.csv"):
        # for a curator's own table the kinds natural and human-made mean nothing, and the counts of
        # labels (`counted` is their unit) are of items, not of landmarks
        material = material._replace(usual_kinds=OWN_KINDS, counted="item")

    if against is not None:
        second = decisions_file.load(against)
        # the other reviewer's name is that of the last decision or, without one, the name of the
        # file
        reviewers = [decision.by for decision in second.decisions if decision.by]
        material = material._replace(
            other=reviewers[-1] if reviewers else against.stem, other_decisions=second
        )
    return material


def _examples(work: Path, raw: Path, material: Material) -> Mapping[str, Sequence[Example]]:
    """Choose example pictures of the landmarks on the cards. Raises UsageError for labels that have
    no landmarks."""
    if own_table.is_own(work / "labels.csv"):
        raise UsageError(
            "the labels are those of a table, and --raw has pictures of landmarks",
            expected="labels of scraped links or of a released file",
            fix="leave --raw out",
        )
    selection = read_rows(work / "selection.csv", CleanedLandmark)
    return pictures.examples_of(raw, selection, cards_of(material)).of_class


def cards_of(material: Material) -> list[list[str]]:
    """Return the class ids of each card with which the page starts. The cards, and the classes of
    each card, are ordered by landmarks, most first."""
    # class id -> {"status", "group", perhaps "open"}, for the classes that decisions name
    places = _places(replay(material.labels, material.clusters, material.decisions))
    landmarks = {label.class_id: label.landmarks for label in material.labels}
    # There is a card for every place that decisions use, and one for every cluster with its
    # undecided labels. The values of a place (status, group …) identify its card.
    members: Mapping[tuple[object, ...], list[str]] = defaultdict(list)
    for row in material.clustered:
        place = places.get(row.class_id)
        card = ("cluster", row.cluster) if place is None else ("place", *place.values())
        members[card].append(row.class_id)
    cards = [sorted(ids, key=lambda i: -landmarks[i]) for ids in members.values()]
    return sorted(cards, key=lambda ids: -sum(landmarks[i] for i in ids))


def make_demo(work: Path) -> None:
    """Run the steps before the review without a network. An existing decisions.yaml is kept.

    The labels are the 162 labels that are words among those of the released training landmarks
    (CC BY 4.0, Ramzi et al.), with one landmark each. The decisions of reviewer A are invented and
    half finished; those of the release stand for a second reviewer's.
    """
    # for each landmark its label, group (`hierarchical_label`) and kind (natural or human-made)
    table = DEMO / "train_label_to_hierarchical.csv"
    rows = released.read(table)
    clean.run(work, released=[("train", table)])
    # the names of groups that the review suggests, a line each: name, kind
    kinds = sorted({(row.hierarchical_label, row.natural_or_human_made) for row in rows})
    write_text(work / "names.csv", csv_text(kinds))
    encode.run(work, encoder="tfidf", names=work / "names.csv")
    cluster.run(work, k=DEMO_CLUSTERS, algorithm="ward")
    if not (work / "decisions.yaml").exists():
        write_text(work / "decisions.yaml", (DEMO / "decisions.yaml").read_text(encoding="utf-8"))
    labels = read_rows(work / "labels.csv", Label)
    write_text(work / "released.yaml", decisions_file.dumps(released.decisions_of([rows], labels)))


def _made_with(work: Path) -> Inputs:
    """Read the settings of the embeddings and of the clusters from their records. Return inputs
    without settings if one of the two files has no record, for example because it was made by
    hand."""
    encoding = record_of(work / "embeddings.npz")
    clustering = record_of(work / "clusters.csv")
    if encoding is None or clustering is None:
        return Inputs()
    settings = {
        **encoding.settings,
        **clustering.settings,
        # the record of embeddings calls the hash "weights"; it is "" where the encoder's name says
        # enough
        "weights_sha256": encoding.settings.get("weights") or None,
    }
    # decisions quote these settings, so that they can be told from decisions about other clusters
    kept = {name: settings.get(name) for name in Inputs.model_fields if name in settings}
    return build(Inputs, kept, source=f"the record of {work / 'clusters.csv'} or of its embeddings")


def page(
    material: Material,
    *,
    title: str = "Review of super-categories",
    made_with: Inputs | None = None,
) -> str:
    """Return the review as one HTML document without external resources; labels are escaped.
    `made_with` are the settings of the embeddings and clusters, which exported decisions quote."""
    text = json.dumps(content(material, made_with or Inputs()), ensure_ascii=False)
    # the JSON is inside a <script> element, which a label "</script>" would close
    safe = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE), autoescape=True, undefined=jinja2.StrictUndefined
    )
    # the scripts are joined in this order, the shared functions first
    own = ((PAGE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    scripts = "\n".join([shared_asset("review.js"), *own])
    return environment.get_template("review.html.jinja").render(
        title=title,
        data=Markup(safe),
        css=Markup((PAGE / "review.css").read_text(encoding="utf-8")),
        script=Markup(scripts),
    )


def content(material: Material, made_with: Inputs) -> dict[str, Any]:
    """Collect the page's data: the labels in the order of the clusters, and the state after the
    existing decisions. Each group has a kind: natural, human-made, or a word of the curator's own.

    `made_with` has the settings of the embeddings and clusters on this page.
    """
    # the group of each label, after the decisions of this curator, and after those of the other
    curation = replay(material.labels, material.clusters, material.decisions)
    other = replay(material.labels, material.clusters, material.other_decisions)
    # The page exports decisions together with the inputs (labels, clusters, settings) that they
    # were made on. Existing decisions keep the inputs that are stored with them; if there are none
    # yet, the inputs are those of this page.
    inputs = material.decisions.inputs
    if not material.decisions.decisions:
        labels = digest(label.class_id for label in material.labels)
        clusters = partition_digest(material.clusters)
        inputs = made_with.model_copy(update={"labels_sha256": labels, "clusters_sha256": clusters})

    by_id = {label.class_id: label for label in material.labels}
    # clusters are numbered from 0, so that the page finds the name of cluster i at index i
    names_of_clusters = sorted({(row.cluster, row.name) for row in material.clustered})
    return {
        "inputs": inputs.model_dump(exclude_none=True),
        "labels": [
            _entry(rank, by_id[row.class_id], row, material)
            for rank, row in enumerate(material.clustered)
        ],
        "cluster_names": [name for _, name in names_of_clusters],
        "known_kinds": dict(material.known_kinds),  # group -> kind, of names to suggest
        "kind_names": _kind_names(material),  # those to choose from
        "counted": material.counted,  # what a label's number counts: landmarks, or items
        "pictures": dict(material.examples),
        "places": _places(curation),
        "kinds": dict(curation.kinds),  # group -> kind, after the decisions
        "other": {"name": material.other, "places": _places(other), "kinds": dict(other.kinds)}
        if material.other
        else None,
        **material.decisions.model_dump(
            include={"groups", "decisions", "approvals"}, exclude_none=True, mode="json"
        ),
    }


def _kind_names(material: Material) -> list[str]:
    """List the kinds that a curator can choose from: those of the groups in the file of names and
    of both reviewers' groups. The usual kinds are added, except where these groups have kinds and
    none of them is usual."""
    kinds = [
        *material.known_kinds.values(),
        *kinds_named(material.decisions),
        *kinds_named(material.other_decisions),
    ]
    # a group in the file of names may have no kind, that is ""; the function adds the usual kinds
    return list(usual_kinds_first(filter(None, kinds), material.usual_kinds))


def _entry(rank: int, label: Label, row: Clustered, material: Material) -> dict[str, Any]:
    """Collect all data of the page about a label: its fields and those of its `row`, which says how
    the label fits its cluster, under their names, and what the page reads under other names.

    Numbers are rounded to four decimals; nan becomes None, since JSON has no nan. `rank` is the
    label's position among all labels in the order of the clusters.
    """
    facts: dict[str, Any] = {**label._asdict(), **row._asdict()}
    for name, value in row._asdict().items():
        if isinstance(value, float):
            facts[name] = None if math.isnan(value) else round(value, 4)
    return {
        **facts,
        "id": label.class_id,
        "landmarks": label.landmarks,  # computed, so not among the fields above
        "rank": rank,
        "suggestions": list(material.suggestions.get(label.class_id, ())),
        "subclass_of": material.ancestors.get(label.class_id, ""),
        # what the page's search looks through
        "text": f"{label.label}\n{label.class_id}".lower(),
    }


def _places(curation: Curation) -> dict[str, dict[str, str | bool]]:
    """Return {class id: {"status": …, "group": …}} for the labels that decisions name. A label that
    a decision names but leaves without a group has "open": True, too."""
    places: dict[str, dict[str, str | bool]] = {}
    for row in curation.rows:
        if not row.decided_by:  # no decision names the label
            continue
        places[row.class_id] = {"status": row.status, "group": row.group}
        if row.reason == "ambiguous":  # named by a decision, but in no group
            places[row.class_id]["open"] = True
    return places
