"""Metrics under partial labels: by which scorers a list is valued that holds items of unknown level
(hbench.metrics.readings).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hbench.metrics.names import MetricName
from hbench.metrics.protocols import Scorer, Setting, paper
from hbench.metrics.readings import Reading, at_level, known, right, wrong


def is_graded(name: MetricName) -> bool:
    """Whether a metric goes by all levels, so that it has three values under partial labels; others
    are of one level.
    """
    return "level" not in name.definition.takes


def partial_scorers(names: Sequence[MetricName], setting: Setting) -> list[Scorer]:
    """Make the scorers of the metrics `names` under partial labels, which may end above the finest
    level: every metric of what is known, then the graded ones (of all levels) with all unknown
    levels wrong, then with all right, which are their bounds.

    Each is a function of one query and its list by codes (hbench.metrics.readings), which say how
    deep an item is known to agree with the query, and whether it may agree further. A metric of one
    level leaves out what is unknown there, so that it has one value and no bounds.
    """
    depth = len(setting.levels)
    graded = [name for name in names if is_graded(name)]
    # a reading says what an item of unknown level counts as: `known` leaves it out
    exact = [
        _graded(name, setting, known(depth)) if is_graded(name) else _of_level(name, setting)
        for name in names
    ]
    bounds = [
        _graded(name, setting, reading(depth)) for reading in (wrong, right) for name in graded
    ]
    return [*exact, *bounds]


def _graded(name: MetricName, setting: Setting, reading: Reading) -> Scorer:
    """The scorer of a metric that goes by all levels, for lists of codes, of which `reading` makes
    levels: unknown ones left out, all wrong or all right."""
    return replace(_by_paper(name, setting), reading=reading)


def _of_level(name: MetricName, setting: Setting) -> Scorer:
    """The scorer of a metric of one level, for lists of codes; only for queries whose label reaches
    that level, 1 … L.

    AP# takes the items that are known to be exactly there, and so needs all levels. Any other
    metric sees a list of one level, with what is at the level or finer as its level 1.
    """
    depth = len(setting.levels)
    scorer = _by_paper(name, setting)
    level = scorer.arguments["level"]
    if name.base == "AP#":
        return replace(scorer, reading=known(depth), level_required=level)

    arguments = {**scorer.arguments, "level": 1}
    function: Callable[..., float] = name.definition.function
    return replace(
        scorer,
        arguments=arguments,
        function=lambda query, sequence: function(sequence, **arguments),
        reading=at_level(depth, level),
        level_required=level,
    )


def _by_paper(name: MetricName, setting: Setting) -> Scorer:
    """The scorer of a metric by the papers' equations, the only protocol for partial labels."""
    scorer = paper(name, setting)
    # the registry types its entries as protocols in general, which may return any function
    assert isinstance(scorer, Scorer)
    return scorer
