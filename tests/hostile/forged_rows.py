"""A campaign of rows for verification: honest ones, and ones forged by many ideas: `python -m
tests.hostile.forged_rows SEED`.

A case is what a pull request is: the leaderboard's file before and after, and the files that its
rows name. It is judged as `hbench leaderboard verify --fetch --changed-since` does, but for the
network: by the text, the changes, and every changed row.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pyarrow.parquet as pq

import hbench
from hbench.boards import Leaderboard, Row, parse_board
from hbench.boards.proof.changes import compared
from hbench.boards.proof.fetched import VERIFIED, verdict_by
from hbench.boards.runs import RowDetails, block, empty_board, head, row_of
from hbench.core.errors import HBenchError
from hbench.datasets import Dataset
from hbench.evaluation import submission
from hbench.submissions import embeddings

SPECIES = np.arange(120) // 4
ITEMS = [f"{n:03}.png" for n in range(120)]
METRICS = ("H-AP", "R@1", "AP", "NDCG", "ASI", "AP/genus", "R@1/genus", "mAP@R")
RUNS = 20  # honest files, which forgeries begin with


@dataclass(frozen=True)
class Case:
    """What a pull request brings; `files` by the name that the url of a row ends with."""

    before: str
    after: str
    files: dict[str, Path]


@dataclass
class Bench:
    """A small dataset of 30 species in 6 genera, a leaderboard of it, and `number` runs on it, each
    with its row.
    """

    folder: Path
    number: int = RUNS
    data: Dataset = field(init=False)
    board: Leaderboard = field(init=False)
    runs: list[Row] = field(init=False)
    files: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lines = [
            f"{item},g{species // 5},s{species}"
            for item, species in zip(ITEMS, SPECIES, strict=True)
        ]
        (self.folder / "toy.csv").write_text("\n".join(["item,genus,species", *lines]))
        self.data = replace(hbench.load(self.folder / "toy.csv"), version="1")
        self.board = empty_board(
            self.report(self.written("first", vectors_of(-1)), metrics=METRICS)
        )
        self.runs = [
            self.run(f"run{seed}", vectors_of(seed), metrics=METRICS) for seed in range(self.number)
        ]

    def written(self, name: str, vectors: np.ndarray, suffix: str = ".npz") -> Path:
        """Write vectors to a file that rows can name."""
        path = self.files[f"{name}{suffix}"] = self.folder / f"{name}{suffix}"
        embeddings.write(path, ITEMS, vectors)
        return path

    def report(self, path: Path, **options: object):
        return hbench.evaluate(path, self.data, method=path.stem, **options).document

    def row(self, path: Path, board: Leaderboard | None = None, **options: object) -> Row:
        """The row of a file under its own conditions, as `add` makes it."""
        document = self.report(path, **options)
        return row_of(
            document,
            board or empty_board(document),
            RowDetails(url=f"https://example.org/{path.name}"),
        )

    def run(self, name: str, vectors: np.ndarray, suffix: str = ".npz", **options: object) -> Row:
        return self.row(self.written(name, vectors, suffix), **options)

    def text(self, *rows: Row, board: Leaderboard | None = None) -> str:
        return head(board or self.board) + "".join("\n" + block(row) for row in rows)

    def case(self, *rows: Row, before: tuple[Row, ...] = ()) -> Case:
        """A branch that adds rows."""
        return Case(self.text(*before), self.text(*before, *rows), self.files)

    def is_accepted(self, case: Case) -> bool:
        """Whether everything that a branch changes is verified."""
        try:
            board = parse_board(case.after, "after")
            changes = compared(parse_board(case.before, "before"), board, board.dataset)
        except HBenchError:
            return False
        if changes.head or changes.gone or not changes.rows:
            return False
        return all(self._is_verified(board.rows[number], board, case) for number in changes.rows)

    def _is_verified(self, row: Row, board: Leaderboard, case: Case) -> bool:
        path = case.files.get(Path(row.run.url).name) if row.run and row.run.url else None
        if path is None:
            return False
        return verdict_by(row, board, partial(submission.read, path), self.data).verdict == VERIFIED


def vectors_of(seed: int) -> np.ndarray:
    """Vectors as a model might give them: species lie around their centres, these around those of
    genera.
    """
    rng = np.random.default_rng(seed + 1)
    centres = rng.normal(size=(6, 8))[np.arange(30) // 5] + rng.normal(size=(30, 8))
    return (centres[SPECIES] + rng.normal(size=(120, 8))).astype(np.float32)


def with_run(row: Row, **changes: object) -> Row:
    return row.model_copy(update={"run": row.run.model_copy(update=changes)})


def signed(row: Row, old: str, new: str) -> Row:
    return with_run(row, signature=row.run.signature.replace(old, new))


def scored(row: Row, **scores: object) -> Row:
    return row.model_copy(
        update={
            "scores": row.scores | {key.replace("_", "-"): value for key, value in scores.items()}
        }
    )


# honest rows


def honest(bench: Bench, random: Random) -> Iterator[tuple[str, Case]]:
    """Yield branches that add, replace or correct rows of files that give them."""
    for row in bench.runs:
        others = tuple(
            other
            for other in bench.runs
            if other.run.content not in {row.run.content, others_of(row, bench).run.content}
        )[:3]
        yield "a row", bench.case(row)
        yield "a row among others", bench.case(row, before=others)
        yield (
            "a replaced row",
            Case(bench.text(*others, others_of(row, bench)), bench.text(*others, row), bench.files),
        )
        said = row.model_copy(
            update={
                "backbone": "ResNet-50 | <b>",
                "year": 2020,
                "method": f"{row.method} `x` (ours)",
            }
        )
        yield "with details", bench.case(said)
        yield "with a note", bench.case(with_run(row, note="seed 1 of 3", doubt=None))
        fewer = random.sample(METRICS, 3)
        yield (
            "of some metrics",
            bench.case(row.model_copy(update={"scores": {key: row.scores[key] for key in fewer}})),
        )
        rounded = {
            key: round(value, places)
            for places, (key, value) in zip(
                (1, 2, 3, 1, 2, 3, 1, 2), row.scores.items(), strict=True
            )
        }
        yield "of fewer digits", bench.case(row.model_copy(update={"scores": rounded}))
        yield (
            "marked and verified again",
            bench.case(with_run(row, verified="2026-01-01, hbench 0.1.0")),
        )
        path = bench.files[f"{row.method}.npz"]
        for similarity in ("dot", "l2"):
            yield (
                f"by {similarity}",
                bench.case(bench.row(path, metrics=METRICS, similarity=similarity)),
            )
        name = row.method.replace("run", "table")
        copy = bench.written(name, vectors_of(int(row.method[3:])), ".parquet")
        yield "as parquet", bench.case(with_run(row, url=f"https://example.org/{copy.name}"))


def others_of(row: Row, bench: Bench) -> Row:
    """Another run's row under the same name."""
    other = bench.runs[(bench.runs.index(row) + 1) % len(bench.runs)]
    return other.model_copy(update={"method": row.method})


