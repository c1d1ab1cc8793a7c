"""Reads documents of JSON in which tools write what they predict: SpeciesNet, iNaturalist, COCO,
MegaDetector, agents with several candidates.

>>> text = '[{"item": "a.jpg", "candidates": [{"path": "Owls > Barn owl", "score": 0.9}]}]'
>>> predictions_in(text, "p.json").rows
[('a.jpg', 'Owls > Barn owl', 0.9)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hbench.core.errors import DataError, examples
from hbench.core.text import first_line
from hbench.core.untrusted import parse_json

Row = tuple[str, str, float | None]
ITEMS = ("item", "image", "filepath", "file_name", "filename", "id", "image_id", "query")
PATHS = ("path", "prediction", "label", "name", "taxon", "class", "category")
SCORES = (
    "score",
    "confidence",
    "conf",
    "probability",
    "prediction_score",
    "combined_score",
    "share",
)
CANDIDATES = ("candidates", "predictions", "answers", "results", "labels")
ITEM_OF_RESULTS = {"image_id", "category_id"}  # what a record of COCO's results has
OF_RECORD = {*PATHS, *CANDIDATES, "common_ancestor", "classifications"}
UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f-]{27};", re.IGNORECASE)


class DocumentRows(NamedTuple):
    """Rows of item, path and chance, None where none is given, and of which form they are."""

    rows: list[Row]
    form: str


def is_document(text: str) -> bool:
    """Whether a text is a JSON object, or a list of objects that hold others."""
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        return False
    value = parse_json(text)
    return isinstance(value, dict) or any(map(_holds_others, value))


def _holds_others(record: Any) -> bool:
    """Whether a record of a list has records or lists in it."""
    return isinstance(record, dict) and any(
        isinstance(part, dict | list) for part in record.values()
    )


def predictions_in(text: str, source: str) -> DocumentRows:
    """The predictions in the text of a JSON document; `source` is the file's name, for errors.
    Raises DataError for a document of no known form, and for one that lacks a part of its form."""
    value = parse_json(text)
    rows, form = _rows_and_form(value, source)
    try:
        found = DocumentRows(list(rows), form)  # here the generators read the document
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            f"{source} is no whole document of its form", expected=form, found=first_line(error)
        ) from None
    if not found.rows:
        first = value[:1] if isinstance(value, list) else [value]
        raise DataError(
            f"{source} holds no predictions",
            expected="records of item, path and score; or paths by item",
            found=examples(str(key) for each in first if isinstance(each, Mapping) for key in each)
            or "nothing",
        )
    return found


def _rows_and_form(value: Any, source: str) -> tuple[Iterator[Row], str]:
    """The rows of a document, still to be read, and of which form it is: told by the keys that each
    tool writes. Raises DataError for results that have numbers in place of names."""
    if isinstance(value, list):
        # results in COCO's form name their classes by numbers, which another file explains
        if value and isinstance(value[0], dict) and value[0].keys() >= ITEM_OF_RESULTS:
            raise DataError(
                f"{source} has the numbers of categories, and not their names",
                expected="COCO's images, categories and annotations in one document",
                found=examples(map(str, value[0])),
                fix="put the list under annotations, beside the images and categories of the set",
            )
        return _rows_of_records(value), "records"
    if isinstance(value.get("predictions"), list):
        records = [each for each in value["predictions"] if isinstance(each, Mapping)]
        has_classes = any("classifications" in each for each in records)
        form = "SpeciesNet's classes, before its roll-up" if has_classes else "records"
        return _rows_of_records(records), f"predictions of {form}"
    if "categories" in value and "annotations" in value:
        return _rows_of_coco(value), "COCO's annotations, the surest of a picture"
    if "detection_categories" in value and isinstance(value.get("images"), list):
        return _rows_of_detections(value), "MegaDetector's boxes, the surest of a picture"
    return _rows_of_mapping(value), "answers by item"


def _rows_of_records(records: list[Any]) -> Iterator[Row]:
    """Yield the rows of records such as {"item": "a.jpg", "path": "Owls", "score": 0.9}; a record
    may hold several candidates."""
    for record in records:
        if not isinstance(record, Mapping):
            continue
        item = str(_first(record, ITEMS) or "")
        for path, score in _candidates_of_record(record):
            yield item, path, score


def _candidates_of_record(record: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """The paths of a record with their chances, of the first of these that it has: classes with
    scores, the ancestor that all results share, candidates, or one path. None for no chance."""
    classes = record.get("classifications")
    if isinstance(classes, Mapping) and classes.get("classes"):
        # classes beyond the scores, or all if there are none, are left out
        for path, score in zip(classes["classes"], classes.get("scores", []), strict=False):
            yield _without_id(path), _as_chance(score)
        return
    ancestor = record.get("common_ancestor")
    if isinstance(ancestor, Mapping):
        yield _of_taxon(ancestor.get("taxon", ancestor)), _score(ancestor)
        return
    several = _first(record, CANDIDATES)
    if isinstance(several, list | Mapping):
        yield from _paths_with_chances(several)
        return
    path = _first(record, PATHS)
    if path is not None:
        yield _path(path), _score(record)


def _paths_with_chances(several: Any) -> Iterator[tuple[str, float | None]]:
    """Yield paths with their chances, None where none is given: of a mapping {"Owls": 0.9}, of
    records {"path": "Owls", "score": 0.9}, or of texts."""
    if isinstance(several, Mapping):
        for path, score in several.items():
            yield str(path), _as_chance(score)
        return
    for each in several:
        if isinstance(each, Mapping):
            yield _path(_first(each, PATHS)), _score(each)
        else:
            yield _path(each), None


def _rows_of_mapping(value: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of answers by item, {"a.jpg": "Owls"}; an answer may be a path, a record, a
    list of either, or chances by path."""
    for item, answer in value.items():
        # an object without any key of a record has paths for keys
        is_several = isinstance(answer, Mapping) and not answer.keys() & OF_RECORD
        if is_several or isinstance(answer, list):
            found = _paths_with_chances(answer)
        elif isinstance(answer, Mapping):
            found = _candidates_of_record(answer)
        else:
            found = iter([(_path(answer), None)])
        for path, score in found:
            yield str(item), path, score


