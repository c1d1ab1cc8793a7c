"""An entity: what Wikidata says of one item, reduced to what the pipeline asks: classes, main topic, parents, label.

>>> statement = {"rank": "normal", "mainsnak": {"snaktype": "value", "datavalue": {"value": {"id": "Q16970"}}}}
>>> best([statement, {**statement, "rank": "deprecated"}])
('Q16970',)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hbench.errors import SourceError

INSTANCE_OF, SUBCLASS_OF, MAIN_TOPIC, COMBINES = "P31", "P279", "P301", "P971"
QID = re.compile(r"Q[1-9][0-9]*")


class Entity(NamedTuple):
    """One item: `item` is its own id (another one after a redirect), "" when missing or deleted.

    `classes`, `topics`, `parents` are the best-ranked values of P31, P301 and P279; `n_classes` counts all P31
    statements; `preferred` tells that a rank chose among them; `combines` that it is an intersection of topics (P971).
    """

    item: str
    classes: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    n_classes: int = 0
    preferred: bool = False
    combines: bool = False
    revision: int = 0


MISSING = Entity("")


class Named(NamedTuple):
    """The label of a class: the text and the language it is in ("" and "" without one)."""

    text: str = ""
    language: str = ""


def best(statements: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The item values of the best statements: the preferred ones if any, else the normal ones, never deprecated ones.

    Unknown and absent values (somevalue, novalue) are no values; repeated ones count once; order is the item's.
    """
    by_rank: dict[str, list[str]] = {"preferred": [], "normal": []}
    has_preferred = any(statement.get("rank") == "preferred" for statement in statements)
    for statement in statements:
        value = _value(statement.get("mainsnak", {}))
        if statement.get("rank") in by_rank and value:
            by_rank[statement["rank"]].append(value)
    return tuple(dict.fromkeys(by_rank["preferred" if has_preferred else "normal"]))


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
    return Entity(
        item=content["id"],
        classes=best(classes),
        topics=best(claims.get(MAIN_TOPIC, [])),
        parents=best(claims.get(SUBCLASS_OF, [])),
        n_classes=len(classes),
        preferred=any(statement.get("rank") == "preferred" for statement in classes),
        combines=bool(claims.get(COMBINES)),
        revision=int(content.get("lastrevid", 0)),
    )


def _value(snak: Mapping[str, Any]) -> str:
    if snak.get("snaktype") != "value":
        return ""
    value = snak.get("datavalue", {}).get("value", {})
    if not isinstance(value, Mapping):
        return ""
    return str(value.get("id") or (f"Q{value['numeric-id']}" if "numeric-id" in value else ""))
