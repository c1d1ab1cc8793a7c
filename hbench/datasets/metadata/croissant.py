"""Describes a built dataset in Croissant 1.0, the JSON-LD in which data search engines and machine-learning libraries read data.

`croissant.json` lies beside the manifests and names them by their checksums: a record set per split, a field per column.
Specification: https://docs.mlcommons.org/croissant/docs/croissant-spec.html
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from hbench.core.files import write_text
from hbench.datasets.dataset import Dataset
from hbench.datasets.manifest import Manifest
from hbench.datasets.metadata.publications import Publication, bibtex, cited

FILE = "croissant.json"
TERMS = (  # of the vocabulary `cr`, by their own names
    "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet", "format",
    "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex",
    "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
CONTEXT = {  # word for word that of the specification, appendix 1
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


def write_croissant(dataset: Dataset, folder: Path) -> None:
    """Write `croissant.json` into the folder that a dataset was saved in, whole or not at all."""
    text = json.dumps(croissant(dataset, folder), indent=2, ensure_ascii=False)
    write_text(folder / FILE, text + "\n")


def croissant(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """The description of a saved dataset as JSON values; its manifests are read for their checksums."""
    papers = cited(str(dataset.card.get("citation", "")))
    facts = {
        "description": _in_words(dataset),
        "license": dataset.card.get("licence"),
        "url": dataset.card.get("homepage"),
        "citeAs": bibtex({paper.key: paper.cited[0] for paper in papers}).strip(),
        "datePublished": str(papers[0].year) if papers and papers[0].year else None,
        "creator": _people(papers),
    }
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": dataset.name,
        "version": _three_numbers(dataset.version),
        **{name: value for name, value in facts.items() if value},
        "distribution": [_file(folder / f"{name}.parquet") for name in dataset.manifests],
        "recordSet": [_records(name, manifest) for name, manifest in dataset.manifests.items()],
    }


def _in_words(dataset: Dataset) -> str:
    title = str(dataset.card.get("title", dataset.name))
    sizes = ", ".join(f"{name}: {len(manifest):,} images" for name, manifest in dataset.manifests.items())
    levels = " / ".join(dataset.levels)
    return f"{title}. Hierarchical image retrieval with labels {levels}, coarse to fine, which form a tree. {sizes}."


def _people(papers: list[Publication]) -> list[dict[str, str]]:
    names = papers[0].authors if papers else []
    return [{"@type": "sc:Person", "name": " ".join(reversed(name.split(", ")))} for name in names]


def _three_numbers(version: str) -> str:
    """A dataset's version as Croissant wants one: "1" is 1.0.0, "1+3f2a90c1" 1.0.0+3f2a90c1, a digest 0.0.0+digest."""
    number, plus, digest = version.partition("+")
    if not number.replace(".", "").isdigit():
        return f"0.0.0+{version}"
    return f"{number}{'.0' * (2 - number.count('.'))}{plus}{digest}"


def _file(path: Path) -> dict[str, str]:
    content = path.read_bytes()
    return {
        "@type": "cr:FileObject",
        "@id": path.name,
        "name": path.name,
        "contentUrl": path.name,
        "contentSize": f"{len(content)} B",
        "encodingFormat": "application/x-parquet",
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _records(name: str, manifest: Manifest) -> dict[str, Any]:
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
        columns["ignore"] = ("sc:Integer", "Items of a query's group are left out of its list; -1 is no group.")
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
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "key": {"@id": f"{name}/item"}, "field": fields}
