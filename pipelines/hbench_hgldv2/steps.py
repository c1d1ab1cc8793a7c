"""Lists the steps of the pipeline in order, with the module of each, its purpose, and the files
that it reads and writes.

The verbs of `hbench hgldv2`, their help, and the advice for a missing file are made from this
table. The tests compare the table with what the steps do. A file name in brackets is optional.

>>> maker("clusters.csv"), maker("notes.txt")
('cluster', None)
"""

from typing import NamedTuple


class PipelineStep(NamedTuple):
    """A step of the pipeline: the `module` that holds its `run`, what the step `does`, and the
    files that it `reads` and `writes`."""

    module: str
    does: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    @property
    def files(self) -> str:
        """The line about files in the step's help; "" for a step without files."""
        parts = [("reads", self.reads), ("writes", self.writes)]
        line = "; ".join(f"{verb} {', '.join(names)}" for verb, names in parts if names)
        return f"In the work folder it {line}." if line else ""


LABELLED = ("labels.csv", "embeddings.npz")
GROUPED = ("labels.csv", "clusters.csv")
HIERARCHY = (
    "hierarchy/metadata/train_label_to_hierarchical.csv",
    "hierarchy/metadata/index_label_to_hierarchical.csv",
)
ASSIGNED = ("assigned_train.csv", "assigned_index.csv")
STEPS = {
    "scrape": PipelineStep(
        "labels.scrape", "landmark → Commons category → Wikidata item → classes",
        writes=("links.csv", "classes.csv", "cache.sqlite"),
    ),
    "clean": PipelineStep(
        "labels.clean", "which landmarks keep a class, which are ambiguous or dropped, and why",
        ("links.csv", "classes.csv"), ("selection.csv", "labels.csv"),
    ),
    "encode": PipelineStep(
        "grouping.encode", "a unit vector per class label", ("labels.csv",), ("embeddings.npz",)),
    "cluster": PipelineStep(
        "grouping.cluster", "group the labels by their "
                            "vectors", (*LABELLED, "[decisions.yaml]"), ("clusters.csv",)
    ),
    "sweep": PipelineStep("grouping.sweep", "what each number of clusters would cost and "
                                            "give", LABELLED, ("sweep.csv",)),
    "review": PipelineStep(
        "curation.review", "the clusters as a page, for curators to decide on",
        (*GROUPED, "[embeddings.npz]", "[decisions.yaml]", "[taxonomy.csv]", "[selection.csv]"),
        ("review.html",),
    ),
    "decisions": PipelineStep(
        "labels.released", "a released hierarchy as decisions, to replay and dispute",
        ("[labels.csv]",), ("decisions.yaml",),
    ),
    "replay": PipelineStep(
        "curation.replay", "apply the curators' decisions", (*GROUPED, "decisions.yaml"),
        ("mapping.csv",)
    ),
    "agreement": PipelineStep("curation.agreement", "two curators: share, Cohen's κ, what to talk "
                                                    "about", GROUPED),
    "assemble": PipelineStep(
        "dataset.assemble", "the five-column files, the label tree, the card, the dataset",
        ("selection.csv", "mapping.csv", "[embeddings.npz]", *(f"[{name}]" for name in ASSIGNED)),
        ("hierarchy/", "hierarchy.csv", "card.md", "dataset/"),
    ),
    "statistics": PipelineStep(
        "dataset.statistics", "landmarks per super-category, images per landmark, "
                              "drawn", HIERARCHY, ("statistics.svg",)
    ),
    "taxonomy": PipelineStep(
        "grouping.taxonomy", "a tree of several levels from Wikidata's subclasses",
        ("labels.csv",), ("taxonomy.csv", "taxonomy_removed.csv"),
    ),
    "quality": PipelineStep(
        "grouping.quality", "measures against a reference, and without one",
        (*LABELLED, "clusters.csv", "[mapping.csv]"),
        ("quality.json", "quality.svg", "inconsistencies.csv"),
    ),
    "assign": PipelineStep(
        "dataset.assign", "images of unlabelled landmarks to "
                          "super-categories", (*LABELLED, "mapping.csv"), ASSIGNED
    ),
}  # fmt: skip


def maker(file: str) -> str | None:
    """Return the first step that writes a file of the work folder; None for any other file."""
    return next((name for name, step in STEPS.items() if file in step.writes), None)
