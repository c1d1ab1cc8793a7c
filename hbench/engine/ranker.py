"""Ranking: vectors and labels become one level sequence per query, the one heavy step of every
evaluation.

The gallery has one canonical order (path, then vector content), and so have the queries; items
whose vectors are exactly equal share one score, whatever BLAS makes of them. So a level sequence
does not depend on the order of the items.

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

    Order: `queries` (Q,), `columns` (G,): the input positions of queries and gallery items in
    canonical order. `copies`, `originals` (n,): columns whose vector is that of an earlier column,
    and those earlier columns, whose scores the copies get. `left_out(first, last)`: two arrays of
    pairs, a query, counted from `first`, and a column that is not in its list. `sizes` (Q,): how
    many items each list has before anything is left out. `mutual`: whether the queries are the
    gallery, and each leaves only itself out of its list. `scores`: multiplies the vectors by
    blocks.

    Levels: `depth`: L, of the tree. `starts`, `ends` (Q, L): the columns where the items of level
    ≥ l lie side by side; under partial labels the level is the lowest that is possible. `known`
    (Q,): how many levels of a query are known, None where labels are not partial. `coded`: starts
    and ends (Q, K − 1) by code (hbench.metrics.readings), of which each is written over those
    before it; without partial labels a code is a level. `tie_key` (L + 1,), `code_ties` (K,): keys
    by level and by code, by which equal scores are ordered, lower first.

    Where the ranges lie in rearranged rows: `arrange`: how rows of scores, which are in the order
    of `columns`, become rows in which the ranges lie; None where they do already. `listed`: the
    lists of positives that it moves behind the gallery; `order` (G,): how it puts the columns of
    another ranker's finished rows. Both None elsewhere.
    """

    def __init__(
        self,
        queries: Side,
        gallery: Side | None = None,
        *,
        self_rows: NDArray[np.int64] | None = None,  # (Q,): the query's own gallery row, or −1
        similarity: Similarity = cosine,
        tie_key: Ties = pessimistic,  # of the number of levels: in what order equal scores come
        memory: int | None = None,  # bytes that may be held, None for the default
    ) -> None:
        """Put both sides into canonical order, by labels and content, so that the order of the
        input changes nothing; find where the items of each level lie, and what is left out.

        `gallery`: None where the queries are ranked among themselves; `self_rows`: not used then,
        and None where no query is in the gallery. `memory` bounds what is held beyond the vectors
        and labels.
        """
        # every item is asked and ranked, and leaves out itself alone: similarities are symmetric.
        # Groups that are ignored, and items of several paths, need whole rows of scores
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
        # columns whose vector is that of an earlier column, and those earlier ones
        self.copies, self.originals = duplicates(ranked.vectors, self.columns, keys)
        self.left_out = left_out_of(
            queries, ranked, asked=self.queries, columns=self.columns, self_rows=own_rows
        )
        self.sizes = np.full(len(self.queries), len(self.columns))
        # (Q,), how many levels of each query are known: set below where labels are partial
        self.known: NDArray[np.uint8] | None = None
        # set where the positives are no range of the canonical order: how rows are rearranged, by
        # which lists; `order` by `relabelled` alone
        self.arrange: Arrange | None = None
        self.listed: ListedItems | None = None
        self.order: NDArray[np.int64] | None = None
        # under partial labels two codes per level are ranked, which must fit into a byte
        if queries.known is not None and ranked.known is not None:
            self._refuse_too_deep_for_codes()
        # Either method sets `starts`, `ends`, `coded` and `code_ties`. With several paths of an
        # item no order has the items of each level side by side, so rows are arranged by lists
        if queries.more is None and ranked.more is None:
            self._take_ranges(queries, ranked, tie_key)
        else:
            self._take_paths(queries, ranked, tie_key)

        # bytes of the tables above, which are not left for the scores: about five int64 for each
        # query and item, and the ranges
        tables = 5 * 8 * (len(self.queries) + len(self.columns))
        tables += self.starts.nbytes + self.ends.nbytes
        tables += 0 if self.known is None else sum(bounds.nbytes for bounds in self.coded)
        left = None if memory is None else memory - tables
        query_rows, gallery_rows = similarity(queries.vectors, ranked.vectors)
        # where both sides are one object, its rows are moved to the order of the columns, so that
        # no block copies them; they come back as they are if the caller did not allow that
        if query_rows is gallery_rows:
            query_rows = gallery_rows = gallery_rows.reordered_in_place(self.columns)
        self.scores = Scores((query_rows, gallery_rows), self.queries, self.columns, left)

    def _refuse_too_deep_for_codes(self) -> None:
        """Raise TreeError where the codes of partial labels do not fit into a byte: two for each
        level, "of this level" and "may be finer", but one for the finest. MOST_LEVELS is the
        largest uint8, which bounds codes as it does levels."""
        if 2 * self.depth - 1 > MOST_LEVELS:
            raise TreeError(
                "the tree is too deep for partial labels",
                expected=f"{MOST_LEVELS // 2 + 1} levels at most",
                found=f"{self.depth}",
            )

    def _take_ranges(self, queries: Side, gallery: Side, tie_key: Ties) -> None:
        """Set the ranges of the levels where each item has one path: in canonical order, that is by
        path, the items that share at least l levels with a query lie side by side, from column
        starts[query, l − 1] to ends[query, l − 1]. Under partial labels also those of the codes.

        `tie_key`: makes, of a number of levels, the key of each by which equal scores are ordered.
        """
        self.starts, self.ends = level_ranges(
            queries.labels[self.queries], gallery.labels[self.columns]
        )
        # what is ranked are codes: levels, but under partial labels two codes per level
        self.coded = (self.starts, self.ends)
        self.code_ties = self.tie_key
        if queries.known is not None and gallery.known is not None:
            self._code(queries, gallery, tie_key)

    def _take_paths(self, queries: Side, gallery: Side, tie_key: Ties) -> None:
        """Set the lists of positives where items have several paths: then no order of the gallery
        has the items of each level side by side, and they are listed for each query. Sets `known`
        under partial labels, and what `_take_lists` sets.

        `tie_key`: makes, of the highest code, the key of each code by which equal scores are
        ordered.
        """
        asked = queries.paths(self.queries)
        lists = PathLists(asked, gallery.paths(self.columns), self.left_out)
        if asked.known is not None:  # some labels end above the finest level
            self.known = asked.known_of_items
        # counts (Q, K) are by code from 0: the highest code is K − 1
        self._take_lists(lists, tie_key(lists.counts.shape[1] - 1))

    def _take_lists(self, lists: PositiveLists, code_ties: NDArray[np.uint8]) -> None:
        """Rank by lists of positives, and of what is left out, in place of ranges of the gallery.

        Rows of scores are then arranged: each query's positives are moved behind the gallery, where
        those of a code (a level, or under partial labels one of two codes of a level) are a range
        from `starts` to `ends`. `code_ties` (K,): the key of each of K codes by which equal scores
        are ordered. Sets all that goes by ranges: `listed`, `coded`, `starts` and `ends`, `sizes`,
        `left_out` and `arrange`.
        """
        self.listed = ListedItems(lists, len(self.columns), is_partial=self.known is not None)
        self.coded = (self.listed.starts, self.listed.ends)
        self.code_ties = code_ties
        self.starts, self.ends = self.coded
        # of the codes of one level the lower one, 2l − 1 in column 2l − 2, has all of its items
        if self.known is not None:
            self.starts, self.ends = (np.ascontiguousarray(bounds[:, ::2]) for bounds in self.coded)
        self.sizes = lists.counts.sum(axis=1)  # (Q,): what is left out is not counted there
        self.mutual = False  # half of the products cannot be arranged: whole rows are
        # arranging the rows leaves these items out: nothing is left to be masked
        none = self.columns[:0]
        self.left_out = lambda _first, _last: (none, none)
        self.arrange = self._arranged_by_lists

    def _arranged_by_lists(self, scores: NDArray[np.floating], first: int) -> NDArray[np.floating]:
        """Rows (n, G + P) of scores (n, G), of the queries from `first` on in canonical order, with
        their P positives moved behind the gallery. Before that, copies of a vector get the score of
        the first one, since BLAS may round equal products differently."""
        assert self.listed is not None  # `_take_lists` has set both
        scores[:, self.copies] = scores[:, self.originals]
        return self.listed.arranged(scores, first)

    def _code(self, queries: Side, gallery: Side, tie_key: Ties) -> None:
        """Set the ranges by code for partial labels, where the label of an item may end above the
        finest level: code 2l − 1 holds the items of level ≥ l, code 2l those of level l that may be
        finer. Each range is written over those before. Sets `known` (Q,), `coded` and `code_ties`,
        and takes from `starts` and `ends` what a query cannot ask for.
        """
        assert queries.known is not None  # both sides are partial, or this is not called
        assert gallery.known is not None
        self.known = queries.known[self.queries]
        # starts and ends, (Q, L − 1) each: an item known to the finest level cannot be finer
        unknown = unknown_ranges(
            queries.labels[self.queries],
            gallery.labels[self.columns],
            self.starts,
            self.ends,
            known_of_queries=self.known,
            known_of_gallery=gallery.known[self.columns],
        )
        # (Q, L): below the level to which a query is known no item is a positive: empty ranges
        beyond = np.arange(1, self.depth + 1) > self.known[:, None]
        self.starts, self.ends = (
            np.where(beyond, 0, bounds) for bounds in (self.starts, self.ends)
        )
        # starts and ends (Q, 2L − 1) by code: odd codes are levels, even ones "may be finer"
        starts, ends = np.zeros((2, len(self.starts), 2 * self.depth - 1), np.int64)
        # code c stands in column c − 1: odd codes in 0, 2, …
        starts[:, ::2], ends[:, ::2] = self.starts, self.ends
        starts[:, 1::2], ends[:, 1::2] = unknown
        self.coded = (starts, ends)
        self.code_ties = tie_key(2 * self.depth - 1)

    @cached_property
    def digest(self) -> str:
        """sha256 of the rows as they are multiplied, the label tree, what is left out, the ties
        policy, and the shapes of blocks.

        −0.0 counts as 0.0. Taken only where parts of an evaluation are kept or sent.
        """
        # the shape of a block decides the last bits of its scores
        digest = hashlib.sha256(f"{self.scores.block_size} {self.tie_key.tolist()}".encode())
        # rows are read in canonical order, so that the order of the input changes nothing; once
        # where both sides are the same rows
        sides = [(self.scores.gallery_rows, self.columns)]
        if self.scores.query_rows is not self.scores.gallery_rows:
            sides.append((self.scores.query_rows, self.queries))
        for rows, order in sides:
            digest.update(f"{rows.dtype} {len(order)} {rows.width} ".encode())
            for start in range(0, len(order), ROWS_AT_ONCE):
                numbers = rows.read(order[start : start + ROWS_AT_ONCE])
                digest.update((numbers + rows.dtype.type(0)).data)  # −0.0 + 0.0 is 0.0
        listed = () if self.listed is None else self.listed.lists.arrays
        # the label tree enters as the ranges of the codes; what is left out as pairs of all queries
        for array in (*self.coded, *self.left_out(0, len(self.queries)), *listed):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def blocks(self) -> int:
        """The number of blocks of queries."""
        return self.scores.blocks

    @property
    def pessimistic(self) -> bool:
        """Whether among equal scores the lower level comes first, or the higher one."""
        return bool(self.tie_key[0] < self.tie_key[-1])

    def rows(self, block: int) -> NDArray[np.int64]:
        """The positions, in the order of the input, of the queries of block number `block`."""
        return self.scores.rows(block)

    def level_counts(self, first: int, last: int) -> NDArray[np.int64]:
        """Count the items of every level, (n, L+1), in the lists of the queries from `first` to
        `last` in canonical order; level 0 counts items that share no level. `sizes` (Q,): how many
        items each list has before any is left out; `starts`, `ends` (Q, L): the columns from and to
        which the items of level ≥ l lie.
        """
        # pairs of a query, counted from `first`, and the column that it leaves out
        rows, columns = self.left_out(first, last)
        starts = self.starts[first:last]
        ends = self.ends[first:last]
        # items that share at least l levels lie in a range, and none more than all: differences of
        # neighbouring counts are those of exactly l
        at_least = np.zeros((last - first, self.depth + 2), np.int64)
        # column 0: all items; column l: level ≥ l; the last one stays 0
        at_least[:, 0], at_least[:, 1:-1] = self.sizes[first:last], ends - starts
        counts: NDArray[np.int64] = at_least[:, :-1] - at_least[:, 1:]
        # an item that is left out lies in the ranges of all levels up to its own: (n, L)
        inside = (starts[rows] <= columns[:, None]) & (columns[:, None] < ends[rows])
        levels_left_out = inside.sum(axis=1)
        # .at: a query may leave out several items of one level
        np.subtract.at(counts, (rows, levels_left_out), 1)
        return counts

    def counts_by_code(self, first: int, last: int) -> NDArray[np.int64]:
        """Count the items of every code in the lists of the queries from `first` to `last` in
        canonical order; (n, L+1) where codes are levels. Under partial labels (n, 2L): code 0, then
        2l − 1, surely of level l, and 2l, which may be finer, by turns."""
        counts = self.level_counts(first, last)
        if self.known is None:  # labels are not partial: codes are levels
            return counts
        rows, columns = self.left_out(first, last)
        # every second range of `coded` is that of the items that may be finer than their level, of
        # levels 1 … L − 1: (n, L − 1)
        starts, ends = (bounds[first:last, 1::2] for bounds in self.coded)
        unknown = ends - starts
        # an item that is left out of a list is not counted
        inside = (starts[rows] <= columns[:, None]) & (columns[:, None] < ends[rows])
        np.subtract.at(unknown, rows, inside.astype(np.int64))
        # items that may be finer have a code of their own: they are taken off their level's count
        counts[:, 1:-1] -= unknown
        coded = np.zeros((len(counts), 2 * self.depth), np.int64)
        coded[:, 0], coded[:, 1::2], coded[:, 2::2] = counts[:, 0], counts[:, 1:], unknown
        return coded

    def mask(self, scores: NDArray[np.floating], first: int) -> None:
        """Finish rows of scores (n, G) in place, of the queries from `first` on in canonical order.

        Items with equal vectors get equal scores, which BLAS does not promise: each of the columns
        `copies` (m,) gets the score of the first column with its vector, in `originals` (m,). What
        is left out of a query's list, such as the query itself, gets −inf."""
        if len(self.copies):
            scores[:, self.copies] = scores[:, self.originals]
        scores[self.left_out(first, first + len(scores))] = -np.inf

    def arranged(
        self, scores: NDArray[np.floating], first: int
    ) -> Iterator[tuple[int, NDArray[np.floating]]]:
        """Yield finished rows of the scores (n, G) of the queries from `first` on in canonical
        order, some at a time, with the place of the first of them among the n.

        In a finished row what is left out has −inf, and the items of each code (a level, or under
        partial labels one of two per level) lie side by side.
        """
        if self.arrange is None:  # the ranges of the codes lie in the rows as they are
            self.mask(scores, first)
            yield 0, scores
            return
        # arranging copies the rows: some at a time, so that the copy stays small
        at_once = max(ARRANGED_AT_ONCE // scores.shape[1], 1)
        for start in range(0, len(scores), at_once):
            yield start, self.arrange(scores[start : start + at_once], first + start)

    def sequence_of_codes(
        self, query: int, row: NDArray[np.floating], counts: NDArray[np.int64]
    ) -> LevelSequence:
        """The level sequence of one query, with codes for levels: of the `query` with this number
        in canonical order, by its finished `row` of scores (G,), and the `counts` (K,) of the items
        in its list by code.
        """
        codes = np.zeros(len(row), np.uint8)
        # (Q, K − 1) each; a range is written over those before: an item has the last code whose
        # range holds it
        starts, ends = self.coded
        # code 0 stands for distractors, which have no range
        for code, (start, end) in enumerate(zip(starts[query], ends[query], strict=True), start=1):
            codes[start:end] = code
        # items that are left out of the list have a score of −inf; code 0 makes none a positive
        _, left_out = self.left_out(query, query + 1)
        codes[left_out] = 0
        return level_sequence(row, codes, counts, self.code_ties)

    def block(self, block: int) -> Iterator[LevelSequence]:
        """Yield the level sequence of each query of a block, in the order of `rows(block)`; under
        partial labels by code, two for each level, in place of levels."""
        scores = self.scores.whole(block)
        first = block * self.scores.block_size
        counts = self.counts_by_code(first, first + len(scores))
        for start, rows in self.arranged(scores, first):
            for n, row in enumerate(rows, start):
                yield self.sequence_of_codes(first + n, row, counts[n])

    def relabelled(self, queries: Labels, gallery: Labels, tie_key: Ties) -> Ranker:
        """A ranker of the same queries, blocks and scores under other labels, those of the queries
        (Q, L') and the gallery (G, L'), whose finest classes are the same.

        The new ranker takes rows of scores that this one's `mask` finished, and puts their columns
        in the order of the new labels. Items of one class keep their order, by content, so that all
        are in the order that a ranker made of the new labels would have.

        `tie_key`: makes, of a number of levels, the key of each by which equal scores are ordered.
        """
        other = self._without_digest()  # a copy: it shares every array that is not set below
        # lexsort takes its last key first: the coarsest level; it is stable
        order = np.lexsort(gallery[self.columns].T[::-1])
        # its inverse: from a column of this ranker to the column of the other
        place = np.empty_like(order)
        place[order] = np.arange(len(order))

        def left_out(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            """As `left_out` of this ranker, with the columns of the other."""
            rows, columns = self.left_out(first, last)
            return rows, place[columns]

        other.depth = queries.shape[1]
        other.columns = self.columns[order]
        other.left_out = left_out  # still asked for: its items are not counted in the lists
        other.known = None  # other trees are refused for partial labels
        # without partial labels a code is a level: keys and ranges by code are those by level
        other.tie_key = other.code_ties = tie_key(other.depth)
        other.starts, other.ends = other.coded = level_ranges(
            queries[self.queries], gallery[other.columns]
        )
        # the scores of copies and of what is left out were written by `mask`: only the columns have
        # to be put in order
        other.order = order
        other.arrange = lambda scores, _first: np.take(scores, order, axis=1)
        return other

    def _without_digest(self) -> Ranker:
        """A copy that shares all arrays and computes a digest of its own: the kept one of this
        ranker would be copied, too, and be wrong once the copy is changed."""
        other = copy.copy(self)
        other.__dict__.pop("digest", None)
        return other

    def of_lists(self, lists: QueryLists) -> Ranker:
        """A ranker of the same queries, blocks and scores whose levels are those that a benchmark
        lists for pairs of query and item, and not those of labels. `lists`: in input order.
        """
        other = self._without_digest()  # which was of the labels
        other.known = None  # a judged pair has one level: no label is partial
        pairs = PairLists(lists, queries=self.queries, columns=self.columns, depth=self.depth)
        # lists are of codes, a level and whether it is known; here a code is a level, and so is
        # what orders ties of codes
        other._take_lists(pairs, self.tie_key)
        return other

    def columns_of(
        self, queries: NDArray[np.int64], places: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The gallery items (n,), as positions in the input, that stand at these `places` (n,) of
        the finished rows of these `queries` (n,), numbers in canonical order. Where positives are
        listed they have been moved behind the gallery; elsewhere a place is a column.
        """
        columns = places if self.listed is None else self.listed.columns(queries, places)
        items: NDArray[np.int64] = self.columns[columns]
        return items
