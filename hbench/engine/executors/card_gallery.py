"""A job's gallery on a graphics card, and the scores of blocks of queries against it. The vectors
are kept on the card if they fit, else sent in chunks.

Blocks are multiplied in fixed groups, which follow from the data alone. So a block's scores do not
depend on which other blocks are requested, or were kept by an earlier run.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from hbench.engine.executors.card_memory import free_bytes, sent
from hbench.engine.score_blocks import Scores

# queries multiplied at once, unless one block has more; with fewer, a query takes longer
MULTIPLIED = 1024


class Gallery:
    """The gallery's vectors on the device: kept there if they take at most half of its free memory,
    else sent in chunks.

    `scores`: the vectors on the host, in blocks of queries and chunks of the gallery. `kept` (G,
    D): the gallery on the card, None if chunks are sent. `group`: the number of blocks that are
    multiplied together. `is_mutual`: whether the queries' vectors are the gallery's, in the same
    order.
    """

    def __init__(self, scores: Scores, device: torch.device) -> None:
        """Load the gallery's vectors (G, D), chunk by chunk, if they take at most half of the
        card's free memory, since the scores need the rest. Else each chunk is sent whenever it is
        multiplied.

        `scores`: the vectors on the host, in blocks of queries and chunks of the gallery;
        `scores.queries` (Q,) and `scores.columns` (G,) are the input positions of the queries and
        of the gallery's items, in canonical order; `scores.chunks` are the columns at which chunks
        start.
        """
        self.scores = scores
        self.device = device
        self.kept: Tensor | None = None
        if scores.gallery_bytes <= free_bytes(device) // 2:
            shape = (len(scores.columns), scores.gallery_rows.width)
            self.kept = torch.empty(shape, device=device)
            for start in scores.chunks:
                with scores.chunk(start) as chunk:
                    self.kept[start : start + len(chunk)] = torch.from_numpy(chunk)
        # blocks that are multiplied together: about MULTIPLIED queries, since a product of fewer
        # takes longer per query
        self.group = max(1, MULTIPLIED // scores.block_size)
        # Whether the queries are the gallery in the same order: then a kept gallery has their
        # vectors, too. The ranker uses one object for both in this case, hence `is`.
        self.is_mutual = (
            scores.query_rows is scores.gallery_rows and scores.queries is scores.columns
        )

    def rows(self, numbers: range) -> Tensor:
        """The scores (n, G) of the n queries of the blocks with these numbers. Queries and columns
        are in canonical order, which sorts items by their path and then by their content.

        Whole groups of blocks are multiplied. The groups follow from the data alone, so the bits of
        a score do not depend on which blocks are requested.
        """
        size = self.scores.block_size * self.group  # queries of a group
        # the requested queries in canonical order; the last block may be partly filled
        first = numbers.start * self.scores.block_size
        last = min(numbers.stop * self.scores.block_size, len(self.scores.queries))
        rows = torch.empty((last - first, len(self.scores.columns)), device=self.device)
        # for each group that has some of these queries (−(−a // b) is a / b rounded up): its
        # vectors (size, D) and the number of its first query
        groups = [
            (self._vectors(group, size), group * size)
            for group in range(first // size, -(-last // size))
        ]
        for columns, chunk in self._chunks():
            for vectors, start in groups:
                # The requested queries of this group. If they are the whole group, its product is
                # written in place. If not (also in a last group that was filled up), the whole
                # group is multiplied all the same, as a product of another shape may round
                # differently, and the rows of the requested queries are copied.
                begin = max(start, first)
                end = min(start + size, last)
                out = rows[begin - first : end - first, columns]
                if len(out) == size:
                    torch.mm(vectors, chunk.T, out=out)
                else:
                    out[:] = torch.mm(vectors, chunk.T)[begin - start : end - start]
        return rows

    def _vectors(self, group: int, size: int) -> Tensor:
        """The vectors (size, D), on the card, of the group with number `group`, which has `size`
        queries. The last group is filled up with copies of its last vector, since a product of
        another shape may round differently."""
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
        """Yield the gallery's vectors on the card in chunks, each with the columns of its items in
        the scores. If the card keeps the whole gallery, it is one chunk."""
        if self.kept is not None:
            yield slice(0, len(self.kept)), self.kept
            return
        for start in self.scores.chunks:
            with self.scores.chunk(start) as chunk:  # valid only inside of `with`, so it is copied
                yield slice(start, start + len(chunk)), torch.tensor(chunk, device=self.device)
