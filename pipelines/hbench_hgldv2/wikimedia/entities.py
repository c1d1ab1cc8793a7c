"""An entity: what Wikidata says of one item, reduced to what the pipeline asks: classes, main topic, parents, label.

>>> statement = {"rank": "normal", "mainsnak": {"snaktype": "value", "datavalue": {"value": {"id": "Q16970"}}}}
>>> best([statement, {**statement, "rank": "deprecated"}])
('Q16970',)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hbench.core.errors import SourceError

INSTANCE_OF, SUBCLASS_OF, MAIN_TOPIC, COMBINES = "P31", "P279", "P301", "P971"
QID = re.compile(r"Q[1-9][0-9]*")


class Entity(NamedTuple):
    """One item: `item` is its own id (another one after a redirect), "" when missing or deleted.

    `classes`, `topics`, `parents` are the best-ranked values of P31, P301 and P279; `n_classes` counts all P31
    statements; `preferred` tells that a rank chose among them; `combines` that it is an intersection of topics (P971);
    `qualifiers` has the qualifiers of each of the classes, where the source tells them.
    """

    item: str
    classes: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    n_classes: int = 0
    preferred: bool = False
    combines: bool = False
    revision: int = 0
    qualifiers: tuple[str, ...] = ()


MISSING = Entity("")


class Named(NamedTuple):
    """The label of a class: the text and the language it is in ("" and "" without one)."""

    text: str = ""
    language: str = ""


def best(statements: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The item values of the best statements: the preferred ones if any, else the normal ones, never deprecated ones.

    Unknown and absent values (somevalue, novalue) are no values; repeated ones count once; order is the item's.
    """
    return tuple(_best_statements(statements))


def qualified(statement: Mapping[str, Any]) -> str:
    """What an infobox prints in parentheses after a class: years, then items as QIDs.

    >>> year = {"snaktype": "value", "datavalue": {"value": {"time": "+1976-05-01T00:00:00Z", "precision": 11}}}
    >>> qualified({"qualifiers": {"P580": [year]}}), qualified({"qualifiers": {"P582": [year]}}), qualified({})
    ('1976–', '–1976', '')
    """
    snaks = statement.get("qualifiers") or {}
    start, end, point = (_year(snaks.get(key, [])) for key in ("P580", "P582", "P585"))
    items = [_value(snak) for key in snaks for snak in snaks[key]]
    return ", ".join(text for text in (f"{start}–{end}" if start or end else "", point, *items) if text)


def entities_of(answer: Mapping[str, Any], requested: Sequence[str]) -> dict[str, Entity]:
    """The entity of each requested id, from one wbgetentities answer; raises SourceError when one is not accounted for.

    A redirected item stands under the id asked for and carries its target's id; a missing or deleted one is MISSING.
    """
    found = answer.get("entities") or {}
    absent = [i for i in requested if i not in found]
    if absent:
        raise SourceError(
            "the API did not answer for every item",
            expected=f"{len(requested)} items",
            found=f"nothing for {absent[0]}",
        )
    return {i: MISSING if "missing" in found[i] else _entity(found[i]) for i in requested}


def names_of(answer: Mapping[str, Any], requested: Sequence[str], language: str = "en") -> dict[str, Named]:
    """The label of each requested id, from one wbgetentities answer with `languagefallback`."""
    found = answer.get("entities") or {}
    result = {}
    for i in requested:
        label = (found.get(i, {}).get("labels") or {}).get(language, {})
        result[i] = Named(label.get("value", ""), label.get("language", ""))
    return result


def _entity(content: Mapping[str, Any]) -> Entity:
    claims = content.get("claims") or {}  # an empty map may come as []
    classes = claims.get(INSTANCE_OF, [])
    beside = tuple(qualified(statement) for statement in _best_statements(classes).values())
    return Entity(
        item=content["id"],
        classes=best(classes),
        topics=best(claims.get(MAIN_TOPIC, [])),
        parents=best(claims.get(SUBCLASS_OF, [])),
        n_classes=len(classes),
        preferred=any(statement.get("rank") == "preferred" for statement in classes),
        combines=bool(claims.get(COMBINES)),
        revision=int(content.get("lastrevid", 0)),
        qualifiers=beside if any(beside) else (),
    )


def _best_statements(statements: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Value -> the first of the best statements that has it."""
    by_rank: dict[str, dict[str, Mapping[str, Any]]] = {"preferred": {}, "normal": {}}
    has_preferred = any(statement.get("rank") == "preferred" for statement in statements)
    for statement in statements:
        value = _value(statement.get("mainsnak", {}))
        if statement.get("rank") in by_rank and value:
            by_rank[statement["rank"]].setdefault(value, statement)
    return by_rank["preferred" if has_preferred else "normal"]


def _year(snaks: Sequence[Mapping[str, Any]]) -> str:
    """The year of the first time value, or its decade or century where it is no more precise; "" without one."""
    value = snaks[0].get("datavalue", {}).get("value", {}) if snaks else {}
    found = re.match(r"([+-])(\d+)", str(value.get("time", ""))) if isinstance(value, Mapping) else None
    if not found:
        return ""
    year, era = int(found[2]), " BC" if found[1] == "-" else ""
    if value.get("precision") == 8:
        return f"{year // 10 * 10}s{era}"
    return f"{-(-year // 100)}. century{era}" if value.get("precision") == 7 else f"{year}{era}"


def _value(snak: Mapping[str, Any]) -> str:
    if snak.get("snaktype") != "value":
        return ""
    value = snak.get("datavalue", {}).get("value", {})
    if not isinstance(value, Mapping):
        return ""
    return str(value.get("id") or (f"Q{value['numeric-id']}" if "numeric-id" in value else ""))
