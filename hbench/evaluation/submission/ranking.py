"""A submission of rankings, the lists that a system returned: its source, its problems on a
dataset, and the measurement of its tests.

>>> ranking = RankingSubmission(
...     Ranking(
...         np.array(["a"], object),
...         np.array([str(n) for n in range(100)], object),
...         np.array([0, 100]),
...         np.arange(100),
...         None,
...         "",
...         "run.csv",
...     )
... )
>>> names, remarks = ranking.feasible(
...     [MetricName.parse(text) for text in ("R@10", "R@1000", "AP")], chosen=False
... )
>>> ", ".join(map(str, names)), remarks
('mAP@100, NDCG@100, R@10', ['a ranking of depth 100 cannot give R@1000, AP'])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from hbench.core.errors import SubmissionError, examples
from hbench.datasets import Dataset
from hbench.engine.job import Job
from hbench.engine.settings import Conditions
from hbench.evaluation.measurement import (
    Measurement,
    measured_sequences,
    scorers_of,
)
from hbench.metrics.level_sequence import LevelSequence
from hbench.metrics.name_columns import NamedSequences
from hbench.metrics.names import MetricName
from hbench.metrics.protocols import protocols
from hbench.records.document import SubmittedFile
from hbench.sheets.understood import Understood
from hbench.submissions import pair_labels
from hbench.submissions.embeddings.doubts import trained_on
from hbench.submissions.problems import SubmissionProblem, in_a_line
from hbench.submissions.rankings import level_sequences as run_levels
from hbench.submissions.rankings.files import Ranking


class RankingSubmission:
    """The lists that a system returned: `ranking`, as read from a file."""

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking

    @property
    def understood(self) -> tuple[Understood, ...]:
        """How the file of the lists was understood, in sentences. Its name at their beginning is
        removed, since `Understood` prints it anyway."""
        prefix = f"{self.ranking.source}: "
        return tuple(
            Understood(self.ranking.source, text.removeprefix(prefix))
            for text in self.ranking.understood
        )

    @property
    def source(self) -> SubmittedFile:
        """Describe the file of the lists for the report's head; `items` is the number of lists."""
        return SubmittedFile(
            file=self.ranking.source,
            sha256=self.ranking.sha256,
            items=len(self.ranking),
        )

    @property
    def content(self) -> str:
        """The sha256 of the lists. It does not depend on the format or the order of the rows."""
        return self.ranking.content

    def problems(self, data: Dataset, *, cosine: bool) -> list[SubmissionProblem]:
        """Find everything that is wrong with the lists for a dataset. A problem of several tests is
        returned once; mere remarks have `fatal` False. `cosine` matters for vectors only."""
        known = data.known_items
        tests = data.tests.values()
        of_tests = (run_levels.problems(self.ranking, manifest, known=known) for manifest in tests)
        return list(dict.fromkeys(problem for problems in of_tests for problem in problems))

    def doubts(self, data: Dataset) -> tuple[str, ...]:
        """Return the doubts about the scores. For lists there is only one: that the dataset's
        training set shares items with a test."""
        return tuple(trained_on(data))

    def metrics(
        self, names: Sequence[MetricName], data: Dataset, *, chosen: bool
    ) -> tuple[tuple[MetricName, ...], list[str]]:
        """Return the metrics that the lists can give for a dataset, and remarks on those of `names`
        that they cannot give. Full lists, which hold all positives of their queries, give all of
        `names`. `chosen`: whether the user named these metrics. If so, SubmissionError is raised
        for any that is impossible."""
        tests = data.tests.values()
        if all(run_levels.is_full(self.ranking, test) for test in tests):
            return tuple(names), []
        # some positive is not in its list, so lists are truncated, and their depth decides. The ids
        # of queries without a list are for the message
        missing = [
            query
            for test in tests
            for query in run_levels.without_list(self.ranking, test).tolist()
        ]
        return self.feasible(names, chosen=chosen, missing=missing)

    def feasible(
        self, names: Sequence[MetricName], *, chosen: bool, missing: Sequence[str] = ()
    ) -> tuple[tuple[MetricName, ...], list[str]]:
        """Return the metrics that truncated lists can give, and a remark on those of `names` that
        they cannot give. A metric is impossible if its cut is above the depth (the length of the
        longest list), or if it needs a full ranking. In place of impossible metrics come mAP and
        NDCG cut at the depth.

        `chosen`: whether the user named the metrics. `missing`: the ids of queries without a list,
        for the message. Raises SubmissionError if no metric is possible, or if an impossible one
        was `chosen`.
        """
        depth = self.ranking.depth
        # a metric without a cut that needs no full ranking is possible at any depth
        possible = [
            name for name in names if not name.needs_full_ranking and (name.cut or 0) <= depth
        ]
        left_out = ", ".join(str(name) for name in names if name not in possible)
        if not left_out:
            return tuple(possible), []
        if chosen or not possible:
            better = "a list for every query" if missing else "embeddings, or longer lists"
            # a smaller cut helps only if every query has a list
            if not missing and depth > 0:
                better += f"; or ask for what lists of {depth} can give: --metrics mAP@{depth}"
            raise SubmissionError(
                f"a ranking of depth {depth} cannot give {left_out}",
                expected=f"metrics cut at k ≤ {depth}, such as R@k, mAP@k, NDCG@k, P@k",
                found=f"{len(missing):,} queries without a list "
                f"({examples(map(in_a_line, missing))})"
                if missing
                else None,
                fix=f"submit {better}",
            )

        # These replace AP and NDCG, which need the whole list. mAP@k is always cut; NDCG is not, so
        # the cut one is a metric of its own, whose base ends in @. A dict removes duplicates, where
        # one of them was among the metrics already
        best = [MetricName("mAP", cut=depth), MetricName("NDCG@", cut=depth)]
        return tuple(dict.fromkeys([*best, *possible])), [
            f"a ranking of depth {depth} cannot give {left_out}"
        ]

    def refuse_partial(self, data: Dataset) -> None:
        """Raise SubmissionError: under partial labels items of unknown level are left out of the
        lists, which is supported for embeddings only."""
        raise SubmissionError(
            "partial labels are scored by embeddings alone",
            expected="an embedding file",
            found="a ranking",
        )

    def refuse_bits(self) -> None:
        """Do nothing: lists have no vectors whose bytes could be packed bits."""

    def embeddings(self, purpose: str) -> NoReturn:
        """Raise SubmissionError, which names the `purpose`: lists have no vectors."""
        raise SubmissionError(
            f"{purpose} needs vectors",
            expected="an embedding file",
            found=f"{self.source.file} holds rankings",
        )

    def jobs(
        self, data: Dataset, conditions: Conditions, also: str | None, memory: int | None
    ) -> dict[str, Job]:
        """Return no jobs: the lists are ranked already, so the engine has nothing to do."""
        return {}

    def measured(
        self, data: Dataset, name: str, conditions: Conditions, also: str | None
    ) -> Measurement:
        """Measure the lists on the test called `name`.

        The level of an item comes from the pairs that the test lists, if it lists any, else from
        the labels. `also`: the name of a second protocol, whose values are computed as well.
        """
        manifest = data.tests[name]
        ranking = self.ranking
        if name in data.lists:
            # `lists`: the listed items of each query, with their levels; `tie_key` (L + 1,): the
            # key of each level, by which items of equal score are ordered
            lists = _judged(data, name)
            tie_key = conditions.ties(manifest.tree.depth)
            sequences = pair_labels.sequences_of_ranking(ranking, manifest, lists, tie_key)
        else:
            sequences = run_levels.levels_of(ranking, manifest, ties=conditions.ties)

        # Released evaluators compare names. `names` (N, L): the labels by name; None if names form
        # a tree. If they form none, some names stand for several nodes, and the queries with such
        # names are also measured by name. `named`: {query: its sequences by name}
        names = data.labels_by_name(manifest)
        named = (
            None
            if names is None
            else run_levels.named_levels_of(ranking, manifest, names, ties=conditions.ties)
        )
        # released evaluators drop the item ranked last, unless the queries are the gallery; those
        # for listed positives drop nothing
        keeps_last = name in data.lists or np.array_equal(manifest.query, manifest.gallery)
        return _measured(
            sequences, data, name, conditions, also=also, named=named, keeps_last=keeps_last
        )


