"""Every count in a remark on an evaluation, by loops over all pairs: on whole and partial labels,
several paths, distractors and boxes.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pandas as pd
import pytest

import hbench

LEVELS = ["order", "family", "species"]
ITEMS = 48
NAMED = {
    "equal score": "ties",
    "no positive at any level": "alone",
    "no positive whose level is known": "alone",
    "relevance inversion": "inversion",
    "no positive of their family": "family",
    "no positive of their species": "species",
}
COUNTED = re.compile(r"test: ([\d,]+) of ([\d,]+) queries (.*)")


def drawn(kind, seed):
    """Paths of every item, a list of tuples each (none: a distractor), and vectors of integers, so
    that many scores are equal."""
    rng = np.random.default_rng([seed, 3])
    ends = {"partial": [1, 2, 3]}.get(kind, [3])
    paths = []
    for _ in range(ITEMS):
        own = []
        for _ in range(1 + int(kind == "several" and rng.random() < 0.3)):
            order, family, species = rng.integers(3, size=3).tolist()
            whole = (f"o{order}", f"f{order}{family}", f"s{order}{family}{species}")
            own.append(whole[: int(rng.choice(ends))])
        paths.append(list(dict.fromkeys(own)))
    if kind == "distractors":
        for item in rng.choice(ITEMS, 12, replace=False).tolist():
            paths[item] = []
    # one alone in its order, and one in its family
    paths[0] = [("o8", "f8", "s8")[: max(ends)]]
    paths[1] = [("o0", "f9", "s9")]
    vectors = rng.integers(1, 4, size=(ITEMS, 3)).astype(np.float32)
    return paths, vectors


def level_of_pair(one, other):
    """The level of a pair of items; None where it is not known."""
    best = 0
    for first, second in itertools.product(one, other):
        shared = 0
        for mine, theirs in zip(first, second, strict=False):
            if mine != theirs:
                break
            shared += 1
        if shared == min(len(first), len(second)) < 3:
            return None
        best = max(best, shared)
    return best


def counted_by_loops(paths, vectors):
    """How many queries there are, and what the remarks count, by the words that name it."""
    queries = [item for item in range(ITEMS) if paths[item]]
    found = dict.fromkeys(["ties", "alone", "inversion", *LEVELS], 0)
    for query in queries:
        levels_at_score, counts, unknown = {}, [0, 0, 0, 0], 0
        for item in range(ITEMS):
            if item == query:
                continue
            level = level_of_pair(paths[query], paths[item])
            levels_at_score.setdefault(float(vectors[query] @ vectors[item]), set()).add(level)
            if level is None:
                unknown += 1
            else:
                counts[level] += 1
        found["ties"] += any(len(levels) > 1 for levels in levels_at_score.values())
        found["alone"] += sum(counts[1:]) == 0
        found["inversion"] += is_inverted(counts)
        for place, level in enumerate(LEVELS, start=1):
            found[level] += sum(counts[place:]) == 0
    return len(queries), found


def is_inverted(counts):
    """Whether an item of a coarser level is worth no less than one of a finer: (l/3)/|Ω of exactly
    l|."""
    worth = {level: level / 3 / counts[level] for level in (1, 2, 3) if counts[level]}
    return any(
        worth[one] >= worth[other] - 1e-12 for one, other in itertools.combinations(worth, 2)
    )


def written(folder, kind, paths, vectors):
    """The table and the file of vectors, as somebody brings them."""
    ids = [f"{n:02}.jpg" for n in range(ITEMS)]
    if kind == "boxes":  # four of every picture
        ids = [f"{n // 4:02}.jpg#xywh={10 * (n % 4)},0,10,10" for n in range(ITEMS)]
    rows = [
        [name, *path, *[""] * (3 - len(path))]
        for name, own in zip(ids, paths, strict=True)
        for path in own or [()]
    ]
    table = pd.DataFrame(rows, columns=["item", *LEVELS])
    table.to_csv(folder / "zoo.csv", index=False)
    np.savez(folder / "zoo.npz", ids=np.array(ids), embeddings=vectors)
    options = {"partial": {"policies": ["unknown"]}, "several": {"several": True}}.get(kind, {})
    return hbench.load(folder / "zoo.csv", **options), folder / "zoo.npz"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["whole", "partial", "several", "distractors", "boxes"])
def test_every_count_of_a_remark_is_that_of_loops(tmp_path, kind, seed):
    paths, vectors = drawn(kind, seed)
    data, file = written(tmp_path, kind, paths, vectors)
    report = hbench.evaluate(file, data, metrics="H-AP,R@1,R@1/family", similarity="dot")
    queries, expected = counted_by_loops(paths, vectors)
    said = {}
    for match in filter(None, map(COUNTED.match, report.document.warnings)):
        assert int(match[2]) == queries
        said[next(of for words, of in NAMED.items() if words in match[3])] = int(match[1])
    if kind == "partial":  # of R@k nothing is said, since a level may be unknown
        expected = {word: expected[word] for word in ("ties", "alone", "inversion")}
    assert said == {word: count for word, count in expected.items() if count and word != "order"}
