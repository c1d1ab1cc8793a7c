"""What `hbench audit` finds of errors that are planted in labels, beside cleanlab, FiftyOne's rule and
plain votes on the same vectors; whether its sureness is right; and what it costs.

1, 2 and 5 % of the labels are made wrong, three times: half far (any class of another coarsest
node), half near (a sibling of the class). n is the number planted of a kind; precision is that of
the first n of a ranking, recall that of the first 2n; of equal scores the expected value of any
order counts. Without --vectors: glyphs, whose vectors are the 64 principal components of pictures of
24 × 24 pixels.

    python benchmarks/audit.py --out audit-figures --cleanlab /envs/cleanlab/bin/python
    python benchmarks/audit.py --out audit-figures --vectors train.parquet test.parquet -d birds
    python benchmarks/audit.py --out audit-figures --time

Writes NAME.json and NAME.md, or time.json and time.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from audit_rules import Ranking, cleanlab, rules

import hbench
from hbench.auditing.audit import Audit
from hbench.datasets.manifest import from_names
from hbench.submissions import embeddings
from hbench.tree.names import class_rows

RATES = (0.01, 0.02, 0.05)
SEEDS = (0, 1, 2)
BINS = (0.5, 0.7, 0.9, 1.0)
KINDS = ("far", "near")
SIDE, DIM = 24, 64
OWN = "hbench audit"
SOP = (12, 11_000, 60_000)  # nodes of the coarse and of the fine level, and items, about its test's


class Sample(NamedTuple):
    """Items (N,), sorted, with the names of their paths and vectors (N, D)."""

    name: str
    levels: tuple[str, ...]
    items: list[str]
    rows: list[tuple[str, ...]]
    vectors: np.ndarray

    def dataset(self, rows: list[tuple[str, ...]]) -> hbench.Dataset:
        """All items in one test, labelled with these paths."""
        test = from_names(self.items, rows, levels=self.levels)
        protocol = hbench.datasets.Protocol()
        return hbench.Dataset(self.name, "1", protocol, None, {"test": test})


class Planted(NamedTuple):
    """Labels, some of which are wrong: `wrong` holds the places of the far and the near ones."""

    rows: list[tuple[str, ...]]
    wrong: dict[str, np.ndarray]


def glyphs() -> Sample:
    """All items of the data set glyphs, whose vectors are the 64 principal components of their
    pictures: no net is needed, and vectors are the same everywhere."""
    data = hbench.load("glyphs")
    pictures = [
        np.asarray(manifest.picture(item).convert("L").resize((SIDE, SIDE)), np.float32).ravel()
        for manifest in data.manifests.values()
        for item in manifest.items
    ]
    centred = np.stack(pictures) - np.mean(pictures, axis=0)  # (N, pixels)
    _, from_smallest = np.linalg.eigh(centred.T @ centred)  # a column per axis, the least first
    axes = from_smallest[:, ::-1][:, :DIM]
    ids = [item for manifest in data.manifests.values() for item in manifest.items.tolist()]
    return sample_of("glyphs-pca", data, ids, (centred @ axes).astype(np.float32))


def from_files(files: list[Path], dataset: str) -> Sample:
    """Items of a dataset that have vectors in embedding files."""
    read = [embeddings.read(file) for file in files]
    ids = [item for each in read for item in each.ids.tolist()]
    vectors = np.concatenate([np.asarray(each.vectors) for each in read])
    data = hbench.load(dataset)
    return sample_of(f"{data.name}-{files[0].stem}", data, ids, vectors)


def sample_of(name: str, data: hbench.Dataset, ids: list[str], vectors: np.ndarray) -> Sample:
    """The items of a dataset that have a vector; `ids` names the rows of `vectors` (n, D)."""
    place = {item: at for at, item in enumerate(ids)}
    rows: dict[str, tuple[str, ...]] = {}
    for manifest in data.manifests.values():
        paths = class_rows(manifest.tree)
        labels = manifest.labels[:, -1].tolist()
        rows |= {
            item: paths[label]
            for item, label in zip(manifest.items.tolist(), labels, strict=True)
            if item in place
        }
    items = sorted(rows)
    kept = vectors[[place[item] for item in items]]
    return Sample(name, data.levels, items, [rows[item] for item in items], kept)


def planted(rows: list[tuple[str, ...]], rate: float, seed: int) -> Planted:
    """Make a share (`rate`) of the labels wrong: half of them far, any class below another coarsest
    node, and half near, a sibling. `rows`: the path of every item, names from coarse to fine."""
    rng = np.random.default_rng(seed)
    paths = sorted(set(rows))
    siblings = defaultdict(list)
    by_root = defaultdict(list)
    for path in paths:
        siblings[path[:-1]].append(path)
        by_root[path[0]].append(path)
    # by coarsest node, the classes that are not below it
    elsewhere = {root: [path for path in paths if path[0] != root] for root in by_root}
    changed = list(rows)
    number = round(rate * len(rows))
    wrong: dict[str, list[int]] = {"far": [], "near": []}
    for item in rng.permutation(len(rows)).tolist():
        path = rows[item]
        kind = "far" if len(wrong["far"]) < number // 2 else "near"
        if len(wrong[kind]) == number - number // 2:  # all near ones, which come last, are there
            break
        others = elsewhere[path[0]] if kind == "far" else [*siblings[path[:-1]]]
        others = [other for other in others if other != path]
        if others:
            changed[item] = others[rng.integers(len(others))]
            wrong[kind].append(item)
    return Planted(changed, {kind: np.array(places, int) for kind, places in wrong.items()})


def found_among_first(scores: np.ndarray, wrong: np.ndarray, first: int) -> float:
    """How many wrong items are among the first of a ranking, as the expected value over the orders
    of equal scores. `scores` (N,), NaN where an item is not in the ranking; `wrong`: the places of
    the wrong items; `first`: how many items count.
    """
    is_ranked = ~np.isnan(scores)
    ranked = np.round(scores[is_ranked], 9)  # sums in another order differ in the last digits
    is_wrong = np.isin(np.arange(len(scores)), wrong)[is_ranked]
    if len(ranked) <= first:
        return float(is_wrong.sum())
    last = np.sort(ranked)[-first]  # the score of the last one that counts
    above = ranked > last
    equal = ranked == last
    return float(is_wrong[above].sum() + (first - above.sum()) * is_wrong[equal].mean())


def own_ranking(audit: Audit) -> Ranking:
    """The far and the near list of `hbench audit` as scores by item (N,): 0 for the first of a list,
    −1 for the second, …; NaN for items that are not in it."""
    scores = np.full((2, len(audit.pool)), np.nan)
    for row, each in zip(scores, audit.lists, strict=True):
        row[each.items] = -np.arange(len(each.items))
    return Ranking(*scores)


def figures(ranking: Ranking, wrong: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Precision and recall of a ranking, by kind ("far", "near"): among its first n and its first
    2n items, where n is the number of wrong ones. `wrong`: their places, by kind."""
    found = {}
    for kind in KINDS:
        scores, places = getattr(ranking, kind), wrong[kind]
        if scores is not None:
            number = len(places)
            found[kind] = {
                "precision": found_among_first(scores, places, number) / number,
                "recall": found_among_first(scores, places, 2 * number) / number,
            }
    return found


