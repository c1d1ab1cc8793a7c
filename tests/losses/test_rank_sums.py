"""Rank losses against the equations as double loops, against the metrics, and as bounds of them."""

import importlib.util
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hbench.losses import build_loss, rank_losses
from hbench.losses.cpu_lists import CompiledLists, make_lists
from hbench.losses.rank_losses import RankLoss
from hbench.losses.rank_sums import Lists, RankSteps, sum_by_query
from hbench.losses.steps import LowerBound, Sigmoid, SupRank
from hbench.metrics import definitions
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.relevance import alpha, exponential, sum_wap

_spec = importlib.util.spec_from_file_location(
    "oracle_losses", Path(__file__).parents[1] / "oracle_losses.py"
)
oracle = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(oracle)

NAMES = list(rank_losses.RANK_LOSSES)
EXACT = RankSteps(None, None, None, None)  # the metric itself, without a gradient


pytestmark = pytest.mark.usefixtures("one_thread")


@st.composite
def lists(draw, most=12, depth=None):
    """One query's list: scores, perhaps with ties, and the labels of the query and the items."""
    depth = draw(st.integers(1, 7)) if depth is None else depth
    number = draw(st.integers(1, most))
    scores = draw(st.lists(st.integers(-20, 20), min_size=number, max_size=number))
    levels = draw(st.lists(st.integers(0, depth), min_size=number, max_size=number))
    return np.array(scores) / draw(st.sampled_from([20.0, 400.0, 5000.0])), np.array(levels), depth


def loss_of(loss, scores, levels, depth, dtype=torch.float64):
    """The loss of one list, through embeddings whose products are the scores; labels share `level`
    leading columns.
    """
    query = torch.ones(1, 1, dtype=dtype)
    labels = torch.zeros(1, depth, dtype=torch.int64)
    refs = torch.as_tensor(scores, dtype=dtype)[:, None]
    column = torch.arange(depth)
    ref_labels = torch.where(
        column < torch.as_tensor(levels)[:, None], 0, torch.arange(1, len(scores) + 1)[:, None]
    )
    return loss(query, labels, refs.requires_grad_(), ref_labels), refs


def relevance_of(relevance, levels, depth):
    return relevance(np.bincount(levels, minlength=depth + 1)[None].astype(float))[0].tolist()


def sequence_of(scores, levels, depth):
    order = sorted(range(len(scores)), key=lambda k: (-scores[k], levels[k], k))
    ranked = levels[order]
    places = np.flatnonzero(ranked > 0)
    return LevelSequence(
        places + 1, ranked[places].astype(np.uint8), np.bincount(levels, minlength=depth + 1)
    )


@given(lists())
@settings(max_examples=150, deadline=None)
def test_with_the_exact_step_each_loss_is_one_minus_the_metric(drawn):
    scores, levels, depth = drawn
    sequence = sequence_of(scores, levels, depth)
    cases = [
        (rank_losses.h_ap(), rank_losses.fine_label(), definitions.ap(sequence, level=depth)),
        (rank_losses.h_ap(), alpha(), definitions.h_ap(sequence, relevance=alpha())),
        (rank_losses.h_ap(), alpha(3.0), definitions.h_ap(sequence, relevance=alpha(3.0))),
        (rank_losses.h_ap(), sum_wap(), definitions.h_ap(sequence, relevance=sum_wap())),
        (rank_losses.ndcg(), exponential(), definitions.ndcg(sequence)),
    ]
    for score, relevance, metric in cases:
        value, _ = loss_of(RankLoss(score, EXACT, relevance), scores, levels, depth)
        assert value.item() == pytest.approx(0.0 if math.isnan(metric) else 1 - metric, abs=4e-9)


def rank_biased_precision(ranked, p=0.8):
    """docs/losses.md: a metric of one's own, a sum over the positives."""
    return sum_by_query((1 - p) * p ** (ranked.rank - 1), ranked.positives, ranked.lists)