# forged rows: texts of scores, fields, signatures, files, heads


def forged_scores(bench: Bench, row: Row) -> Iterator[tuple[str, Case]]:
    text, kept = bench.text(row), row.scores
    for form in (
        "1e2",
        "2e1",
        "1e1",
        "99",
        "100.0",
        "nan",
        "inf",
        "+99.0",
        "-5.0",
        "9_9.0",
        "99.0001",
        '"99"',
        "0x63",
        str(int(kept["H-AP"] + 1)),  # a whole number was compared by half a point
        hex(int(kept["H-AP"] + 1)),
        str(int(kept["H-AP"])),
        "true",
    ):
        yield (
            f"H-AP = {form}",
            Case(
                bench.text(), text.replace(f"H-AP = {kept['H-AP']}", f"H-AP = {form}"), bench.files
            ),
        )
    for step in ("0.003", "0.01", "0.5", "10"):
        raised = {"H-AP": min(kept["H-AP"] + type(kept["H-AP"])(step), type(kept["H-AP"])(100))}
        yield f"H-AP + {step}", bench.case(row.model_copy(update={"scores": kept | raised}))
    yield (
        "H-AP rounded up",
        bench.case(
            scored(row, H_AP=type(kept["H-AP"])(int(kept["H-AP"]) + 1 + (kept["H-AP"] % 1 > 0.5)))
        ),
    )
    yield (
        "another's scores",
        bench.case(row.model_copy(update={"scores": others_of(row, bench).scores})),
    )
    yield (
        "two scores changed round",
        bench.case(
            row.model_copy(update={"scores": kept | {"AP": kept["NDCG"], "NDCG": kept["AP"]}})
        ),
    )
    for spelling in ("h-ap", "H-AP ", "recall@1", "AP/species", "R@01"):
        yield (
            f"a second {spelling}",
            bench.case(row.model_copy(update={"scores": kept | {spelling: kept["NDCG"]}})),
        )
    for metric in ("R@10", "P@2", "MRR", "HD@5"):
        yield (
            f"{metric} made up",
            bench.case(
                row.model_copy(update={"scores": kept | {metric: round(kept["NDCG"] / 2, 3)}})
            ),
        )


