"""The numbers in the sentences of a report's first page, by loops over all pairs: on whole and partial
labels, several paths, distractors and boxes.
"""

import html
import itertools
import re

import numpy as np
import pytest

from tests.command_line import call
from tests.evaluation.test_remarks import ITEMS, drawn, level_of_pair, written

LEAD = re.compile(r"is of the same species for ([\d.]+) % of .*? with ([\d.]+) %")


def shared(one, other):
    """The deepest level that both items are known to share."""
    deepest = 0
    for a, b in itertools.product(one, other):
        same = [mine == theirs for mine, theirs in zip(a, b, strict=False)]
        deepest = max(deepest, len(list(itertools.takewhile(bool, same))))
    return deepest


def lists_of(vectors, paths):
    """For every query the other items, best score first."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return {
        query: sorted(
            set(range(ITEMS)) - {query}, key=lambda item: -float(unit[query] @ unit[item])
        )
        for query in range(ITEMS)
        if paths[query]
    }


def level_of_first_known(paths, query, items):
    """The level of the first item whose level is known."""
    levels = (level_of_pair(paths[query], paths[item]) for item in items)
    return next(level for level in levels if level is not None)


@pytest.mark.parametrize("kind", ["whole", "partial", "several", "distractors", "boxes"])
def test_every_number_of_the_first_page_is_that_of_loops(tmp_path, kind):
    paths, _ = drawn(kind, 1)
    vectors = np.random.default_rng(5).normal(size=(ITEMS, 4)).astype(np.float32)
    _, file = written(tmp_path, kind, paths, vectors)
    options = {"partial": ["--policy", "unknown"], "several": ["--several"]}.get(kind, [])
    call("build", "zoo", "--from", tmp_path / "zoo.csv", "--out", tmp_path / "zoo", *options)
    report = tmp_path / "zoo.json"
    call("evaluate", file, "-d", tmp_path / "zoo", "-o", report, "--top-k", 12)
    call("report", report, "-d", tmp_path / "zoo", "-o", tmp_path / "pages")
    text = html.unescape((tmp_path / "pages" / "index.html").read_text(encoding="utf-8"))

    lists = lists_of(vectors, paths)
    first = [level_of_first_known(paths, query, items) for query, items in lists.items()]
    counts = [first.count(level) for level in (3, 2, 1, 0)]
    shown = re.findall(r'data-mistake="[^"]*" data-run="0" data-value="(\d+)"', text)
    assert [int(number) for number in shown] == counts
    plain = re.sub(r"<[^>]+>", "", text)
    lead = LEAD.search(plain)
    assert lead.groups() == tuple(f"{100 * n / len(lists):.1f}" for n in (counts[0], counts[-1]))
    assert ("first result whose level is known" in plain) == (kind == "partial")

    within = re.findall(r'>first (\d+)</th>.*?<ul class="shares">(.*?)</ul>', text, re.DOTALL)
    assert [k for k, _ in within] == ["5", "10"]
    for k, cells in within:
        shown = re.findall(r"([\d.]+) %", cells)
        levels = [
            shared(paths[query], paths[item])
            for query, items in lists.items()
            for item in items[: int(k)]
        ]
        of_level = [levels.count(level) for level in (3, 2, 1, 0)]
        assert shown == [f"{100 * n / len(levels):.1f}" for n in of_level]
