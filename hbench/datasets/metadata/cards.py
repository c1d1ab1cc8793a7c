"""Describes a built dataset to other tools: in Croissant 1.0, and as a folder that
`datasets.load_dataset(FOLDER)` reads.

These files are written next to the manifests:

- `croissant.json`: JSON-LD with a record set per split and a field per column
  (https://docs.mlcommons.org/croissant/docs/croissant-spec.html).
- `README.md`: a card whose head names the splits.
- `huggingface/`: a parquet file per split, with the paths of the images and the labels as numbers
  with names.
- `eval.yaml`: makes a dataset on the Hugging Face hub a benchmark with leaderboards
  (https://huggingface.co/docs/hub/eval-results).
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hbench.core.files import write_text
from hbench.core.tables import write_parquet
from hbench.datasets.dataset import TEST, Dataset
from hbench.datasets.manifest import Manifest
from hbench.datasets.metadata.publications import bibtex, cited
from hbench.metrics.names import default_metrics, parse_metrics

CROISSANT = "croissant.json"
CARD = "README.md"
FILES = "huggingface"
BENCHMARK = "eval.yaml"
MARK = "<!-- written by hbench build -->"  # a README.md without it was written by the user
BENCHMARK_MARK = "# written by hbench build"  # the same for eval.yaml
IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})  # the storage type of datasets.Image
TERMS = (  # terms of the vocabulary `cr`
    "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject",
    "fileSet", "format",
    "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet",
    "references", "regex",
    "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
CONTEXT = {  # appendix 1 of the specification, verbatim
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "sc": "https://schema.org/",
    **{term: f"cr:{term}" for term in TERMS},
}


def write_cards(dataset: Dataset, folder: Path) -> bool:
    """Write the descriptions for other tools into the folder of a saved dataset: croissant.json,
    the tables for Hugging Face below huggingface/, eval.yaml and README.md.

    A README.md or an eval.yaml that the user wrote is kept. Return True if the README.md was
    written, False if the user's was kept.
    """
    write_text(
        folder / CROISSANT,
        json.dumps(croissant(dataset, folder), indent=2, ensure_ascii=False) + "\n",
    )

    # splits with the same levels are one configuration of Hugging Face, with common class numbers
    for levels in {manifest.levels for manifest in dataset.manifests.values()}:
        splits = {
            name: manifest
            for name, manifest in dataset.manifests.items()
            if manifest.levels == levels
        }
        classes = []  # collected from all splits, so that a number means the same in each
        for level in range(len(levels)):
            names = {name for manifest in splits.values() for name in manifest.tree.names[level]}
            classes.append(sorted(names))
        for name, manifest in splits.items():
            write_parquet(
                _table_with_class_numbers(manifest, classes, dataset.root),
                folder / FILES / f"{name}.parquet",
            )

    # files that do not exist yet count as ours, too
    if _is_ours(folder / BENCHMARK, BENCHMARK_MARK):
        write_text(folder / BENCHMARK, benchmark_text(dataset))
    if not _is_ours(folder / CARD, MARK):
        return False
    write_text(folder / CARD, card_text(dataset))
    return True


def _is_ours(file: Path, mark: str) -> bool:
    """Whether a file may be written: it does not exist, or has the `mark` of hbench."""
    return not file.exists() or mark in file.read_text(encoding="utf-8", errors="replace")


def croissant(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """Describe a saved dataset in Croissant, as JSON values, with the checksums of the manifests in
    its `folder`."""
    # authors and year are those of the first paper that the dataset's card cites
    papers = cited(str(dataset.card.get("citation", "")))
    authors = papers[0].authors if papers else []
    sizes = ", ".join(
        f"{name}: {len(manifest):,} images" for name, manifest in dataset.manifests.items()
    )
    facts = {
        "description": f"{dataset.card.get('title', dataset.name)}. Hierarchical image retrieval "
        "with labels "
        f"{' / '.join(dataset.levels)}, coarse to fine, which form a tree. {sizes}.",
        "license": dataset.card.get("licence"),
        "url": dataset.card.get("homepage"),
        "citeAs": _bibtex(dataset),
        "datePublished": str(papers[0].year) if papers and papers[0].year else None,
        "creator": [  # an author is "Family, Given" in the list, and "Given Family" here
            {"@type": "sc:Person", "name": " ".join(reversed(name.split(", ")))} for name in authors
        ],
    }

    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": dataset.name,
        "version": _three_numbers(dataset.version),  # as Croissant requires
        **{name: value for name, value in facts.items() if value},
        "distribution": [
            _file_in_croissant(folder / f"{name}.parquet") for name in dataset.manifests
        ],
        "recordSet": [
            _records_in_croissant(name, manifest) for name, manifest in dataset.manifests.items()
        ],
    }


def _bibtex(dataset: Dataset) -> str:
    """Return the papers that a dataset's card cites, in BibTeX; "" if none is known."""
    papers = cited(str(dataset.card.get("citation", "")))
    return bibtex({paper.key: paper.cited[0] for paper in papers}).strip()


