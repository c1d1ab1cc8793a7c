"""Samplers: what a batch is made of, what an epoch covers, that processes share it, and that it can
be made again.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbench.core.errors import ConfigError, UnknownName
from hbench.train.images.sampler import plan
from hbench.train.recipes.recipe import Sampler

pytestmark = pytest.mark.fast


def labels_of(sizes, coarse=None):
    """(N, 2) labels of classes of these sizes, whose coarse classes are given or one."""
    coarse = [0] * len(sizes) if coarse is None else coarse
    rows = [(coarse[fine], fine) for fine, size in enumerate(sizes) for _ in range(size)]
    return np.random.default_rng(0).permutation(np.array(rows, dtype=np.int32))


@st.composite
def settings_and_labels(draw):
    m, width = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(1, 30), min_size=width, max_size=12))
    return Sampler(batch=m * width, per_class=m), labels_of(sizes)


@given(settings_and_labels(), st.integers(0, 5))
def test_an_epoch_holds_every_item_in_batches_of_whole_classes_without_needless_copies(case, epoch):
    settings, labels = case
    sizes = np.bincount(labels[:, -1])
    rows = plan(labels, settings, seed=1, epoch=epoch).rows
    assert set(rows.ravel()) == set(range(len(labels)))
    for row in rows:
        _, counts = np.unique(labels[row, -1], return_counts=True)
        assert counts.tolist() == [settings.per_class] * (settings.batch // settings.per_class)
        twice = [item for item in row if (row == item).sum() > 1]
        assert all(sizes[labels[item, -1]] < settings.per_class for item in twice)
    assert len(plan(labels, settings, seed=0, epoch=epoch + 1).rows) == len(rows)


@pytest.mark.parametrize("name", ["m_per_class", "hierarchical"])
def test_the_plan_is_that_of_seed_and_epoch(name):
    labels = labels_of([6] * 24, coarse=[i // 8 for i in range(24)])
    settings = Sampler(name=name, batch=16, per_class=4)
    first, again = (plan(labels, settings, seed=3, epoch=7) for _ in range(2))
    assert np.array_equal(first.rows, again.rows)
    assert np.array_equal(first.draws, again.draws)
    for other in (plan(labels, settings, seed=4, epoch=7), plan(labels, settings, seed=3, epoch=8)):
        assert not np.array_equal(first.rows, other.rows)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_processes_take_disjoint_parts_that_are_the_batch_again(world):
    whole = plan(labels_of([8] * 24), Sampler(batch=16, per_class=4), seed=0, epoch=0)
    assert whole.rows.shape == (
        12,
        16,
    )  # an epoch holds every item once, where classes divide into batches
    parts = [whole.share(rank, world) for rank in range(world)]
    assert np.array_equal(np.concatenate([part.rows for part in parts], axis=1), whole.rows)
    assert np.array_equal(np.concatenate([part.draws for part in parts], axis=1), whole.draws)
    assert np.array_equal(whole.after(4).rows, whole.rows[4:])


def test_hierarchical_batches_come_from_pairs_of_coarse_classes():
    labels = labels_of([5] * 40, coarse=[i // 10 for i in range(40)])
    settings = Sampler(name="hierarchical", batch=32, per_class=4, batches_per_group=5)
    rows = plan(labels, settings, seed=0, epoch=0).rows
    pairs = [tuple(np.unique(labels[row, 0])) for row in rows]
    assert len(rows) == 6 * 5  # C(4, 2) pairs, 5 batches of each
    assert {pair: pairs.count(pair) for pair in pairs} == {
        (a, b): 5 for a in range(4) for b in range(a + 1, 4)
    }
    for row in rows:
        _, per_coarse = np.unique(labels[row, 0], return_counts=True)
        _, per_fine = np.unique(labels[row, 1], return_counts=True)
        assert per_coarse.tolist() == [16, 16]
        assert per_fine.tolist() == [4] * 8


def test_within_a_pair_no_class_comes_again_before_all_were_taken():
    labels = labels_of([4] * 20, coarse=[i // 10 for i in range(20)])
    settings = Sampler(name="hierarchical", batch=8, per_class=2, batches_per_group=5)
    rows = plan(labels, settings, seed=0, epoch=0).rows
    # 5 batches × 2 classes = all 10 of each
    assert np.bincount(labels[rows.ravel(), 1]).tolist() == [2] * 20


def test_unknown_samplers_and_batches_that_cannot_be_filled_are_refused():
    for settings, classes, coarse, error, problem in (
        ({"batch": 16, "per_class": 4}, 3, 1, ConfigError, "too few classes"),
        (
            {"name": "hierarchical", "batch": 16, "per_class": 4},
            30,
            1,
            ConfigError,
            "too few classes",
        ),
        ({"name": "hierarchical", "batch": 12, "per_class": 4}, 30, 3, ConfigError, "shared among"),
        ({"name": "m_per_clas"}, 30, 1, UnknownName, "did you mean 'm_per_class'"),
    ):
        labels = labels_of([9] * classes, coarse=[i % coarse for i in range(classes)])
        with pytest.raises(error, match=problem):
            plan(labels, Sampler(**settings), seed=0, epoch=0)


def test_the_largest_batch_that_fits_is_named_and_is_filled():
    labels = labels_of([9] * 12, coarse=[0, *[1] * 8, *[2] * 3])
    for name, largest in (("m_per_class", 48), ("hierarchical", 24)):
        settings = {"name": name, "per_class": 4}
        with pytest.raises(ConfigError, match=f"--set sampler.batch={largest}, the largest"):
            plan(labels, Sampler(batch=64, **settings), seed=0, epoch=0)
        rows = plan(labels, Sampler(batch=largest, **settings), seed=0, epoch=0).rows
        assert rows.shape[1] == largest


def test_a_long_tail_is_capped_per_class_and_epoch():
    """2,000 classes as of landmarks: 82 of 100 images or more, with a quarter of all, and 500 of
    three.
    """
    sizes = np.concatenate(
        [np.round(1150 * np.arange(1, 1501) ** -0.55).astype(int), np.full(500, 3)]
    )
    labels, large, shares = labels_of(sizes.tolist()), np.flatnonzero(sizes >= 100), []
    for changes in ({}, {"smallest": 4, "per_epoch": 8}):
        rows = plan(labels, Sampler(batch=256, per_class=4, **changes), seed=0, epoch=0).rows
        shares.append(np.isin(labels[rows.ravel(), 1], large).mean())
    assert np.bincount(labels[np.unique(rows), 1]).max() == 8
    assert (sizes[labels[rows.ravel(), 1]] >= 4).all()
    assert shares == pytest.approx([0.26, 0.05], abs=0.03)


def test_another_epoch_draws_others_of_a_large_class():
    labels = labels_of([50] * 8)
    settings = Sampler(batch=16, per_class=4, per_epoch=8)
    first, second = (
        set(plan(labels, settings, seed=0, epoch=epoch).rows.ravel()) for epoch in (0, 1)
    )
    assert len(first) == len(second) == 64
    assert first != second