def _judged(data: Dataset, name: str) -> list[pair_labels.Judged]:
    """Return the items that a test lists for each of its queries, with their levels."""
    manifest = data.tests[name]
    return pair_labels.judged(
        data.lists[name], manifest.items[manifest.query], manifest.items[manifest.gallery]
    )


def _measured(
    sequences: Sequence[LevelSequence],
    data: Dataset,
    name: str,
    conditions: Conditions,
    *,
    also: str | None,
    named: dict[int, NamedSequences] | None = None,
    keeps_last: bool = True,
) -> Measurement:
    """Compute all metrics from the level sequences of a test, one for each query.

    Args:
        sequences: of the queries, in the manifest's order.
        data: the dataset.
        name: of the test.
        conditions: the conditions of the scores.
        also: the name of a second protocol; None: there is none.
        named: {query: its sequences by name}, for queries with names that stand for several nodes;
            None: no query has such a name.
        keeps_last: whether protocols of released evaluators keep the item ranked last of each list.
    """
    manifest = data.tests[name]
    # the labels (N, L) as the released evaluator numbers them, by names; None if its classes are
    # those of the tree
    names = data.labels_by_name(manifest)
    scorers = scorers_of(
        conditions,
        manifest.labels[manifest.query],
        keeps_last=keeps_last,
        also=protocols[also] if also else None,
        names=None if names is None else names[manifest.query],
    )
    # means are summed in the order of the ids, so that the order of the lists does not matter
    by_id = np.argsort(manifest.items[manifest.query].astype(str))
    return measured_sequences(sequences, scorers, canonical=by_id, named=named)
