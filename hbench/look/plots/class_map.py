"""Draws a map of classes: the mean vectors of the fine classes, laid out in the plane by t-SNE or
UMAP and coloured by a coarser level, like Fig. 5 of HAPPIER."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UnknownName, UsageError
from hbench.datasets.manifest import Manifest
from hbench.evaluation.submission.embedding import EmbeddingSubmission
from hbench.look.figures import GREY, Drawing, draw_figure, legend_above, short
from hbench.look.inputs import dataset_of, ranked_test
from hbench.look.palette import SIZES, group_color, marker_of
from hbench.look.plots import PlotRequest, kind
from hbench.submissions.embeddings import align
from hbench.tree import distinct

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_GROUPS = 8  # groups with their own colour and shape; smaller groups are small grey points
LEAST = 4  # the smallest number of classes for a map
PERPLEXITY = 30.0
SEED = 0
CLASSES_AT_ONCE = 256
LAYOUTS = ("t-sne", "umap")
Floats = NDArray[np.float64]


class ClassPlaces(NamedTuple):
    """The positions (C, 2) in the plane of the means of some fine classes, and the nodes (C,) of
    these classes, which are a part of `number` classes."""

    nodes: NDArray[np.int64]
    places: Floats
    number: int


def map_of(
    manifest: Manifest,
    submission: EmbeddingSubmission,
    *,
    cosine: bool,
    method: str = LAYOUTS[0],
    most: int | None = None,
) -> ClassPlaces | None:
    """Lay out the means of all fine classes, or of `most` classes chosen at random. Returns None
    for fewer than four classes.

    `cosine` says whether only directions count; `method` is one of LAYOUTS. The positions are
    reproducible on one machine. Raises UsageError if UMAP is not installed.
    """
    # nodes: the fine classes that have items
    means, nodes = mean_vectors(manifest, vectors_of(manifest, submission), cosine=cosine)
    if len(nodes) < LEAST:
        return None
    shown = np.sort(np.random.default_rng(SEED).permutation(len(nodes))[:most])
    return ClassPlaces(
        nodes=nodes[shown].astype(np.int64),
        places=_lay_out(means[shown], method),
        number=len(nodes),
    )


def vectors_of(manifest: Manifest, submission: EmbeddingSubmission) -> NDArray[np.floating]:
    """Return the vectors of all items (N, D). Where queries and gallery come from two files, an
    item that both files contain gets the gallery's vector."""
    queries = submission.parts[0]  # the file of the queries, or the only file
    gallery = submission.gallery
    if len(submission.parts) == 1:
        return np.asarray(queries.vectors[align(queries, manifest.items)])
    # items that are neither queries nor in the gallery have no vector in either file: they get
    # zeros
    dtype = np.result_type(queries.vectors, gallery.vectors)
    vectors = np.zeros((len(manifest), queries.dim), dtype)
    for part, has in ((queries, manifest.query), (gallery, manifest.gallery)):
        # `align` finds the row of each item in the file
        vectors[has] = part.vectors[align(part, manifest.items[has])]
    return vectors


def mean_vectors(
    manifest: Manifest, vectors: NDArray[np.floating], *, cosine: bool
) -> tuple[Floats, NDArray[np.int64]]:
    """Compute the mean vector of every fine class with items from vectors (N, D). Returns the means
    (C, D) and their classes (C,).

    With `cosine`, the vectors and the means are normalised.
    """
    # items sorted by class: the items of a class are adjacent, and its last one is before `ends`.
    # `place` (N,) is the index of each item's class in `classes`
    classes, place = distinct(manifest.labels[:, -1])
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place))
    means = np.empty((len(classes), vectors.shape[1]))

    # in blocks, so that the vectors are not all copied at once
    for some in range(0, len(classes), CLASSES_AT_ONCE):
        last = ends[some : some + CLASSES_AT_ONCE]
        # the position in `order` at which the items of each of these classes start
        first = np.append(ends[some - 1] if some else 0, last[:-1])
        own = vectors[order[first[0] : last[-1]]].astype(np.float64)
        if cosine:
            own /= np.sqrt(np.einsum("nd,nd->n", own, own))[:, None]
        sums = np.add.reduceat(own, first - first[0])  # `own` starts at the block's first item
        means[some : some + CLASSES_AT_ONCE] = sums / (last - first)[:, None]

    return (means / np.linalg.norm(means, axis=1, keepdims=True) if cosine else means), classes


