"""Measures a grouping of labels: with a reference, the agreement and the effort left to a curator;
without one, the coherence.

`clusters` and `reference` are group ids of the same n labels. `weights` are each label's number of
landmarks.

>>> measures = agreement_with([0, 0, 1, 1], ["a", "a", "a", "b"])
>>> measures["purity"], measures["effort"]  # fragments (0,a) (1,a) (1,b): 2·3 − 2 − 2
(0.75, 2.0)
"""

import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations, groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix

from hbench.cli import terminal
from hbench.core.errors import DataError
from hbench.core.files import write_text
from hbench_hgldv2.artefact import made_by, read_rows, record_of, write, write_rows
from hbench_hgldv2.curation.replay import groups_in
from hbench_hgldv2.grouping import cluster as clustering
from hbench_hgldv2.grouping.algorithms import ClusterSettings, algorithms
from hbench_hgldv2.grouping.encode import Vectors, load, tfidf
from hbench_hgldv2.grouping.fit import numbered, silhouettes
from hbench_hgldv2.labels.label import Label, head_noun, normalised

Similarities = NDArray[np.float64]
PRIOR = 3  # how many pairs of an average group are added to each group's mean and variance


class Recall(NamedTuple):
    """The recall of a reference group: the largest share of its labels in one cluster, and the
    number of clusters that hold its labels."""

    group: str
    labels: int
    recall: float
    fragments: int


class Inconsistency(NamedTuple):
    """Two labels in different groups that are near in meaning or wording: a question for the
    curators.

    `sure` is in standard deviations of the similarities inside their groups. `repeats` is true if a
    pair with a higher `sure` already asks the same question.
    """

    label: str
    group: str
    other: str
    other_group: str
    why: str
    sure: float
    repeats: bool


def run(
    work: Path,
    *,
    reference: Annotated[
        Path | None, "A mapping.csv to measure against; by default the folder's."
    ] = None,
    mapping: Annotated[Path | None, "Judge this mapping.csv instead of the clusters."] = None,
    as_json: Annotated[bool, "Print it as JSON."] = False,
) -> None:
    """Measure the clusters, or a mapping, against a reference mapping.

    \b
    hbench hgldv2 quality --reference mapping.csv
    """
    labels = read_rows(work / "labels.csv", Label)
    vectors = load(work / "embeddings.npz", labels)
    reference = reference or (work / "mapping.csv" if (work / "mapping.csv").exists() else None)
    # class id -> group: the grouping to measure, and the reference, if there is one
    groups = groups_in(mapping) if mapping else _clusters_in(work)
    truth = groups_in(reference) if reference else {}
    # title of a table -> measure -> value; the recall of each reference group, the worst first
    measures, recalled = measured(labels, groups, truth)
    measures["without a reference"] = coherence(labels, vectors, groups)
    if mapping is None:  # only a clustering can be repeated on samples, a mapping cannot
        measures["without a reference"]["stability"] = _stability(work, labels, vectors)
    odd = _inconsistencies_in(truth, labels, vectors)
    # the files that were compared; without a reference, only the grouping
    inputs = [path for path in (reference, mapping or work / "clusters.csv") if path]
    record = made_by("quality", [work / "labels.csv", work / "embeddings.npz", *inputs], {})
    text = _as_json(measures, recalled)
    write(work / "quality.json", record, {"pairs": len(odd)}, lambda path: write_text(path, text))
    write(work / "quality.svg", record, {}, lambda path: draw_recalls(path, recalled))
    questions = work / "inconsistencies.csv"
    write_rows(questions, odd, Inconsistency, record=record, counts={"pairs": len(odd)})

    if as_json:
        terminal.show_json(measures)
    else:
        _show(measures, recalled)
        # a pair may repeat the question of a surer pair; such pairs are not counted as questions
        fresh = sum(not row.repeats for row in odd)
        terminal.say(
            f"{fresh} questions to curators, the surest first, and {len(odd)} pairs of near labels "
            f"in different groups: {questions}"
        )


def _as_json(measures: Mapping[str, Mapping[str, float]], recalled: Sequence[Recall]) -> str:
    """Return the text of quality.json with the measures and recalls."""
    content = {"measures": measures, "recalls": [row._asdict() for row in recalled]}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _clusters_in(work: Path) -> dict[str, str]:
    """Return class -> cluster of the work folder, the cluster's number as text."""
    return {i: str(number) for i, number in clustering.read_clusters(work).items()}


