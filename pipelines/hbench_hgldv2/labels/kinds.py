"""Defines the kinds of groups. Kinds are the level above the groups; curators may choose any words
for them. In H-GLDv2 they are human-made and natural.

>>> usual_kinds_first(["raptor", "songbird", "raptor"]), usual_kinds_first(["natural"])
(('raptor', 'songbird'), ('human-made', 'natural'))
>>> written_in_two_ways(["natural", "humanmade"])
('human-made', 'humanmade')
"""

import re
from collections.abc import Iterable, Sequence

LANDMARK_KINDS = ("human-made", "natural")
# The kind of a group from a curator's own table when no other kind is known. All groups then share
# one kind.
OWN_KINDS = ("all",)


def usual_kinds_first(
    used: Iterable[str], usual: Sequence[str] = LANDMARK_KINDS
) -> tuple[str, ...]:
    """Return the kinds that a curator can choose from, each once: the usual kinds, and then other
    kinds in use, in their order. If kinds are in use, but no usual one, only these are returned."""
    distinct = dict.fromkeys(used)
    if distinct and not distinct.keys() & set(usual):
        return tuple(distinct)
    return tuple(dict.fromkeys([*usual, *distinct]))


def written_in_two_ways(used: Iterable[str]) -> tuple[str, str] | None:
    """Return two kinds of groups that differ only in case, spaces, hyphens or underscores; None if
    there are no two such kinds.

    `used` are the kinds of the groups, in any words of the curator. They are also compared with the
    usual kinds ("human-made", "natural") that `usual_kinds_first` adds.
    """
    first: dict[str, str] = {}  # kind without these differences -> the first kind written so
    for kind in usual_kinds_first(used):
        earlier = first.setdefault(re.sub(r"[\s_-]", "", kind).lower(), kind)
        if earlier != kind:
            return earlier, kind
    return None