def forged_fields(bench: Bench, row: Row) -> Iterator[tuple[str, Case]]:
    changed = row.model_copy
    yield "a smaller dim", bench.case(changed(update={"dim": 4}))
    yield "no dim", bench.case(changed(update={"dim": None}))
    for name in (f"{row.method}\u200b", f"\u202e{row.method}", f"{row.method}\u2066x"):
        yield f"a method of unseen letters {name!r}", bench.case(changed(update={"method": name}))
    yield "year to come", bench.case(changed(update={"year": 2199}))
    yield (
        "unranked where it is bad",
        bench.case(changed(update={"unranked": {"R@1": "not comparable"}})),
    )
    for name, value in (
        ("queries", 60),
        ("queries", 10**6),
        ("dataset_digest", "0" * 64),
        ("date", "2199-01-01"),
        ("date", "yesterday"),
        ("verified", "2199-01-01, hbench 0.1.0"),  # a day to come
        ("hbench", "9.9.9"),
        ("hbench", "0"),
        ("hbench", "0.1 verified by its authors"),
        ("sha256", "0" * 64),
        ("content", "0" * 64),
        ("content", others_of(row, bench).run.content),
        ("url", None),
        ("url", "https://example.org/none.npz"),
        ("url", others_of(row, bench).run.url),
        ("signature", "s"),
    ):
        yield f"{name} {value}", bench.case(with_run(row, **{name: value}))
        claimed = with_run(row, **{"verified": "2026-01-01, hbench 0.1.0", name: value})
        yield f"{name} {value}, marked", bench.case(claimed)


def forged_signatures(bench: Bench, row: Row) -> Iterator[tuple[str, Case]]:
    """The signature alone; and the scores with it, which are better."""
    path = bench.files[f"{row.method}.npz"]
    for options in (
        {"ties": "optimistic"},
        {"alpha": 3.0},
        {"alpha": 0.1},
        {"protocol": "official"},
        {"relevance": "inverse"},
    ):
        try:
            yield f"made with {options}", bench.case(bench.row(path, metrics=METRICS, **options))
        except HBenchError:  # a relevance of another name
            continue
    for old, new in (
        ("ties:pessimistic", "ties:optimistic"),
        ("rel:alpha=1", "rel:alpha=3"),
        ("rel:alpha=1", "rel:alpha=nan"),
        ("rel:alpha=1", "rel:alpha=x"),
        ("toy@1", "toy@2"),
        ("toy@1", "sop@1"),
        ("rel:alpha=1", "rel:alpha=1.0"),
        ("rel:alpha=1", "rel:alpha=1e0"),
        ("rel:alpha=1", "rel:alpha"),
        ("protocol:paper", "protocol:official"),
        ("sim:cosine", "sim:none"),
        ("sim:cosine", "sim: cosine"),
        ("|test|", "|test+test|"),
        ("|test|", "|train|"),
        ("self:excluded-by-id", "self:kept"),
        ("|self:excluded-by-id", ""),
        ("hbench:0.1", "hbench:0.2"),
        ("protocol:paper", "protocol:paper|tree:other"),
        ("protocol:paper", "protocol:paper|left-out:3(abcdef01)"),
        ("protocol:paper", "protocol:paper|labels:partial"),
        ("protocol:paper", "protocol:paper|"),
        ("protocol:paper", "x:y|protocol:paper"),
        ("sim:cosine|", "sim:dot|sim:cosine|"),
        ("toy@1", "TOY@1"),
        ("ties:", "Ties:"),
        ("toy@1", " toy@1"),
    ):
        made = signed(row, old, new)
        assert made.run.signature != row.run.signature
        yield f"{new} for {old}", bench.case(made)
        yield (
            f"a second row by {new}",
            bench.case(made.model_copy(update={"method": "another"}), before=(row,)),
        )
    for curvature in ("0.5", "2"):
        hyperbolic = bench.row(path, metrics=METRICS, similarity=f"lorentz(curvature={curvature})")
        first = bench.row(path, metrics=METRICS, similarity="lorentz")
        yield f"a second row by a curvature of {curvature}", bench.case(hyperbolic, before=(first,))
    newer = with_run(signed(row, "hbench:0.1", "hbench:9.9"), hbench="9.9.9")
    yield "a version that is not there yet", bench.case(newer)