def _inconsistencies_in(
    groups: Mapping[str, str], labels: Sequence[Label], vectors: Vectors
) -> list[Inconsistency]:
    """Find the inconsistencies among the labels that have a group. `groups`: {class id: group}."""
    rows = [i for i, label in enumerate(labels) if label.class_id in groups]
    names = [groups[labels[i].class_id] for i in rows]
    return inconsistencies([labels[i].label for i in rows], names, vectors[rows])


def measured(
    labels: Sequence[Label], groups: Mapping[str, str], truth: Mapping[str, str]
) -> tuple[dict[str, dict[str, float]], list[Recall]]:
    """Compare `groups` with the reference `truth` (both class id -> group) on the labels that both
    have.

    Returns the measures and the recall of each group of `truth`, the worst first. The measures are
    under "labels", where every label counts once, and under "landmarks", where a label counts once
    for each of its landmarks. A key is absent if there is nothing to count.
    """
    shared = [label for label in labels if label.class_id in groups and label.class_id in truth]
    group_of_label = [groups[label.class_id] for label in shared]
    true_group_of_label = [truth[label.class_id] for label in shared]
    weights = [label.landmarks for label in shared]  # numbers of landmarks
    measures = {"labels": agreement_with(group_of_label, true_group_of_label)} if shared else {}
    if any(weights):
        measures["landmarks"] = agreement_with(group_of_label, true_group_of_label, weights)
    return measures, recalls(group_of_label, true_group_of_label)


def coherence(
    labels: Sequence[Label], vectors: Vectors, groups: Mapping[str, str]
) -> dict[str, float]:
    """Compute the mean silhouette (by cosine distance) and the lexical coherence of the labels that
    have a group. The lexical coherence is the share of labels whose head noun is the most frequent
    in their group.

    `vectors` are unit vectors (labels, D); `groups` maps class id to group.
    """
    rows = [i for i, label in enumerate(labels) if label.class_id in groups]
    names = [groups[labels[i].class_id] for i in rows]
    return {
        "silhouette": float(silhouettes(vectors[rows], names).mean()),
        "coherence": lexical_coherence([labels[i].label for i in rows], names),
    }


def _stability(work: Path, labels: Sequence[Label], vectors: Vectors) -> float:
    """Compute the stability of the work folder's clustering. It is the mean adjusted Rand index of
    pairs of clusterings, each fitted to a random sample of the labels, with the settings in the
    record of clusters.csv, and extended to all labels.

    `vectors` are (labels, D).
    """
    record = record_of(work / "clusters.csv")
    if record is None:
        raise DataError(
            "clusters.csv has no record",
            expected="a record with its settings",
            fix="run hbench hgldv2 cluster again",
        )
    settings = ClusterSettings(int(record.settings["k"]), int(record.settings["seed"]))
    algorithm = algorithms[str(record.settings["algorithm"])]
    ids = [label.class_id for label in labels]
    return clustering.stability(list(clustering.refits(ids, vectors, algorithm, settings)))


def _show(measures: Mapping[str, Mapping[str, float]], recalled: Sequence[Recall]) -> None:
    """Print one table for each title in `measures` (title -> measure -> value), and a table of the
    15 groups with the lowest recall. `recalled` lists these groups first."""
    for title, values in measures.items():
        terminal.show_table(
            title, ["measure", "value"], [(name, f"{value:.3f}") for name, value in values.items()]
        )
    if recalled:
        worst = [
            (row.group, str(row.labels), f"{row.recall:.2f}", str(row.fragments))
            for row in recalled[:15]
        ]
        terminal.show_table("worst groups", Recall._fields, worst)


