"""Shards: parts of one evaluation, computed by processes that do not talk to each other, and merged into its report.

Part i of n takes an even share of the query blocks of every test. Its file says which evaluation it belongs to, down to
the digest of the vectors and labels, so that parts of different evaluations never merge.

>>> Part.parse("2/3").blocks(10)
range(3, 6)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hbench.core import files
from hbench.core.errors import ComparisonError, SubmissionError, UsageError, examples
from hbench.core.version import __version__
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Conditions, Execute, Job, conditions
from hbench.engine.measure import Measurement, OnBlock, measure
from hbench.evaluation.reports.report import Report, Subject, SubmittedFile, report_of

WRITTEN = "a file that hbench evaluate --shard wrote"
FIELDS = ("values", "first_level", "counts", "tied")


class Part(NamedTuple):
    """Part `number` of `of`, from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """`i/n`; UsageError for anything else."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise UsageError("this is no part of an evaluation", expected="i/n with 1 ≤ i ≤ n", found=repr(text))
        return cls(int(number), int(of))

    def blocks(self, blocks: int) -> range:
        """The part's share of so many blocks."""
        return range(blocks * (self.number - 1) // self.of, blocks * self.number // self.of)


class Evaluation(NamedTuple):
    """What all parts of one evaluation share: what is scored, under which conditions, and the remarks so far."""

    subject: Subject
    chosen: Conditions
    also: str | None = None
    warnings: tuple[str, ...] = ()


def write(
    path: Path,
    evaluation: Evaluation,
    jobs: dict[str, tuple[Job, NDArray[Any]]],
    part: Part,
    *,
    execute: Execute = on_threads,
    on_test: Callable[[str], OnBlock] | None = None,
) -> None:
    """Compute one part of every test, given as its job and the ids of its queries, and write the shard."""
    tests: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, (job, ids) in jobs.items():
        on_block = on_test(name) if on_test else None
        measured = measure(job, execute=execute, blocks=part.blocks(job.ranker.blocks), on_block=on_block)
        at = measured.canonical
        tests[name] = {"job": job.digest, "queries": len(ids)}
        arrays |= {f"{name}/positions": at, f"{name}/ids": ids[at].astype(str)}
        arrays |= {f"{name}/{field}": getattr(measured, field).T[at] for field in ("values",)}
        arrays |= {f"{name}/{field}": getattr(measured, field)[at] for field in FIELDS[1:]}
    header = {"evaluation": _in_words(evaluation), "tests": tests, "part": list(part)}
    files.write(path, header, arrays)


def merge(paths: Sequence[Path]) -> Report:
    """The report of an evaluation from all its parts, in any order.

    Raises SubmissionError for a part that is missing, given twice or damaged, ComparisonError for parts of different
    evaluations.
    """
    if not paths:
        raise UsageError("there is nothing to merge", expected="the files of all parts")
    shards = sorted(map(_shard, paths), key=lambda shard: _part(shard[0]).number)
    headers = [header for header, _ in shards]
    _refuse_mixtures(headers)
    _refuse_gaps([_part(header) for header in headers])
    evaluation = _from_words(headers[0]["evaluation"])
    measurements, ids = {}, {}
    for name, test in headers[0]["tests"].items():
        joined = {field: np.concatenate([arrays[f"{name}/{field}"] for _, arrays in shards]) for field in _fields()}
        measurements[name], ids[name] = _measurement(joined, test["queries"])
    return report_of(measurements, ids, evaluation.subject, evaluation.chosen, warnings=evaluation.warnings)


def _shard(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    if not path.is_file():
        raise SubmissionError(f"{path} does not exist", expected=WRITTEN)
    header, arrays = files.read(path)
    if header.keys() != {"evaluation", "tests", "part"}:
        raise SubmissionError(f"{path} is no part of an evaluation", expected=WRITTEN, found=", ".join(header))
    return header, arrays


def _fields() -> tuple[str, ...]:
    return ("positions", "ids", *FIELDS)


def _measurement(joined: dict[str, NDArray[Any]], queries: int) -> tuple[Measurement, NDArray[np.object_]]:
    """The arrays of all queries in canonical order, as a measurement and ids in input order."""
    at = joined["positions"]
    if not np.array_equal(np.sort(at), np.arange(queries)):
        raise SubmissionError("the parts do not hold every query once", expected=f"{queries:,}", found=f"{len(at):,}")
    back = np.argsort(at)
    values, first_level, counts, tied = (joined[field][back] for field in FIELDS)
    ordered = Measurement(np.ascontiguousarray(values.T), first_level, counts, tied, at)
    return ordered, joined["ids"][back].astype(object)


def _part(header: dict[str, Any]) -> Part:
    return Part(*header["part"])


def _refuse_mixtures(headers: Sequence[dict[str, Any]]) -> None:
    for header in headers[1:]:
        for key in ("evaluation", "tests"):
            if header[key] != headers[0][key] or _part(header).of != _part(headers[0]).of:
                raise ComparisonError(
                    f"part {_part(header).number} and part {_part(headers[0]).number} are of different evaluations",
                    expected=f"one file, dataset, set of conditions and number of parts; {headers[0][key]}",
                    found=str(header[key]),
                )


def _refuse_gaps(parts: Sequence[Part]) -> None:
    numbers = [part.number for part in parts]
    missing = [number for number in range(1, parts[0].of + 1) if number not in numbers]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if missing or twice:
        found = [f"{what} {examples(which)}" for what, which in (("missing", missing), ("twice", twice)) if which]
        raise SubmissionError(
            "shards are missing or duplicated", expected=f"1 … {parts[0].of}, each once", found="; ".join(found)
        )


def _in_words(evaluation: Evaluation) -> dict[str, Any]:
    chosen, subject = evaluation.chosen, evaluation.subject
    source = None if subject.source is None else subject.source.model_dump(mode="json")
    return {
        "version": __version__,
        "subject": {**asdict(subject), "source": source},
        "levels": list(chosen.levels),
        "metrics": [str(name) for name in chosen.metrics],
        "relevance": "alpha" if chosen.relevance_name.startswith("alpha=") else chosen.relevance_name,
        "alpha": chosen.exponent,
        "similarity": chosen.similarity_name,
        "ties": chosen.ties_name,
        "protocol": chosen.protocol_name,
        "also": evaluation.also,
        "warnings": list(evaluation.warnings),
    }


def _from_words(words: dict[str, Any]) -> Evaluation:
    source = words["subject"]["source"]
    subject = Subject(
        **{
            **words["subject"],
            "source": source and SubmittedFile.model_validate(source),
            "doubts": tuple(words["subject"]["doubts"]),
        }
    )
    keys = ("metrics", "relevance", "alpha", "similarity", "ties", "protocol")
    chosen = conditions(words["levels"], **{key: words[key] for key in keys})
    return Evaluation(subject, chosen, words["also"], tuple(words["warnings"]))
