"""Whether what `hbench audit` says of certainty is true, under several kinds of mistakes and shapes
of data: how many of the suspects "at least 90 % sure" are wrong, and whether the numbers of wrong
labels that it states hold the true one.

Mistakes: `uniform` (any other class), `sibling` (a class of the same parent), `flow` (some classes
lose 30 % of their items to one other class each, a sibling or any, in turns), `copied` (a uniform
mistake whose picture comes five times, nearly the same, each with the wrong label), `neighbourhood`
(an item and the four of its class that are nearest, with one wrong label). 1, 2 and 5 % of the
labels are wrong, two seeds; and none.

    python benchmarks/audit_noise.py --out noise-figures [--shapes gaussian glyphs] [--seeds 0 1]
    python benchmarks/audit_noise.py --out noise-figures --vectors test.parquet -d omniglot

Writes noise.json and noise.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from audit import Sample, commit, from_files, glyphs, write

import hbench
from hbench.auditing.audit import Audit

RATES = (0.01, 0.02, 0.05)
SURE = 0.9
ORDERS, FAMILIES, SPECIES = 4, 4, 6
ITEMS, DIM = 8_000, 24
SPREAD = 0.7  # of the items of a class
LOST = 0.3  # of the items of a class, to another one
BATCH = 5  # items that are labelled at once
COPIES, JITTER = 5, 0.02  # pictures of one item, and their spread beside that of the set
LEVELS = ("order", "family", "species")


class Mistakes(NamedTuple):
    """Items whose labels are partly wrong: `sample` with the labels as they are given, and the true
    path of every item."""

    sample: Sample
    true: list[tuple[str, ...]]


Noise = Callable[[Sample, float, np.random.Generator], Mistakes]


def shape(seed: int, *, pareto: bool = False, tails: str = "", clusters: int = 1) -> Sample:
    """Points around the centres of 96 classes in a tree. `pareto`: a few classes have most of the
    items. `tails`: "coordinates" or "items", of which Student's t with 3 degrees of freedom is
    drawn instead of a normal distribution. `clusters`: of every class."""
    rng = np.random.default_rng([seed, 7])
    paths = [
        (f"o{a}", f"f{a}.{b}", f"s{a}.{b}.{c}")
        for a in range(ORDERS)
        for b in range(FAMILIES)
        for c in range(SPECIES)
    ]
    # of every node, where it lies beside its parent: the deeper, the nearer
    nodes = dict.fromkeys(path[:depth] for path in paths for depth in (1, 2, 3))
    scales = (1.5, 1.0, 0.8)
    offsets = {node: scales[len(node) - 1] * rng.normal(size=DIM) for node in nodes}
    centres = np.stack([sum(offsets[path[:depth]] for depth in (1, 2, 3)) for path in paths])

    weights = rng.pareto(1.1, len(paths)) + 1 if pareto else np.ones(len(paths))
    sizes = np.maximum(4, np.round(ITEMS * weights / weights.sum())).astype(int)
    classes = np.repeat(np.arange(len(paths)), sizes)
    within = 0.8 * rng.normal(size=(len(paths), clusters, DIM)) if clusters > 1 else 0.0
    points = centres[classes]
    if clusters > 1:
        points = points + within[classes, rng.integers(0, clusters, len(classes))]
    vectors = points + SPREAD * noise_of(tails, (len(classes), DIM), rng)
    ids = [f"{n:06}" for n in range(len(classes))]
    rows = [paths[each] for each in classes]
    return Sample("shape", LEVELS, ids, rows, vectors.astype(np.float32))


def noise_of(tails: str, size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Noise with the median spread of a normal distribution, whatever its tails: the factors make
    it so."""
    if tails == "coordinates":
        return 0.9 * rng.standard_t(3, size)
    if tails == "items":
        return rng.normal(size=size) * np.sqrt(2.4 / rng.chisquare(3, (size[0], 1)))
    return rng.normal(size=size)


SHAPES: dict[str, Callable[[int], Sample]] = {
    "gaussian": shape,
    "tails": lambda seed: shape(seed, tails="coordinates"),
    "tails of items": lambda seed: shape(seed, tails="items"),
    "pareto": lambda seed: shape(seed, pareto=True),
    "pareto, tails": lambda seed: shape(seed, pareto=True, tails="coordinates"),
    "pareto, tails of items": lambda seed: shape(seed, pareto=True, tails="items"),
    "three clusters": lambda seed: shape(seed, clusters=3),
    "glyphs": lambda _: glyphs(),
}


def uniform(sample: Sample, rate: float, rng: np.random.Generator) -> Mistakes:
    """Random items get any other class."""
    paths = sorted(set(sample.rows))
    return replaced(sample, rate, rng, lambda path: paths)


