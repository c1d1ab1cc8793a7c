"""A job's gallery on a graphics card: its vectors, kept there or sent by chunks, and the scores of
blocks of queries against them.

Blocks are multiplied by groups that the data alone decide, so a block's scores do not depend on
which others are asked for, or were kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hbench.engine.executors.card_memory import free_bytes, sent
from hbench.engine.score_blocks import Scores

MULTIPLIED = 1024  # queries multiplied at once, unless one block has more: fewer take longer each


class Gallery:
    """The gallery's vectors on the device, kept there if they take up at most half of what is free,
    else moved by chunks.

    `scores`: the vectors on the host, in blocks of queries and chunks of the gallery. `kept` (G,
    D): the gallery on the card, None where it is moved. `group`: blocks that are multiplied
    together. `is_mutual`: whether the queries' vectors are the gallery's, in the same order.
    """

    def __init__(self, scores: Scores, device: torch.device) -> None:
        """Load the gallery's vectors (G, D), chunk by chunk, if they take half of the card's free
        memory at most: the scores need the rest. Else a chunk is sent whenever it is multiplied."""
        self.scores = scores
        self.device = device
        self.kept: Tensor | None = None
        if scores.gallery_bytes <= free_bytes(device) // 2:
            shape = (len(scores.columns), scores.gallery_rows.width)
            self.kept = torch.empty(shape, device=device)
            for start in scores.chunks:
                with scores.chunk(start) as chunk:
                    self.kept[start : start + len(chunk)] = torch.from_numpy(chunk)
        # blocks that are multiplied together: about MULTIPLIED queries
        self.group = max(1, MULTIPLIED // scores.block_size)
        # the queries are the gallery in the same order: their vectors are on the card already
        self.is_mutual = (
            scores.query_rows is scores.gallery_rows and scores.queries is scores.columns
        )

    def rows(self, numbers: range) -> Tensor:
        """The scores (n, G) of the queries of some blocks. They are multiplied by groups of blocks
        that the data alone decide, so that their bits do not depend on which are asked for."""
        size = self.scores.block_size * self.group  # queries of a group
        # the queries asked for, in canonical order; the last block may be partly filled
        first = numbers.start * self.scores.block_size
        last = min(numbers.stop * self.scores.block_size, len(self.scores.queries))
        rows = torch.empty((last - first, len(self.scores.columns)), device=self.device)
        # every group that holds one of these queries (−(−a // b) is a / b rounded up): its vectors,
        # and the number of its first query
        groups = [
            (self._vectors(group, size), group * size)
            for group in range(first // size, -(-last // size))
        ]
        for columns, chunk in self._chunks():
            for vectors, start in groups:
                # the queries of this group that are asked for; a whole group is written in place
                begin = max(start, first)
                end = min(start + size, last)
                out = rows[begin - first : end - first, columns]
                if len(out) == size:
                    torch.mm(vectors, chunk.T, out=out)
                else:
                    out[:] = torch.mm(vectors, chunk.T)[begin - start : end - start]
        return rows

    def _vectors(self, group: int, size: int) -> Tensor:
        """The vectors (size, D) of a group of `size` queries. The last group is filled up with
        copies of its last vector: a product of another shape would round in other places."""
        queries = slice(group * size, (group + 1) * size)
        if self.kept is not None and self.is_mutual:  # they are on the card already
            vectors = self.kept[queries]
        else:
            rows = self.scores.query_rows.read(self.scores.queries[queries])
            (vectors,) = sent([rows], self.device)
        if len(vectors) == size:
            return vectors
        return torch.cat([vectors, vectors[-1:].expand(size - len(vectors), -1)])

    def _chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """The gallery's vectors with the columns that they fill; all at once where they are kept.
        `kept` (G, D): the gallery on the card, None where it does not fit; `scores`: the vectors on
        the host."""
        if self.kept is not None:
            yield slice(0, len(self.kept)), self.kept
            return
        for start in self.scores.chunks:
            with self.scores.chunk(start) as chunk:
                yield slice(start, start + len(chunk)), torch.tensor(chunk, device=self.device)
