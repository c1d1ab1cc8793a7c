"""Makes the folder of a built dataset one that `datasets.load_dataset(FOLDER)` of Hugging Face takes.

Beside the manifests it writes a card, README.md, whose head names the splits, and in `huggingface/` a parquet file per
split with an image column (the path of every image that is a file) and class labels that are numbers with names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hbench.core.files import replacing, write_text
from hbench.datasets.dataset import Dataset
from hbench.datasets.manifest import Manifest
from hbench.datasets.metadata.publications import bibtex, cited

CARD = "README.md"
FILES = "huggingface"
MARK = "<!-- written by hbench build -->"  # a README.md without it is somebody's own
IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})  # how datasets.Image is stored


def write_hugging_face(dataset: Dataset, folder: Path) -> bool:
    """Write the files of the splits and the card; False where a README.md that hbench did not write was left as it is."""
    (folder / FILES).mkdir(parents=True, exist_ok=True)
    for levels in {manifest.levels for manifest in dataset.manifests.values()}:
        alike = {name: each for name, each in dataset.manifests.items() if each.levels == levels}
        classes = [_names(level, alike.values()) for level in range(len(levels))]
        for name, manifest in alike.items():
            table = _table(manifest, classes, dataset.root)
            with replacing(folder / FILES / f"{name}.parquet") as temporary:
                pq.write_table(table, temporary, compression="zstd")
    card = folder / CARD
    if card.exists() and MARK not in card.read_text(encoding="utf-8", errors="replace"):
        return False
    write_text(card, card_text(dataset))
    return True


def _names(level: int, manifests: Iterable[Manifest]) -> list[str]:
    """The classes of a level over several splits, so that a number means the same in each."""
    return sorted({name for manifest in manifests for name in manifest.tree.names[level]})


def _table(manifest: Manifest, classes: list[list[str]], root: Path | None) -> pa.Table:
    """Columns item, image, the levels as numbers, query, gallery; what they are is said in the metadata."""
    columns: dict[str, pa.Array] = {"item": pa.array(manifest.items, pa.string())}
    features: dict[str, dict[str, Any]] = {"item": {"dtype": "string", "_type": "Value"}}
    if root is not None and (root / str(manifest.items[0])).is_file():
        name = "image" if "image" not in manifest.levels else "image_file"
        paths = pa.array([str(root / item) for item in manifest.items], pa.string())
        columns[name] = pa.StructArray.from_arrays([pa.nulls(len(paths), pa.binary()), paths], fields=list(IMAGE))
        features[name] = {"_type": "Image"}
    for level, names, own, labels in zip(manifest.levels, classes, manifest.tree.names, manifest.labels.T, strict=True):
        columns[level] = pa.array(_places(own, names)[labels])
        features[level] = {"names": names, "_type": "ClassLabel"}
    for mask in ("query", "gallery"):
        columns[mask] = pa.array(getattr(manifest, mask))
        features[mask] = {"dtype": "bool", "_type": "Value"}
    if manifest.ignore is not None:
        columns["ignore"] = pa.array(manifest.ignore)
        features["ignore"] = {"dtype": "int64", "_type": "Value"}
    return pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def _places(own: Iterable[str], names: list[str]) -> NDArray[np.int64]:
    place = {name: number for number, name in enumerate(names)}
    return np.array([place[name] for name in own], np.int64)


def card_text(dataset: Dataset) -> str:
    """The card: a head in YAML (every value in JSON, which YAML takes), then what a person wants to know."""
    head = {
        "pretty_name": str(dataset.card.get("title", dataset.name)),
        "tags": ["hbench", "image-retrieval", "hierarchical"],
        "configs": _configs(dataset),
    }
    yaml = "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items())
    facts = [
        f"- {name}: {dataset.card[key]}"
        for name, key in (("Source", "homepage"), ("Licence", "licence"), ("Size", "size"))
        if key in dataset.card
    ]
    sizes = [f"| {name} | {len(each):,} | {' / '.join(each.levels)} |" for name, each in dataset.manifests.items()]
    defects = [f"- {text}" for text in dataset.card.get("defects", ())]
    papers = cited(str(dataset.card.get("citation", "")))
    entries = bibtex({paper.key: paper.cited[0] for paper in papers}).strip()
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


def _configs(dataset: Dataset) -> list[dict[str, Any]]:
    """The splits in the words of datasets; a training set of other levels than the tests is a configuration of its own."""
    parts: dict[str, list[dict[str, str]]] = {"default": []}
    for name, manifest in dataset.manifests.items():
        files = parts.setdefault("default" if manifest.levels == dataset.levels else name, [])
        files.append({"split": name.replace("-", "_"), "path": f"{FILES}/{name}.parquet"})
    return [{"config_name": name, "data_files": files} for name, files in parts.items()]