def _lay_out(means: Floats, method: str) -> Floats:
    """Lay out class means (classes, D) in the plane; returns (classes, 2), the same positions in
    every run. `method` is "umap"; anything else means t-SNE."""
    if method == "umap":
        try:
            from umap import UMAP
        except ModuleNotFoundError:
            raise UsageError(
                "umap is not installed", fix="pip install umap-learn, or --method t-sne"
            ) from None
        # one thread: with several, the positions would differ between runs
        return np.asarray(UMAP(random_state=SEED, n_jobs=1).fit_transform(means), np.float64)
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # the perplexity is roughly the number of neighbours that a class has; with few classes it is at
    # most a third of them
    perplexity = min(PERPLEXITY, (len(means) - 1) / 3)
    # one thread: t-SNE's loops are so short that threads would mostly wait for each other
    with threadpool_limits(1):
        places = TSNE(2, perplexity=perplexity, init="pca", random_state=SEED).fit_transform(means)
    return np.asarray(places, np.float64)


def draw_map(
    places: Floats, group_of: NDArray[np.int64], groups: Sequence[str], *, level: str, about: str
) -> Drawing:
    """Draw a point for each class at its position (C, 2). The largest groups get their own colours
    and shapes.

    `group_of` (C,) is the number of each class's group, and `groups` are the groups' names. `level`
    says what the groups are; `about` is the small print.
    """
    sizes = np.bincount(group_of, minlength=len(groups))
    # in tree order, so that neighbouring groups get neighbouring colours
    largest = np.sort(np.argsort(-sizes, kind="stable")[:MAX_GROUPS])
    rest = ~np.isin(group_of, largest)

    def paint(figure: Figure) -> None:
        """Draw the classes as points: the largest groups in colours, all others in grey beneath
        them."""
        panel = figure.subplots()
        if rest.any():
            others = f"{len(groups) - len(largest)} smaller"
            x, y = places[rest].T
            panel.scatter(x, y, s=4, color=GREY, linewidths=0, label=others)

        for number, group in enumerate(largest.tolist()):
            x, y = places[group_of == group].T
            panel.scatter(
                x,
                y,
                s=6 * SIZES[number],  # which makes the shapes of all groups look equally large
                color=group_color(number, len(largest)),
                marker=marker_of(number),
                edgecolors="white",
                linewidths=0.3,
                label=short(groups[group], 20),
            )

        panel.set(xticks=[], yticks=[], aspect="equal")
        panel.spines[:].set_visible(False)
        handles, labels = panel.get_legend_handles_labels()
        legend_above(figure, labels, handles).set_title(level)

    return draw_figure(paint, height=3.4, about=about)


@kind(
    "map",
    about="the means of the fine classes by t-SNE or UMAP, coloured by a coarser level",
    files="an embedding file with --dataset",
    options="dataset test level method",
)
def _draw(request: PlotRequest) -> Drawing:
    """Draw the map of a file's classes for the requested test and level."""
    method = request.method or LAYOUTS[0]
    if method not in LAYOUTS:
        raise UnknownName("method of a map", method, LAYOUTS)

    ranked = ranked_test(request.files, dataset_of(request.dataset, "map"), request.test)
    manifest = ranked.manifest
    examined = ranked.examined
    level = request.level or manifest.levels[0]
    column = manifest.tree.level(level) - 1  # levels count from 1, columns of paths from 0
    submission = examined.submission.embeddings("a map")
    found = map_of(
        manifest, submission, cosine=examined.conditions.words.similarity == "cosine", method=method
    )
    if found is None:
        raise UsageError("a map needs at least four classes")

    classes = f"{found.number:,} classes ({manifest.levels[-1]})"
    about = f"{ranked.signature}\nmeans of {classes}, laid out by {method}"
    # the node at this level above each class drawn
    group_of = manifest.tree.paths[found.nodes, column].astype(np.int64)
    return draw_map(found.places, group_of, manifest.tree.names[column], level=level, about=about)