def sibling(sample: Sample, rate: float, rng: np.random.Generator) -> Mistakes:
    """Random items get another class of the same parent."""
    siblings = siblings_of(sample.rows)
    return replaced(sample, rate, rng, lambda path: siblings[path[:-1]])


def replaced(
    sample: Sample,
    rate: float,
    rng: np.random.Generator,
    choices: Callable[[tuple[str, ...]], list[tuple[str, ...]]],
) -> Mistakes:
    """A share (`rate`) of random items gets another class, any of the `choices` for its own (both
    paths of names); items whose class has no other choice are passed over."""
    rows = list(sample.rows)
    left = round(rate * len(rows))
    for item in rng.permutation(len(rows)).tolist():
        others = [other for other in choices(rows[item]) if other != rows[item]]
        if left and others:
            rows[item] = others[rng.integers(len(others))]
            left -= 1
    return Mistakes(sample._replace(rows=rows), sample.rows)


def flow(sample: Sample, rate: float, rng: np.random.Generator) -> Mistakes:
    """Classes lose a share LOST of their items to one other class each, a sibling and any class in
    turns, until enough labels are wrong."""
    members = defaultdict(list)
    for item, path in enumerate(sample.rows):
        members[path].append(item)
    siblings, paths = siblings_of(sample.rows), sorted(members)
    rows = list(sample.rows)
    left = round(rate * len(rows))
    for turn, at in enumerate(rng.permutation(len(paths)).tolist()):
        path = paths[at]
        wanted = siblings[path[:-1]] if turn % 2 else paths
        others = [other for other in wanted if other != path]
        number = min(left, round(LOST * len(members[path])))
        if others and number:
            other = others[rng.integers(len(others))]
            for item in rng.choice(members[path], number, replace=False).tolist():
                rows[item] = other
            left -= number
    return Mistakes(sample._replace(rows=rows), sample.rows)


def copied(sample: Sample, rate: float, rng: np.random.Generator) -> Mistakes:
    """A uniform mistake in a picture that is there several times, nearly the same."""
    first = uniform(sample, rate / COPIES, rng)
    given, true = first.sample.rows, first.true
    wrong = [n for n, path in enumerate(true) if given[n] != path]
    more = np.repeat(np.array(wrong, int), COPIES - 1)
    jitter = JITTER * sample.vectors.std() * rng.normal(size=(len(more), sample.vectors.shape[1]))
    vectors = np.concatenate([sample.vectors, sample.vectors[more] + jitter.astype(np.float32)])
    items = [*sample.items, *(f"{sample.items[n]}-{at}" for at, n in enumerate(more.tolist()))]
    changed = sample._replace(
        items=items, rows=[*given, *(given[n] for n in more.tolist())], vectors=vectors
    )
    return Mistakes(changed, [*true, *(true[n] for n in more.tolist())])


def neighbourhood(sample: Sample, rate: float, rng: np.random.Generator) -> Mistakes:
    """An item and those of its class that are nearest to it, each with one wrong label: a batch
    that was labelled at once."""
    members = defaultdict(list)
    for item, path in enumerate(sample.rows):
        members[path].append(item)
    paths = sorted(members)
    rows = list(sample.rows)
    left = round(rate * len(rows))
    for item in rng.permutation(len(rows)).tolist():
        if not left or rows[item] != sample.rows[item]:
            continue
        own = np.array(members[sample.rows[item]])
        apart = np.linalg.norm(sample.vectors[own] - sample.vectors[item], axis=1)
        batch = own[np.argsort(apart, kind="stable")[: min(BATCH, left)]]
        others = [path for path in paths if path != sample.rows[item]]
        wrong = others[rng.integers(len(others))]
        for each in batch.tolist():
            rows[each] = wrong
        left -= len(batch)
    return Mistakes(sample._replace(rows=rows), sample.rows)


NOISES: dict[str, Noise] = {
    "uniform": uniform,
    "sibling": sibling,
    "flow": flow,
    "copied": copied,
    "neighbourhood": neighbourhood,
}


def siblings_of(rows: list[tuple[str, ...]]) -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    """The paths of all classes, by the path of their parent."""
    found = defaultdict(list)
    for path in sorted(set(rows)):
        found[path[:-1]].append(path)
    return found


def cases(seeds: list[int]) -> Iterator[tuple[str, float, int]]:
    """The kind of mistakes, their rate and the seed of every run."""
    yield from (("none", 0.0, seed) for seed in seeds)
    for noise in NOISES:
        for rate in RATES:
            yield from ((noise, rate, seed) for seed in seeds)