def forged_files(bench: Bench, row: Row, seed: int) -> Iterator[tuple[str, Case]]:
    """The file gives the row, but should not."""
    vectors = vectors_of(seed)
    hard = [ITEMS[n] for n in hard_queries(vectors)[:40]]
    for suffix in (".npz", ".parquet"):
        path = bench.written(f"leaves{seed}", vectors, suffix)
        leave_out(path, vectors, hard)
        document = bench.report(path, metrics=METRICS)
        assert document.signature.count("left-out")
        made = row_of_any(bench, document, path)
        yield f"hard queries left out of {suffix}", bench.case(made)
        clean = (
            document.signature.split("|left-out")[0] + "|rel" + document.signature.split("|rel")[1]
        )
        yield f"left out of {suffix} and unsaid", bench.case(with_run(made, signature=clean))
        yield f"of all queries, {suffix}", bench.case(with_run(made, signature=clean, queries=120))
    for name, shown in (
        ("labels", np.eye(30, dtype=np.float32)[SPECIES] * np.float32(1 + seed)),
        ("noise", np.eye(30)[SPECIES] + 1e-3 * np.random.default_rng(seed).normal(size=(120, 30))),
        ("constant", np.ones((120, 8)) + 1e-6 * vectors),
    ):
        made = bench.run(f"{name}{seed}", shown.astype(np.float32), metrics=METRICS)
        assert made.run.doubt
        yield f"{name} as vectors", bench.case(with_run(made, doubt=None))
        yield (
            f"{name} as vectors, explained away",
            bench.case(with_run(made, doubt="none: " + made.run.doubt)),
        )
        yield f"{name} as vectors, in part", bench.case(with_run(made, doubt=made.run.doubt[:-1]))
    path = bench.written(f"half{seed}", vectors)
    embeddings.write(path, ITEMS[:60], vectors[:60])
    yield (
        "half of the items",
        bench.case(
            with_run(
                row,
                content=embeddings.read(path).content,
                url=f"https://example.org/{path.name}",
            )
        ),
    )
    path = bench.written(f"garbage{seed}", vectors)
    path.write_bytes(b"no file of vectors")
    yield (
        "no file of vectors",
        bench.case(with_run(row, url=f"https://example.org/{path.name}")),
    )