@given(lists())
@settings(max_examples=100, deadline=None)
def test_a_metric_of_ones_own_is_a_loss_with_exact_steps_itself_with_suprank_never_below(drawn):
    scores, levels, depth = drawn
    sequence = sequence_of(scores, levels, depth)
    worth = [
        0.2 * 0.8 ** (rank - 1)
        for rank, level in zip(sequence.ranks.tolist(), sequence.levels.tolist(), strict=True)
        if level == depth
    ]
    expected = 1 - sum(worth) if worth else 0.0
    fine = rank_losses.fine_label()
    exact, _ = loss_of(RankLoss(rank_biased_precision, EXACT, fine), scores, levels, depth)
    above, _ = loss_of(
        RankLoss(rank_biased_precision, rank_losses.suprank(), fine), scores, levels, depth
    )
    assert exact.item() == pytest.approx(expected, abs=1e-9)
    assert above.item() >= expected - 1e-9


def fine(levels, depth):
    """The relevance of the finest level alone, by level."""
    return [0.0] * depth + [1.0]


def graded(levels, depth):
    """The relevance of H-AP, by level."""
    return relevance_of(alpha(), levels, depth)


def gains(levels, depth):
    """The relevance of NDCG, by level."""
    return relevance_of(exponential(), levels, depth)


SMOOTH = {"less": oracle.smooth_step(), "others": oracle.smooth_step()}
SMOOTH_WITHIN = {"above": oracle.smooth_step(), "within": oracle.smooth_step()}
SUPRANK = {"less": oracle.suprank_step()}
AT = (1, 2, 4, 8, 16)
# of every rank loss the relevance of the levels, and 1 − loss of a list as loops: a new loss is a
# line more
EQUATIONS = {
    "smooth_ap": (fine, partial(oracle.h_ap, **SMOOTH, **SMOOTH_WITHIN)),
    "smooth_hap": (graded, partial(oracle.h_ap, **SMOOTH, **SMOOTH_WITHIN)),
    "smooth_ndcg": (gains, partial(oracle.ndcg, **SMOOTH)),
    "smooth_recall": (fine, partial(oracle.recall, at=AT, **SMOOTH)),
    "recall_at_k": (fine, partial(oracle.recall, at=AT, clip=True, **SMOOTH)),
    "sup_ap": (fine, partial(oracle.h_ap, **SUPRANK)),
    "sup_hap": (graded, partial(oracle.h_ap, **SUPRANK)),
    "sup_ndcg": (gains, partial(oracle.ndcg, **SUPRANK)),
    "sup_recall": (fine, partial(oracle.recall, at=AT, **SUPRANK)),
}


@given(lists(), st.sampled_from(NAMES))
# nine in the middle of a tie: at 8 more than 8 are found
@example((np.zeros(9), np.ones(9, int), 1), "recall_at_k")
@settings(max_examples=200, deadline=None)
def test_every_rank_loss_is_its_equation(drawn, name):
    scores, levels, depth = drawn
    relevance_of_levels, score = EQUATIONS[name]
    relevance = relevance_of_levels(levels, depth)
    has_positives = any(relevance[level] for level in levels)
    expected = 1 - score(scores, levels, relevance) if has_positives else 0.0
    assert loss_of(build_loss(name), scores, levels, depth)[0].item() == pytest.approx(
        expected, rel=1e-9, abs=1e-12
    )


@given(lists(depth=3))
@settings(max_examples=50, deadline=None)
def test_the_linear_h_rank_replaces_the_step_of_more_relevant_items(drawn):
    scores, levels, depth = drawn
    relevance = relevance_of(alpha(), levels, depth)
    if not any(levels):
        return
    expected = 1 - oracle.h_ap(
        scores, levels, relevance, less=oracle.suprank_step(), above=oracle.linear_lower_bound()
    )
    assert loss_of(build_loss("sup_hap", h_rank="linear"), scores, levels, depth)[
        0
    ].item() == pytest.approx(expected)


def random_lists(number, depth, seed):
    """Scores and levels (number, 16) of lists of 2 to 16 items, a third of them with ties; depth +
    1 is padding.
    """
    rng = np.random.default_rng(seed)
    scores = rng.normal(scale=0.1, size=(number, 16))
    scores[::3] = np.round(scores[::3], 1)
    levels = rng.integers(0, depth + 1, size=(number, 16))
    levels[np.arange(16) >= rng.integers(2, 17, size=number)[:, None]] = depth + 1
    return torch.tensor(scores), torch.tensor(levels)