def sureness(audit: Audit, planting: Planted) -> dict[str, Any]:
    """By kind: how many suspects each bin of sureness has, and how many of them are wrong; how many
    labels are said to be at least and at most, and are."""
    wrong = np.concatenate(list(planting.wrong.values()))
    found = {}
    for each in audit.lists:
        is_wrong = np.isin(each.items, wrong)
        bins = []
        for low, high in pairwise(BINS):
            inside = (each.sureness >= low) & ((each.sureness < high) | (high == BINS[-1]))
            bins.append([int(inside.sum()), int(is_wrong[inside].sum())])
        number = len(planting.wrong[each.kind])
        said = [each.at_least, each.at_most]
        found[each.kind] = {"bins": bins, "said": said, "planted": number}
    return found


def measured(sample: Sample, python: str | None) -> dict[str, Any]:
    """All figures of a sample, by rate and seed; `python`: one that has cleanlab, None without."""
    runs = []
    for rate, seed in [(0.0, 0), *((rate, seed) for rate in RATES for seed in SEEDS)]:
        planting = planted(sample.rows, rate, seed)
        data = sample.dataset(planting.rows)
        audit = hbench.audit(sample.vectors, data, ids=sample.items, most=len(sample.items))
        run: dict[str, Any] = {"rate": rate, "seed": seed, "sureness": sureness(audit, planting)}
        if rate:
            rankings = {OWN: own_ranking(audit), **rules(audit.votes)}
            if python:
                rankings |= cleanlab(audit.votes, sample.vectors, python)
            run["methods"] = {
                name: figures(ranking, planting.wrong) for name, ranking in rankings.items()
            }
        runs.append(run)
        print(f"{sample.name}: {rate:.0%} planted, seed {seed}", flush=True)
    classes = len(set(sample.rows))
    return {"set": sample.name, "items": len(sample.items), "classes": classes, "runs": runs}


def in_markdown(found: dict[str, Any]) -> str:
    """The tables of a set: methods, then sureness."""
    rates = " / ".join(f"{100 * rate:.0f}" for rate in RATES)
    lines = [f"{found['set']}: {found['items']:,} items of {found['classes']:,} classes", ""]
    lines += [
        f"| {rates} % planted | far, precision | far, recall | near, precision | near, recall |"
    ]
    lines += ["|---|---|---|---|---|"]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in method_rows(found["runs"])]
    lines += ["", "| sureness | .5 – .7 | .7 – .9 | .9 – 1 | wrong, at least – at most | planted |"]
    lines += ["|---|---|---|---|---|---|"]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in sureness_rows(found["runs"])]
    return "\n".join(lines) + "\n"