def forged_heads(bench: Bench, row: Row) -> Iterator[tuple[str, Case]]:
    before, after = (
        bench.text(row),
        bench.text(row, others_of(row, bench).model_copy(update={"method": "new"})),
    )
    foreign = '[foreign_metrics]\n"{}" = "as another program computes it"\n\n[[row]]'
    for metric in ("H-AP", "R@1", "h-ap", "H–AP", "AP50"):
        yield (
            f"{metric} is foreign",
            Case(before, after.replace("[[row]]", foreign.format(metric), 1), bench.files),
        )
        made = row.model_copy(update={"scores": {metric: row.scores["NDCG"]}, "method": "new"})
        text = bench.text(row) + "\n" + block(with_run(made, content="1" * 64))
        yield (
            f"{metric} is foreign, a row",
            Case(before, text.replace("[[row]]", foreign.format(metric), 1), bench.files),
        )
    for old, new in (
        ('metric = "H-AP"', 'metric = "R@1"'),
        ('ties = "pessimistic"', 'ties = "optimistic"'),
        ('relevance = "alpha=1"', 'relevance = "alpha=3"'),
        ('protocol = "paper"', 'protocol = "official"'),
        ('version = "1"', 'version = "2"'),
        ('dataset = "toy"', 'dataset = "sop"'),
        ('version = "1"', 'version = "1"\nnotes = "mine is the best"'),
        ('version = "1"', 'version = "1"\naveraged = ["a", "b"]'),
        ('"genus"', '"family"'),
    ):
        full = '{}ties = "pessimistic"\nrelevance = "alpha=1"\n'.format
        was, text = (full("") + each for each in (before, after))
        assert old in text, (old, text[:300])
        yield f"head {new}", Case(was, text.replace(old, new, 1), bench.files)
        yield f"head {new} alone", Case(was, was.replace(old, new, 1), bench.files)
    yield (
        "another's row is gone",
        Case(bench.text(row, others_of(row, bench)), bench.text(row), bench.files),
    )
    rival = bench.runs[bench.runs.index(row) - 1]
    lower = scored(rival, H_AP=round(rival.scores["H-AP"] / 2, 3))
    yield (
        "a rival's score is lowered",
        Case(bench.text(row, rival), bench.text(row, lower), bench.files),
    )
    unranked = rival.model_copy(update={"unranked": {"H-AP": "doubtful"}})
    yield (
        "a rival is unranked",
        Case(bench.text(row, rival), bench.text(row, unranked), bench.files),
    )
    doubted = bench.text(row, with_run(rival, content=row.run.content, url=row.run.url))
    yield "a rival's file is replaced", Case(bench.text(rival), doubted, bench.files)


def hard_queries(vectors: np.ndarray) -> list[int]:
    """Queries by how far their class is from being the nearest."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = units @ units.T
    own = SPECIES[:, None] == SPECIES[None]
    return np.argsort(
        np.where(own, scores, 0).sum(axis=1) - np.where(own, 0, scores).max(axis=1)
    ).tolist()


def leave_out(path: Path, vectors: np.ndarray, items: list[str]) -> None:
    """Write a file that says that these items could not be embedded."""
    kept = [n for n, item in enumerate(ITEMS) if item not in items]
    ids = [ITEMS[n] for n in kept]
    if path.suffix == ".npz":
        np.savez(path, ids=np.array(ids), embeddings=vectors[kept], left_out=np.array(items))
    else:
        embeddings.write(path, ids, vectors[kept])
        table = pq.read_table(path)
        pq.write_table(
            table.replace_schema_metadata(
                {**(table.schema.metadata or {}), b"hbench.left_out": json.dumps(items)}
            ),
            path,
        )


def row_of_any(bench: Bench, document, path: Path) -> Row:
    """The row of a report that `add` refuses."""
    plain = document.model_copy(update={"signature": bench.runs[0].run.signature})
    row = row_of(plain, bench.board, RowDetails(url=f"https://example.org/{path.name}"))
    return with_run(row, signature=document.signature)


def forged(bench: Bench, seeds: range) -> Iterator[tuple[str, Case]]:
    """Yield branches that forge a row, or a place, by every idea."""
    for seed in seeds:
        row = bench.runs[seed]
        yield from forged_scores(bench, row)
        yield from forged_fields(bench, row)
        yield from forged_signatures(bench, row)
        yield from forged_files(bench, row, seed)
        yield from forged_heads(bench, row)


def outcomes(bench: Bench, seed: int, seeds: range) -> dict[str, Counter[str]]:
    """Count how honest and forged branches are judged: under "honest" and "forged" all, under
    "wrong" those judged wrongly.
    """
    found: dict[str, Counter[str]] = {"honest": Counter(), "forged": Counter(), "wrong": Counter()}
    kinds: dict[str, tuple[Iterator[tuple[str, Case]], bool]] = {
        "honest": (honest(bench, Random(seed)), True), "forged": (forged(bench, seeds), False),
    }  # fmt: skip
    for kind, (cases, expected) in kinds.items():
        for name, case in cases:
            found[kind][name] += 1
            if bench.is_accepted(case) != expected:
                found["wrong"][f"{kind}: {name}"] += 1
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
        counts = outcomes(bench, seed, range(len(bench.runs)))
        for kind, counter in counts.items():
            wrong = "".join(
                f"\n  {number} × {name}" for name, number in counter.items() if kind == "wrong"
            )
            sys.stdout.write(f"{kind}: {counter.total()}{wrong}\n")
