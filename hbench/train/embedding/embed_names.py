"""Embeds the names of a dataset's nodes with the text tower of a model, so that names can be used
as queries for images.

Every node of the label tree, at every level, gets one vector: as CLIP's authors do, the mean over
several sentences with its name. Ids are the paths to the nodes, as `hbench evaluate --nodes` reads
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from hbench.core.arguments import checked
from hbench.core.errors import DataError, UsageError, examples
from hbench.datasets import Dataset, load
from hbench.evaluation.by_name.nodes import path_text, paths_of
from hbench.sheets.paths import as_written
from hbench.sheets.rows import Row
from hbench.submissions import embeddings
from hbench.train.embedding.embed_dataset import items_of, refuse_existing
from hbench.train.embedding.other_names import OtherNames, read_names, variants
from hbench.train.models.backbone import PRETRAINED, RANDOM
from hbench.train.models.libraries import open_clip_model
from hbench.train.models.weights import with_fetched_weights
from hbench.train.processes import chosen_device
from hbench.tree import LabelTree

PHOTO = "a photo of {}"
TextTower = Callable[[Sequence[str]], Tensor]


@checked
def embed_names(
    model: str,
    dataset: str | Path | Dataset,
    out: str | Path,
    *,
    split: str = "test",
    templates: str | Sequence[str] = PHOTO,
    other_names: str | Path | None = None,
    language: str | None = None,
    weights: str = PRETRAINED,
    batch: int = 64,
    device: str = "auto",
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Path:
    """Embed the name of every node of a dataset's tree, for `hbench.evaluate(…, nodes=)`.

    Args:
        model: a model of images and texts: open_clip:ARCH/TAG, or open_clip:hf-hub:OWNER/NAME.
        dataset: a Dataset, or what `hbench.load` takes.
        out: a new .parquet, .npz or .npy file.
        split: whose tree: "test" (default), "train", or the name of a test.
        templates: a sentence, or several, with {} for the name of the node, or {path} for all names
            from the top to it. A node's vector is the mean of the unit vectors of its sentences.
            Default: "a photo of {}".
        other_names: a table of further names, with the columns node (a name or path), name and,
            optionally, language. A node's vector is the mean over its own name and these.
        language: use only `other_names` in this language. If a node has any of these, they replace
            its own name.
        weights: "pretrained" (default) or "random".
        batch: nodes at a time.
        device: a torch device. Default: "auto", a GPU if there is one.
        on_progress: called with the number of nodes done and of all nodes.

    Returns:
        The path of the file.

    Raises:
        UnknownName: a model that does not exist.
        UsageError: a model without a text tower, a template without a name, or a file that exists.
        DataError: weights that cannot be fetched.
    """
    file = Path(out)
    refuse_existing(file)
    sentences = (templates,) if isinstance(templates, str) else tuple(templates)
    _refuse_templates(sentences)

    if language is not None and other_names is None:
        raise UsageError("a language is one of other names", fix="give a table of other names")

    tree = items_of(dataset if isinstance(dataset, Dataset) else load(dataset), split).tree
    named = _paths_of_names(tree, other_names, language)  # for each node, a path per name
    texts_to_vectors = _text_tower(model, weights, chosen_device(device))
    vectors = _vectors(texts_to_vectors, named, sentences, batch=batch, on_progress=on_progress)
    embeddings.write(
        file,
        list(map(path_text, paths_of(tree))),  # the nodes' ids, in the order of `named`
        vectors,
        metadata={"model": model, "weights": weights, "templates": " | ".join(sentences)},
    )
    return file


def sentence(template: str, path: Row) -> str:
    """Fill a template with the names of the path to a node, coarse to fine: the last name replaces
    {}, and all names replace {path}. Underscores in names become spaces. A parent that was appended
    to a name to make it unique, "Cases (Cameras)", is removed.

    >>> sentence("a photo of {}", ("Owls", "Barn_owl")), sentence("{path}.", ("Owls", "Barn_owl"))
    ('a photo of Barn owl', 'Owls Barn owl.')
    """
    names = [name.replace("_", " ") for name in as_written(path)]
    return template.replace("{path}", " ".join(names)).replace("{}", names[-1])


def first_sentences(
    dataset: Dataset, split: str, template: str, others: OtherNames | None = None, *, most: int = 3
) -> Iterator[str]:
    """Make a sentence for each of at most `most` nodes of the finest level, to show what a template
    makes of the names. `others`: {path of a node: further names}. Nodes with further names come
    first, since these names should be checked.
    """
    tree = items_of(dataset, split).tree
    finest = [path for path in paths_of(tree) if len(path) == tree.depth]
    # False sorts before True; the sort is stable
    first = sorted(finest, key=lambda path: path not in (others or {}))[:most]
    # for each node, its path with each of its further names as the last one or, if it has none, the
    # path with its own name; the first of these makes the sentence
    named = (variants(path, others, is_replaced=True) for path in first)
    return (sentence(template, paths[0]) for paths in named)


def _refuse_templates(templates: Sequence[str]) -> None:
    """Raise UsageError if there is no template, or if one has no place for a name."""
    without = [each for each in templates if "{}" not in each and "{path}" not in each]
    if without or not templates:
        raise UsageError(
            "a template has no place for a name" if without else "there is no template",
            expected="{} for the name, or {path} for all names from the top to it",
            found=examples(map(repr, without)),
            fix=f"such as {PHOTO!r}",
        )


def _paths_of_names(
    tree: LabelTree, other_names: str | Path | None, language: str | None
) -> list[Sequence[Row]]:
    """List, for every node of the tree, its path under each of its names. The node's vector is the
    mean over these.

    Without `other_names`, a table, a node has only its own name. The table adds names, or replaces
    the own name if a `language` is given.
    """
    others = None if other_names is None else read_names(Path(other_names), tree, language)
    return [variants(path, others, is_replaced=language is not None) for path in paths_of(tree)]


def _vectors(
    texts_to_vectors: TextTower,
    named: Sequence[Sequence[Row]],
    templates: Sequence[str],
    *,
    batch: int,
    on_progress: Callable[[int, int], None],
) -> NDArray[np.float32]:
    """Compute the vectors of all N nodes, (N, D), `batch` nodes at a time. `named`: for each node,
    its path under each of its names. `on_progress`: called with the number of nodes done and of
    all."""
    vectors = []
    for start in range(0, len(named), batch):
        vectors.append(_mean_vectors(texts_to_vectors, named[start : start + batch], templates))
        on_progress(sum(map(len, vectors)), len(named))
    return np.concatenate(vectors)


def _mean_vectors(
    texts_to_vectors: TextTower, named: Sequence[Sequence[Row]], templates: Sequence[str]
) -> NDArray[np.float32]:
    """Compute the normalised mean of the unit vectors of each node's sentences, (N, D). A node has
    a sentence for each of its paths and each template.
    """
    # embed all paths of all nodes together, for each template, and split them by node afterwards
    paths = [path for names in named for path in names]
    views = [  # of each template: the vectors (paths, D)
        functional.normalize(texts_to_vectors([sentence(template, path) for path in paths]))
        for template in templates
    ]
    # of each node: the mean over templates, (paths of the node, D)
    of_names = torch.stack(views).mean(0).split(list(map(len, named)))
    mean = functional.normalize(torch.stack([vectors.mean(0) for vectors in of_names]))
    vectors: NDArray[np.float32] = mean.float().cpu().numpy()
    return vectors


def _text_tower(model: str, weights: str, device: torch.device) -> TextTower:
    """Load the text tower of a model, and return a function from N texts to features (N, D)."""
    source, _, name = model.partition(":")
    if source != "open_clip":
        raise UsageError(
            f"{model} has no text tower that hbench reads",
            expected="open_clip:ARCH/TAG, or open_clip:hf-hub:OWNER/NAME",
            fix="write vectors of names with the model's own code: docs/by-name.md shows the file",
        )
    if weights not in {PRETRAINED, RANDOM}:
        raise UsageError(
            f"{weights} is no choice of weights for names",
            expected=f"{PRETRAINED} or {RANDOM}",
            fix=f"leave --weights out: those of {model} are taken",
        )

    with torch.random.fork_rng(devices=[]):  # restores the program's random state
        torch.manual_seed(0)  # so that random weights are always the same
        net: Any = open_clip_model(name, pretrained=weights == PRETRAINED)
    net = net.to(device).eval()
    tokens_of = _tokenizer(name)

    def texts_to_vectors(texts: Sequence[str]) -> Tensor:
        """Compute the features (N, D) of texts, on the device, not normalised."""
        with torch.inference_mode():
            features: Tensor = net.encode_text(tokens_of(list(texts)).to(device))
        return features

    return texts_to_vectors


def _tokenizer(name: str) -> Any:
    """Load the tokenizer of an open_clip model. Raises DataError if it cannot be fetched."""
    import open_clip

    # the tokenizer of "ARCH/TAG" depends on ARCH only; "hf-hub:OWNER/NAME" is kept whole
    named = name if name.startswith("hf-hub:") else name.partition("/")[0]
    where = "the Hugging Face cache (HF_HOME)"  # for messages
    try:
        return with_fetched_weights(  # the tokenizer, or a DataError about weights
            lambda: open_clip.get_tokenizer(named), f"open_clip:{name}", where
        )
    except DataError as error:
        raise DataError(
            f"the tokenizer of open_clip:{name} cannot be fetched",
            expected=f"network, or the tokenizer in {where}",
            found=error.found,
            fix="fetch it where there is network, and copy that cache here",
        ) from None
