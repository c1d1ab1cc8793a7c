"""Quality of a grouping of labels: agreement with a reference, effort left to a curator, and, without a reference,
coherence.

`found` and `reference` are group ids of the same n labels; `weights` count what each label stands for (its landmarks).

>>> measures = agreement_with([0, 0, 1, 1], ["a", "a", "a", "b"])
>>> measures["purity"], measures["effort"]  # fragments (0,a) (1,a) (1,b): 2·3 − 2 − 2
(0.75, 2.0)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix

from hbench_hgldv2.grouping.encode import tfidf
from hbench_hgldv2.labels.label import head_noun, normalised

Vectors = NDArray[np.float32]
PRIOR = 3  # pairs of the average group that a group's spread starts from


class Recall(NamedTuple):
    """How a reference group fared: its labels' share in the cluster that holds most of them, and in how many clusters
    they lie.
    """

    group: str
    labels: int
    recall: float
    fragments: int


class Inconsistency(NamedTuple):
    """Two labels that are near in meaning or wording, in different groups, and how sure that is worth a question.

    `sure` is in spreads of similarity inside their groups; `repeats` if a surer pair asks the same of one of the two.
    """

    label: str
    group: str
    other: str
    other_group: str
    why: str
    sure: float
    repeats: bool


def agreement_with(
    found: Sequence[Hashable], reference: Sequence[Hashable], weights: Sequence[int] | None = None
) -> dict[str, float]:
    """Purity, inverse purity, NMI, AMI, ARI, homogeneity, completeness, pairwise F1 and the effort left to a curator.

    A label of weight w counts as w copies. effort = splits + merges = 2·|fragments| − K − G, unweighted, where a
    fragment is a (cluster, group) pair that holds labels. Purity and NMI rise with the number of clusters: never
    compare them across k.
    """
    copies = np.ones(len(found), np.int64) if weights is None else np.asarray(weights)
    clusters, groups = (np.repeat(numbered(ids), copies) for ids in (found, reference))
    table = contingency_matrix(groups, clusters)
    cells = contingency_matrix(numbered(reference), numbered(found)) > 0
    tp, fp, fn = _pairs(groups, clusters)
    return {
        "purity": float(table.max(axis=0).sum() / table.sum()),
        "inverse_purity": float(table.max(axis=1).sum() / table.sum()),
        "nmi": float(metrics.normalized_mutual_info_score(groups, clusters)),
        "ami": float(metrics.adjusted_mutual_info_score(groups, clusters)),
        "ari": float(metrics.adjusted_rand_score(groups, clusters)),
        "homogeneity": float(metrics.homogeneity_score(groups, clusters)),
        "completeness": float(metrics.completeness_score(groups, clusters)),
        "pairwise_f1": 2 * tp / (2 * tp + fp + fn) if tp else float(fp + fn == 0),
        "effort": float(2 * cells.sum() - cells.shape[0] - cells.shape[1]),
    }


def recalls(found: Sequence[Hashable], reference: Sequence[str]) -> list[Recall]:
    """How each reference group fared, worst first."""
    clusters: dict[str, Counter[Hashable]] = {}
    for cluster, group in zip(found, reference, strict=True):
        clusters.setdefault(group, Counter())[cluster] += 1
    rows = [
        Recall(group, count.total(), max(count.values()) / count.total(), len(count))
        for group, count in clusters.items()
    ]
    return sorted(rows, key=lambda row: (row.recall, row.group))


def silhouettes(vectors: Vectors, clusters: Sequence[Hashable]) -> NDArray[np.float64]:
    """The silhouette of every unit vector under cosine distance: (n, D), n ids -> (n,), 0 in clusters of one.

    s = (b − a) / max(a, b), a and b the mean distances to the others of one's cluster and to the nearest other cluster.
    The mean cosine distance to a cluster is 1 − x·mean, so no pair of vectors is ever formed: O(n·k·D).
    """
    ids = numbered(clusters)
    sizes = np.bincount(ids).astype(np.float64)
    if len(sizes) < 2:
        return np.zeros(len(ids))
    exact = vectors.astype(np.float64)
    distances = 1 - exact @ _means(exact, ids).T
    rows = np.arange(len(ids))
    own = distances[rows, ids] * sizes[ids] / np.maximum(sizes[ids] - 1, 1)
    others = distances.copy()
    others[rows, ids] = np.inf
    nearest = others.min(axis=1)
    return np.where(sizes[ids] > 1, (nearest - own) / np.maximum(np.maximum(own, nearest), 1e-12), 0.0)


def lexical_coherence(labels: Sequence[str], clusters: Sequence[Hashable]) -> float:
    """The share of labels whose head noun is the commonest of their cluster."""
    nouns: dict[Hashable, Counter[str]] = {}
    for label, cluster in zip(labels, clusters, strict=True):
        nouns.setdefault(cluster, Counter())[head_noun(label)] += 1
    return sum(max(count.values()) for count in nouns.values()) / len(labels)


def inconsistencies(
    labels: Sequence[str], groups: Sequence[str], vectors: Vectors | None = None, *, near: float = 0.55
) -> list[Inconsistency]:
    """Pairs of labels in different groups that share the first or the last word, or whose cosine similarity is at least
    `near`; the surest first, and those that repeat a surer pair's question after all others.

    sure = (s − (m₁ + m₂)/2) / √((v₁ + v₂)/2): their similarity s against mean m and variance v of the similarities
    inside the two groups. A pair asks whether each belongs to the other's group, and repeats the question if a surer
    pair has asked it of either. Such a pair is a question to the curators, not an error: "church ruin" → ruins but
    "castle ruin" → castle / fort. Without `vectors` characters are compared (TF-IDF).
    """
    names = [normalised(label) for label in labels]
    reasons: dict[tuple[int, int], str] = {}
    for pick, why in ((head_noun, "head noun"), (_first_word, "first word")):
        for word, same in _by_word(names, pick).items():
            reasons |= {pair: f"{why} {word!r}" for pair in combinations(same, 2) if pair not in reasons}
    if vectors is not None:
        similar = np.triu(vectors @ vectors.T, k=1)
        reasons |= {(int(i), int(j)): f"similarity {similar[i, j]:.2f}" for i, j in np.argwhere(similar >= near)}
    apart = sorted(pair for pair in reasons if groups[pair[0]] != groups[pair[1]])
    if not apart:
        return []
    sure = _sure(apart, groups, tfidf(names) if vectors is None else vectors)
    surest = sorted(zip(apart, sure, strict=True), key=lambda row: (-row[1], labels[row[0][0]], labels[row[0][1]]))
    asked: set[tuple[int, str]] = set()
    found = []
    for (i, j), value in surest:
        questions = {(i, groups[j]), (j, groups[i])}
        repeats = not asked.isdisjoint(questions)
        asked |= questions
        found.append(Inconsistency(labels[i], groups[i], labels[j], groups[j], reasons[i, j], value, repeats))
    return sorted(found, key=lambda row: row.repeats)


def numbered(ids: Sequence[Hashable]) -> NDArray[np.int64]:
    """Group ids as 0 … G−1, by first appearance."""
    number: dict[Hashable, int] = {}
    return np.asarray([number.setdefault(i, len(number)) for i in ids], np.int64)


def _sure(pairs: Sequence[tuple[int, int]], groups: Sequence[str], vectors: Vectors) -> list[float]:
    """How many spreads inside their groups the labels of each pair are nearer than labels of these groups are.

    Small groups borrow: each group's mean and variance are taken with PRIOR pairs of the average group added.
    """
    ids, exact = numbered(groups), vectors.astype(np.float64)
    within = [_similarities(exact[ids == group]) for group in range(int(ids.max()) + 1)]
    every = np.concatenate(within)
    mean, variance = (float(every.mean()), float(every.var())) if len(every) else (0.0, 1.0)
    means = np.asarray([(row.sum() + PRIOR * mean) / (len(row) + PRIOR) for row in within])
    squares = [np.square(row - own).sum() for row, own in zip(within, means, strict=True)]
    counts = np.asarray([len(row) for row in within])
    variances = np.maximum((np.asarray(squares) + PRIOR * variance) / (counts + PRIOR), 1e-9)
    left, right = np.asarray(pairs).T
    similar = np.einsum("nd,nd->n", exact[left], exact[right])
    usual, spread = (means[ids[left]] + means[ids[right]]) / 2, (variances[ids[left]] + variances[ids[right]]) / 2
    return [round(float(value), 6) for value in (similar - usual) / np.sqrt(spread)]


def _similarities(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The cosine similarities of all pairs of unit vectors (n, D) -> (n·(n−1)/2,)."""
    return np.asarray((vectors @ vectors.T)[np.triu_indices(len(vectors), 1)])


def _means(vectors: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    sums = np.zeros((int(ids.max()) + 1, vectors.shape[1]))
    np.add.at(sums, ids, vectors)
    return sums / np.bincount(ids)[:, None]


def _pairs(groups: NDArray[np.int64], clusters: NDArray[np.int64]) -> tuple[int, int, int]:
    (_, together_found), (together_reference, both) = pair_confusion_matrix(groups, clusters).tolist()
    return both, together_found, together_reference


def _first_word(label: str) -> str:
    return label.split()[0] if " " in label else ""


def _by_word(names: Sequence[str], pick: Callable[[str], str]) -> dict[str, list[int]]:
    words: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        if word := pick(name):
            words.setdefault(word, []).append(position)
    return words
