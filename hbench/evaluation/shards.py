"""Shards: parts of one evaluation, computed by processes that do not talk to each other, and merged into its report.

Part i of n takes an even share of the query blocks of every test. Its file says which evaluation it belongs to, down to
the digest of the vectors and labels, so that parts of different evaluations never merge.

>>> Part.parse("2/3").blocks(10)
range(3, 6)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError

from hbench.core import files
from hbench.core.errors import ComparisonError, SubmissionError, UsageError, examples
from hbench.core.schema import Strict
from hbench.core.text import first_problem
from hbench.core.version import __version__
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute
from hbench.engine.settings import Conditions, Signature
from hbench.evaluation.evaluate import Examined, OnTest
from hbench.evaluation.measurement import Measurement, measure
from hbench.evaluation.reports.queries import CLASS, levels_of, named_queries, queries_of
from hbench.evaluation.reports.report import Report, Subject, report_of, rows_of_values

WRITTEN = "a file that hbench evaluate --shard wrote"
FIELDS = ("values", "first_level", "counts", "tied")


class Part(NamedTuple):
    """Part `number` of `of`, from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """`i/n`; UsageError for anything else."""
        numbers = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]):
            raise UsageError("not a shard", expected="i/n with 1 ≤ i ≤ n", found=repr(text[:40]))
        return cls(int(numbers[1]), int(numbers[2]))

    def blocks(self, blocks: int) -> range:
        """The part's share of this many blocks."""
        return range(blocks * (self.number - 1) // self.of, blocks * self.number // self.of)


class QueriesOfTest(Strict):
    """A test in the header of a shard: the digest of its job, and how many queries it has in all parts together."""

    job: str
    queries: NonNegativeInt


class ShardHeader(Strict):
    """An evaluation in the header of a shard, as plain values."""

    version: str
    subject: Subject
    signature: str
    levels: tuple[str, ...]
    metrics: tuple[str, ...]
    unit: str
    alpha: float
    also: str | None
    warnings: tuple[str, ...]


class Header(Strict):
    """The header of a shard."""

    evaluation: ShardHeader
    tests: dict[str, QueriesOfTest] = Field(min_length=1)
    part: tuple[PositiveInt, PositiveInt]


class Evaluation(NamedTuple):
    """The parts' common evaluation: the submission and dataset, the conditions, and the remarks so far."""

    subject: Subject
    conditions: Conditions
    also: str | None = None
    warnings: tuple[str, ...] = ()


def write(
    path: Path,
    examined: Examined,
    part: Part,
    *,
    memory: int | None = None,
    execute: Execute = on_threads,
    on_test: OnTest | None = None,
) -> None:
    """Compute one part of every test and write the shard.

    Raises UsageError for a submission or dataset that is not ranked by its embeddings.
    """
    tests: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    jobs = examined.jobs(memory=memory)
    if set(jobs) != set(examined.data.tests):
        raise UsageError("this evaluation cannot be split into shards", expected="embeddings, and positives by label")
    for name, job in jobs.items():
        queries = queries_of(name, examined.data.tests[name])
        on_block = on_test(name) if on_test else None
        measured = measure(job, execute=execute, blocks=part.blocks(job.ranker.blocks), on_block=on_block)
        at = measured.canonical
        tests[name] = {"job": job.digest, "queries": len(queries)}
        mine = queries.take(at)
        arrays |= {f"{name}/positions": at, f"{name}/ids": np.array(mine["query"].to_pylist(), str)}
        for number, level in enumerate(levels_of(queries)):
            classes = mine[CLASS + level].combine_chunks().dictionary_encode()
            arrays[f"{name}/classes{number}"] = classes.indices.to_numpy()
            arrays[f"{name}/names{number}"] = np.array(classes.dictionary.to_pylist(), str)
        arrays |= {f"{name}/values": measured.values.T[at]}
        arrays |= {f"{name}/{field}": getattr(measured, field)[at] for field in FIELDS[1:]}
    evaluation = Evaluation(examined.subject, examined.conditions, examined.also, examined.warnings)
    header = {"evaluation": _in_words(evaluation, jobs), "tests": tests, "part": list(part)}
    files.write(path, header, arrays)


def merge(paths: Sequence[Path]) -> Report:
    """The report of an evaluation from all its parts, in any order.

    Raises SubmissionError for a part that is missing, given twice or damaged, ComparisonError for parts of different
    evaluations.
    """
    if not paths:
        raise UsageError("no shards are given", expected="the files of all parts")
    shards = sorted(map(_shard, paths), key=lambda shard: shard[0].part)
    headers = [header for header, _ in shards]
    _refuse_mixtures(headers)
    _refuse_gaps([Part(*header.part) for header in headers])
    evaluation = _from_words(headers[0].evaluation)
    measurements, queries = {}, []
    for name, test in headers[0].tests.items():
        joined = _joined(name, [arrays for _, arrays in shards], evaluation)
        measurements[name], back = _measurement(joined, test.queries)
        classes = [
            pa.array(joined[f"classes{number}"][back], pa.string())
            for number in range(len(evaluation.conditions.levels))
        ]
        queries.append(named_queries(name, joined["ids"][back].astype(object), classes, evaluation.conditions.levels))
    return report_of(
        measurements, pa.concat_tables(queries), evaluation.subject, evaluation.conditions, warnings=evaluation.warnings
    )


def _shard(path: Path) -> tuple[Header, dict[str, NDArray[Any]]]:
    if not path.is_file():
        raise SubmissionError(f"{path} does not exist", expected=WRITTEN)
    header, arrays = files.read(path)
    try:
        return Header.model_validate(header), arrays
    except ValidationError as error:
        raise SubmissionError(f"{path} is not a shard", expected=WRITTEN, found=first_problem(error)) from None


def _joined(test: str, shards: Sequence[dict[str, NDArray[Any]]], evaluation: Evaluation) -> dict[str, NDArray[Any]]:
    """The arrays of a test from all shards; SubmissionError where one is missing, or of another type or shape."""
    names = rows_of_values(evaluation.conditions) * (2 if evaluation.also else 1)
    classes = {f"classes{number}": "U" for number in range(len(evaluation.conditions.levels))}
    shards = [{**arrays, **_classes(test, arrays, len(classes))} for arrays in shards]
    kinds = classes | {"positions": "i", "ids": "U", "values": "f", "first_level": "u", "counts": "i", "tied": "b"}
    widths = {"values": (names,), "counts": (len(evaluation.conditions.levels) + 1,)}
    for arrays in shards:
        found = {field: arrays.get(f"{test}/{field}", np.zeros(0, object)) for field in kinds}
        queries = found["positions"].shape[:1]
        for field, array in found.items():
            if array.dtype.kind != kinds[field] or array.shape != (*queries, *widths.get(field, ())):
                raise SubmissionError(
                    "a shard lacks an array, or holds one of another type", expected=f"an array {test}/{field} for its queries",
                    found=f"{array.dtype} of shape {array.shape}",
                )  # fmt: skip
    joined = {field: np.concatenate([arrays[f"{test}/{field}"] for arrays in shards]) for field in kinds}
    _refuse_impossible(test, joined, len(evaluation.conditions.levels))
    return joined


def _classes(test: str, arrays: dict[str, NDArray[Any]], levels: int) -> dict[str, NDArray[Any]]:
    """The names of the queries' classes at every level, (n,), from the names of a part and the numbers of its queries."""
    found = {}
    for number in range(levels):
        keys = f"{test}/classes{number}", f"{test}/names{number}"
        numbers, names = (arrays.get(key, np.zeros(0, object)) for key in keys)
        are_arrays = numbers.dtype.kind == "i" and names.dtype.kind == "U" and numbers.ndim == names.ndim == 1
        if are_arrays and np.isin(numbers, np.arange(len(names))).all():
            found[keys[0]] = names[numbers]
    return found


def _refuse_impossible(test: str, joined: dict[str, NDArray[Any]], levels: int) -> None:
    """Raise SubmissionError for arrays of the right types that no evaluation on a tree of this many levels gives."""
    impossible = {
        "values that are infinite": np.isinf(joined["values"]).any(),
        f"a first level beyond {levels}": (joined["first_level"] > levels).any(),
        "a negative number of items": (joined["counts"] < 0).any(),
        "a query twice": len(np.unique(joined["ids"])) < len(joined["ids"]),
    }
    found = [what for what, is_so in impossible.items() if is_so]
    if found:
        expected = f"of {test}: every query once, finite values, levels of the tree, counts of items"
        raise SubmissionError("the shards hold impossible values", expected=expected, found=", ".join(found))


def _measurement(joined: dict[str, NDArray[Any]], queries: int) -> tuple[Measurement, NDArray[np.int64]]:
    """The arrays of all queries in canonical order as a measurement, and where each query in input order is among them."""
    at = joined["positions"]
    if not np.array_equal(np.sort(at), np.arange(queries)):
        raise SubmissionError("the parts do not hold every query once", expected=f"{queries:,}", found=f"{len(at):,}")
    back = np.argsort(at)
    values, first_level, counts, tied = (joined[field][back] for field in FIELDS)
    ordered = Measurement(np.ascontiguousarray(values.T), first_level, counts, tied, at)
    return ordered, back


def _refuse_mixtures(headers: Sequence[Header]) -> None:
    first = headers[0]
    for header in headers[1:]:
        for key in ("evaluation", "tests"):
            own, other = getattr(first, key), getattr(header, key)
            if other != own or header.part[1] != first.part[1]:
                raise ComparisonError(
                    f"part {header.part[0]} and part {first.part[0]} are of different evaluations",
                    expected=f"one file, dataset, set of conditions and number of parts; {own}",
                    found=str(other),
                )


def _refuse_gaps(parts: Sequence[Part]) -> None:
    times = Counter(part.number for part in parts)
    missing = examples(number for number in range(1, parts[0].of + 1) if number not in times)
    found = {"missing": missing, "twice": examples(sorted(number for number in times if times[number] > 1))}
    if any(found.values()):
        raise SubmissionError(
            "shards are missing or duplicated",
            expected=f"1 … {parts[0].of}, each once",
            found="; ".join(f"{what} {which}" for what, which in found.items() if which),
        )


def _in_words(evaluation: Evaluation, tests: Iterable[str]) -> dict[str, Any]:
    conditions, subject = evaluation.conditions, evaluation.subject
    source = None if subject.source is None else subject.source.model_dump(mode="json")
    return {
        "version": __version__,
        "subject": {**asdict(subject), "source": source},
        "signature": str(conditions.signature(f"{subject.dataset}@{subject.version}", tests)),
        "levels": list(conditions.levels),
        "metrics": [str(name) for name in conditions.metrics],
        "unit": conditions.unit,
        "alpha": conditions.exponent,  # the signature has six digits of it
        "also": evaluation.also,
        "warnings": list(evaluation.warnings),
    }


def _from_words(words: ShardHeader) -> Evaluation:
    signature = Signature.parse(words.signature)
    settings = replace(signature.settings, metrics=words.metrics, unit=words.unit, alpha=words.alpha)
    conditions = settings.resolve(words.levels, partial=signature.partial, left_out=signature.left_out)
    return Evaluation(words.subject, conditions, words.also, words.warnings)