def agreement_with(
    clusters: Sequence[Hashable],
    reference: Sequence[Hashable],
    weights: Sequence[int] | None = None,
) -> dict[str, float]:
    """Compute purity, inverse purity, NMI, AMI, ARI, homogeneity, completeness, pairwise F1 and the
    effort that the clusters leave to a curator: {measure: value}.

    `clusters` and `reference` are each label's cluster and reference group, (n,). A label of weight
    w counts as w copies, except for the effort, which is the number of splits and merges that turn
    the K clusters into the G groups: 2·|fragments| − K − G. A fragment is a pair (cluster, group)
    that has at least one label in common. Purity and NMI grow with the number of clusters, so they
    cannot be compared across k.
    """
    copies = np.ones(len(clusters), np.int64) if weights is None else np.asarray(weights)
    cluster_of_label = numbered(clusters)  # (n,)
    group_of_label = numbered(reference)  # (n,)
    numbers = np.repeat(cluster_of_label, copies)  # the cluster of each copy
    groups = np.repeat(group_of_label, copies)  # the group of each copy
    shared = contingency_matrix(groups, numbers)  # (G, K): copies in a group and a cluster
    fragments = contingency_matrix(group_of_label, cluster_of_label) > 0  # (G, K)
    # pairs of copies in the same cluster only, in the same group only, and in both; each pair is
    # counted twice, which cancels in the F1 below
    (_, fp), (fn, tp) = pair_confusion_matrix(groups, numbers).tolist()

    return {
        "purity": float(shared.max(axis=0).sum() / shared.sum()),
        "inverse_purity": float(shared.max(axis=1).sum() / shared.sum()),
        "nmi": float(metrics.normalized_mutual_info_score(groups, numbers)),
        "ami": float(metrics.adjusted_mutual_info_score(groups, numbers)),
        "ari": float(metrics.adjusted_rand_score(groups, numbers)),
        "homogeneity": float(metrics.homogeneity_score(groups, numbers)),
        "completeness": float(metrics.completeness_score(groups, numbers)),
        # 0/0, without pairs in the clusters and in the reference, counts as 1: nothing is wrong
        "pairwise_f1": 2 * tp / (2 * tp + fp + fn) if tp else float(fp + fn == 0),
        "effort": float(2 * fragments.sum() - fragments.shape[0] - fragments.shape[1]),
    }


def recalls(clusters: Sequence[Hashable], reference: Sequence[str]) -> list[Recall]:
    """Compute the recall of each reference group, worst first.

    A group's recall is the largest share of its labels in one cluster. The number of clusters that
    hold its labels is counted, too. `clusters` and `reference` are (n,), one entry per label.
    """
    of_group: dict[str, Counter[Hashable]] = {}
    for cluster, group in zip(clusters, reference, strict=True):
        of_group.setdefault(group, Counter())[cluster] += 1
    rows = [
        Recall(
            group=group,
            labels=count.total(),
            recall=max(count.values()) / count.total(),
            fragments=len(count),
        )
        for group, count in of_group.items()
    ]
    return sorted(rows, key=lambda row: (row.recall, row.group))


def lexical_coherence(labels: Sequence[str], clusters: Sequence[Hashable]) -> float:
    """Compute the share of labels whose head noun is the most frequent in their cluster."""
    nouns: dict[Hashable, Counter[str]] = {}
    for label, cluster in zip(labels, clusters, strict=True):
        nouns.setdefault(cluster, Counter())[head_noun(label)] += 1
    return sum(max(count.values()) for count in nouns.values()) / len(labels)


def inconsistencies(
    labels: Sequence[str],
    groups: Sequence[str],
    vectors: Vectors | None = None,
    *,
    near: float = 0.55,
) -> list[Inconsistency]:
    """Find pairs of labels in different groups that share the head noun or the first word, or whose
    cosine similarity is at least `near`.

    `groups` are the labels' groups (n,) and `vectors` their unit vectors (n, D). Without `vectors`,
    pairs are found by their words alone, and their similarity is that of their characters (TF-IDF).

    The score of a pair is sure = (s − (m₁ + m₂)/2) / √((v₁ + v₂)/2), where s is the cosine
    similarity of the two labels, and m and v are the mean and variance of the similarities inside
    each of their groups. Pairs with the highest scores come first. A pair asks two questions:
    whether each label belongs to the group of the other label. A pair repeats a question if a pair
    with a higher score asks one of these two. Pairs that repeat a question come last.

    A pair is a question to the curators, not an error: "church ruin" belongs to ruins, but "castle
    ruin" to castle / fort.
    """
    names = [normalised(label) for label in labels]
    reasons = _sharing_a_word(names)  # (i, j), two places in `labels` with i < j -> why
    if vectors is not None:
        # a pair that also shares a word is explained by its similarity
        reasons |= _similar(vectors, near)

    apart = sorted(pair for pair in reasons if groups[pair[0]] != groups[pair[1]])
    if not apart:
        return []

    values = _sure(apart, groups, tfidf(names) if vectors is None else vectors)
    sure = dict(zip(apart, values, strict=True))
    surest_first = sorted(apart, key=lambda pair: (-sure[pair], *(labels[i] for i in pair)))

    earlier: set[tuple[int, str]] = set()  # questions so far: (label, group to which it may belong)
    rows = []
    for i, j in surest_first:
        questions = {(i, groups[j]), (j, groups[i])}
        repeats = not earlier.isdisjoint(questions)
        earlier |= questions
        rows.append(
            Inconsistency(
                label=labels[i],
                group=groups[i],
                other=labels[j],
                other_group=groups[j],
                why=reasons[i, j],
                sure=sure[i, j],
                repeats=repeats,
            )
        )

    return sorted(rows, key=lambda row: row.repeats)


