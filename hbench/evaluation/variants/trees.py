"""Scores embeddings under other trees with the same fine classes, in one ranking pass with the
dataset's own tree.

To test what a hierarchy is worth, the same embeddings are scored under a tree from another source
(WordNet, Wikidata), and under a shuffled control: the dataset's tree with permuted fine classes,
whose levels say nothing about the images. Metrics of the finest level are the same under every
tree, so only metrics of all levels are shown.

Similarities are computed once. Each tree ranks its own positives from them: only the positives of a
row are ever sorted, so there is no order of all items that trees could share.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hbench.core.errors import TreeError, UsageError, examples
from hbench.datasets.manifest import Manifest
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute, Job, View
from hbench.engine.ranker import Ranker
from hbench.engine.settings import Conditions, Signature
from hbench.evaluation.evaluate import measure_tests, report_of_measurements
from hbench.evaluation.examination import Examined
from hbench.evaluation.measurement import Measurement, OnTest, scorers_of
from hbench.evaluation.summary import summarise
from hbench.metrics.names import MetricName
from hbench.metrics.partial_lists import is_graded
from hbench.records.differences import differences_of
from hbench.records.document import UnderTree
from hbench.records.queries import units_of
from hbench.records.report import Report
from hbench.sheets.columns import Chosen
from hbench.sheets.sheet import is_table
from hbench.sheets.understood import Understood
from hbench.tree import Labels, LabelTree
from hbench.tree import files as tree_files
from hbench.tree.names import class_rows
from hbench.tree.partial import NO_CLASS

SHUFFLED = "shuffled"
BY_LEVEL = ("AP#", "ASI/")  # metrics whose name always states a level


@dataclass(frozen=True)
class OtherTree:
    """Another tree over the fine classes of a dataset.

    Attributes:
        name: what reports call it.
        source: a digest of the tree's file, or the seed.
        levels: returns the names of its levels, from a test's own tree.
        paths: returns the paths in this tree of the fine classes of a test's own tree, int32
            (C, L').
        read: how the tree's file was understood; None without a file.
    """

    name: str
    source: str
    levels: Callable[[LabelTree], tuple[str, ...]]
    paths: Callable[[LabelTree], Labels]
    read: Understood | None = None

    def labels(self, manifest: Manifest) -> Labels:
        """Return the labels (N, L') of a test's items under this tree."""
        labels: Labels = self.paths(manifest.tree)[manifest.labels[:, -1]]
        return labels


def parse(text: str, edges: Sequence[str] = ()) -> list[OtherTree]:
    """Parse the option `--trees`: files, `shuffled` and `shuffled:SEED`, separated by commas.
    `edges`: the columns of parent and child in files that list edges.

    Raises DataError, TreeError or UsageError for a file without a tree, UsageError for a seed that
    is no number.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    trees = [
        _shuffled(word) if word.partition(":")[0] == SHUFFLED else _from_file(Path(word), edges)
        for word in words
    ]
    if not trees or len({tree.name for tree in trees}) < len(trees):
        raise UsageError(
            "no tree is named, or two trees have the same file name",
            expected="files of different names",
            found=text,
        )
    return trees


def _from_file(path: Path, edges: Sequence[str]) -> OtherTree:
    """Read the tree in a file, whose leaves are the dataset's fine classes. `edges`: the columns of
    parent and child in a table of edges; empty for other files."""
    names = tree_files.read(path, chosen=Chosen(edges=tuple(edges) if is_table(path) else ()))
    tree, _ = names.tree()  # the second result, the numbers of items of its leaves, is not needed

    def paths(own: LabelTree) -> Labels:
        """Find the paths of the dataset's C fine classes in the file, by name: numbers of nodes
        (C, levels of the file). Raises TreeError for classes that the file does not have."""
        # `own`: the dataset's tree. names[-1] are the names of its C fine classes; NO_CLASS is the
        # name of the class of distractors, which no file has
        missing = sorted(set(own.names[-1]) - {*tree.names[-1], NO_CLASS})
        if missing:
            raise TreeError(
                f"{len(missing)} of {len(own.names[-1])} fine classes are not leaves of {path}",
                expected=f"every name of level {own.levels[-1]}",
                found=examples(missing),
                fix=_why_missing(missing, tree),
            )
        # {name of a fine class: the names on its path in the file, coarse to fine}
        rows = {row[-1]: row for row in class_rows(tree)}
        # the class of distractors gets a node of its own at every level
        rows[NO_CLASS] = (NO_CLASS,) * tree.depth
        # number nodes by name, like a dataset's own tree, and not in the order of the file, which
        # would then change the last bits of a mean
        of_classes = [rows[name] for name in own.names[-1]]
        _, labels = LabelTree.from_names(of_classes, levels=tree.levels)
        return labels

    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    # the levels are those of the file, whatever the dataset's own tree is; `read`: how the file was
    # understood, for the report
    return OtherTree(path.name, digest, lambda _: tree.levels, paths, read=names.read)


def _why_missing(missing: Sequence[str], tree: LabelTree) -> str:
    """Advise what to do about classes that are not among the leaves of a tree (`missing`). If they
    are leaves once their underscores become blanks, the file was read as Newick, where unquoted
    underscores are blanks.
    """
    leaves = set(tree.names[-1])
    if all("_" in name and name.replace("_", " ") in leaves for name in missing):
        return (
            "underscores without quotes are blanks in Newick: write 'Barn_owl' in quotes, or "
            "name the classes with blanks"
        )
    return (
        "hbench tree show DATASET lists the names; hbench tree export --policy makes a ragged "
        "tree even"
    )


def _shuffled(word: str) -> OtherTree:
    """Make the dataset's own tree with its fine classes permuted at random: a tree of the same
    shape without a meaning. `word`: "shuffled", with the seed 0, or "shuffled:SEED"."""
    _, _, text = word.partition(":")
    if not (text or "0").isdecimal():
        raise UsageError(
            "the seed of a shuffled tree is not a number",
            expected="shuffled or shuffled:7",
            found=word,
        )
    seed = int(text or "0")

    def paths(own: LabelTree) -> Labels:
        """Return the paths (C, L) of the fine classes after the permutation. `own`: the tree of a
        test."""
        # permute in the order of the names, so that the numbering of classes does not matter.
        # `by_name`: the numbers of the classes, sorted by name
        by_name = np.argsort(np.array(own.names[-1], dtype=str))
        if NO_CLASS in own.names[-1]:  # distractors stay without a class
            by_name = by_name[by_name != own.names[-1].index(NO_CLASS)]
        # (C,): for each class the class whose path it gets; a path includes its finest node
        place = np.arange(len(own.names[-1]))
        place[by_name] = by_name[np.random.default_rng(seed).permutation(len(by_name))]
        # row c is the path of class c, since every fine class has one path
        paths_by_class = own.paths[np.argsort(own.paths[:, -1])]
        return paths_by_class[place]

    return OtherTree(
        name=SHUFFLED if seed == 0 else f"{SHUFFLED}:{seed}",
        source=f"seed={seed}",
        levels=lambda own: own.levels,
        paths=paths,
    )


def report_under(
    examined: Examined,
    trees: Sequence[OtherTree],
    *,
    memory: int | None = None,
    execute: Execute = on_threads,
    on_test: OnTest | None = None,
) -> Report:
    """Report the scores of a submission, also under other trees, from one ranking pass.

    Queries, gallery and ignored items do not depend on the tree.

    Args:
        examined: the submission.
        trees: the other trees.
        memory: the most bytes held beyond the embeddings; None: the default.
        execute: computes the blocks.
        on_test: called with the name of a test; returns a function that is called with the number
            of finished blocks and that of all.

    Raises:
        TreeError: a fine class that a tree does not have.
        UsageError: rankings, listed positives, partial labels, released evaluators, or no metric of
            all levels: other trees cannot score these.
    """
    jobs = jobs_under(examined, trees, memory=memory)
    measurements = measure_tests(examined, jobs, execute=execute, on_test=on_test)
    report = report_of_measurements(examined, measurements)

    found = {}
    for at, tree in enumerate(trees):
        first = next(iter(examined.data.tests.values()))  # all tests have the same levels
        conditions = _conditions_under(examined.conditions, tree.levels(first.tree))
        # `others`: the measurements under the other trees, in the order of `trees`
        under = {name: measured.others[at] for name, measured in measurements.items()}
        found[tree.name] = _scores_under(report, tree, conditions, under)

    # how tables, rankings and the trees' files were understood, for people; a tree has no `read` if
    # it comes from no file
    read = (
        *report.document.read,
        *(tree.read.document() for tree in trees if tree.read is not None),
    )
    return replace(
        report, document=report.document.model_copy(update={"trees": found, "read": read})
    )


def jobs_under(
    examined: Examined, trees: Sequence[OtherTree], *, memory: int | None = None
) -> dict[str, Job]:
    """Make {test: job}, each job with a view for each of the other `trees`. `memory`: the most
    bytes held beyond the embeddings.

    Raises UsageError for a submitted ranking, and for what other trees cannot score: partial
    labels, items of several paths, positives listed pair by pair, another protocol than the
    paper's, or no metric of all levels. Raises TreeError for trees that lack a class.
    """
    _refuse_unfit(examined)
    tests = examined.data.tests
    # {test: function that makes its views from a ranker}; workers call it with a ranker of theirs
    views = {}
    for name, test in tests.items():
        labels = [tree.labels(test) for tree in trees]  # raises before any work for unfit trees
        views[name] = partial(
            _views, test=test, trees=trees, conditions=examined.conditions, labels=labels
        )
    jobs = examined.jobs(memory=memory)
    if set(jobs) != set(tests):  # a submitted ranking makes no job
        raise UsageError("rankings are not scored under other trees", expected="an embedding file")

    return {name: _with_views(job, views[name]) for name, job in jobs.items()}


def _with_views(job: Job, views: Callable[[Ranker], Sequence[View]]) -> Job:
    """Add views to a job: other labels for the same queries and similarities. `views` makes them
    from the job's ranker, also when another process makes the job again."""
    rebuild = None if job.rebuild is None else partial(_rebuilt, build=job.rebuild, views=views)
    return replace(job, others=views(job.ranker), rebuild=rebuild)


def _rebuilt(
    parts: Any, *, build: Callable[[Any], Job], views: Callable[[Ranker], Sequence[View]]
) -> Job:
    """Make a job and its views again in another process. `parts`: the embeddings that were read
    there. `build`: makes the job without views. This is a function of the module, not a closure, so
    that it can be pickled for a cluster."""
    job = build(parts)
    return replace(job, others=views(job.ranker))


def _views(
    ranker: Ranker,
    *,
    test: Manifest,
    trees: Sequence[OtherTree],
    conditions: Conditions,
    labels: Sequence[Labels],
) -> list[View]:
    """Make the view of a test under each of the `trees`, in this order. `ranker`: ranks the test
    under the dataset's own tree. `conditions`: those of its own tree. `labels`: for each tree
    the labels (N, L') of the test's items; L' is the number of its levels."""
    views = []
    for tree, of_items in zip(trees, labels, strict=True):
        of_tree = _conditions_under(conditions, tree.levels(test.tree))
        asked = of_items[test.query]
        ranked = of_items[test.gallery]
        # protocols of released evaluators drop the item ranked last, unless the queries are the
        # gallery (`keeps_last`)
        scorers = scorers_of(of_tree, asked, keeps_last=np.array_equal(test.query, test.gallery))
        view = View.of_labels(ranker, (asked, ranked), scorers, conditions.ties)
        # a text that tells kept blocks of different trees apart; equal metrics do not, so it also
        # has the tree's name and source
        text = f"{','.join(map(str, of_tree.metrics))} {tree.name} {tree.source}"
        views.append(replace(view, conditions=text))
    return views


def _refuse_unfit(examined: Examined) -> None:
    """Raise UsageError for everything that other trees cannot score: partial labels, items of
    several paths, positives listed pair by pair, another protocol than the paper's, or no metric of
    all levels."""
    conditions = examined.conditions
    graded = any(map(is_graded, conditions.metrics))
    words = conditions.words
    # `several`: the most paths of an item
    is_plain = not words.partial and words.several == 1 and not examined.data.lists
    if not is_plain or words.protocol != "paper" or not graded:
        raise UsageError(
            "this cannot be scored under other trees",
            expected="one path of each item, known to the finest level, --protocol paper, and a "
            "metric of all levels such as H-AP",
        )


def _conditions_under(conditions: Conditions, levels: tuple[str, ...]) -> Conditions:
    """Adapt conditions to a tree of other levels (names). The metrics of all levels come first,
    then the others at the finest level. The latter get no score under another tree, and are kept
    only for their cuts k. The engine sums from one cut of any metric to the next, so the cuts
    affect the last bits of all values. With the same cuts, equal trees give equal bits."""
    of_level = {
        replace(name, level=None)  # None: the finest level, whatever its name is
        for name in conditions.metrics
        # a metric of BY_LEVEL always states a level, which the other tree may not have
        if not is_graded(name) and name.base not in BY_LEVEL
    }
    metrics = (*_graded(conditions), *sorted(of_level, key=str))
    for name in metrics:
        name.bind(levels)  # raises for parameters that do not fit the levels, such as weights
    return replace(conditions, levels=levels, metrics=metrics)


def _graded(conditions: Conditions) -> tuple[MetricName, ...]:
    """Return the metrics of all levels; the others are the same under every tree."""
    return tuple(name for name in conditions.metrics if is_graded(name))


def _scores_under(
    report: Report, tree: OtherTree, conditions: Conditions, found: Mapping[str, Measurement]
) -> UnderTree:
    """Summarise the scores under another tree, and their paired differences from the scores under
    the dataset's own tree, which are in `report`. `conditions`: those under the other tree, with
    its levels. `found`: {test: measurement under the other tree}."""
    names = list(map(str, _graded(conditions)))
    # (M, Q): the metrics of all levels, which come first in `values`, for the queries in the order
    # of the report's table
    values = np.concatenate([measured.values[: len(names)] for measured in found.values()], axis=1)
    unit = report.document.unit
    # `canonical` (Q,): the order in which a test's queries are summed, that of the ranking, so that
    # the order of a file's rows changes no bit
    scores = summarise(
        values, [measured.canonical for measured in found.values()], units_of(report.table, unit)
    )
    # two tables of the same queries: with the values under the other tree, and under the own
    other = report.table
    own = report.table
    for name, column in zip(names, values, strict=True):
        other = other.append_column(name, pa.array(column))
        own = own.append_column(name, pa.array(report.values[name]))

    return UnderTree(
        levels=conditions.levels,
        signature=str(
            replace(Signature.parse(report.signature), tree=f"{tree.name}({tree.source})")
        ),
        scores=dict(zip(names, scores, strict=True)),
        differences={each.metric: each.record() for each in differences_of(other, own, unit=unit)},
    )
