"""Similarities beside the plain ones: hyperbolic ranks against direct distances, Hamming against
counted bits, plug-ins.
"""

import math
import os
import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.core.errors import SubmissionError, UnknownName, UsageError
from hbench.engine.similarity import named
from hbench.evaluation.arrays import score
from tests import oracle
from tests.command_line import python

pytestmark = pytest.mark.fast

curvatures = st.sampled_from([0.1, 1.0, 2.5])


def mobius_distance(x, y, c):
    """2/√c artanh(√c |(−x) ⊕ y|), with the Möbius sum written out: another formula than the one in
    the docstring.
    """
    xy, xx, yy = -float(x @ y), float(x @ x), float(y @ y)
    total = ((1 + 2 * c * xy + c * yy) * -x + (1 - c * xx) * y) / (1 + 2 * c * xy + c * c * xx * yy)
    return 2 / math.sqrt(c) * math.atanh(math.sqrt(c) * math.sqrt(float(total @ total)))


def lorentz_distance(x, y, c):
    """1/√c arcosh(c·(x₀y₀ − x·y))."""
    times = [math.sqrt(1 / c + float(each @ each)) for each in (x, y)]
    return math.acosh(max(1.0, c * (times[0] * times[1] - float(x @ y)))) / math.sqrt(c)