def _rows_of_coco(value: Mapping[str, Any]) -> Iterator[Row]:
    """Yield a row for every picture of a document in COCO's form: the category, below its
    super-category, of the box with the highest score."""
    paths = {
        each["id"]: " > ".join(filter(None, [each.get("supercategory", ""), each["name"]]))
        for each in value["categories"]
    }
    files = {each["id"]: each.get("file_name", each["id"]) for each in value.get("images", [])}
    surest: dict[Any, tuple[float, Any]] = {}  # by picture, the score and the category so far
    for box in value["annotations"]:
        score = _as_chance(box.get("score", 1.0))  # annotations by people have none
        if score > surest.get(box["image_id"], (-1.0, None))[0]:
            surest[box["image_id"]] = score, box["category_id"]
    for image, (score, category) in surest.items():
        yield str(files.get(image, image)), paths.get(category, str(category)), score


def _rows_of_detections(value: Mapping[str, Any]) -> Iterator[Row]:
    """Yield rows for every picture of a document in MegaDetector's form, by the box with the
    highest confidence: what a classifier says of it, or else the kind of box (animal, person …);
    an empty path where there is no box."""
    kinds = value["detection_categories"]
    names = value.get("classification_categories", {})
    for image in value["images"]:
        item = str(image.get("file", ""))
        boxes = image.get("detections") or []
        if not boxes:
            yield item, "", None
            continue
        surest = max(boxes, key=lambda box: _as_chance(box.get("conf", 0)))
        classes = surest.get("classifications") or []
        for number, chance in classes:
            yield item, str(names.get(str(number), number)), _as_chance(chance)
        if not classes:
            # the chance of the box itself, None where it states none; a class always has one
            kind = str(surest.get("category", ""))
            yield item, str(kinds.get(kind, kind)), _score(surest)


def _first(record: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """The value of the first of these keys that a record has, and not as null; None for none."""
    return next((record[key] for key in keys if record.get(key) is not None), None)


def _score(record: Mapping[str, Any]) -> float | None:
    """The chance that a record states under one of the keys SCORES; None where it states none."""
    score = _first(record, SCORES)
    return None if score is None else _as_chance(score)


def _as_chance(value: Any) -> float:
    """A chance as a number. Raises DataError for anything else."""
    if isinstance(value, bool | int | float | str):
        try:
            return float(value)
        except ValueError:
            pass  # refused below, as anything that is no number
    raise DataError("a chance is no number", expected="0 … 1, or percent", found=repr(value)[:60])


def _path(value: Any) -> str:
    """A path as a text: a text, a list of names, or a taxon."""
    if isinstance(value, Mapping):
        return _of_taxon(value)
    if isinstance(value, list):
        return " > ".join(map(str, value))
    return _without_id(str(value))


def _of_taxon(taxon: Mapping[str, Any]) -> str:
    """The names of a taxon's ancestors, where it has them, and its own."""
    above = [each.get("name", "") for each in taxon.get("ancestors", [])]
    return " > ".join([*above, str(taxon.get("name", ""))])


def _without_id(path: str) -> str:
    """A path without the uuid that SpeciesNet writes in front, and the common name behind."""
    if not UUID.match(path):
        return path
    return ";".join(path.split(";")[1:-1])
