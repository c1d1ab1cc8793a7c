"""Reads predictions from JSON documents of SpeciesNet, iNaturalist, COCO and MegaDetector, and of
agents that give several candidates.

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

Row = tuple[str, str, float | None]  # item, path, chance (None if none is given)
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
ITEM_OF_RESULTS = {"image_id", "category_id"}  # the keys of a record of COCO's results
OF_RECORD = {*PATHS, *CANDIDATES, "common_ancestor", "classifications"}  # keys of a prediction
UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f-]{27};", re.IGNORECASE)


class DocumentRows(NamedTuple):
    """The predictions in a document."""

    rows: list[Row]
    form: str  # the format of the document, in words


def is_document(text: str) -> bool:
    """Whether a text is a JSON document, not a table: an object, or a list in which an object holds
    objects or lists. Raises ValueError for broken JSON."""
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        return False
    value = parse_json(text)
    return isinstance(value, dict) or any(map(_holds_others, value))


def _holds_others(record: Any) -> bool:
    """Whether a record has objects or lists as values."""
    return isinstance(record, dict) and any(
        isinstance(part, dict | list) for part in record.values()
    )


def predictions_in(text: str, source: str) -> DocumentRows:
    """Read the predictions in the text of a JSON document: rows (item, path, chance), and the
    format in words. `source`: the file's name, for errors. Raises DataError if the document has no
    known format, or lacks a part of its format."""
    value = parse_json(text)
    rows, form = _rows_and_form(value, source)
    try:
        found = DocumentRows(list(rows), form)  # the generator reads the document only now
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            f"{source} is no whole document of its form", expected=form, found=first_line(error)
        ) from None
    if not found.rows:
        # the error shows the keys of the document, or of the first record in a list
        first = value[:1] if isinstance(value, list) else [value]
        raise DataError(
            f"{source} holds no predictions",
            expected="records of item, path and score; or paths by item",
            found=examples(str(key) for each in first if isinstance(each, Mapping) for key in each)
            or "nothing",
        )
    return found


def _rows_and_form(value: Any, source: str) -> tuple[Iterator[Row], str]:
    """Recognise the format of a document by the keys that each tool writes. Return a generator of
    its rows (item, path, chance), and the format in words. `value`: the parsed document, a list or
    an object. Raises DataError for COCO's results, which have numbers in place of names.
    """
    if isinstance(value, list):
        # COCO's results (records with image_id and category_id) have numbers of classes, whose
        # names are in another file
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
    """Yield the rows (item, path, chance) of records such as {"item": "a.jpg", "path": "Owls",
    "score": 0.9}. A record with several candidates has several rows."""
    for record in records:
        if not isinstance(record, Mapping):
            continue
        item = str(_first(record, ITEMS) or "")  # ITEMS: the keys that may hold the item
        for path, score in _candidates_of_record(record):
            yield item, path, score


def _candidates_of_record(record: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield (path, chance) for each candidate of a record; the chance is None if none is given.

    The candidates are read from the first of these that the record has: classes with scores, the
    common ancestor of all results, a list of candidates, or one path.
    """
    classes = record.get("classifications")
    if isinstance(classes, Mapping) and classes.get("classes"):
        # not strict: classes without a score are left out
        for path, score in zip(classes["classes"], classes.get("scores", []), strict=False):
            # SpeciesNet writes a uuid before the path of a class
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
    """Yield paths with their chances, None if none is given, from a mapping {"Owls": 0.9}, or from
    a list of records {"path": "Owls", "score": 0.9} or texts."""
    if isinstance(several, Mapping):
        for path, score in several.items():
            # SpeciesNet writes a uuid before a path
            yield _without_id(str(path)), _as_chance(score)
        return
    for each in several:
        # `_path` also removes the uuid; a path here may be a list of names or a taxon as well
        if isinstance(each, Mapping):
            yield _path(_first(each, PATHS)), _score(each)
        else:
            yield _path(each), None


def _rows_of_mapping(value: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of answers by item, {"a.jpg": "Owls"}. An answer may be a path, a record, a
    list of paths or records, or chances by path."""
    for item, answer in value.items():
        # an object with no key of a record has paths as keys: {"Owls": 0.9}
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
    """Yield a row for each picture of a document in COCO's format. Its path is the super-category
    and the category of the picture's box with the highest score."""
    paths = {
        each["id"]: " > ".join(filter(None, [each.get("supercategory", ""), each["name"]]))
        for each in value["categories"]
    }
    files = {each["id"]: each.get("file_name", each["id"]) for each in value.get("images", [])}
    # {picture: (the highest score, the category of that box)}
    surest: dict[Any, tuple[float, Any]] = {}
    for box in value["annotations"]:
        score = _as_chance(box.get("score", 1.0))  # people's annotations have no score
        if score > surest.get(box["image_id"], (-1.0, None))[0]:  # −1: below any score
            surest[box["image_id"]] = score, box["category_id"]
    for image, (score, category) in surest.items():
        # a picture or category that is not listed is called by its number
        yield str(files.get(image, image)), paths.get(category, str(category)), score


def _rows_of_detections(value: Mapping[str, Any]) -> Iterator[Row]:
    """Yield rows for each picture of a document in MegaDetector's format, from its box with the
    highest confidence. They are the classifications of that box, or else its kind (animal, person
    …). A picture without a box has a row with an empty path."""
    kinds = value["detection_categories"]
    names = value.get("classification_categories", {})
    for image in value["images"]:
        item = str(image.get("file", ""))
        boxes = image.get("detections") or []
        if not boxes:
            yield item, "", None
            continue
        surest = max(boxes, key=lambda box: _as_chance(box.get("conf", 0)))
        classes = surest.get("classifications") or []  # pairs [number of the class, chance]
        for number, chance in classes:
            yield item, str(names.get(str(number), number)), _as_chance(chance)
        if not classes:
            # the chance of the box itself, None if it has none; classifications always have one
            kind = str(surest.get("category", ""))
            yield item, str(kinds.get(kind, kind)), _score(surest)


def _first(record: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """Return the value of the first of these keys that is not null in a record; None if there is
    none."""
    return next((record[key] for key in keys if record.get(key) is not None), None)


def _score(record: Mapping[str, Any]) -> float | None:
    """Return the chance that a record has under one of the keys SCORES; None if it has none."""
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
    """Return a path as a text, given a text, a list of names, or a taxon."""
    if isinstance(value, Mapping):
        return _of_taxon(value)
    if isinstance(value, list):
        return " > ".join(map(str, value))
    return _without_id(str(value))


def _of_taxon(taxon: Mapping[str, Any]) -> str:
    """Return the path of a taxon: the names of its ancestors, if it has some, and its own."""
    above = [each.get("name", "") for each in taxon.get("ancestors", [])]
    return " > ".join([*above, str(taxon.get("name", ""))])


def _without_id(path: str) -> str:
    """Return a path without the uuid that SpeciesNet writes before it and the common name after
    it. Other paths are unchanged."""
    if not UUID.match(path):
        return path
    return ";".join(path.split(";")[1:-1])
