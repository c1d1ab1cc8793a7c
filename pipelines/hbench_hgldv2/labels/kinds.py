"""Defines the kinds of groups, which are the level above the groups: any words that the curators
choose, in H-GLDv2 human-made and natural.

>>> offered(["raptor", "songbird", "raptor"]), offered(["natural"])
(('raptor', 'songbird'), ('human-made', 'natural'))
>>> written_in_two_ways(["natural", "humanmade"])
('human-made', 'humanmade')
"""

import re
from collections.abc import Iterable, Sequence

LANDMARK_KINDS = ("human-made", "natural")
# The kind of every group of an own table for which no other is known: one level above them all.
OWN_KINDS = ("all",)


def offered(used: Iterable[str], usual: Sequence[str] = LANDMARK_KINDS) -> tuple[str, ...]:
    """Return the kinds to choose from: those in use, in their order; the usual ones, too, where one
    of them is in use, or none at all.
    """
    distinct = dict.fromkeys(used)
    if distinct and not distinct.keys() & set(usual):
        return tuple(distinct)
    return tuple(dict.fromkeys([*usual, *distinct]))


def written_in_two_ways(used: Iterable[str]) -> tuple[str, str] | None:
    """Return two kinds that differ only in case, spaces, hyphens or underscores, of those in use
    and the usual ones next to them; None where there are none.
    """
    first: dict[str, str] = {}
    for kind in offered(used):
        known = first.setdefault(re.sub(r"[\s_-]", "", kind).lower(), kind)
        if known != kind:
            return known, kind
    return None