def gaps(loss, number, seed):
    """loss − (1 − metric) of random lists of 1 to 4 levels, those without positives left out."""
    exact, found = RankLoss(loss.score, EXACT, loss.relevance), []
    for depth in (1, 2, 3, 4):
        scores, levels = random_lists(number // 4, depth, seed + depth)
        (surrogate, counted), (metric, _) = (
            which.per_list(scores, levels, depth) for which in (loss, exact)
        )
        found.append((metric - surrogate)[counted])
    return torch.cat(found)


@pytest.mark.parametrize("name", ["sup_ap", "sup_hap", "sup_ndcg"])
def test_suprank_losses_are_upper_bounds_of_the_metric_ties_included(name):
    found = gaps(build_loss(name), number=6000, seed=1)
    assert len(found) >= 3000
    assert found.min() >= -1e-12


@pytest.mark.parametrize(
    "loss", [build_loss("sup_ap", offset=1.0, start=0.0), build_loss("smooth_ap")]
)
def test_the_released_inat_step_and_the_plain_sigmoid_are_not_upper_bounds(loss):
    assert (gaps(loss, number=3000, seed=2) < -1e-9).sum() > 50


@pytest.mark.parametrize(
    ("parameters", "score", "precision"),
    [
        (
            {"offset": 1.0, "start": 0.0},
            0.02,
            1 / (1 + oracle.sigmoid(2)),
        ),  # the released inat step, where true is 1/2
        (
            {},
            0.0,
            1 / 2,
        ),  # a tie counts fully against the positive; in the released SOP setting 1/(1 + .5)
    ],
)
def test_a_negative_at_or_a_little_above_the_positive_counts_as_its_step_says(
    parameters, score, precision
):
    value, _ = loss_of(
        build_loss("sup_ap", **parameters), np.array([0.0, score]), np.array([1, 0]), 1
    )
    assert value.item() == pytest.approx(1 - precision)


def test_L5_relevances_decide_what_is_less_relevant_and_levels_when_released():
    # three coarse items share ½, one fine item has 1: at depth 2 with 1 coarse and 3 fine the
    # coarse one outweighs each fine one
    scores, levels = np.array([0.9, 0.8, 0.1, 0.5]), np.array([2, 2, 2, 1])
    relevance = relevance_of(alpha(), levels, 2)
    assert relevance[1] > relevance[2]
    by_relevance = 1 - oracle.h_ap(scores, levels, relevance, less=oracle.suprank_step())
    assert loss_of(build_loss("sup_hap"), scores, levels, 2)[0].item() == pytest.approx(
        by_relevance
    )
    released, _ = loss_of(build_loss("sup_hap", released=True), scores, levels, 2)
    assert released.item() != pytest.approx(by_relevance)


@pytest.mark.parametrize(
    "step",
    [
        Sigmoid(),
        SupRank(),
        SupRank(offset=1.44),
        SupRank(delta=0.0, offset=1.0, start=0.0),
        LowerBound(),
    ],
)
def test_a_slope_is_the_derivative_of_its_step(step):
    t = torch.linspace(-0.3, 0.3, 1001, dtype=torch.float64) + 1e-5
    width = 1e-7
    difference = (step.value(t + width) - step.value(t - width)) / (2 * width)
    np.testing.assert_allclose(step.slope(t), difference, atol=1e-5)


def square_batch(seed=0, size=24, dim=6, depth=3, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    fine = rng.integers(0, 6, size)
    labels = torch.tensor(np.stack([fine // 4, fine // 2, fine][-depth:], axis=1))
    return torch.nn.functional.normalize(torch.tensor(rng.normal(size=(size, dim))), dim=1).to(
        dtype
    ), labels


@pytest.mark.parametrize("name", NAMES)
def test_gradients_agree_with_finite_differences(name):
    embeddings, labels = square_batch(size=10, dim=4)
    assert torch.autograd.gradcheck(
        lambda x: build_loss(name, tau=0.2)(x, labels), embeddings.requires_grad_()
    )
    refs, ref_labels = square_batch(seed=1, size=8, dim=4)
    assert torch.autograd.gradcheck(
        lambda x, r: build_loss(name, tau=0.2)(x, labels, r, ref_labels),
        (embeddings, refs.requires_grad_()),
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_order_of_a_batch_does_not_matter(name, dtype):
    embeddings, labels = square_batch(dtype=dtype)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    first, second = embeddings.clone().requires_grad_(), embeddings[order].clone().requires_grad_()
    values = [build_loss(name)(first, labels), build_loss(name)(second, labels[order])]
    sum(values).backward()
    assert values[0].item() == pytest.approx(values[1].item(), rel=1e-5)
    torch.testing.assert_close(
        first.grad[order], second.grad, rtol=1e-4, atol=1e-5 if dtype == torch.float32 else 1e-9
    )


def value_and_slope(loss, scores, levels, depth):
    leaf = scores.clone().requires_grad_()
    value, counted = loss.per_list(leaf, levels, depth)
    loss_of_block = ((1 - value) * counted).sum() / counted.sum()
    return loss_of_block.item(), torch.autograd.grad(loss_of_block, leaf)[0]


KERNEL_CASES = [(name, {}) for name in NAMES] + [
    ("sup_hap", {"h_rank": "linear"}),
    ("sup_hap", {"offset": 1.44}),
    ("sup_hap", {"delta": 0.0, "offset": 1.0, "start": 0.0}),
    ("sup_hap", {"tau": 0.05, "delta": 0.2}),
    ("smooth_hap", {"tau": 0.0002}),  # scores hundreds of exponents apart
    ("sup_hap", {"tau": 0.0002, "rho": 5000.0}),
]


@pytest.mark.parametrize(("name", "parameters"), KERNEL_CASES)
@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_the_kernel_computes_the_float64_formula(name, parameters, spread):
    loss = build_loss(name, **parameters)
    rng = np.random.default_rng(5)
    for size, depth in ((40, 3), (150, 1), (150, 2), (300, 7)):
        scores = torch.tensor(rng.normal(scale=spread, size=(12, size)).clip(-1, 1).astype("f4"))
        scores[::3] = (scores[::3] * 64).round() / 64  # ties
        levels = torch.tensor(
            rng.integers(0, depth + 2, size=(12, size)).clip(
                max=rng.integers(1, depth + 2, (12, 1))
            )
        )
        assert type(make_lists(scores, levels, depth)) is CompiledLists
        assert type(make_lists(scores.double(), levels, depth)) is Lists
        value, slope = value_and_slope(loss, scores, levels, depth)
        expected, expected_slope = value_and_slope(loss, scores.double(), levels, depth)
        assert value == pytest.approx(expected, abs=1e-6)
        assert (slope - expected_slope).norm() <= 1e-5 * expected_slope.norm()


@pytest.mark.parametrize("name", NAMES)
def test_gradient_descent_on_free_vectors_reaches_a_perfect_ranking(name):
    embeddings, labels = square_batch(seed=3, dim=16, dtype=torch.float32)
    vectors = embeddings.clone().requires_grad_()
    optimiser = torch.optim.Adam([vectors], lr=0.05)
    # a sigmoid vanishes far away, so it starts wide, and the outer one of recall must not be
    # saturated by large ranks
    width = (
        {"temperature": 3.0} | ({"rho": 1.0} if name.startswith("sup") else {})
        if "recall" in name
        else {}
    )
    loss, exact = (
        build_loss(name, tau=0.1, **width),
        RankLoss(rank_losses.h_ap(), EXACT, rank_losses.fine_label()),
    )
    for _ in range(250):
        optimiser.zero_grad()
        loss(torch.nn.functional.normalize(vectors, dim=1), labels).backward()
        optimiser.step()
    assert exact(
        torch.nn.functional.normalize(vectors.detach(), dim=1), labels
    ).item() == pytest.approx(0, abs=1e-6)
