"""Ranking: turns vectors and labels into one level sequence per query, which is the only heavy step
of an evaluation.

Queries and gallery are put into a canonical order: by path, then by the content of the vectors.
Items whose vectors are exactly equal get one score, even if BLAS rounds their products differently.
So a level sequence does not depend on the order of the items in the input.

>>> vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
>>> ranker = Ranker(Side(vectors, np.array([[0, 0], [0, 1], [1, 2]])))
>>> [
...     (sequence.ranks.tolist(), sequence.levels.tolist()) for sequence in ranker.block(0)
... ]  # no positive for the third
[([1], [1]), ([1], [1]), ([], [])]
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hbench.core.errors import TreeError
from hbench.engine.lists import ListedItems, PositiveLists
from hbench.engine.lists.pairs import PairLists, QueryLists
from hbench.engine.lists.paths import PathLists
from hbench.engine.scan import ROWS_AT_ONCE
from hbench.engine.score_blocks import Scores
from hbench.engine.sides import Side, duplicates, left_out_of
from hbench.engine.similarity import Similarity, cosine, scan_of
from hbench.metrics.level_sequence import (
    LevelSequence,
    Ties,
    canonical_order,
    level_ranges,
    level_sequence,
    pessimistic,
    unknown_ranges,
)
from hbench.tree import MOST_LEVELS, Labels

Arrange = Callable[[NDArray[np.floating], int], NDArray[np.floating]]
ARRANGED_AT_ONCE = 600_000  # scores, unless one row has more


class Ranker:
    """Ranks queries against a gallery, block by block in canonical order.

    Attributes:
        queries, columns: the input positions of the queries (Q,) and of the gallery items (G,), in
            canonical order.
        copies, originals: (n,), columns with the same vector as an earlier column, and these
            earlier columns, whose scores the copies get.
        left_out: from the query numbers `first` and `last` to two arrays of pairs: a query, counted
            from `first`, and a column that is not in its list.
        sizes: (Q,), the number of items in each list before any is left out.
        mutual: whether the queries are the gallery, and each query leaves out only itself.
        scores: multiplies the vectors, block by block.
        depth: L, the number of levels of the tree.
        starts, ends: (Q, L), the range of columns with the items of level ≥ l. With partial labels
            this is the lowest level that an item can have.
        known: (Q,), the number of known levels of each query; None unless labels are partial.
        coded: starts and ends (Q, K − 1) of the ranges by code (hbench.metrics.readings). An item
            has the last code whose range contains it. Without partial labels, codes are levels.
        tie_key, code_ties: (L + 1,) and (K,), keys by level and by code that order equal scores,
            lower first.
        arrange: rearranges rows of scores so that the ranges apply; None where they apply already.
        listed: the lists of positives that `arrange` moves behind the gallery, if it does.
        order: (G,), sorts the columns of another ranker's finished rows, if `arrange` does this.
    """

    def __init__(
        self,
        queries: Side,
        gallery: Side | None = None,
        *,
        self_rows: NDArray[np.int64] | None = None,  # (Q,): the query's own gallery row, or −1
        similarity: Similarity = cosine,
        tie_key: Ties = pessimistic,  # (number of levels) → keys that order equal scores
        memory: int | None = None,  # bytes that may be held, None for the default
    ) -> None:
        """Put both sides into canonical order, by labels and content, so that the order of the
        input makes no difference. Find the ranges of the levels and the items that are left out.

        `gallery` is None if the queries are ranked among themselves; `self_rows` is then not used.
        `self_rows` is None if no query is in the gallery. `memory` limits what is held beyond the
        vectors and labels.
        """
        # If every item is both query and gallery item, the scores are symmetric and half of the
        # products suffice. With ignore groups, or items with several paths, whole rows are needed.
        self.mutual = gallery is None and queries.ignore is None and queries.more is None
        ranked = queries if gallery is None else gallery
        own_rows = np.arange(len(queries.labels)) if gallery is None else self_rows

        self.depth = queries.labels.shape[1]
        self.tie_key = tie_key(self.depth)
        # (N,): hashes of the vectors, by which items of equal labels are ordered
        keys = scan_of(ranked.vectors).keys
        query_keys = keys if ranked is queries else scan_of(queries.vectors).keys
        self.columns = canonical_order(ranked.labels, keys)
        self.queries = (
            self.columns if ranked is queries else canonical_order(queries.labels, query_keys)
        )
        # Columns with the vector of an earlier column, and these earlier columns, whose scores they
        # get: equal vectors must tie, but products may round them differently.
        self.copies, self.originals = duplicates(ranked.vectors, self.columns, keys)
        self.left_out = left_out_of(
            queries, ranked, asked=self.queries, columns=self.columns, self_rows=own_rows
        )
        # (Q,): the numbers of items in the lists, with items that are left out; `_take_paths`, for
        # items of several paths, replaces them by numbers without these items
        self.sizes = np.full(len(self.queries), len(self.columns))
        self.known: NDArray[np.uint8] | None = None  # (Q,): `_take_…` set it if labels are partial
        # set where positives are no ranges of the canonical order; only `relabelled` sets `order`
        self.arrange: Arrange | None = None
        self.listed: ListedItems | None = None
        self.order: NDArray[np.int64] | None = None
        # under partial labels two codes per level are ranked, which must fit into a byte
        if queries.known is not None and ranked.known is not None:
            self._refuse_too_deep_for_codes()
        # both set `starts`, `ends`, and by code `coded` and `code_ties`; where items have several
        # paths, no order puts the items of each level side by side, so lists rearrange rows
        if queries.more is None and ranked.more is None:
            self._take_ranges(queries, ranked, tie_key)
        else:
            self._take_paths(queries, ranked, tie_key)

        # bytes of the arrays above, which are subtracted from the memory for the scores: about five
        # int64 for each query and item, and the ranges
        tables = 5 * 8 * (len(self.queries) + len(self.columns))
        tables += self.starts.nbytes + self.ends.nbytes
        tables += 0 if self.known is None else sum(bounds.nbytes for bounds in self.coded)
        left = None if memory is None else memory - tables
        query_rows, gallery_rows = similarity(queries.vectors, ranked.vectors)
        # If both sides are one object, its rows are moved into the order of the columns, so that no
        # block has to copy them. If the caller did not allow it, `reordered_in_place` returns them
        # as they are; rows know their own order, so `Scores` reads either by the same numbers.
        if query_rows is gallery_rows:
            query_rows = gallery_rows = gallery_rows.reordered_in_place(self.columns)
        self.scores = Scores((query_rows, gallery_rows), self.queries, self.columns, left)

    def _refuse_too_deep_for_codes(self) -> None:
        """Raise TreeError if the codes of partial labels do not fit into a byte. Each level has two
        codes, "of this level" and "may be finer", except the finest, which has one: 2L − 1 in all.
        MOST_LEVELS is the largest uint8, which bounds codes as it bounds levels."""
        if 2 * self.depth - 1 > MOST_LEVELS:
            raise TreeError(
                "the tree is too deep for partial labels",
                expected=f"{MOST_LEVELS // 2 + 1} levels at most",
                found=f"{self.depth}",
            )

    def _take_ranges(self, queries: Side, gallery: Side, tie_key: Ties) -> None:
        """Set the ranges of the levels, for items with one path each. Canonical order sorts by
        path, so the items that share at least l levels with a query are adjacent: they are the
        columns from starts[query, l − 1] to ends[query, l − 1]. With partial labels, the ranges of
        the codes are set, too.

        `tie_key` is a function from a number of levels to the keys that order equal scores, one per
        level; `self.tie_key` has the keys of this ranker's levels.
        """
        self.starts, self.ends = level_ranges(
            queries.labels[self.queries], gallery.labels[self.columns]
        )
        # the ranking uses codes; a code is a level, but with partial labels most levels have two
        # codes
        self.coded = (self.starts, self.ends)
        self.code_ties = self.tie_key
        if queries.known is not None and gallery.known is not None:
            self._code(queries, gallery, tie_key)

    def _take_paths(self, queries: Side, gallery: Side, tie_key: Ties) -> None:
        """List the positives of each query, for items with several paths: no order of the gallery
        puts the items of each level side by side for every query. Sets `known` if labels are
        partial, and the attributes that `_take_lists` names. `tie_key` is a function from the
        highest code to the keys that order equal scores, one per code."""
        # all paths of the queries, and of the gallery, with their items in canonical order; `known`
        # is by path, `known_of_items` by item
        asked = queries.paths(self.queries)
        lists = PathLists(asked, gallery.paths(self.columns), self.left_out)
        if asked.known is not None:  # some labels end above the finest level
            self.known = asked.known_of_items
        # counts (Q, K) are by code from 0: the highest code is K − 1
        self._take_lists(lists, tie_key(lists.counts.shape[1] - 1))

    def _take_lists(self, lists: PositiveLists, code_ties: NDArray[np.uint8]) -> None:
        """Rank by lists of positives and of left-out items, in place of ranges of the gallery.

        Rows of scores are then rearranged: each query's positives are moved behind the gallery.
        There, those of level l or finer are the columns from `starts` to `ends`. Under partial
        labels a level has two codes. `code_ties` (K,): the keys that order equal scores, one per
        code. Sets `listed`, `coded`, `starts`, `ends`, `sizes`, `left_out` and `arrange`.
        """
        self.listed = ListedItems(lists, len(self.columns), is_partial=self.known is not None)
        self.coded = (self.listed.starts, self.listed.ends)
        self.code_ties = code_ties
        self.starts, self.ends = self.coded
        # Level l has the codes 2l − 1 and 2l. The range of code 2l − 1, in column 2l − 2, has all
        # items of level l or finer, so every other column is the range of a level.
        if self.known is not None:
            self.starts, self.ends = (np.ascontiguousarray(bounds[:, ::2]) for bounds in self.coded)
        self.sizes = lists.counts.sum(axis=1)  # (Q,): the counts are without left-out items
        self.mutual = False  # scores of mutual queries come in tiles; only whole rows can be moved
        # `arrange` gives left-out items −inf, so `mask`, which does this otherwise, gets no pairs
        none = self.columns[:0]
        self.left_out = lambda _first, _last: (none, none)
        self.arrange = self._arranged_by_lists

    def _arranged_by_lists(self, scores: NDArray[np.floating], first: int) -> NDArray[np.floating]:
        """Rearrange the rows of scores (n, G) of the queries from `first` on, in canonical order:
        (n, G + P), with up to P positives of a query moved behind the gallery. Before that, columns
        with equal vectors get equal scores, because BLAS may round equal products differently."""
        assert self.listed is not None  # `_take_lists` sets it
        scores[:, self.copies] = scores[:, self.originals]
        return self.listed.arranged(scores, first)

    def _code(self, queries: Side, gallery: Side, tie_key: Ties) -> None:
        """Set the ranges by code for partial labels, where the path of an item may end above the
        finest level.

        The range of code 2l − 1 holds the items of level ≥ l. That of code 2l holds the items that
        share level l and may share finer levels, too. An item's code is the last one whose range
        contains it. Sets `known` (Q,), `coded`, and `code_ties` (2L,), the keys of the codes that
        order equal scores, which the function `tie_key` makes from the highest code. In `starts`
        and `ends`, ranges of levels at which a query is unknown become empty.
        """
        assert queries.known is not None  # the caller has checked both
        assert gallery.known is not None
        self.known = queries.known[self.queries]
        # starts and ends of the codes 2l, (Q, L − 1) each: the finest level has no such code
        unknown = unknown_ranges(
            queries.labels[self.queries],
            gallery.labels[self.columns],
            self.starts,
            self.ends,
            known_of_queries=self.known,
            known_of_gallery=gallery.known[self.columns],
        )
        # (Q, L): no item is a positive at a level at which the query is not known: empty ranges
        beyond = np.arange(1, self.depth + 1) > self.known[:, None]
        self.starts, self.ends = (
            np.where(beyond, 0, bounds) for bounds in (self.starts, self.ends)
        )
        # starts and ends (Q, 2L − 1) by code: odd codes are levels, even ones "may be finer"
        starts, ends = np.zeros((2, len(self.starts), 2 * self.depth - 1), np.int64)
        # code c is in column c − 1: odd codes are in columns 0, 2, …
        starts[:, ::2], ends[:, ::2] = self.starts, self.ends
        starts[:, 1::2], ends[:, 1::2] = unknown
        self.coded = (starts, ends)
        self.code_ties = tie_key(2 * self.depth - 1)

    @cached_property
    def digest(self) -> str:
        """The sha256 of the rows of vectors, the label tree, the left-out items, the ties policy,
        and the shape of the blocks.

        −0.0 counts as 0.0. The digest is computed only if blocks are stored in a folder or computed
        by a cluster.
        """
        # the shape of a block decides the last bits of its scores; the keys are the ties policy
        digest = hashlib.sha256(f"{self.scores.block_size} {self.tie_key.tolist()}".encode())
        # rows are read in canonical order, so that the order of the input changes nothing
        sides = [(self.scores.gallery_rows, self.columns)]
        if self.scores.query_rows is not self.scores.gallery_rows:
            sides.append((self.scores.query_rows, self.queries))
        for rows, order in sides:
            digest.update(f"{rows.dtype} {len(order)} {rows.width} ".encode())
            for start in range(0, len(order), ROWS_AT_ONCE):
                numbers = rows.read(order[start : start + ROWS_AT_ONCE])
                digest.update((numbers + rows.dtype.type(0)).data)  # −0.0 + 0.0 is 0.0
        listed = () if self.listed is None else self.listed.lists.arrays
        # Where the items of each code are, by query: two trees with equal ranges give equal levels.
        # Then left-out pairs; and positives, where they are listed.
        for array in (*self.coded, *self.left_out(0, len(self.queries)), *listed):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def blocks(self) -> int:
        """The number of blocks of queries."""
        return self.scores.blocks

    @property
    def pessimistic(self) -> bool:
        """Whether, among equal scores, the lower level comes first; else the higher level does."""
        return bool(self.tie_key[0] < self.tie_key[-1])

    def rows(self, block: int) -> NDArray[np.int64]:
        """The input positions of the queries of block number `block`."""
        return self.scores.rows(block)

    def level_counts(self, first: int, last: int) -> NDArray[np.int64]:
        """Count the items of each level, from 0 to L, in the lists of the queries from `first` to
        `last` in canonical order; (n, L + 1)."""
        # pairs of a query, counted from `first`, and the column that it leaves out
        rows, columns = self.left_out(first, last)
        starts = self.starts[first:last]
        ends = self.ends[first:last]
        # Ranges give the numbers of items of level ≥ l. The difference of two neighbouring numbers
        # is that of exactly level l. Column 0: all items; column l: level ≥ l; the last one stays
        # 0, as no item has a level above L.
        at_least = np.zeros((last - first, self.depth + 2), np.int64)
        at_least[:, 0], at_least[:, 1:-1] = self.sizes[first:last], ends - starts
        counts: NDArray[np.int64] = at_least[:, :-1] - at_least[:, 1:]
        # (pairs, L): a left-out item is in the ranges of levels 1 … l, so their number is its level
        inside = (starts[rows] <= columns[:, None]) & (columns[:, None] < ends[rows])
        levels_left_out = inside.sum(axis=1)
        # .at counts each pair, also where a query leaves out several items of one level
        np.subtract.at(counts, (rows, levels_left_out), 1)
        return counts

    def counts_by_code(self, first: int, last: int) -> NDArray[np.int64]:
        """Count the items of each code in the lists of the queries from `first` to `last`, in
        canonical order.

        Without partial labels, codes are levels: (n, L + 1). With partial labels, the result is (n,
        2L): code 0, then alternately code 2l − 1 (surely level l) and code 2l (level l or finer).
        """
        counts = self.level_counts(first, last)
        if self.known is None:  # labels are not partial: codes are levels
            return counts
        rows, columns = self.left_out(first, last)
        # (n, L − 1): columns 1::2 of `coded` are those of the codes 2l, "level l or finer"
        starts, ends = (bounds[first:last, 1::2] for bounds in self.coded)
        unknown = ends - starts
        # an item that is left out of a list is not counted
        inside = (starts[rows] <= columns[:, None]) & (columns[:, None] < ends[rows])
        np.subtract.at(unknown, rows, inside.astype(np.int64))
        # items that may be finer have a code of their own, so they are subtracted from their level
        counts[:, 1:-1] -= unknown
        coded = np.zeros((len(counts), 2 * self.depth), np.int64)
        coded[:, 0], coded[:, 1::2], coded[:, 2::2] = counts[:, 0], counts[:, 1:], unknown
        return coded

    def mask(self, scores: NDArray[np.floating], first: int) -> None:
        """Finish rows of scores (n, G) in place, of the queries from `first` on in canonical order.

        Items that are left out of a query's list, such as the query itself, get −inf. Items with
        equal vectors get equal scores, which BLAS does not guarantee."""
        if len(self.copies):
            scores[:, self.copies] = scores[:, self.originals]
        scores[self.left_out(first, first + len(scores))] = -np.inf

    def arranged(
        self, scores: NDArray[np.floating], first: int
    ) -> Iterator[tuple[int, NDArray[np.floating]]]:
        """Yield finished rows of scores, some at a time, each time with the place of the first of
        them among the n. `scores` (n, G): of the queries from `first` on. Both rows and columns are
        in canonical order: sorted by label.

        In a finished row, left-out items have −inf, and the items of each code (a level, or under
        partial labels one of two per level) are side by side. `scores` may be changed in place.
        """
        if self.arrange is None:  # canonical order has the items of each code side by side
            self.mask(scores, first)
            yield 0, scores
            return
        # items have several paths, or other labels: a few rows are copied in another order at once
        at_once = max(ARRANGED_AT_ONCE // scores.shape[1], 1)
        for start in range(0, len(scores), at_once):
            yield start, self.arrange(scores[start : start + at_once], first + start)

    def sequence_of_codes(
        self, query: int, row: NDArray[np.floating], counts: NDArray[np.int64]
    ) -> LevelSequence:
        """The level sequence of one query, with codes in place of levels. `query`: its number in
        canonical order; `row` (G,): its finished scores; `counts` (K,): the items in its list by
        code.
        """
        codes = np.zeros(len(row), np.uint8)
        starts, ends = self.coded  # (Q, K − 1) each: the range of columns of each code from 1 on
        # an item has the last code whose range holds it; distractors, code 0, have no range
        for code, (start, end) in enumerate(zip(starts[query], ends[query], strict=True), start=1):
            codes[start:end] = code
        # left-out items are in the ranges, too; with score −inf and code 0 they are ignored
        _, left_out = self.left_out(query, query + 1)
        codes[left_out] = 0
        return level_sequence(row, codes, counts, self.code_ties)

    def block(self, block: int) -> Iterator[LevelSequence]:
        """Yield the level sequence of each query of a block, in the order of `rows(block)`. Under
        partial labels, sequences have codes, two for each level, in place of levels."""
        scores = self.scores.whole(block)  # (n, G)
        first = block * self.scores.block_size
        counts = self.counts_by_code(first, first + len(scores))
        # some finished rows of scores at a time: −inf for left-out items, and the items of each
        # code side by side
        for start, rows in self.arranged(scores, first):
            for n, row in enumerate(rows, start):
                yield self.sequence_of_codes(first + n, row, counts[n])

    def relabelled(self, queries: Labels, gallery: Labels, tie_key: Ties) -> Ranker:
        """A ranker of the same queries, blocks and scores under other labels, those of the queries
        (Q, L') and the gallery (G, L'). The finest classes must be those of this ranker's labels.

        The new ranker takes rows of scores in which this ranker has set left-out items to −inf
        (`mask`), and sorts their columns by the new labels. Items of one class keep their order,
        which is by content, so the result is the order of a ranker that is made from the new
        labels.

        `tie_key`: from a number of levels to the keys that order equal scores, one per level.
        """
        # a copy that shares every array not set below; it computes a digest of its own
        other = self._without_digest()
        # lexsort is stable, and sorts by its last key first, which is the coarsest level here
        order = np.lexsort(gallery[self.columns].T[::-1])
        # the inverse of `order`: from a column of this ranker to the column of the other
        place = np.empty_like(order)
        place[order] = np.arange(len(order))

        def left_out(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            """The pairs that this ranker's `left_out` gives, with the columns of the other."""
            rows, columns = self.left_out(first, last)
            return rows, place[columns]

        other.depth = queries.shape[1]
        other.columns = self.columns[order]
        other.left_out = left_out  # needed to count the items of a list
        other.known = None  # other trees are refused for partial labels
        # without partial labels a code is a level: keys and ranges by code are those by level
        other.tie_key = other.code_ties = tie_key(other.depth)
        other.starts, other.ends = other.coded = level_ranges(
            queries[self.queries], gallery[other.columns]
        )
        # `mask` has finished the scores; `arrange` sorts their columns by `order`, as cards also do
        other.order = order
        other.arrange = lambda scores, _first: np.take(scores, order, axis=1)
        return other

    def _without_digest(self) -> Ranker:
        """A copy that shares all arrays but computes its own digest. A copied digest would be wrong
        once the copy is changed."""
        other = copy.copy(self)
        other.__dict__.pop("digest", None)
        return other

    def of_lists(self, lists: QueryLists) -> Ranker:
        """A ranker of the same queries, blocks and scores whose levels are not those of labels, but
        those that a benchmark lists for pairs of query and item. `lists`: in input order.
        """
        other = self._without_digest()  # a copy; its labels, and so its digest, are others
        other.known = None  # a judged pair has one known level
        pairs = PairLists(lists, queries=self.queries, columns=self.columns, depth=self.depth)
        # Sets the ranges of the levels. `_take_lists` takes the keys by which equal scores are
        # ordered, one per code; codes are levels here, so `tie_key`, one per level, fits.
        other._take_lists(pairs, self.tie_key)
        return other

    def columns_of(
        self, queries: NDArray[np.int64], places: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The input positions (n,) of gallery items. `queries` (n,): numbers in canonical order.
        `places` (n,): for each of these queries the place of an item in its finished row. A place
        is a column, unless listed positives (`listed`) are moved behind the gallery.
        """
        columns = places if self.listed is None else self.listed.columns(queries, places)
        items: NDArray[np.int64] = self.columns[columns]
        return items
