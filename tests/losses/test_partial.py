"""Partial labels in losses: unknown pairs have no part in the value and no gradient; losses that
need every label are refused.
"""

import numpy as np
import pytest
import torch

from hbench.core.errors import ConfigError
from hbench.losses import build_loss, loss_entry, losses
from hbench.losses.batch_loss import unknown_pairs
from hbench.losses.entry import REQUIRED
from hbench.losses.partial import leave_unknown_out

pytestmark = pytest.mark.fast

LEAVE_OUT = [
    name
    for name in losses
    if not any(default is REQUIRED for default in loss_entry(name).parameters.values())
    and name != "rambo_map_classes"
]
NEED_ALL = [
    "cluster",
    "nsm",
    "proxy_nca_pp",
    "arcface",
    "csl",
    "sum_nsm",
    "happier",
    "rambo_map_classes",
]
FACTS = {
    "classes": 4,
    "level_classes": [2, 3, 4],
    "paths": [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]],
    "dim": 5,
}


def build(name):
    entry = loss_entry(name)
    given = {key: FACTS[key] for key, default in entry.parameters.items() if default is REQUIRED}
    return build_loss(name, **given)


def random_batch(seed, items=24, dtype=torch.float32):
    """Unit vectors and nested labels (N, 3); some end in −1."""
    rng = np.random.default_rng(seed)
    labels = np.array(FACTS["paths"])[rng.integers(4, size=items)]
    known = rng.choice([1, 2, 3], p=[0.2, 0.2, 0.6], size=items)
    labels = np.where(np.arange(3) < known[:, None], labels, -1)
    vectors = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(items, 5))).to(dtype))
    return vectors, torch.from_numpy(labels)


def test_a_pair_is_unknown_where_its_labels_agree_until_one_ends():
    _, labels = random_batch(0)
    found = unknown_pairs(labels, labels)
    for i, one in enumerate(labels.tolist()):
        for j, other in enumerate(labels.tolist()):
            both = min(sum(each >= 0 for each in one), sum(each >= 0 for each in other))
            assert bool(found[i, j]) == (one[:both] == other[:both] and both < 3)


# a level for itself: below
@pytest.mark.parametrize("name", [name for name in LEAVE_OUT if name != "sum_triplet"])
@pytest.mark.parametrize("seed", range(3))
def test_references_of_unknown_level_change_nothing_and_have_no_gradient(name, seed):
    vectors, labels = random_batch(seed)
    for query in range(4):
        refs = vectors[4:].clone().requires_grad_()
        known = ~unknown_pairs(labels[query : query + 1], labels[4:])[0]
        value = leave_unknown_out(build(name))(
            vectors[query : query + 1], labels[query : query + 1], refs, labels[4:]
        )
        alone = build(name)(
            vectors[query : query + 1], labels[query : query + 1], refs[known], labels[4:][known]
        )
        torch.testing.assert_close(value, alone)
        if value.requires_grad:
            (slope,) = torch.autograd.grad(value, refs, allow_unused=True)
            assert slope is None or not slope[~known].any()


@pytest.mark.parametrize("name", LEAVE_OUT)
def test_items_that_end_early_on_two_branches_are_a_negative_pair(name):
    """What is unknown below is a class of each alone, as if it were known."""
    vectors, _ = random_batch(2, items=6)
    whole = torch.tensor([[0, 0, 0], [0, 0, 0], [0, 1, 1], [0, 1, 1], [1, 2, 2], [2, 3, 3]])
    early = torch.tensor([[0, 0, 0], [0, 0, 0], [0, 1, 1], [0, 1, 1], [1, -1, -1], [2, 3, -1]])
    torch.manual_seed(0)
    expected = build(name)(vectors, whole)
    torch.manual_seed(0)
    torch.testing.assert_close(leave_unknown_out(build(name))(vectors, early), expected)


@pytest.mark.parametrize("name", LEAVE_OUT)
def test_whole_labels_have_the_value_and_the_gradient_they_had(name):
    vectors, labels = random_batch(1)
    whole = torch.tensor(FACTS["paths"])[torch.arange(len(labels)) % 4]
    found = []
    for loss in (build(name), leave_unknown_out(build(name))):
        own = vectors.clone().requires_grad_()
        torch.manual_seed(0)
        value = loss(own, whole)
        value.backward()
        found.append((value.detach(), own.grad))
    torch.testing.assert_close(found[1], found[0])


def test_at_every_level_for_itself_a_pair_counts_as_far_as_it_is_known():
    """A genus whose species is unknown is a positive of its genus."""
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
    labels = torch.tensor([[0, 0], [0, -1]])
    every = leave_unknown_out(build_loss("per_level", loss="contrastive"))(x, labels)
    coarse = build_loss("contrastive")(x, labels[:, :1])
    torch.testing.assert_close(every, coarse)
    assert float(coarse) > 0


@pytest.mark.parametrize("name", NEED_ALL)
def test_losses_that_need_every_label_are_refused(name):
    with pytest.raises(ConfigError, match="needs every label down to the finest level"):
        leave_unknown_out(build(name))


@pytest.mark.parametrize("name", [*LEAVE_OUT, "xbm"])
def test_a_bare_loss_leaves_unknown_pairs_out_too(name):
    vectors, labels = random_batch(0)
    found = []
    for made in (lambda loss: loss, leave_unknown_out):
        torch.manual_seed(0)
        loss = build_loss("xbm", loss="sup_ap", size=48) if name == "xbm" else build(name)
        found.append(made(loss)(vectors, labels))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [name for name in NEED_ALL if name != "rambo_map_classes"])
def test_a_bare_loss_that_needs_every_label_refuses_the_unknown(name):
    with pytest.raises(ConfigError, match=f"{name} needs every label"):
        build(name)(*random_batch(0))


def test_mixed_items_need_every_label():
    with pytest.raises(ConfigError, match="recall_at_k needs every label"):
        build_loss("recall_at_k", simix=True)(*random_batch(0))


def test_mined_pairs_may_not_join_unknown_classes():
    pairs = tuple(torch.tensor([each]) for each in (0, 1, 0, 2))
    with pytest.raises(ConfigError, match="without mined pairs"):
        build_loss("sup_ap")(*random_batch(0), pairs)


def test_a_memory_and_a_sum_are_what_they_hold():
    assert leave_unknown_out(build_loss("xbm", loss="sup_ap", size=8)).loss.partial
    assert leave_unknown_out(build("roadmap")).partial
    with pytest.raises(ConfigError, match="nsm"):
        leave_unknown_out(build_loss("xbm", loss="nsm", size=8, params={"classes": 4, "dim": 5}))
    loss = leave_unknown_out(build_loss("triplet"))
    with pytest.raises(ConfigError, match="mined pairs"):
        loss(*random_batch(0), tuple(torch.tensor([0]) for _ in range(3)))