def method_rows(runs: list[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """A row of cells for each method: precision and recall of far, then of near errors, each cell
    the means over seeds at all rates, ".91 / .95 / .97"."""
    runs = [run for run in runs if run["rate"]]
    for name in runs[0]["methods"]:
        cells = []
        for kind in KINDS:
            for number in ("precision", "recall"):
                if kind not in runs[0]["methods"][name]:
                    cells.append("–")
                    continue
                means = [
                    np.mean([r["methods"][name][kind][number] for r in runs if r["rate"] == rate])
                    for rate in RATES
                ]
                cells.append(" / ".join(f"{mean:.2f}".replace("0.", ".") for mean in means))
        yield name, cells


def sureness_rows(runs: list[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """A row of cells for each kind and rate: in each bin of sureness how many suspects are wrong of
    how many, summed over seeds; the least and the largest number of wrong labels that is stated, of
    each seed; and how many are wrong."""
    for kind in KINDS:
        for rate in (0.0, *RATES):
            some = [run["sureness"][kind] for run in runs if run["rate"] == rate]
            sums = np.sum([each["bins"] for each in some], axis=0)
            cells = [
                f"{wrong:,} of {said:,} ({wrong / said:.0%})" if said else "none is said"
                for said, wrong in sums.tolist()
            ]
            ends = [["" if end is None else str(end) for end in each["said"]] for each in some]
            cells += [", ".join(" – ".join(each) for each in ends), str(some[0]["planted"])]
            yield f"{kind}, {100 * rate:.0f} % planted", cells


def as_sop() -> Sample:
    """Synthetic vectors and a tree of the size of SOP's: items lie around the centre of their class,
    and classes around that of their coarse node."""
    coarse, fine, number = SOP
    rng = np.random.default_rng(0)
    classes = np.sort(rng.integers(0, fine, number))
    parents = np.sort(rng.integers(0, coarse, fine))
    centres = rng.normal(size=(coarse, 128))[parents] + rng.normal(size=(fine, 128))
    vectors = (centres[classes] + 1.2 * rng.normal(size=(number, 128))).astype(np.float32)
    rows = [(f"{parents[each]:02}", f"{parents[each]:02}/{each:05}") for each in classes]
    return Sample("as SOP", ("coarse", "fine"), [f"{n:06}" for n in range(number)], rows, vectors)


def cost(sample: Sample, rounds: int) -> dict[str, Any]:
    """Seconds and megabytes of an audit and of an evaluation of the same items, in turns, since a
    machine is not equally quick all the time."""
    from evaluate import peak_memory

    data = sample.dataset(sample.rows)
    ways: dict[str, Callable[[], object]] = {
        "evaluate": lambda: hbench.evaluate(sample.vectors, data, ids=sample.items),
        "audit": lambda: hbench.audit(sample.vectors, data, ids=sample.items),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    memory = dict.fromkeys(ways, 0.0)
    for turn in range(rounds + 1):
        for name, way in ways.items():
            before = peak_memory(reset=True)
            began = time.perf_counter()
            way()
            took = time.perf_counter() - began
            print(f"{sample.name}, round {turn}: {name} {took:.1f} s", flush=True)
            if turn:  # the first one compiles
                seconds[name].append(took)
                memory[name] = max(memory[name], peak_memory() - before)
    pairs = zip(seconds["audit"], seconds["evaluate"], strict=True)
    ratios = [of_audit / of_evaluation for of_audit, of_evaluation in pairs]
    return {
        "set": sample.name,
        "items": len(sample.items),
        "dimensions": sample.vectors.shape[1],
        "seconds": seconds,
        "megabytes": memory,
        "ratio": statistics.median(ratios),
    }


def cost_in_markdown(found: list[dict[str, Any]]) -> str:
    """A line per set: medians of seconds, and megabytes beyond those before."""
    lines = ["| set | evaluate | audit | ratio | memory of either |", "|---|---|---|---|---|"]
    for each in found:
        size = f"{each['set']}, {each['items']:,} × {each['dimensions']}"
        times = [f"{statistics.median(each['seconds'][way]):.1f} s" for way in each["seconds"]]
        memory = " and ".join(f"{number:,.0f}" for number in each["megabytes"].values())
        lines.append(f"| {size} | {' | '.join(times)} | {each['ratio']:.2f} | {memory} MB |")
    return "\n".join(lines) + "\n"


def write(folder: Path, name: str, found: Any, text: str) -> None:
    """Write figures as JSON and as Markdown, and print the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, nargs="+", help="embedding files of --dataset")
    parser.add_argument("--dataset", "-d")
    parser.add_argument("--name", help="of the set, in the tables and files")
    parser.add_argument("--cleanlab", metavar="PYTHON", help="one that has cleanlab[datalab]")
    parser.add_argument("--time", action="store_true", help="measure time and memory instead")
    parser.add_argument("--rounds", type=int, default=3, help="of --time, after one that compiles")
    options = parser.parse_args()
    if options.time:
        costs = [cost(sample, options.rounds) for sample in (glyphs(), as_sop())]
        write(options.out, "time", costs, cost_in_markdown(costs))
        return
    sample = from_files(options.vectors, options.dataset) if options.vectors else glyphs()
    sample = sample._replace(name=options.name or sample.name)
    found = {"commit": commit(), **measured(sample, options.cleanlab)}
    write(options.out, sample.name, found, in_markdown(found))


def commit() -> str:
    """The commit of the code that is measured."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()