def measured(mistakes: Mistakes) -> dict[str, Any]:
    """What an audit says of the far and the near list, and what is true of each, by kind."""
    sample, true = mistakes
    protocol = hbench.datasets.Protocol()
    from hbench.datasets.manifest import from_names

    test = from_names(sample.items, sample.rows, levels=sample.levels)
    data = hbench.Dataset("noise", "1", protocol, None, {"test": test})
    audit = hbench.audit(sample.vectors, data, ids=sample.items, most=len(sample.items))
    # the audit sorts items: of each of its places, that in the sample
    place = {item: at for at, item in enumerate(sample.items)}
    at = np.array([place[item] for item in audit.pool.manifest.items.tolist()])
    wrong = np.array([sample.rows[n] != true[n] for n in at])
    near = np.array([sample.rows[n][:-1] == true[n][:-1] for n in at])
    of_kind = {"far": wrong & ~near, "near": wrong & near}
    return {
        each.kind: said_and_true(audit, each.kind, of_kind[each.kind], wrong)
        for each in audit.lists
    }


def said_and_true(
    audit: Audit, kind: str, of_kind: np.ndarray, wrong: np.ndarray
) -> dict[str, Any]:
    """What an audit says of a kind, and what is true of it; `of_kind` and `wrong` (N,): the items
    with a mistake of that kind, and with any."""
    (each,) = (each for each in audit.lists if each.kind == kind)
    sure = each.items[np.nan_to_num(each.sureness) >= SURE]
    first = each.items[: int(of_kind.sum())]
    return {
        "planted": int(of_kind.sum()),
        "precision": float(wrong[first].mean()) if len(first) else None,
        "sure": len(sure),
        "sure_and_wrong": int(wrong[sure].sum()),
        "range": range_of(each),
        "at_least": getattr(each, "at_least", None),
    }


def range_of(each: Any) -> tuple[float, float] | None:
    """How many labels a list of suspects says are wrong, at least and at most; None if it does not.
    Audits of earlier versions, which may be measured, too, say one number `expected`: a tenth and
    three labels less and more."""
    if hasattr(each, "expected"):
        said = each.expected
        return None if said is None else (0.9 * said - 3, 1.1 * said + 3)
    if each.at_least is None or each.at_most is None:
        return None
    return each.at_least, each.at_most


def run(makers: dict[str, Callable[[int], Sample]], seeds: list[int]) -> list[dict[str, Any]]:
    """Audit every shape of data, made by its seed, with every kind of mistakes."""
    found = []
    for name, make in makers.items():
        for noise, rate, seed in cases(seeds):
            sample = make(seed)
            rng = np.random.default_rng([seed, round(1000 * rate)])
            mistakes = NOISES[noise](sample, rate, rng) if rate else Mistakes(sample, sample.rows)
            began = time.perf_counter()
            case = {"shape": name, "noise": noise, "rate": rate, "seed": seed}
            found.append(case | measured(mistakes))
            print(json.dumps(found[-1]), f"{time.perf_counter() - began:.1f} s", flush=True)
    return found


def in_markdown(runs: list[dict[str, Any]]) -> str:
    """A line per shape and kind of mistakes: over rates and seeds, the share of sure suspects that
    are wrong, and how many of the stated ranges hold the truth."""
    lines = [
        "| data | mistakes | far, sure | are wrong | ranges hold | near, sure | are wrong | ranges hold |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups = defaultdict(list)
    for each in runs:
        groups[each["shape"], each["noise"]].append(each)
        groups["all", each["noise"]].append(each)
    for (name, noise), some in sorted(groups.items()):
        cells = [cell for kind in ("far", "near") for cell in cells_of([e[kind] for e in some])]
        lines.append(f"| {name} | {noise} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cells_of(some: list[dict[str, Any]]) -> list[str]:
    """The cells of a kind, over runs: how many suspects are sure, the share of them that are wrong,
    and how many of the stated ranges hold the truth."""
    sure = sum(each["sure"] for each in some)
    wrong = sum(each["sure_and_wrong"] for each in some)
    said = [each for each in some if each["range"] is not None]
    held = sum(is_held(each) for each in said)
    share = f"{wrong / sure:.0%}" if sure else "–"
    return [f"{sure:,}", share, f"{held} of {len(said)}, {len(some) - len(said)} silent"]


def is_held(each: dict[str, Any]) -> bool:
    """Whether the range that an audit states holds the number of wrong labels."""
    low, high = each["range"]
    return bool(low <= each["planted"] <= high)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--vectors", type=Path, nargs="+", help="embedding files of --dataset")
    parser.add_argument("--dataset", "-d")
    options = parser.parse_args()
    makers = {name: SHAPES[name] for name in options.shapes}
    if options.vectors:
        sample = from_files(options.vectors, options.dataset)
        makers = {sample.name: lambda _: sample}
    runs = run(makers, options.seeds)
    write(options.out, "noise", {"commit": commit(), "runs": runs}, in_markdown(runs))


if __name__ == "__main__":
    main()
