"""Ranks a job's blocks on a GPU, in torch; the CPU computes the metrics.

Scores and ranks are made on the device; only the ranks and levels of the positives come back. Its matrix product
rounds in other places than the processor's, so scores differ in their last bits, and values in about the seventh digit.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from hbench.core.errors import UsageError
from hbench.core.text import first_line
from hbench.engine.block_values import Block, FastColumns, MetricPlan
from hbench.engine.job import Execute, Job, Values
from hbench.engine.kernels.rank_positives import RankedPositives
from hbench.engine.ranker import Ranker
from hbench.engine.score_blocks import Scores, overflow

BYTES = 64  # on the device, of a score in the making: its key, its level, the sorted ones, and what sorting takes
SORTED_BYTES = 2 << 30  # on the device, for rows that are sorted at once


@contextmanager
def refuse_device(name: str) -> Iterator[None]:
    """Raise UsageError where torch does not know the device of this name, or there is none here."""
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"there is no device {name!r} here", expected="cpu, cuda or cuda:1",
            found=first_line(error), fix="leave --device out, or name another",
        ) from None  # fmt: skip


def on_device(name: str) -> Execute:
    """Return the executor for a torch device. Raises UsageError where there is no such device."""
    with refuse_device(name):
        device = torch.device(name)
        torch.zeros(1, device=device)

    def execute(job: Job, blocks: Sequence[int]) -> Iterator[tuple[int, Values]]:
        plan = MetricPlan.of(job.ranker, job.scorers)
        if job.by_name is not None or job.ranker.scores.dtype == np.float64:
            raise UsageError(
                "this evaluation cannot be done on a device", expected="float32 scores, labels that form a tree",
                found="values by name" if job.by_name else str(job.ranker.scores.dtype),
                fix="leave --device out to rank on the processors",
            )  # fmt: skip
        gallery = _Gallery(job.ranker.scores, device)
        with _exact_products():
            for block in blocks:
                yield block, _valued(plan, gallery, block)

    return execute


class _Gallery:
    """The chunks of the gallery on the device, kept there if they take up at most half of what is free."""

    def __init__(self, scores: Scores, device: torch.device) -> None:
        self.scores, self.device = scores, device
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
        self.kept: dict[int, Tensor] | None = {} if scores.gallery_bytes <= free // 2 else None

    def chunk(self, start: int) -> Tensor:
        if self.kept is not None and start in self.kept:
            return self.kept[start]
        with self.scores.chunk(start) as chunk:
            moved = torch.tensor(chunk, device=self.device)
        if self.kept is not None:
            self.kept[start] = moved
        return moved

    def rows(self, block: int) -> Tensor:
        """The scores (n, G) of a block's queries. Raises SubmissionError where one is beyond the largest float."""
        vectors = self.scores.block_vectors(block)
        moved = torch.from_numpy(vectors).to(self.device)
        products = [moved @ self.chunk(start).T for start in self.scores.chunks]
        if not all(bool(each.isfinite().all()) for each in products):
            raise overflow(vectors)
        return torch.cat(products, dim=1)[: len(self.scores.rows(block))]


def _valued(plan: MetricPlan, gallery: _Gallery, block: int) -> Values:
    """The values of one block."""
    made = Block(plan.ranker, block, plan.metrics)
    fast = FastColumns(made, plan)
    rows = gallery.rows(block)
    _mask(rows, plan.ranker, made.first)
    step = max(1, SORTED_BYTES // (BYTES * rows.shape[1]))
    with plan.workspace() as workspace:
        for start in range(0, len(rows), step):
            at = slice(start, min(start + step, len(rows)))
            levels = _levels(plan.ranker, made.first + at.start, len(rows[at]), rows.device)
            level, listed, tied = sort(rows[at], levels, plan)
            made.values.first_level[at] = level[:, 0].cpu().numpy()
            made.values.tied[at] = tied.cpu().numpy()
            fast.add_ranked(_ranked(level, listed, made.values.tied[at]), at, workspace)
    return made.finish()


def _mask(rows: Tensor, ranker: Ranker, first: int) -> None:
    """Ranker.mask, on the device."""
    if len(ranker.copies):
        rows[:, _moved(ranker.copies, rows.device)] = rows[:, _moved(ranker.originals, rows.device)]
    queries, columns = (_moved(positions, rows.device) for positions in ranker.left_out(first, first + len(rows)))
    rows[queries, columns] = -torch.inf


def _levels(ranker: Ranker, first: int, count: int, device: torch.device) -> Tensor:
    """The code (n, G) of every item for the canonical queries from `first` on, its level where labels are not partial; 0 of
    what is left out."""
    column = torch.arange(len(ranker.columns), device=device)
    levels = torch.zeros((count, len(column)), dtype=torch.uint8, device=device)
    for code in range(ranker.coded[0].shape[1]):
        start, end = (_moved(bounds[first : first + count, code, None], device) for bounds in ranker.coded)
        levels[(start <= column) & (column < end)] = code + 1
    queries, columns = (_moved(bounds, device) for bounds in ranker.left_out(first, first + count))
    levels[queries, columns] = 0
    return levels


def sort(rows: Tensor, levels: Tensor, plan: MetricPlan) -> tuple[Tensor, Tensor, Tensor]:
    """Order rows of scores (n, G): by score, then by the tie key of the level; both with the best first. Returns the level (n, G)
    of each item by rank, whether it is listed (n, G), and whether the row is tied (n,)."""
    tie_key = plan.ranker.code_ties
    keys = descending(rows) << 8 | _moved(tie_key.astype(np.int64), rows.device)[levels.long()]
    keys = keys.sort(dim=1).values
    level = _moved(np.argsort(tie_key).astype(np.uint8), rows.device)[keys & 255]
    listed, score = level >= plan.lowest, keys >> 8
    weighted = level * listed
    tied = (score[:, 1:] == score[:, :-1]) & (weighted[:, 1:] != weighted[:, :-1])
    return level, listed, tied.any(dim=1)


def descending(scores: Tensor) -> Tensor:
    """int64 that fall as float32 scores rise; equal scores, also both zeros, give the same."""
    bits = (scores + 0).view(torch.int32).long()
    return torch.where(bits < 0, bits & 0x7FFFFFFF, -bits - 1) + (1 << 31)


def _ranked(level: Tensor, listed: Tensor, tied: np.ndarray) -> RankedPositives:
    """The listed positives, in flat arrays that end with one item of no query."""
    query, place = listed.nonzero(as_tuple=True)
    ends = np.cumsum(np.bincount(query.cpu().numpy(), minlength=len(tied)))
    starts = np.concatenate([[0], ends[:-1]])
    ranks, levels = (torch.nn.functional.pad(items, (0, 1)) for items in ((place + 1).int(), level[query, place]))
    return RankedPositives(ranks.cpu().numpy(), levels.cpu().numpy(), starts, ends, tied)


def _moved(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Products in whole float32, whatever the process has set."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
