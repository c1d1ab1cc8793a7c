"""Lists the items whose neighbours say another label: far suspects, which leave their path above
their parent, and near ones, which leave their own class alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hbench.auditing.evidence import Alternatives, Best, Evidence, Indices, Votes
from hbench.auditing.pool import Pool
from hbench.auditing.sureness import Sureness, calibrated
from hbench.auditing.swaps import SMALLEST

FAR, NEAR = "far", "near"
SHOWN_NEIGHBOURS = 4
BETWEEN = " | "  # ids of neighbours in a cell


@dataclass(frozen=True)
class SuspectList:
    """Suspects of one kind, best first.

    Attributes:
        kind: "far" or "near".
        items: places in the pool, (S,).
        proposed: the classes that their neighbours propose, (S,).
        evidence: in nats, (S,).
        sureness: that the label is wrong, (S,), NaN where it is not to be trusted.
        curve: by which evidence becomes sureness.
        expected: how many of all suspects, also of those beyond `most`, are expected to be wrong:
            the sum of their sureness; None where it is not to be trusted.
    """

    kind: str
    items: Indices
    proposed: Indices
    evidence: NDArray[np.float64]
    sureness: NDArray[np.float64]
    curve: Sureness
    expected: float | None


def suspects_of(votes: Votes, *, most: int) -> tuple[SuspectList, SuspectList]:
    """The far and the near suspects, at most so many of each; an item is in one list, that of the
    alternative with more evidence."""
    evidence = Evidence(votes)
    found = evidence.alternatives(np.arange(len(votes.classes)), votes.classes)
    sizes = np.bincount(votes.classes, minlength=len(votes.paths))[votes.classes]
    # the votes of a class of one or two items say nothing of its nearest relatives
    near = np.where(sizes >= SMALLEST, found.near.evidence, -np.inf)
    found = Alternatives(found.far, Best(near, found.near.classes))

    is_far = found.far.evidence >= found.near.evidence
    return (
        _listed(FAR, evidence, found.far, is_far, most),
        _listed(NEAR, evidence, found.near, ~is_far, most),
    )


def _listed(
    kind: str, evidence: Evidence, best: Best, chosen: NDArray[np.bool_], most: int
) -> SuspectList:
    """The suspects of a kind, with their sureness."""
    curve = calibrated(evidence, best.evidence, is_far=kind == FAR)
    against = np.flatnonzero(chosen & (best.evidence > 0))
    items = against[np.argsort(-best.evidence[against], kind="stable")]
    sureness = curve.of(best.evidence[items])
    expected = round(float(sureness.sum()), 1) if curve.is_trusted else None

    items = items[:most]
    shown = best.evidence[items]
    return SuspectList(kind, items, best.classes[items], shown, sureness[:most], curve, expected)


def table_of(pool: Pool, lists: tuple[SuspectList, ...], votes: Votes) -> pa.Table:
    """A row per suspect, best first within the lists: item, split, list, level where it leaves its
    path, label, proposed path, sureness, evidence, and its nearest neighbours."""
    labels = pool.labels
    levels = pool.manifest.levels
    ids = pool.manifest.items
    rows = []
    for each in lists:
        for item, proposed, sureness, evidence in zip(
            each.items.tolist(),
            each.proposed.tolist(),
            each.sureness.tolist(),
            each.evidence.tolist(),
            strict=True,
        ):
            own = int(votes.classes[item])
            rows.append(
                {
                    "item": str(ids[item]),
                    "split": str(pool.split[item]),
                    "list": each.kind,
                    "level": levels[int(votes.common(own, proposed))],
                    "label": labels[own],
                    "proposed": labels[proposed],
                    "sureness": None if np.isnan(sureness) else round(sureness, 4),
                    "evidence": round(evidence, 3),
                    "neighbours": BETWEEN.join(
                        ids[votes.neighbours[item][:SHOWN_NEIGHBOURS]].astype(str)
                    ),
                }
            )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("item", "split", "list", "level", "label", "proposed")),
        ("sureness", pa.float64()),
        ("evidence", pa.float64()),
        ("neighbours", pa.string()),
    ]
)