def _three_numbers(version: str) -> str:
    """Write a version with three numbers, as Croissant requires: "1" becomes 1.0.0, "1+3f2a90c1"
    becomes 1.0.0+3f2a90c1, and a version that is a digest becomes 0.0.0+digest."""
    number, plus, digest = version.partition("+")
    if not number.replace(".", "").isdigit():
        return f"0.0.0+{version}"
    return f"{number}{'.0' * (2 - number.count('.'))}{plus}{digest}"


def _file_in_croissant(path: Path) -> dict[str, str]:
    """Describe a parquet file in Croissant, with its size and checksum."""
    content = path.read_bytes()
    return {
        "@type": "cr:FileObject",
        **dict.fromkeys(("@id", "name", "contentUrl"), path.name),
        "contentSize": f"{len(content)} B",
        "encodingFormat": "application/x-parquet",
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _records_in_croissant(name: str, manifest: Manifest) -> dict[str, Any]:
    """Describe the split `name` in Croissant: a record set with a field per column of the split's
    parquet file. The item is the key of a record."""
    levels = {
        level: ("sc:Text", f"Class at level {place} of {len(manifest.levels)}, coarse to fine.")
        for place, level in enumerate(manifest.levels, start=1)
    }
    columns = {
        "item": ("sc:Text", "The image: its path below the folder of the images, or its id."),
        **levels,
        "query": ("sc:Boolean", "Whether it is a query."),
        "gallery": ("sc:Boolean", "Whether it is ranked."),
    }

    if manifest.ignore is not None:
        columns["ignore"] = (
            "sc:Integer",
            "Items of a query's group are left out of its list; -1 means no group.",
        )

    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{name}/{column}",
            "name": column,
            "description": description,
            "dataType": kind,
            "source": {"fileObject": {"@id": f"{name}.parquet"}, "extract": {"column": column}},
        }
        for column, (kind, description) in columns.items()
    ]
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "key": {"@id": f"{name}/item"},
        "field": fields,
    }


def _table_with_class_numbers(
    manifest: Manifest, classes: list[list[str]], root: Path | None
) -> pa.Table:
    """Make the table of a split for Hugging Face: item, image, a class number per level, query,
    gallery and perhaps ignore. The table's metadata say what the columns are.

    `classes`: for each level, the sorted names of all classes, whose places are the class numbers;
    `root`: the folder of the images, None if they are not on this disk.
    """
    columns: dict[str, pa.Array] = {"item": pa.array(manifest.items, pa.string())}
    features: dict[str, dict[str, Any]] = {"item": {"dtype": "string", "_type": "Value"}}
    # if the first item is a file, all are; a drawn image or a box in a picture is no file
    if root is not None and (root / str(manifest.items[0])).is_file():
        # a level may be called "image", too
        name = "image" if "image" not in manifest.levels else "image_file"
        paths = pa.array([str(root / item) for item in manifest.items], pa.string())
        # IMAGE has two fields, bytes and path; bytes stay null, as images are opened by their paths
        columns[name] = pa.StructArray.from_arrays(
            [pa.nulls(len(paths), pa.binary()), paths], fields=list(IMAGE)
        )
        features[name] = {"_type": "Image"}

    for level, names, nodes, labels in zip(
        manifest.levels, classes, manifest.tree.names, manifest.labels.T, strict=True
    ):
        # searchsorted gives, for each node of the tree, the place of its name among `names`
        columns[level] = pa.array(np.searchsorted(names, nodes)[labels])
        features[level] = {"names": names, "_type": "ClassLabel"}

    masks = {"query": manifest.query, "gallery": manifest.gallery, "ignore": manifest.ignore}
    for mask, values in masks.items():
        if values is not None:
            columns[mask] = pa.array(values)
            features[mask] = {"dtype": str(values.dtype), "_type": "Value"}

    return pa.table(columns).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )


