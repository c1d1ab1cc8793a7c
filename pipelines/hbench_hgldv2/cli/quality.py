"""`quality`: quality.json, quality.svg, inconsistencies.csv."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from hbench.cli import terminal
from hbench.core.errors import DataError
from hbench.core.files import write_text
from hbench_hgldv2.artefact import made_by, read_rows, record_of, write, write_rows
from hbench_hgldv2.cli import options
from hbench_hgldv2.curation.replay import Placed
from hbench_hgldv2.grouping import cluster, quality, sweep
from hbench_hgldv2.grouping.encode import Vectors
from hbench_hgldv2.labels.label import Label
from hbench_hgldv2.work_folder import Work


@click.command()
@options.reference
@click.option(
    "--mapping", type=click.Path(path_type=Path, exists=True), help="Judge this mapping.csv instead of the clusters."
)
@options.as_json
@click.pass_obj
def command(work: Work, *, reference: Path | None, mapping: Path | None, as_json: bool) -> None:
    """Measure the clusters, or a mapping, against a reference mapping.

    \b
    hbench hgldv2 quality --reference mapping.csv
    """
    labels = work.labels()
    vectors = work.vectors(labels)
    reference = reference or (work / "mapping.csv" if (work / "mapping.csv").exists() else None)
    found = _groups(mapping) if mapping else {class_id: str(cluster) for class_id, cluster in work.clusters().items()}
    truth = _groups(reference) if reference else {}
    measures, recalls = measured(labels, found, truth)
    measures["without a reference"] = coherence(labels, vectors, found)
    if mapping is None:
        measures["without a reference"]["stability"] = _stability(work, labels, vectors)
    judged = [i for i, label in enumerate(labels) if label.class_id in truth]
    groups = [truth[labels[i].class_id] for i in judged]
    odd = quality.inconsistencies([labels[i].label for i in judged], groups, vectors[judged])
    _save(work, measures, recalls, odd, [path for path in (reference, mapping or work / "clusters.csv") if path])
    if as_json:
        terminal.show_json(measures)
        return
    for title, values in measures.items():
        terminal.show_table(title, ["measure", "value"], [(name, f"{value:.3f}") for name, value in values.items()])
    if recalls:
        worst = [(row.group, str(row.labels), f"{row.recall:.2f}", str(row.fragments)) for row in recalls[:15]]
        terminal.show_table("worst groups", quality.Recall._fields, worst)
    terminal.say(
        f"{sum(not row.repeats for row in odd)} questions to curators, the surest first, and {len(odd)} pairs of near labels "
        f"in different groups: {work / 'inconsistencies.csv'}"
    )


def measured(
    labels: Sequence[Label], found: dict[str, str], truth: dict[str, str]
) -> tuple[dict[str, dict[str, float]], list[quality.Recall]]:
    """The measures over labels that both have, unweighted and weighted by landmarks, and each group's recall."""
    shared = [label for label in labels if label.class_id in found and label.class_id in truth]
    ours, theirs = [found[label.class_id] for label in shared], [truth[label.class_id] for label in shared]
    weights = [label.landmarks for label in shared]
    measures = {"labels": quality.agreement_with(ours, theirs)} if shared else {}
    if any(weights):
        measures["landmarks"] = quality.agreement_with(ours, theirs, weights)
    return measures, quality.recalls(ours, theirs)


def coherence(labels: Sequence[Label], vectors: Vectors, found: dict[str, str]) -> dict[str, float]:
    """The mean silhouette and the lexical coherence of the labels that are grouped."""
    rows = [i for i, label in enumerate(labels) if label.class_id in found]
    own = [found[labels[i].class_id] for i in rows]
    return {
        "silhouette": float(quality.silhouettes(vectors[rows], own).mean()),
        "coherence": quality.lexical_coherence([labels[i].label for i in rows], own),
    }


def _stability(work: Work, labels: Sequence[Label], vectors: Vectors) -> float:
    """The stability of the work folder's clustering, with the settings its record tells."""
    record = record_of(work / "clusters.csv")
    if record is None:
        raise DataError("clusters.csv has no record", expected="the settings it was made with", fix="cluster again")
    settings = cluster.Settings(int(record.settings["k"]), int(record.settings["seed"]))
    algorithm = cluster.algorithms[str(record.settings["algorithm"])]
    return sweep.stability(list(sweep.refits([label.class_id for label in labels], vectors, algorithm, settings)))


def _groups(mapping: Path) -> dict[str, str]:
    return {row.class_id: row.group for row in read_rows(mapping, Placed) if row.status == "group"}


def _save(
    work: Work,
    measures: dict[str, dict[str, float]],
    recalls: list[quality.Recall],
    odd: list[quality.Inconsistency],
    inputs: list[Path],
) -> None:
    record = made_by("quality", [work / "labels.csv", work / "embeddings.npz", *inputs], {})
    text = json.dumps(
        {"measures": measures, "recalls": [row._asdict() for row in recalls]}, indent=1, ensure_ascii=False
    )
    write(work / "quality.json", record, {"pairs": len(odd)}, lambda path: write_text(path, text + "\n"))
    write(work / "quality.svg", record, {}, lambda path: sweep.recalls(path, recalls))
    write_rows(work / "inconsistencies.csv", odd, quality.Inconsistency, record=record, counts={"pairs": len(odd)})
