"""Makes the scorers of metrics under partial labels, for lists with items of unknown level
(hbench.metrics.readings).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hbench.metrics.names import MetricName
from hbench.metrics.protocols import Scorer, Setting, paper
from hbench.metrics.readings import Reading, at_level, known, right, wrong


def is_graded(name: MetricName) -> bool:
    """Whether a metric uses all levels, and so has three values under partial labels: one and two
    bounds. Other metrics are of one level.
    """
    return "level" not in name.definition.takes


def partial_scorers(names: Sequence[MetricName], setting: Setting) -> list[Scorer]:
    """Make the scorers of metrics under partial labels, which may end above the finest level. They
    come in this order: all metrics, with items of unknown level left out; the lower bounds of the
    graded metrics (those of all levels); their upper bounds.

    A scorer takes a query and its list of codes: 0 for a distractor, 2l − 1 for an item known to be
    at level l, 2l for an item at level l or finer. A reading (`known`, `wrong`, `right`) converts
    codes to levels. A metric of one level has no bounds: items that may or may not be positives at
    its level are left out.
    """
    depth = len(setting.levels)
    graded = [name for name in names if is_graded(name)]
    # the reading `known` leaves items of unknown level out; `wrong` takes the lowest possible level
    # for them, and `right` the finest
    exact = [
        _graded(name, setting, known(depth)) if is_graded(name) else _of_level(name, setting)
        for name in names
    ]
    bounds = [
        _graded(name, setting, reading(depth)) for reading in (wrong, right) for name in graded
    ]
    return [*exact, *bounds]


def _graded(name: MetricName, setting: Setting, reading: Reading) -> Scorer:
    """Make the scorer of a metric of all levels for lists of codes, which `reading` converts to
    levels."""
    return replace(_by_paper(name, setting), reading=reading)


def _of_level(name: MetricName, setting: Setting) -> Scorer:
    """Make the scorer of a metric of one level for lists of codes. Queries whose label ends above
    that level are skipped.

    A code is 2l − 1 for an item known to be at level l, 2l for an item at level l or finer; the
    scorer's reading converts codes to levels before its function is called. Any metric but AP# gets
    a list in which items of its level or finer have level 1, and all others level 0. AP#, whose
    positives are of exactly its level, must know finer items, so its list keeps all levels, by the
    reading `known`.
    """
    depth = len(setting.levels)
    scorer = _by_paper(name, setting)  # a Scorer, whose parts for partial labels are replaced below
    level = scorer.arguments["level"]  # 1 … L
    if name.base == "AP#":
        return replace(scorer, reading=known(depth), level_required=level)

    # In such a list the positives have level 1. This level is given to `function`, and also to the
    # kernels, which do not call `function` but read `arguments`
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
    """Make the scorer of a metric by the papers' equations, the only protocol for partial
    labels."""
    scorer = paper(name, setting)
    # for type checkers: a registered protocol may return any function
    assert isinstance(scorer, Scorer)
    return scorer
