"""Finds what neighbours say about names: partial labels that they complete, and siblings that they
do not tell apart.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from hbench.auditing.evidence import Votes
from hbench.auditing.pool import Pool
from hbench.auditing.suspects import known_part
from hbench.evaluation.by_name.nodes import JOINED
from hbench.tree.names import class_rows

AGREE = 0.9  # of the neighbours that are known further
TOLD_APART = 0.4  # of the votes for either, so many go to the sibling


def completions_of(pool: Pool, votes: Votes) -> pa.Table:
    """A row per item whose label ends early and whose neighbours agree on a name below it: item,
    split, label, proposed path and the share of the neighbours that agree, the surest first."""
    names = class_rows(pool.manifest.tree)
    known = votes.known[votes.classes]
    rows = []
    for item in np.flatnonzero(known < votes.depth).tolist():
        level = int(known[item])
        near = votes.classes[votes.neighbours[item]]
        further = near[votes.known[near] > level]
        if not len(further):
            continue
        nodes, counts = np.unique(votes.paths[further, level], return_counts=True)
        best = int(np.argmax(counts))
        share = float(counts[best] / len(near))
        proposed = int(further[votes.paths[further, level] == nodes[best]][0])
        own = int(votes.classes[item])
        is_below = (votes.paths[proposed, :level] == votes.paths[own, :level]).all()
        if share >= AGREE and is_below:
            label = JOINED.join(known_part(names[own]))
            path = JOINED.join(names[proposed][: level + 1])
            rows.append((str(pool.manifest.items[item]), str(pool.split[item]), label, path, share))
    rows.sort(key=lambda row: -row[-1])
    texts = ("item", "split", "label", "proposed")
    schema = pa.schema([*((name, pa.string()) for name in texts), ("share", pa.float64())])
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)


def merges_of(pool: Pool, votes: Votes) -> pa.Table:
    """A row per pair of siblings whose items vote for each other nearly as much as for themselves:
    both paths, the shares of votes that go to the other, and the numbers of items."""
    names = class_rows(pool.manifest.tree)
    sizes = np.bincount(votes.classes, minlength=len(names))
    cast: Counter[tuple[int, int]] = Counter()
    own = np.repeat(votes.classes, votes.k)
    voted = votes.classes[votes.neighbours].ravel()
    pairs, counts = np.unique(np.stack([own, voted]), axis=1, return_counts=True)
    for (one, other), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        cast[one, other] = count

    rows: list[tuple[Any, ...]] = []
    for one, other in list(cast):
        is_sibling = votes.parents[one] == votes.parents[other]
        if (
            one >= other
            or not is_sibling
            or min(votes.known[one], votes.known[other]) < votes.depth
        ):
            continue
        shares = [
            cast[a, b] / max(cast[a, a] + cast[a, b], 1) for a, b in ((one, other), (other, one))
        ]
        if min(shares) >= TOLD_APART:
            paths = [JOINED.join(names[each]) for each in (one, other)]
            numbers = (int(sizes[one]), int(sizes[other]))
            rows.append((*paths, round(shares[0], 4), round(shares[1], 4), *numbers))
    rows.sort(key=lambda row: min(row[2], row[3]), reverse=True)
    schema = pa.schema(
        [
            ("first", pa.string()),
            ("second", pa.string()),
            ("first_for_second", pa.float64()),
            ("second_for_first", pa.float64()),
            ("items_of_first", pa.int64()),
            ("items_of_second", pa.int64()),
        ]
    )
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)
