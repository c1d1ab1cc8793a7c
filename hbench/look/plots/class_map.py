"""Draws a map of classes: the mean vectors of fine classes, laid out by t-SNE or UMAP, coloured by
a coarser level, like Fig. 5 of HAPPIER."""

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

MAX_GROUPS = (
    8  # groups with a colour and a shape of their own; the smaller ones are small grey points
)
LEAST = 4  # classes that a map needs
PERPLEXITY = 30.0
SEED = 0
CLASSES_AT_ONCE = 256
LAYOUTS = ("t-sne", "umap")
Floats = NDArray[np.float64]


class ClassPlaces(NamedTuple):
    """The places (C, 2) of the means of some fine classes in the plane, and their nodes (C,), out
    of `number` classes.
    """

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
    """Lay out the means of the fine classes, or of `most` of them, chosen at random; None for fewer
    than four classes.

    The places are reproducible on one machine. Raises UsageError if UMAP is not installed.
    `cosine`: whether only directions count; `method`: one of LAYOUTS.
    """
    means, nodes = mean_vectors(manifest, vectors_of(manifest, submission), cosine=cosine)
    if len(nodes) < LEAST:
        return None
    shown = np.sort(np.random.default_rng(SEED).permutation(len(nodes))[:most])
    return ClassPlaces(nodes[shown].astype(np.int64), _lay_out(means[shown], method), len(nodes))


def vectors_of(manifest: Manifest, submission: EmbeddingSubmission) -> NDArray[np.floating]:
    """The vectors of all items (N, D); of queries and gallery in two files each item's own, the
    gallery's where both have it.
    """
    whole = submission.parts[0]
    gallery = submission.gallery
    if len(submission.parts) == 1:
        return np.asarray(whole.vectors[align(whole, manifest.items)])
    # items that are neither asked nor ranked have no vector in either: zeros
    vectors = np.zeros((len(manifest), whole.dim), np.result_type(whole.vectors, gallery.vectors))
    for part, has in ((whole, manifest.query), (gallery, manifest.gallery)):
        vectors[has] = part.vectors[align(part, manifest.items[has])]
    return vectors


def mean_vectors(
    manifest: Manifest, vectors: NDArray[np.floating], *, cosine: bool
) -> tuple[Floats, NDArray[np.int64]]:
    """Compute the mean vector of every fine class with items, from vectors (N, D); returns means
    (C, D) and classes (C,).

    With `cosine`, the vectors and the means are normalised.
    """
    # items by class: those of a class lie side by side, and end at `ends`
    classes, place = distinct(manifest.labels[:, -1])
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place))
    means = np.empty((len(classes), vectors.shape[1]))

    # by blocks, so that the vectors are not copied all at once
    for some in range(0, len(classes), CLASSES_AT_ONCE):
        last = ends[some : some + CLASSES_AT_ONCE]
        # where the items of each of these classes begin in `order`
        first = np.append(ends[some - 1] if some else 0, last[:-1])
        own = vectors[order[first[0] : last[-1]]].astype(np.float64)
        if cosine:
            own /= np.sqrt(np.einsum("nd,nd->n", own, own))[:, None]
        means[some : some + CLASSES_AT_ONCE] = (
            np.add.reduceat(own, first - first[0]) / (last - first)[:, None]
        )

    return (means / np.linalg.norm(means, axis=1, keepdims=True) if cosine else means), classes


def _lay_out(means: Floats, method: str) -> Floats:
    """Places of class means (classes, D) in the plane, (classes, 2), the same ones in every run.
    `method`: "umap", else t-SNE."""
    if method == "umap":
        try:
            from umap import UMAP
        except ModuleNotFoundError:
            raise UsageError(
                "umap is not installed", fix="pip install umap-learn, or --method t-sne"
            ) from None
        # one thread: several would make other places in every run
        return np.asarray(UMAP(random_state=SEED, n_jobs=1).fit_transform(means), np.float64)
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # about the neighbours of a class: a third of the others at most, where there are few
    perplexity = min(PERPLEXITY, (len(means) - 1) / 3)
    # t-SNE's loops are so short that threads would mostly wait for each other
    with threadpool_limits(1):
        places = TSNE(2, perplexity=perplexity, init="pca", random_state=SEED).fit_transform(means)
    return np.asarray(places, np.float64)


def draw_map(
    places: Floats, group_of: NDArray[np.int64], groups: Sequence[str], *, level: str, about: str
) -> Drawing:
    """Draw a point for each class at its place (C, 2); the largest groups get colours and shapes,
    by `group_of` (C,). `groups`: their names, by number; `level`: what they are; `about`: the small
    print."""
    sizes = np.bincount(group_of, minlength=len(groups))
    # in the order of the tree, so that neighbours in it get neighbouring colours
    largest = np.sort(np.argsort(-sizes, kind="stable")[:MAX_GROUPS])
    rest = ~np.isin(group_of, largest)

    def paint(figure: Figure) -> None:
        """The classes as points: the largest groups in colours, all others grey and below them."""
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
                s=6 * SIZES[number],
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
    "the means of the fine classes by t-SNE or UMAP, coloured by a coarser level",
    "an embedding file with --dataset",
    "dataset test level method",
)
def _draw(request: PlotRequest) -> Drawing:
    """The map of a file's classes, by the test and level that are asked for."""
    method = request.method or LAYOUTS[0]
    if method not in LAYOUTS:
        raise UnknownName("method of a map", method, LAYOUTS)

    ranked = ranked_test(request.files, dataset_of(request.dataset, "map"), request.test)
    manifest = ranked.manifest
    examined = ranked.examined
    level = request.level or manifest.levels[0]
    column = manifest.tree.level(level) - 1  # levels are counted from 1, columns of paths from 0
    submission = examined.submission.embeddings("a map")
    found = map_of(
        manifest, submission, cosine=examined.conditions.words.similarity == "cosine", method=method
    )
    if found is None:
        raise UsageError("a map needs at least four classes")

    classes = f"{found.number:,} classes ({manifest.levels[-1]})"
    about = f"{ranked.signature}\nmeans of {classes}, laid out by {method}"
    # the node at that level above each class that is drawn
    group_of = manifest.tree.paths[found.nodes, column].astype(np.int64)
    return draw_map(found.places, group_of, manifest.tree.names[column], level=level, about=about)
