"""Rules by which others rank suspicious labels, on the neighbours that `hbench audit` has: each
gives every item a score (N,), the higher the more suspicious.

FiftyOne Brain's mistakenness wants the probabilities of a classifier. Here they are the shares of
the ten nearest neighbours, and its formulas (fiftyone-brain 0.27,
internal/core/mistakenness.py: `_compute_mistakenness_class` and `_compute_mistakenness_class_conf`)
are written anew, since the package cannot be loaded without FiftyOne and its database.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hbench.auditing.evidence import Votes

Scores = np.ndarray
CLEANLAB = Path(__file__).with_name("audit_cleanlab.py")


class Ranking(NamedTuple):
    """Scores (N,) by which far and near errors are sought; None where a rule has no such list."""

    far: Scores | None
    near: Scores | None


class Shares(NamedTuple):
    """What share of the neighbours have an item's own node at each level (N, L), and the most that
    have another one (N, L)."""

    own: np.ndarray
    best: np.ndarray


def shares_of(votes: Votes) -> Shares:
    """Count, level by level, how many of an item's neighbours have its own node, and how many the
    most frequent other one."""
    own, best = np.empty((2, len(votes.classes), votes.depth))
    for level in range(votes.depth):
        cast, label = _cast(votes, level)
        counts = (cast[:, :, None] == cast[:, None, :]).mean(axis=2)  # share of each one's node
        is_own = cast == label[:, None]
        own[:, level] = is_own.mean(axis=1)
        best[:, level] = np.where(is_own, 0, counts).max(axis=1)
    return Shares(own, best)


def rules(votes: Votes) -> dict[str, Ranking]:
    """The rankings of all rules: simple ones on the votes of the neighbours, and FiftyOne's."""
    own, best = shares_of(votes)
    margin = best - own
    finest, mean = margin[:, -1], margin.mean(axis=1)
    logs = -np.log(own + 1 / (2 * votes.k)).sum(axis=1)  # half a vote more: no logarithm of 0
    # the parent agrees where most neighbours have the item's own; -2 puts others behind all
    agrees = margin[:, -2] <= 0 if votes.depth > 1 else np.ones(len(own), bool)
    confident, entropic = (mistakenness(votes, -1, by_entropy=each) for each in (False, True))
    coarse = mistakenness(votes, 0, by_entropy=False)
    return {
        "votes, finest margin": Ranking(finest, finest),
        "votes, finest margin where the parent agrees": Ranking(
            None, np.where(agrees, finest, finest - 2)
        ),
        "votes, mean margin": Ranking(mean, mean),
        "votes, log-sum of own shares": Ranking(logs, logs),
        "FiftyOne, confidence": Ranking(confident, confident),
        "FiftyOne, entropy": Ranking(entropic, entropic),
        "FiftyOne, coarsest level": Ranking(coarse, None),
    }


def mistakenness(votes: Votes, level: int, *, by_entropy: bool) -> Scores:
    """FiftyOne's mistakenness (N,) at a level, −1 the finest, with the shares of the neighbours as
    probabilities p: (±c + 1) / 2, + where the likeliest class is another than the label; c is the
    largest p or, `by_entropy`, e to Σ p·log p, 1 where all neighbours agree."""
    cast, label = _cast(votes, level)
    counts = (cast[:, :, None] == cast[:, None, :]).mean(axis=2)
    most = counts.max(axis=1)
    # of equally probable classes the first, as an argmax
    predicted = np.where(counts == most[:, None], cast, cast.max() + 1).min(axis=1)
    sign = np.where(predicted == label, -1, 1)
    # the sum of p log p over classes is the mean of log p over votes
    sure = np.exp(np.log(counts).mean(axis=1)) if by_entropy else most
    return (sign * sure + 1) / 2


def cleanlab(votes: Votes, vectors: np.ndarray, python: str) -> dict[str, Ranking]:
    """The rankings of cleanlab's Datalab, at the finest and the coarsest level: by the label's score
    alone, and with those first that are said to be issues. `python`: of an environment that has
    cleanlab; `vectors` (N, D)."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    labels = {"finest": _cast(votes, -1)[1], "coarsest": _cast(votes, 0)[1]}
    with tempfile.TemporaryDirectory() as folder:
        given, out = (Path(folder) / name for name in ("in.npz", "out.npz"))
        np.savez(given, vectors=unit.astype(np.float32), **labels)
        subprocess.run([python, "-I", CLEANLAB, given, out], check=True)
        with np.load(out) as file:
            found = {name: (-file[name][:, 0], file[name][:, 1]) for name in labels}
    rankings = {}
    for name, (score, is_issue) in found.items():
        first = score + 2 * is_issue  # scores lie within −1 … 0
        for words, each in (("score", score), ("issues first", first)):
            near = each if name == "finest" else None
            rankings[f"cleanlab, {name} level, {words}"] = Ranking(each, near)
    return rankings


def _cast(votes: Votes, level: int) -> tuple[np.ndarray, np.ndarray]:
    """The nodes of the neighbours (N, k) and of the items (N,) at a level."""
    nodes = votes.paths[:, level][votes.classes]
    return nodes[votes.neighbours], nodes
