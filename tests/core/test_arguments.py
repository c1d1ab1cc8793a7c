"""Arguments of another kind than the signature names are refused by their name, before anything is
read or computed.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import hbench
from hbench.core.arguments import checked, checked_class
from hbench.core.errors import HBenchError, UsageError
from hbench.datasets.own.source import OwnSource
from hbench.engine.settings import Settings
from hbench.look.strips.results import browse
from hbench.metrics.names import MetricName
from hbench.train.embedding.embed_dataset import EmbedOptions
from hbench.tree import LabelTree

pytestmark = pytest.mark.fast

VECTORS = np.random.default_rng(0).normal(size=(12, 4))
LABELS = np.stack([np.zeros(12, int), np.arange(12) % 2], axis=1)
SCORES, LEVELS = VECTORS[:3], np.array([[0, 1, 2, 0]] * 3)

TEXT = [3, 2.5, [1], object(), b"x", {}]
WHOLE = ["x", 2.5, [1], object(), True, {}]
NUMBER = ["x", [1], object(), True, {}]
FLAG = ["x", 3, [1], object()]
TEXTS = [3, 2.5, [1], object(), b"x", {}, [None]]
PATH = [3, 2.5, [1], object(), {}]

CALLS = [
    (hbench.score, (VECTORS, LABELS), {"ties": TEXT, "protocol": TEXT, "relevance": TEXT, "similarity": TEXT, "unit": TEXT}),
    (hbench.score, (VECTORS, LABELS), {"metrics": TEXTS, "level_names": TEXTS, "policies": TEXTS, "alpha": NUMBER}),
    (hbench.evaluate, ("none.npz", "none.csv"), {"ties": TEXT, "unit": TEXT, "metrics": TEXTS, "also_official": FLAG}),
    (hbench.load, ("none.csv",), {"item": TEXT, "separator": TEXT, "levels": TEXTS, "policies": TEXTS, "taxonomy": PATH}),
    (hbench.build, (), {"name": TEXT, "root": PATH, "out": PATH, "force": FLAG, "cards": FLAG}),
    (hbench.compare, ("a.json", "b.json"), {"metrics": TEXTS, "unit": TEXT}),
    (hbench.plot, ("a.json",), {"kind": TEXT, "metrics": TEXTS}),
    (hbench.browse, ("none.npz", "none.csv"), {"by": TEXT, "ties": TEXT, "test": TEXT, "k": WHOLE}),
    (hbench.leaderboard, (), {"name": TEXT}),
    (hbench.list_metrics, (), {"pattern": TEXT}),
    (hbench.metrics.ap, (SCORES, LEVELS), {"level": WHOLE, "depth": WHOLE, "ties": TEXT}),
    (hbench.metrics.h_ap, (SCORES, LEVELS), {"relevance": TEXT, "alpha": NUMBER}),
    (hbench.metrics.recall_at_k, (SCORES, LEVELS), {"k": WHOLE}),
    (hbench.metrics.nmi, (VECTORS, LABELS[:, 1]), {"clusters": WHOLE, "seed": WHOLE}),
    (hbench.losses.build_loss, (), {"name": TEXT}),
    (hbench.losses.CrossBatchMemory, (hbench.losses.build_loss("contrastive"),), {"size": WHOLE}),
    (hbench.losses.CrossBatchMemory, (hbench.losses.build_loss("contrastive"), 9), {"batch_weight": NUMBER}),
    (Settings, (), {"ties": TEXT, "alpha": NUMBER}),
    (EmbedOptions, (), {"batch": WHOLE, "flip": FLAG}),
    (OwnSource, (Path("none.csv"),), {"test_fraction": NUMBER, "seed": WHOLE, "split_by": TEXT}),
]  # fmt: skip
WRONG = [
    pytest.param(
        function, given, name, value, id=f"{function.__name__}-{name}-{type(value).__name__}"
    )
    for function, given, wrong in CALLS
    for name, values in wrong.items()
    for value in values
]


@pytest.mark.parametrize(("function", "given", "name", "value"), WRONG)
def test_an_argument_of_another_kind_is_refused_by_its_name(function, given, name, value):
    with pytest.raises(UsageError, match=rf"^{name} must be "):
        function(*given, **{name: value})


@pytest.mark.parametrize("call", [hbench.load, hbench.leaderboard, hbench.Report.read])
def test_a_name_that_no_disk_takes_is_refused_by_its_argument(call):
    with pytest.raises(UsageError, match="at most 255 bytes"):
        call("n" * 300)


def test_a_pattern_of_names_is_no_name_of_a_file():
    assert hbench.list_datasets("n" * 300) == []


def test_a_refusal_says_what_is_taken_and_what_was_given():
    with pytest.raises(UsageError) as refusal:
        hbench.score(VECTORS, LABELS, ties=None)
    assert str(refusal.value).splitlines()[0] == "ties must be a text"
    assert refusal.value.found == "None"


@checked
def joined(
    words: Sequence[str],
    times: int = 1,
    share: float = 1.0,
    upper: bool = False,
    path: Path | None = None,
) -> str:
    """The words, joined."""
    return ",".join(words) * times


@pytest.mark.parametrize(
    "given",
    [
        {"words": ("a", "b")},
        {"words": np.array(["a", "b"])},
        {"words": ["a", "b"], "times": np.int64(1), "share": 1},
        {"words": ["a", "b"], "share": np.float32(1), "upper": np.bool_(True)},
        {"words": ["a", "b"], "path": None},
    ],
)
def test_values_that_are_as_good_are_taken(given):
    assert joined(**given) == "a,b"


def test_python_says_itself_what_is_missing_or_unknown():
    with pytest.raises(TypeError, match=r"joined\(\) missing 1 required positional argument"):
        joined()
    with pytest.raises(TypeError, match=r"joined\(\) got an unexpected keyword argument 'sep'"):
        joined(["a"], sep=";")


def test_help_and_signature_are_those_of_the_function():
    assert joined.__doc__ == "The words, joined."
    assert joined.__name__ == "joined"


@checked_class
class Holder:
    """Holds a number."""

    def __init__(self, number: "int") -> None:
        self.number = number


def test_a_class_checks_what_it_is_made_of():
    assert Holder(3).number == 3
    with pytest.raises(UsageError, match="number must be a whole number"):
        Holder("3")


RAGGED = [[1, 2], [3]]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: hbench.score(RAGGED, [0, 1]), "vectors"),
        (lambda: hbench.metrics.ap(RAGGED, LEVELS), "scores"),
        (lambda: hbench.metrics.ap(SCORES, RAGGED), "levels"),
        (lambda: hbench.metrics.knn_accuracy(SCORES, RAGGED, [0, 1, 0], 1), "classes"),
        (lambda: hbench.metrics.nmi(RAGGED, [0, 1]), "vectors"),
        (lambda: hbench.levels_of_pairs(RAGGED, LABELS), "queries"),
        (lambda: hbench.LabelTree.from_labels(RAGGED), "labels"),
    ],
)
def test_lists_of_different_lengths_are_no_array(call, name):
    with pytest.raises(UsageError, match=f"^{name} cannot be read as an array"):
        call()


@pytest.mark.parametrize(
    ("embeddings", "labels"), [(None, LABELS), (VECTORS, LABELS), (VECTORS.tolist(), None)]
)
def test_a_loss_takes_tensors(embeddings, labels):
    with pytest.raises(hbench.ConfigError, match="are no tensor"):
        hbench.losses.build_loss("sup_hap")(embeddings, labels)


WRONG_CALLS = {
    "metrics as an array of texts": lambda: hbench.score(VECTORS, LABELS, metrics=np.array(["x"])),
    "labels as a number": lambda: hbench.score(VECTORS, 3),
    "nodes in score": lambda: hbench.score(VECTORS, LABELS, nodes=VECTORS),
    "nodes in evaluate": lambda: hbench.evaluate(VECTORS, "glyphs", ids=["a"] * 12, nodes=3),
    "an audit without ids": lambda: hbench.audit(VECTORS, "glyphs"),
    "files of browse": lambda: browse(VECTORS, "glyphs"),
    "no files of browse": lambda: browse(None, "glyphs"),
    "a metric that is no text": lambda: MetricName.parse(3),
    "levels of a tree": lambda: LabelTree.from_labels(LABELS, levels=3),
    "names of a tree": lambda: LabelTree.from_labels(LABELS, names=[["a"]]),
    "rows of a tree": lambda: LabelTree.from_names([1, 2], levels=["a", "b"]),
    "no rows of a tree": lambda: LabelTree.from_names(None, levels=["a", "b"]),
    "a source as a path": lambda: hbench.build("birds", source="birds.csv"),
    "a report at a number": lambda: hbench.Report.read(3),
    "half a surrogate pair": lambda: hbench.load("\ud800"),
    "a null byte": lambda: hbench.load("a\0b"),
    "classes of two kinds": lambda: hbench.metrics.nmi(VECTORS, [None, 1] * 6),
    "masked scores": lambda: hbench.metrics.ap(np.ma.masked_less(SCORES, 0), LEVELS),
    "masked classes": lambda: hbench.metrics.knn_accuracy(
        SCORES, np.ma.masked_equal([0, 1, 1, 0], 0), [0, 1, 1], 1
    ),
}


@pytest.mark.parametrize("call", WRONG_CALLS.values(), ids=list(WRONG_CALLS))
def test_a_wrong_call_is_refused_in_words(call):
    with pytest.raises(HBenchError):
        call()


def test_tensors_with_a_gradient_are_taken_also_in_a_list():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(VECTORS, requires_grad=True)
    expected = hbench.score(VECTORS, LABELS, metrics="H-AP").scores
    assert hbench.score(tensor, LABELS, metrics="H-AP").scores == expected
    assert hbench.score(list(tensor), LABELS, metrics="H-AP").scores == expected


def test_texts_in_an_array_or_a_column_are_as_good_as_in_a_list():
    pandas = pytest.importorskip("pandas")
    for names in (np.array(["H-AP", "AP"]), pandas.Series(["H-AP", "AP"])):
        assert set(hbench.score(VECTORS, LABELS, metrics=names).scores) == {"H-AP", "AP"}
