"""A submission of rankings, the lists that a system returned: its source, its problems on a
dataset, and how it measures a test.

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
        """What the file of the lists was taken for, in sentences; they begin with the file's name,
        which `Understood` states by itself."""
        prefix = f"{self.ranking.source}: "
        return tuple(
            Understood(self.ranking.source, text.removeprefix(prefix))
            for text in self.ranking.understood
        )

    @property
    def source(self) -> SubmittedFile:
        """The file of the lists, for the report's head; `items`: the number of lists."""
        return SubmittedFile(
            file=self.ranking.source,
            sha256=self.ranking.sha256,
            items=len(self.ranking),
        )

    @property
    def content(self) -> str:
        """The sha256 of the lists, the same for any format of file and order of its rows."""
        return self.ranking.content

    def problems(self, data: Dataset, *, cosine: bool) -> list[SubmissionProblem]:
        """Everything that is wrong with the lists for a dataset, each problem once although several
        tests may have it; mere remarks have `fatal` False. `cosine` is of vectors, not of lists."""
        known = data.known_items
        tests = data.tests.values()
        of_tests = (run_levels.problems(self.ranking, manifest, known=known) for manifest in tests)
        return list(dict.fromkeys(problem for problems in of_tests for problem in problems))

    def doubts(self, data: Dataset) -> tuple[str, ...]:
        """The doubts before the lists are scored: of lists alone only that the dataset's training
        set shares items with a test."""
        return tuple(trained_on(data))

    def metrics(
        self, names: Sequence[MetricName], data: Dataset, *, chosen: bool
    ) -> tuple[tuple[MetricName, ...], list[str]]:
        """Which of the metrics `names` the lists can give for a dataset, and remarks on the others:
        full lists give all. `chosen`: whether somebody named these metrics; then SubmissionError is
        raised for impossible ones."""
        tests = data.tests.values()
        if all(run_levels.is_full(self.ranking, test) for test in tests):
            return tuple(names), []
        # lists that lack a positive are cut: then it matters how long they are, and which are none
        missing = [
            query
            for test in tests
            for query in run_levels.without_list(self.ranking, test).tolist()
        ]
        return self.feasible(names, chosen=chosen, missing=missing)

    def feasible(
        self, names: Sequence[MetricName], *, chosen: bool, missing: Sequence[str] = ()
    ) -> tuple[tuple[MetricName, ...], list[str]]:
        """Which of the metrics `names` lists of this depth, the length of the longest, can give:
        those cut at k, k up to the depth; and a remark on the others, in whose place mAP and NDCG
        are cut at the depth. `missing`: the queries without a list.

        Raises SubmissionError where none is possible, or impossible ones were `chosen` by name.
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
            if not missing and depth > 0:  # else shorter metrics would not help
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

        # in place of AP and NDCG, which need the whole list; by a dict, so that a metric that is
        # possible anyway does not come twice
        best = [MetricName("mAP", cut=depth), MetricName("NDCG@", cut=depth)]
        return tuple(dict.fromkeys([*best, *possible])), [
            f"a ranking of depth {depth} cannot give {left_out}"
        ]

    def refuse_partial(self, data: Dataset) -> None:
        """Raise SubmissionError: under partial labels items are left out of each list, which only
        vectors can be ranked for."""
        raise SubmissionError(
            "partial labels are scored by embeddings alone",
            expected="an embedding file",
            found="a ranking",
        )

    def refuse_bits(self) -> None:
        """Do nothing: lists hold no vectors whose bytes could be packed bits."""

    def embeddings(self, purpose: str) -> NoReturn:
        """Raise SubmissionError, which names the purpose: lists hold no vectors."""
        raise SubmissionError(
            f"{purpose} needs vectors",
            expected="an embedding file",
            found=f"{self.source.file} holds rankings",
        )

    def jobs(
        self, data: Dataset, conditions: Conditions, also: str | None, memory: int | None
    ) -> dict[str, Job]:
        """No jobs: the engine has nothing to rank, since the lists are ranked already."""
        return {}

    def measured(
        self, data: Dataset, name: str, conditions: Conditions, also: str | None
    ) -> Measurement:
        """Measure the lists on the test called `name`, as those of vectors are measured: the level
        of each item comes from the pairs that were judged, where the test lists some, else from the
        labels. `also`: a second protocol, by its name, which is measured beside that of the
        conditions."""
        manifest = data.tests[name]
        ranking = self.ranking
        if name in data.lists:
            lists = _judged(data, name)
            tie_key = conditions.ties(manifest.tree.depth)
            sequences = pair_labels.sequences_of_ranking(ranking, manifest, lists, tie_key)
        else:
            sequences = run_levels.levels_of(ranking, manifest, ties=conditions.ties)

        # (N, L): the labels by name, None where names form a tree. Where they do not, a name may
        # stand for several nodes: queries of such names are also measured by name, as released
        # evaluators measure them
        names = data.labels_by_name(manifest)
        named = (
            None
            if names is None
            else run_levels.named_levels_of(ranking, manifest, names, ties=conditions.ties)
        )
        # the protocols of released evaluators drop the item that is ranked last, unless the queries
        # are the gallery themselves; the evaluators of judged lists drop nothing either
        drops_last = name not in data.lists and not np.array_equal(manifest.query, manifest.gallery)
        return _measured(
            sequences, data, name, conditions, also=also, named=named, all_pairs=not drops_last
        )


def _judged(data: Dataset, name: str) -> list[pair_labels.Judged]:
    """The items that a test lists for each of its queries, with their levels."""
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
    all_pairs: bool = True,
) -> Measurement:
    """The measurement of a test's level sequences, one for each query of the test called `name`.

    `also`: the name of a second protocol; `named`: {query: its sequence by name}, of the queries
    whose names stand for several nodes of the tree, None where there are none; `all_pairs`: whether
    protocols of released evaluators keep the item that is ranked last, as they do where the queries
    are their own gallery.
    """
    manifest = data.tests[name]
    names = data.labels_by_name(manifest)
    scorers = scorers_of(
        conditions,
        manifest.labels[manifest.query],
        all_pairs=all_pairs,
        also=protocols[also] if also else None,
        names=None if names is None else names[manifest.query],
    )
    # means are summed in the order of the ids, whatever that of the lists
    by_id = np.argsort(manifest.items[manifest.query].astype(str))
    return measured_sequences(sequences, scorers, canonical=by_id, named=named)