def _sharing_a_word(names: Sequence[str]) -> dict[tuple[int, int], str]:
    """Find the pairs of names that share the head noun or, failing that, the first word.

    `names` are normalised labels. Returns {(i, j): a text that gives the shared word}, where i < j
    are the places of the two names.
    """
    reasons: dict[tuple[int, int], str] = {}
    head_nouns = [head_noun(name) for name in names]
    # empty for a name of one word, because that word is its head noun
    first_words = [name.split()[0] if " " in name else "" for name in names]

    for words, why in ((head_nouns, "head noun"), (first_words, "first word")):
        # groupby joins equal words only if they are adjacent
        by_word = sorted(zip(words, range(len(names)), strict=True))
        for word, same in groupby(by_word, key=itemgetter(0)):
            if word:
                pairs = combinations([place for _, place in same], 2)
                reasons |= {pair: f"{why} {word!r}" for pair in pairs if pair not in reasons}

    return reasons


def _similar(vectors: Vectors, near: float) -> dict[tuple[int, int], str]:
    """Find the pairs i < j of vectors (n, D) whose similarity is at least `near` and above 0, with
    a text that gives the similarity."""
    similar = np.triu(vectors @ vectors.T, k=1)  # (n, n), 0 where i ≥ j: each pair once
    return {
        (int(i), int(j)): f"similarity {similar[i, j]:.2f}" for i, j in np.argwhere(similar >= near)
    }


def _sure(pairs: Sequence[tuple[int, int]], groups: Sequence[str], vectors: Vectors) -> list[float]:
    """Compute how much nearer the two labels of each pair are to each other than the labels inside
    their two groups are on average, in standard deviations of the similarities inside these groups.

    `pairs` are places (i, j) of two of the n labels, `groups` is the group of each label (n,), and
    `vectors` are unit vectors (n, D), so that products are cosine similarities.
    """
    ids = numbered(groups)  # (n,)
    exact = vectors.astype(np.float64)
    members = [exact[ids == group] for group in range(int(ids.max()) + 1)]
    # the similarities inside each group, every pair once
    within = [(part @ part.T)[np.triu_indices(len(part), 1)] for part in members]
    means, variances = _moments(within)  # (groups,), also defined for groups of a single label

    left, right = np.asarray(pairs).T  # (pairs,)
    similar = np.einsum("nd,nd->n", exact[left], exact[right])  # (pairs,), as the two below
    usual = (means[ids[left]] + means[ids[right]]) / 2
    spread = (variances[ids[left]] + variances[ids[right]]) / 2

    return [round(float(value), 6) for value in (similar - usual) / np.sqrt(spread)]


def _moments(within: Sequence[Similarities]) -> tuple[Similarities, Similarities]:
    """Compute the mean and the variance (groups,) of the similarities inside each group. `within`
    holds one array per group: the similarities of the pairs inside it.

    A group may have only a few pairs, or none. So PRIOR pairs, with the mean and the variance of
    the pairs of all groups, are added to each group.
    """
    every = np.concatenate(within)
    mean = float(every.mean()) if len(every) else 0.0
    variance = float(every.var()) if len(every) else 1.0
    means = np.asarray([(row.sum() + PRIOR * mean) / (len(row) + PRIOR) for row in within])
    # squared distances from the group's mean above, which includes the added pairs
    squares = [np.square(row - centre).sum() for row, centre in zip(within, means, strict=True)]
    counts = np.asarray([len(row) for row in within])
    # positive, because the score is divided by its root
    variances = np.maximum((np.asarray(squares) + PRIOR * variance) / (counts + PRIOR), 1e-9)
    return means, variances


def draw_recalls(path: Path, rows: Sequence[Recall]) -> None:
    """Draw one bar per group with its recall, number of labels and number of fragments (clusters
    that hold its labels). The worst group, the first of `rows`, is on top. The same rows give the
    same bytes, so ids are not random and no date is written."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "hbench", "svg.fonttype": "none"}):
        # the height is in inches, 0.22 per bar
        figure = Figure(figsize=(8, 1 + 0.22 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        axes.barh(range(len(rows)), [row.recall for row in rows], color="#2457c5")
        names = [row.group.replace("$", "\\$") for row in rows]  # a dollar would start a formula
        texts = [
            f"{name} ({row.labels}; {row.fragments})" for name, row in zip(names, rows, strict=True)
        ]
        axes.set_yticks(range(len(rows)), texts, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the group's labels in one cluster (labels; clusters they lie in)")
        figure.savefig(path, format="svg", metadata={"Date": None})
