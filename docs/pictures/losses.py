"""Draws three pictures that explain the losses: steps.png, landscape.png and gap-toy.png.

Run: python docs/pictures/losses.py. Every curve and number is computed by hbench's own losses and
metrics; RaMBO's interpolation, of which they have the slope alone, is written out here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from hbench.look.figures import FAINT, GREY, INK, draw_figure
from hbench.look.palette import color_at
from hbench.losses import build_loss
from hbench.losses.rank_losses import RankLoss
from hbench.losses.steps import Sigmoid, SupRank
from hbench.metrics import ap

FOLDER = Path(__file__).parent
BLUE = "#0072b2"
ORANGE = "#d55e00"
GREEN = "#009e73"
OTHERS = torch.tensor([0.2, 0.35, 0.5, 0.7], dtype=torch.float64)  # scores of irrelevant items
STRENGTHS = (0.1, 0.3)  # λ of RaMBO's interpolation of one rank
LANDSCAPE_STRENGTH = 2.0  # λ of that of AP
FLAT = 1e-3  # a smaller gradient moves nothing
POINTS = 161  # of a curve, and of a side of a landscape


def ranks(scores: Tensor) -> Tensor:
    """The rank of every score (…, n), the largest 1."""
    return (-scores).argsort(-1).argsort(-1).to(scores) + 1


def interpolated(
    scores: Tensor, loss: Callable[[Tensor], Tensor], strength: float
) -> tuple[Tensor, Tensor]:
    """RaMBO's continuous f_λ(y) of a loss of ranks, and its gradient, for scores (N, n).

    With r = rk(y), g = dL/dr and r_λ = rk(y + λ g): f_λ(y) = L(r) + g·(r_λ − r) − (y·r − y·r_λ)/λ,
    whose gradient in y is −(r − r_λ)/λ (RaMBO, Alg. 1; Vlastelica et al. 2020, Eq. 5).
    """
    exact = ranks(scores).requires_grad_()
    value = loss(exact)
    (slope,) = torch.autograd.grad(value.sum(), exact)
    exact = exact.detach()
    moved = ranks(scores + strength * slope)
    ahead = ((exact - moved) * (strength * slope + scores)).sum(-1)
    return value.detach() - ahead / strength, -(exact - moved) / strength


def draw_steps(figure: Figure) -> None:
    """Left the steps, how much one item counts as ahead; right the rank that four others make."""
    left, right = figure.subplots(1, 2)
    t = torch.linspace(-0.06, 0.11, POINTS, dtype=torch.float64)
    left.plot(t, (t >= 0).double(), color=INK, label="exact")
    left.plot(t, Sigmoid().value(t), color=ORANGE, label="ς, Smooth-AP")
    left.plot(t, SupRank().value(t), color=BLUE, label="S, SupRank")
    left.set(xlabel="score of j − score of k", ylabel="how much j is ahead of k")
    left.set(ylim=(-0.3, 4.2), xticks=[-0.05, 0, 0.05, 0.1])

    score = torch.linspace(0, 0.9, POINTS, dtype=torch.float64)
    others = OTHERS.expand(POINTS, -1)
    ahead = others - score[:, None]
    right.plot(score, 1 + (ahead >= 0).double().sum(1), color=INK, label="exact")
    right.plot(score, 1 + Sigmoid().value(ahead).sum(1), color=ORANGE, label="ς, Smooth-AP")
    right.plot(score, 1 + SupRank().value(ahead).sum(1), color=BLUE, label="S, SupRank")
    scores = torch.cat([score[:, None], others], dim=1)
    for strength, style in zip(STRENGTHS, ("--", ":"), strict=True):
        value, _ = interpolated(scores, lambda rank: rank[:, 0], strength)
        right.plot(score, value, style, color=GREEN, label=f"RaMBO, λ = {strength}")
    right.plot(OTHERS, torch.full_like(OTHERS, 0.35), "|", color=INK, markersize=5)
    right.set(xlabel="score of k (marks: the others)", ylabel="rank of k", ylim=(0, 10.5))
    right.legend(loc="upper left", fontsize=6)
    for axes in (left, right):
        axes.grid(color=FAINT, linewidth=0.5)


def loss_of_ap(rank: Tensor) -> Tensor:
    """1 − AP by the ranks (N, n) of two positives, which come first, among all."""
    own = rank[:, :2]
    within = ranks(-own.detach())
    return 1 - (within / own).mean(1)


def landscape(name: str) -> tuple[Tensor, Tensor]:
    """The loss of a query, and the length of its gradient, over the scores of its two positives."""
    axis = torch.linspace(-0.1, 1, POINTS, dtype=torch.float64)
    second, first = torch.meshgrid(axis, axis, indexing="ij")
    own = torch.stack([first, second], dim=-1).reshape(-1, 2)
    scores = torch.cat([own, OTHERS.expand(len(own), -1)], dim=1)
    if name == "RaMBO":
        value, gradient = interpolated(scores, loss_of_ap, LANDSCAPE_STRENGTH)
    elif name == "exact":
        value, gradient = loss_of_ap(ranks(scores)), torch.zeros_like(scores)
    else:
        value, gradient = surrogate(name, scores)
    length = gradient[:, :2].norm(dim=1)
    return value.reshape(POINTS, POINTS), length.reshape(POINTS, POINTS)


def surrogate(name: str, scores: Tensor) -> tuple[Tensor, Tensor]:
    """A rank loss of every list of scores (N, n), whose first two items are the positives."""
    loss = build_loss(name)
    assert isinstance(loss, RankLoss)
    levels = (torch.arange(scores.shape[1]) < 2).long().expand(scores.shape)
    leaf = scores.clone().requires_grad_()
    value = 1 - loss.per_list(leaf, levels, 1)[0]
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


def draw_landscapes(figure: Figure) -> None:
    """1 − AP over the scores of two positives, exact and by three losses; hatched where flat."""
    panels = {
        "1 − AP, exact": "exact",
        "Smooth-AP": "smooth_ap",
        "Sup-AP": "sup_ap",
        f"RaMBO, λ = {LANDSCAPE_STRENGTH:g}": "RaMBO",
    }
    grid = figure.subplots(2, 2, sharex=True, sharey=True)
    side = np.linspace(-0.1, 1, POINTS)
    colours = [color_at(share) for share in np.linspace(0, 1, 21)]
    for axes, (title, name) in zip(grid.flat, panels.items(), strict=True):
        value, length = landscape(name)
        shade = axes.contourf(
            side, side, value, np.linspace(0, 1, 21), colors=colours, extend="max"
        )
        axes.contourf(
            side, side, (length < FLAT).double(), [0.5, 1.5], colors="none", hatches=["////"]
        )
        axes.set(title=title, aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        axes.plot(OTHERS, torch.full_like(OTHERS, -0.07), "|", color="white", markersize=5)
    figure.supylabel("score of a second positive", fontsize=8)
    grid[1, 0].set(xlabel="score of a positive")
    grid[1, 1].set(xlabel="score of a positive")
    bar = figure.colorbar(shade, ax=grid, shrink=0.8, ticks=[0, 0.25, 0.5, 0.75, 1])
    bar.set_label("loss")


POSITIVE, NEGATIVE = True, False
LOOSE = {  # cosines to a query in two batches: every batch is in order, both together are not
    "batch 1": ([0.95, 0.90], [0.80, 0.75, 0.70]),
    "batch 2": ([0.55, 0.50], [0.40, 0.35, 0.30]),
}
CALIBRATED = {
    "batch 1": ([0.97, 0.92], [0.58, 0.45, 0.40]),
    "batch 2": ([0.95, 0.91], [0.55, 0.50, 0.32]),
}
Cosines = tuple[Sequence[float], Sequence[float]]


def average_precision(cosines: Cosines) -> float:
    """AP by hbench of the cosines of positives and negatives."""
    positives, negatives = cosines
    levels = [1] * len(positives) + [0] * len(negatives)
    return float(ap([*positives, *negatives], levels)[0])


def draw_rows(axes: Axes, batches: dict[str, Cosines], title: str) -> None:
    """A line per batch, and one of both, with the items at their cosines and AP beside."""
    first, second = batches.values()
    both = ([*first[0], *second[0]], [*first[1], *second[1]])
    for row, (name, (positives, negatives)) in enumerate([*batches.items(), ("both", both)]):
        axes.axhline(-row, color=FAINT, linewidth=0.8, zorder=0)
        axes.plot(negatives, [-row] * len(negatives), "x", color=INK, markersize=4)
        axes.plot(positives, [-row] * len(positives), "o", color=ORANGE, markersize=4.5)
        value = average_precision((positives, negatives))
        axes.text(0.22, -row + 0.22, f"{name}: AP {100 * value:.0f}", fontsize=7, va="bottom")
    axes.set(title=title, xlim=(0.2, 1.02), ylim=(-2.5, 0.8), yticks=[], xlabel="cosine")
    axes.spines["left"].set_visible(False)


def draw_gap(figure: Figure) -> None:
    """Two batches in order each, and the list of both: loose, and calibrated."""
    left, right = figure.subplots(1, 2)
    draw_rows(left, LOOSE, "in order in each batch")
    draw_rows(right, CALIBRATED, "and calibrated")
    right.axvspan(0.9, 1.02, color=ORANGE, alpha=0.12, linewidth=0)
    right.axvspan(0.2, 0.6, color=GREY, alpha=0.12, linewidth=0)
    right.text(0.9, -2.45, "α ", fontsize=7, ha="right")
    right.text(0.6, -2.45, " β", fontsize=7)


def main() -> None:
    """Draw all three."""
    pictures = {
        "steps.png": (draw_steps, 2.3, 6.0, "τ = .01, δ = .05, ρ = 100; RaMBO's λ is of one rank"),
        "landscape.png": (
            draw_landscapes,
            4.4,
            5.0,
            "one query, two positives, irrelevant items at .2, .35, .5, .7 (marks); "
            f"hatched: no gradient longer than {FLAT:g}",
        ),
        "gap-toy.png": (draw_gap, 1.9, 6.0, "circles: positives of a query; crosses: negatives"),
    }
    for name, (paint, height, width, about) in pictures.items():
        draw_figure(paint, height=height, width=width, about=about).write(FOLDER / name)


if __name__ == "__main__":
    main()
