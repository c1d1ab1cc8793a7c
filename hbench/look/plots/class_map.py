"""Draws a map of the classes: the mean vector of every fine class, laid out by t-SNE or UMAP, coloured by a coarser level
(HAPPIER, Fig. 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import UnknownName, UsageError
from hbench.datasets.manifest import Manifest
from hbench.evaluation import embeddings as embedding_files
from hbench.look.figures import GREY, Drawing, drawn, legend_above, short
from hbench.look.inputs import dataset_of, examined_embeddings, test_of
from hbench.look.palette import group_color, marker_of
from hbench.look.plots import Kind, PlotRequest, kinds
from hbench.tree import distinct

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 8  # groups with a colour and a shape of their own; the smaller ones are small grey points
PERPLEXITY = 30.0
SEED = 0
CLASSES_AT_ONCE = 256
LAYOUTS = ("t-sne", "umap")
Floats = NDArray[np.float64]


class ClassMap(NamedTuple):
    """`places` (C, 2) of the fine classes, and the number (C,) of the group of each, into `groups`."""

    places: Floats
    group: NDArray[np.int64]
    groups: tuple[str, ...]


def class_means(manifest: Manifest, vectors: NDArray[np.floating], *, cosine: bool) -> tuple[Floats, NDArray[np.int64]]:
    """The mean of the vectors (N, D) of the items of every fine class that has some, and these classes: (C, D), (C,).

    With `cosine` an item counts by its direction alone, and so does a mean.
    """
    classes, place = distinct(manifest.labels[:, -1])
    order, ends = np.argsort(place, kind="stable"), np.cumsum(np.bincount(place))
    means = np.empty((len(classes), vectors.shape[1]))
    for some in range(0, len(classes), CLASSES_AT_ONCE):  # each item is read once, and no second copy of all is made
        last = ends[some : some + CLASSES_AT_ONCE]
        first = np.append(ends[some - 1] if some else 0, last[:-1])
        own = vectors[order[first[0] : last[-1]]].astype(np.float64)
        if cosine:
            own /= np.sqrt(np.einsum("nd,nd->n", own, own))[:, None]
        means[some : some + CLASSES_AT_ONCE] = np.add.reduceat(own, first - first[0]) / (last - first)[:, None]
    return (means / np.linalg.norm(means, axis=1, keepdims=True) if cosine else means), classes


def laid_out(means: Floats, method: str) -> Floats:
    """Places in the plane (C, 2), the same every time on one machine. Raises UsageError for fewer than four classes, or
    where UMAP is not installed; UnknownName for the method."""
    if len(means) < 4:
        raise UsageError("a map needs at least four classes", found=f"{len(means)}")
    if method == "umap":
        try:
            from umap import UMAP
        except ModuleNotFoundError:
            raise UsageError("umap is not installed", fix="pip install umap-learn, or --method t-sne") from None
        return np.asarray(UMAP(random_state=SEED, n_jobs=1).fit_transform(means), np.float64)
    if method != "t-sne":
        raise UnknownName("method of a map", method, LAYOUTS)
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(PERPLEXITY, (len(means) - 1) / 3)
    with threadpool_limits(1):  # of many short loops: threads wait for each other longer than they compute
        places = TSNE(2, perplexity=perplexity, init="pca", random_state=SEED).fit_transform(means)
    return np.asarray(places, np.float64)


def draw_map(found: ClassMap, level: str, about: str) -> Drawing:
    """A point per class; the largest groups have a colour and a shape of their own."""
    sizes = np.bincount(found.group, minlength=len(found.groups))
    largest = np.sort(np.argsort(-sizes, kind="stable")[:MOST])
    rest = ~np.isin(found.group, largest)

    def paint(figure: Figure) -> None:
        panel = figure.subplots()
        if rest.any():
            others = f"{len(found.groups) - len(largest)} smaller"
            x, y = found.places[rest].T
            panel.scatter(x, y, s=3, color=GREY, linewidths=0, label=others, alpha=0.6)
        for number, group in enumerate(largest.tolist()):
            x, y = found.places[found.group == group].T
            panel.scatter(
                x,
                y,
                s=8,
                color=group_color(number, len(largest)),
                marker=marker_of(number),
                edgecolors="white",
                linewidths=0.3,
                label=short(found.groups[group], 20),
            )
        panel.set(xticks=[], yticks=[], aspect="equal")
        panel.spines[:].set_visible(False)
        handles, labels = panel.get_legend_handles_labels()
        legend_above(figure, labels, handles).set_title(level)

    return drawn(paint, height=3.4, about=about)


def _draw(request: PlotRequest) -> Drawing:
    if len(request.files) != 1:
        raise UsageError("a map is drawn of one embedding file", found=f"{len(request.files)} files")
    data, method = dataset_of(request.dataset, "map"), request.method or LAYOUTS[0]
    if method not in LAYOUTS:
        raise UnknownName("method of a map", method, LAYOUTS)
    test = test_of(data, request.test)
    examined = examined_embeddings(request.files[0], data)
    manifest = examined.data.tests[test]
    level = request.level or manifest.levels[0]
    depth = manifest.tree.level(level)
    given = examined.submission.embeddings("a map").queries
    vectors = given.vectors[embedding_files.align(given, manifest.items)]
    means, classes = class_means(manifest, vectors, cosine=examined.conditions.similarity_name == "cosine")
    group = manifest.tree.paths[classes, depth - 1].astype(np.int64)
    about = (
        f"{examined.signature([test])}\nmeans of {len(classes):,} classes ({manifest.levels[-1]}), laid out by {method}"
    )
    return draw_map(ClassMap(laid_out(means, method), group, manifest.tree.names[depth - 1]), level, about)


kinds.register("map")(
    Kind(
        "the means of the fine classes by t-SNE or UMAP, coloured by a coarser level",
        "an embedding file with --dataset",
        frozenset({"dataset", "test", "level", "method"}),
        _draw,
    )
)
