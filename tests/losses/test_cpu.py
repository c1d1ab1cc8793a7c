"""Black-box ranks and the losses on them, and the bits of the compiled kernel."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hbench.losses.baselines.blackbox import blackbox_rank, chosen_ranks
from hbench.losses.baselines.rambo import ap_loss, log_weight, recall_loss, score_margin
from tests.command_line import python


def integer_rank(scores):
    """1 + the number of higher scores, or of equal ones in an earlier column, item by item."""
    return [
        1 + sum(other > score or (other == score and j < k) for j, other in enumerate(scores))
        for k, score in enumerate(scores)
    ]


@given(
    st.lists(st.integers(-9, 9), min_size=1, max_size=12), st.floats(0.1, 30), st.integers(0, 2**32)
)
@settings(max_examples=150, deadline=None)
def test_a_black_box_gradient_is_the_difference_of_integer_ranks(drawn, lam, seed):
    scores = torch.tensor([drawn], dtype=torch.float32) / 4
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(1, len(drawn), generator=generator) < 0.5
    upstream = torch.zeros_like(scores)
    upstream[chosen] = torch.randn(int(chosen.sum()), generator=generator) / 5
    leaf = scores.clone().requires_grad_()
    rank = blackbox_rank(leaf, lam)
    (rank * upstream).sum().backward()
    before, after = (
        integer_rank(row.tolist()) for row in (scores[0], (scores + lam * upstream)[0])
    )
    assert rank[0].tolist() == before
    torch.testing.assert_close(leaf.grad[0], (torch.tensor(after) - torch.tensor(before)) / lam)
    some = scores.clone().requires_grad_()
    ranked = chosen_ranks(some, lam, chosen)[0]
    order = rank[chosen].argsort()
    assert ranked.tolist() == rank[chosen][order].tolist()
    (ranked * upstream[chosen][order]).sum().backward()
    torch.testing.assert_close(some.grad, leaf.grad)


def test_rambo_losses_are_their_equations():
    scores = torch.tensor([[0.9, 0.5, 0.7, 0.1], [0.2, 0.8, 0.4, 0.6]])
    positive = torch.tensor([[True, True, False, False], [False, False, True, False]])
    # ranks of the positives: 1 and 3 of the first row, 3 of the second
    assert ap_loss(scores, positive, 1.0).item() == pytest.approx(
        1 - ((1 / 1 + 2 / 3) / 2 + 1 / 3) / 2
    )
    expected = (np.log1p(0) + np.log1p(1) + np.log1p(2)) / 3  # irrelevant items ahead: 0, 1, 2
    assert recall_loss(scores, positive, 1.0, log_weight).item() == pytest.approx(expected)
    shifted = score_margin(0.4)(scores, positive)
    assert shifted[0].tolist() == pytest.approx([0.7, 0.3, 0.9, 0.3])
    nothing = torch.zeros_like(positive)
    assert ap_loss(scores, nothing, 1.0).item() == 0
    assert recall_loss(scores, nothing, 1.0, log_weight).item() == 0


def test_code_that_was_just_compiled_and_code_that_was_kept_give_the_same_bits(tmp_path):
    code = """
import torch
from hbench.losses import build_loss
generator = torch.Generator().manual_seed(0)
vectors = torch.nn.functional.normalize(torch.randn(128, 16, generator=generator)).requires_grad_()
labels = torch.arange(128)[:, None] // torch.tensor([32, 8, 4])
for name in ("sup_hap", "smooth_hap", "sup_ndcg"):
    loss = build_loss(name)(vectors, labels)
    gradient, = torch.autograd.grad(loss, vectors)
    print(name, loss.item().hex(), gradient.numpy().tobytes().hex())
"""
    first, again = (python(code, NUMBA_CACHE_DIR=tmp_path) for _ in range(2))
    assert first == again
    assert list(tmp_path.rglob("*.nbi"))