def points(seed, items, c, *, inside):
    """Random points (items, 3) in float64; `inside` the ball of curvature −c, up to 0.9 of its
    radius.
    """
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(items, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = rng.uniform(0.01, 0.9, size=(items, 1))
    return directions * (lengths / math.sqrt(c) if inside else 4 * lengths)


def products(name, queries, gallery):
    rows = named(name)[1](queries, gallery)
    left, right = (each.read(np.arange(len(each))) for each in rows)
    return left @ right.T


@given(st.integers(0, 10**6), curvatures, st.sampled_from(["poincare", "lorentz"]))
def test_hyperbolic_products_order_a_gallery_as_distances_in_float64_do(seed, c, name):
    gallery, queries = (
        points(seed + i, n, c, inside=name == "poincare") for i, n in enumerate((25, 5))
    )
    distance = mobius_distance if name == "poincare" else lorentz_distance
    scores = products(f"{name}(curvature={c})", queries, gallery)
    for row, query in zip(scores, queries, strict=True):
        found = [distance(query, item, c) for item in gallery]
        for i in range(len(gallery)):
            for j in range(len(gallery)):
                if found[i] < found[j] - 1e-6:
                    assert row[i] > row[j]


@given(st.integers(0, 10**6), curvatures, st.sampled_from(["poincare", "lorentz"]))
def test_ap_under_a_hyperbolic_similarity_is_that_of_the_distances(seed, c, name):
    vectors = points(seed, 30, c, inside=name == "poincare")
    fine = np.random.default_rng(seed).integers(6, size=30)
    labels = np.stack([fine // 3, fine], axis=1)
    distance = mobius_distance if name == "poincare" else lorentz_distance
    expected = []
    for query in range(30):
        others = [item for item in range(30) if item != query]
        levels = [oracle.level_of(labels[query], labels[item]) for item in others]
        ranked = oracle.rank_levels(
            [-distance(vectors[query], vectors[item], c) for item in others], levels
        )
        expected += [oracle.ap_at(ranked, 2)]
    expected = [value for value in expected if not math.isnan(value)]
    report = score(vectors, labels, similarity=f"{name}(curvature={c})", metrics=["AP"])
    assert report.document.scores["AP"].value == pytest.approx(float(np.mean(expected)))
    assert f"|sim:{name}(curvature={c:g})|" in report.document.signature


@pytest.mark.parametrize(
    ("name", "size", "offset"),
    [
        ("lorentz", 6e-4, 0),
        ("poincare", 6e-4, 0),
        ("poincare(curvature=0.1)", 6e-4, 0),
        ("l2", 1, 3e3),
    ],
)
def test_float32_orders_near_the_origin_and_far_from_it_as_float64_does(name, size, offset):
    rng = np.random.default_rng(0)
    labels = np.arange(200) // 4
    centres = rng.normal(size=(50, 16))
    vectors = (offset + size / 2 * (centres[labels] + rng.normal(size=(200, 16)))).astype(
        np.float32
    )
    values = [
        score(each, labels, similarity=name, metrics=["AP", "R@1"])
        for each in (vectors, vectors.astype(np.float64))
    ]
    assert values[0].scores["R@1"] == values[1].scores["R@1"]
    assert values[0].scores["AP"] == pytest.approx(values[1].scores["AP"], abs=1e-4)


def test_two_models_of_one_space_rank_alike():
    ball = points(3, 40, 1.0, inside=True)
    hyperboloid = 2 * ball / (1 - (ball**2).sum(axis=1, keepdims=True))
    by_ball, by_hyperboloid = (
        products("poincare", ball, ball),
        products("lorentz", hyperboloid, hyperboloid),
    )
    assert (np.argsort(by_ball, axis=1) == np.argsort(by_hyperboloid, axis=1)).all()


@given(st.integers(0, 10**6))
def test_hamming_scores_are_bits_minus_twice_the_bits_that_differ(seed):
    packed = np.random.default_rng(seed).integers(256, size=(12, 3))
    scores = products("hamming", packed.astype(np.float32), packed[:7].astype(np.float32))
    for i in range(12):
        for j in range(7):
            differ = sum(
                bin(int(a) ^ int(b)).count("1") for a, b in zip(packed[i], packed[j], strict=True)
            )
            assert scores[i, j] == 24 - 2 * differ


def test_packed_codes_score_as_their_bits_of_plus_and_minus_one_do():
    rng = np.random.default_rng(5)
    packed, fine = rng.integers(256, size=(40, 4), dtype=np.uint8), rng.integers(6, size=40)
    labels, signs = np.stack([fine // 3, fine], axis=1), np.unpackbits(packed, axis=1) * 2.0 - 1
    by_codes, by_signs = (
        score(packed, labels, similarity="hamming"),
        score(signs, labels, similarity="dot"),
    )
    for name, values in by_codes.values.items():
        assert values == pytest.approx(by_signs.values[name], nan_ok=True)


@pytest.mark.parametrize(
    ("vectors", "name", "expected"),
    [
        ([[0.5, 0.2], [1.2, 0.0]], "poincare", "|x| < 1/√curvature = 1"),
        ([[0.5, 0.2], [1.2, 0.0]], "hamming", "numpy.packbits"),
        ([[1, 2], [5, 256]], "hamming", "other numbers in rows 1"),
    ],
)
def test_vectors_that_a_similarity_is_not_for_are_refused(vectors, name, expected):
    with pytest.raises(SubmissionError, match=re.escape(expected)):
        products(name, np.array(vectors), np.array(vectors))
    if name == "poincare":  # they are inside the ball of another curvature
        assert products("poincare(curvature=0.1)", np.array(vectors), np.array(vectors)).shape == (
            2,
            2,
        )


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        *(
            (f"lorentz(curvature={number})", UsageError, "positive number")
            for number in ("0", "-1", "nan")
        ),
        ("lorentz(curvature=flat)", UsageError, "is not a number"),
        ("lorents", UnknownName, "did you mean 'lorentz'"),
        ("lorentz(curvatur=1)", UnknownName, "curvature"),
        ("cosine(radius=1)", UnknownName, "radius"),
    ],
)
def test_unknown_similarities_and_options_are_refused_with_the_choices(text, error, words):
    with pytest.raises(error, match=words):
        named(text)


PLUGIN = """
from hbench.engine.similarity import Rows

def scaled(queries, gallery, *, weight: float = 2.0):
    return Rows(weight * queries), Rows(gallery)
"""
USED = """
import numpy as np
from hbench.engine.similarity import named
name, function = named("scaled(weight=3)")
left, right = (rows.read(np.array([0])) for rows in function(np.array([[1.0, 1.0]]), np.array([[1.0, 1.0]])))
print(name, (left @ right.T).item())
"""


def test_a_similarity_of_another_package_is_found_by_its_entry_point(tmp_path):
    """A package as pip leaves it, on the path of a process of its own."""
    (tmp_path / "plugin.py").write_text(PLUGIN)
    about = tmp_path / "plugin-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[hbench.similarities]\nscaled = plugin:scaled\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    assert python(USED, PYTHONPATH=path) == "scaled(weight=3) 6.0\n"