def card_text(dataset: Dataset) -> str:
    """Write the card: a head in YAML, with values in JSON, which is valid YAML, and then facts for
    people. MARK, a comment, says that hbench wrote the card and may replace it.

    A training set with other levels than the tests (`dataset.levels`) is a separate configuration.
    """
    # {configuration of Hugging Face: the files of its splits}, which must have the same columns
    configurations: dict[str, list[dict[str, str]]] = {"default": []}
    for name, manifest in dataset.manifests.items():
        files = configurations.setdefault(
            "default" if manifest.levels == dataset.levels else name, []
        )
        # the names of Hugging Face's splits must not contain hyphens
        files.append({"split": name.replace("-", "_"), "path": f"{FILES}/{name}.parquet"})

    head = {
        "pretty_name": str(dataset.card.get("title", dataset.name)),
        "tags": ["hbench", "image-retrieval", "hierarchical"],
        "configs": [
            {"config_name": name, "data_files": files} for name, files in configurations.items()
        ],
    }
    yaml = "\n".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()
    )
    facts = [
        f"- {name}: {dataset.card[key]}"
        for name, key in (("Source", "homepage"), ("Licence", "licence"), ("Size", "size"))
        if key in dataset.card
    ]
    sizes = [
        f"| {name} | {len(manifest):,} | {' / '.join(manifest.levels)} |"
        for name, manifest in dataset.manifests.items()
    ]
    defects = [f"- {text}" for text in dataset.card.get("defects", ())]
    entries = _bibtex(dataset)
    parts = [
        f"---\n{yaml}\n---\n{MARK}",
        f"# {head['pretty_name']}",
        "\n".join([f"Built by hbench as `{dataset.name}@{dataset.version}`.", "", *facts]).rstrip(),
        "\n".join(["| split | images | levels, coarse to fine |", "|---|---|---|", *sizes]),
        '```python\nimport datasets\n\ndatasets.load_dataset("THIS FOLDER")\n```',
        *(["## Known defects\n\n" + "\n".join(defects)] if defects else []),
        *([f"## To cite\n\n```bibtex\n{entries}\n```"] if entries else []),
    ]

    return "\n\n".join(parts) + "\n"


def benchmark_text(dataset: Dataset) -> str:
    """Write the file that makes a dataset of the hub a benchmark. It has a task for each metric of
    a report; the hub makes a leaderboard of each task. A task's id is the metric's name, which
    `--format hub` writes as task_id. The first line, a comment, says that hbench may replace the
    file.

    The hub only accepts values of `evaluation_framework` from its own list, in which hbench is
    missing. So that line is a comment, to be used once hbench is in the list.
    """
    title = str(dataset.card.get("title", dataset.name))
    levels = " / ".join(dataset.levels)
    description = (
        f"{title}: hierarchical image retrieval with labels {levels}, coarse to fine. Scores are "
        f"percent, computed by hbench evaluate --dataset {dataset.name} --format hub."
    )
    names = parse_metrics(
        [*default_metrics(dataset.levels), *dataset.protocol.all_metrics], dataset.levels
    )

    lines = [
        BENCHMARK_MARK,
        f"name: {_in_yaml(title)}",
        f"description: {_in_yaml(description)}",
        "# evaluation_framework: hbench  # once it is in packages/tasks/src/eval.ts of "
        "huggingface.js",
        "tasks:",
    ]
    for name in names:
        lines.append(f"  - id: {_in_yaml(str(name))}")
        # with several tests, a score is not that of one split, so no split is named
        if list(dataset.tests) == [TEST]:
            lines += ["    config: default", f"    split: {TEST}"]
    return "\n".join(lines) + "\n"


def _in_yaml(value: str) -> str:
    """Write a text for YAML: as a JSON string, which is valid YAML."""
    return json.dumps(value, ensure_ascii=False)
