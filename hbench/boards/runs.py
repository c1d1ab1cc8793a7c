"""Makes the user's own rows of a leaderboard from reports, and appends them to a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import tomli_w

from hbench.boards.edits import without_rows
from hbench.boards.files import FOLDER, parse_board, read_board, read_board_file, user_folder
from hbench.boards.ranking import Leaderboard
from hbench.boards.reported import PAPER, recordable_scores
from hbench.boards.rows import PLACES, Row
from hbench.core import schema
from hbench.core.errors import ConfigError, SubmissionError, UsageError
from hbench.core.files import locked, write_text
from hbench.core.untrusted import read_json
from hbench.engine.settings import Settings, Signature
from hbench.metrics.names import factor_of
from hbench.records.document import Document, SubmittedFile


def recorded(row: Row, board: Leaderboard) -> Settings:
    """Return the settings with which to score a row again: for a run those in its signature, and
    for a published row the defaults, under the leaderboard's protocol. Raises SubmissionError for a
    signature that no evaluation of embeddings writes.

    >>> sop = read_board("sop")
    >>> recorded(sop.rows[0], sop).protocol
    'official'
    """
    if row.run is None:
        return Settings(protocol=board.protocol)
    try:
        return Signature.parse(row.run.signature).settings
    except ValueError:  # `settings` found an exponent of the relevance that is not a number
        raise SubmissionError(
            "the row's signature has a relevance that is none", found=row.run.signature
        ) from None
    except UsageError:
        # `parse` misses the parts of an evaluation, such as its ties, which the signatures of
        # `hbench detect` do not have
        raise SubmissionError(
            "this row is of object detection: no embedding file gives its scores",
            found=row.run.signature,
            fix="hbench detect RECIPE --score detections.json --root DIR",
        ) from None


# formats that store the ids as well and are read without torch
SINGLE_FILE = (".parquet", ".npz", ".safetensors", ".arrow", ".arrows", ".feather", ".ipc")


def refuse_several_files(name: str) -> None:
    """Raise SubmissionError for embeddings that are not one file with its ids, since a row has only
    one url. `name` is the name of the file in a report."""
    # a report on several files joins their names by ", " or " + "
    if Path(name).suffix.lower() not in SINGLE_FILE or ", " in name or " + " in name:
        raise SubmissionError(
            f"{name} is not one file of vectors and ids",
            expected=", ".join(SINGLE_FILE),
            fix="write one .parquet file",
        )


@dataclass(frozen=True)
class RowDetails:
    """Details of a new row that the user gives; None for all that are not given. The first fields
    are those of a Row."""

    method: str | None = None
    backbone: str | None = None
    dim: int | None = None
    year: int | None = None
    setup: Mapping[str, str | int] = field(default_factory=dict)
    url: str | None = None  # the address of the embedding file
    made: str | None = None  # the command that makes the embedding file

    @property
    def given(self) -> dict[str, Any]:
        """The given fields of a Row by name."""
        names = ("method", "backbone", "dim", "year", "setup")
        return {name: value for name in names if (value := getattr(self, name))}


NO_DETAILS = RowDetails()


def row_of(document: Document, board: Leaderboard, details: RowDetails = NO_DETAILS) -> Row:
    """Make a row from a report: every score, usually in percent, and its provenance. What the user
    gives in `details` takes precedence over the report. Raises SubmissionError for a report without
    a method or a file, or one that `recordable_scores` refuses.
    """
    scores = recordable_scores(board, document)
    if not (details.method or document.method):
        raise SubmissionError("the report names no method", fix="name it by --method")

    source = _file_scored(document, dim=details.dim)  # the scored file's name, digests, dim …
    if details.url:
        refuse_several_files(source.file)  # one url cannot lead to several files
    # each metric counts the queries with a positive at its level; the largest count is stored
    queries = max(score.queries for score in scores.values())
    run = _run_of(document, source, board) | {"queries": queries}
    # the command is read from the file's metadata unless the user gives it
    addresses = {"url": details.url, "made": details.made or source.made}
    run |= {key: value for key, value in addresses.items() if value}

    printed = {  # as rows print scores: a fraction times 100; `key`: the metric's name in rows
        metric: round(Decimal(factor_of(board.key(metric)) * score.value), PLACES)
        for metric, score in scores.items()
        if score.value is not None
    }
    found = {"method": document.method, "year": int(document.date[:4]), "dim": source.dim}
    known: dict[str, Any] = found | details.given  # details replace what the report says
    if Signature.parse(document.signature).asks_by_name:
        # "nodes" marks rows whose queries are names of the label tree, which are ranked separately
        known["setup"] = {**known.get("setup", {}), "queries": "nodes"}

    return schema.build(Row, {**known, "scores": printed, "run": run}, source="the report's row")


def _file_scored(document: Document, *, dim: int | None) -> SubmittedFile:
    """Return what a report says of the file that it scored. Raises SubmissionError if the vectors
    of items, or those of names, were arrays instead of a file; UsageError if `dim`, given by the
    user, is not the file's. `dim` is None if the user does not give it."""
    source = document.embedding
    if source is None:
        raise SubmissionError(
            "the report is of arrays, not of a file: its row could not be scored again",
            fix="hbench evaluate FILE … of the written embeddings",
        )
    if document.names is not None and not document.names.sha256:
        raise SubmissionError(
            "the names of the report are arrays, not a file: its row could not be scored again",
            fix="hbench evaluate FILE --nodes NODES … of the written vectors",
        )
    # the file of a ranking has the dim None, so that any `dim` is refused
    if dim and dim != source.dim:
        said = "a ranking, whose dimension nobody can verify"
        if source.dim:
            said = f"{source.dim} dimensions"
        raise UsageError(f"the report is of {said}", found=f"--dim {dim}", fix="leave it out")
    return source


def _run_of(document: Document, source: SubmittedFile, board: Leaderboard) -> dict[str, Any]:
    """Return by name the fields of a RunProvenance that a report gives, except the number of
    queries and the command. `source` is the file that was scored.

    A report under the paper's protocol may also have official scores. The row has the scores under
    the leaderboard's protocol, so its signature states the leaderboard's protocol.
    """
    # a report of an old version has no content, but the checksum of the file
    identity = {"content": source.content} if source.content else {"sha256": source.sha256}
    run: dict[str, Any] = {
        **identity,
        "file": source.file,
        "signature": document.signature.replace(
            f"protocol:{document.protocol}", f"protocol:{board.protocol}"
        ),
        "hbench": document.hbench_version,
        "dataset_digest": document.dataset_digest,
        "date": document.date,
    }
    if document.names is not None:  # the queries are names, whose vectors are in a second file
        run["names"] = document.names.content or document.names.sha256
    if document.doubts:
        run["doubt"] = "; ".join(document.doubts)
    return run


def carried_row(
    path: Path, name: str, details: RowDetails = NO_DETAILS
) -> tuple[Leaderboard, Row] | None:
    """Return the leaderboard `name`, and the row that the report in the file at `path` contains.

    Reports of other commands, such as `hbench detect`, contain a row. The result is None for a
    report of `hbench evaluate`, which contains none. `details` replace fields of the row.

    Raises SubmissionError for a row of another dataset, ConfigError for a damaged row, UsageError
    for a setup, url or command (`made`) in `details`, since the report states these itself.
    """
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return None  # not JSON; the reader of reports raises the error later

    if not (isinstance(content, dict) and isinstance(content.get("row"), dict)):
        return None

    board = read_board(name)
    if content.get("dataset") != (expected := f"{board.dataset}@{board.version}"):
        raise SubmissionError(
            "the report is of another dataset", expected=expected, found=str(content.get("dataset"))
        )
    if details.url or details.setup or details.made:
        raise UsageError(
            "this report states the row's setup and file itself",
            fix="leave --url, --setup and --made out",
        )

    return board, schema.build(Row, content["row"] | details.given, source=f"the row in {path}")


def empty_board(document: Document) -> Leaderboard:
    """Return a leaderboard without rows, for the dataset and the conditions of a report."""
    signature = Signature.parse(document.signature)
    return Leaderboard(
        dataset=document.dataset,
        version=document.dataset_version,
        protocol="paper" if document.protocol == PAPER else "official",
        ties=signature.words.ties,
        relevance=signature.words.relevance,
        levels=document.levels,
        averaged=document.tests if len(document.tests) > 1 else (),  # one test is not averaged
        # H-AP is the main metric of the papers
        metric="H-AP" if "H-AP" in document.scores else next(iter(document.scores)),
        row=(),
    )


def target(name: str) -> Path:
    """The file to which own rows are written: `name` itself if it is a path, else
    ./leaderboards/NAME.toml if that exists, else the user's file.
    """
    if name.endswith(".toml") or "/" in name:
        return Path(name)
    here = Path(FOLDER) / f"{name}.toml"
    return here if here.is_file() else user_folder() / f"{name}.toml"


def add(row: Row, board: Leaderboard, path: Path, *, replace: bool = False) -> list[Row]:
    """Append a row to a leaderboard's file, and return the rows that it replaced (see `replace`).
    The other text stays unchanged; the file is written completely or not at all.

    Raises ConfigError for a run that is on the leaderboard already, or for a metric that the
    leaderboard does not know.

    Args:
        board: the leaderboard, which may have rows of other files as well. The run must not be in
            any of them.
        path: the file. A new one begins with the leaderboard's head.
        replace: whether to remove the rows of runs, in the file, of the same method or the same
            run.
    """
    if path.is_file():
        read_board_file(path)  # raises for a file that is no leaderboard, before writing to it
    with locked(path):
        text = path.read_text(encoding="utf-8") if path.is_file() else head(board)
        rows = read_board_file(path).rows if path.is_file() else ()
        old = [n for n, each in enumerate(rows) if replace and each.run and _is_of(each, row)]
        gone = [rows[number] for number in old]
        # `board` may have been read before another process wrote the file, so both count
        kept = [each for each in (*board.rows, *rows) if each not in gone]
        same = [each for each in kept if each.identity == row.identity]
        if same:
            _refuse_again(row, same[0], path, is_in_file=same[0] in rows)
        source = f"the leaderboard {board.dataset} with the new row"
        others = tuple(each for each in board.rows if each not in gone)
        # raises if the new row does not fit to the rows of all files; the result is not needed
        schema.build(Leaderboard, dict(board) | {"rows": (*others, row)}, source=source)
        text = without_rows(path, text, old).rstrip("\n") + "\n\n" + block(row)
        parse_board(text, f"{path} with the new row")  # raises if the text could not be read again
        write_text(path, text)

    return gone


def _is_of(old: Row, new: Row) -> bool:
    """Whether a new row replaces an old one, which has the same method or the same run."""
    return old.method == new.method or old.identity == new.identity


def _refuse_again(row: Row, same: Row, path: Path, *, is_in_file: bool) -> None:
    """Raise ConfigError for a new row whose run is already on the leaderboard.

    Args:
        row: the new row. Nothing is raised for a paper's row, which `Leaderboard` refuses itself.
        same: the row of the same run.
        path: the file to which the row was to be added.
        is_in_file: whether `same` is in that file, and not in another one of the leaderboard.
    """
    if row.run is None:
        return
    fix = "--to FILE.toml adds it to a file of its own"
    if is_in_file:
        fix = "--replace replaces the row; hbench leaderboard remove NAME METHOD removes it"
    named = "" if same.method == row.method else f", as {same.method}"
    raise ConfigError(
        f"the run of {row.method} is there already{named}: nothing was added to {path}",
        found=f"content {row.run.digest[:12]}…, {row.run.signature}",
        fix=fix,
    )


def head(board: Leaderboard) -> str:
    """Return the head of a leaderboard's file of runs, as TOML: the leaderboard without its rows,
    and without notes and citations, which rows of runs do not need."""
    kept = {
        "dataset",
        "version",
        "protocol",
        "ties",
        "relevance",
        "levels",
        "averaged",
        "metric",
        "foreign_metrics",
    }
    return tomli_w.dumps(board.model_dump(include=kept, exclude_defaults=True))


def block(row: Row) -> str:
    """Return a row as TOML with a line per key, so that tables are written in one line. Fields that
    have their default are left out.

    >>> from hbench.boards import Paper
    >>> print(
    ...     block(
    ...         Row(method="mine", scores={"R@1": 81}, paper=Paper(citation="Me", table="Tab. 1"))
    ...     )
    ... )
    [[row]]
    method = "mine"
    scores = { "R@1" = 81.0 }
    paper = { citation = "Me", table = "Tab. 1" }
    <BLANKLINE>
    """
    values = row.model_dump(exclude_none=True, exclude_defaults=True)
    lines = [
        f"{key} = {_inline(value)}\n" if isinstance(value, dict) else tomli_w.dumps({key: value})
        for key, value in values.items()
    ]
    return "[[row]]\n" + "".join(lines)


def _inline(table: Mapping[str, Any]) -> str:
    """Write a TOML table, with the tables in it, in one line, `{ key = value }`. tomli_w itself
    writes a line per key, and inner tables under their own heads."""
    parts = []
    for key, value in table.items():
        if isinstance(value, dict):
            parts.append(f"{_key(key)} = {_inline(value)}")
        else:
            parts.append(tomli_w.dumps({key: value}).strip())  # "key = value"
    return f"{{ {', '.join(parts)} }}"


def _key(key: str) -> str:
    """Write a TOML key, in quotes if it needs them, such as "R@1"."""
    # tomli_w only writes keys with a value, so the part before the equals sign is taken
    return tomli_w.dumps({key: 0}).rpartition(" = ")[0]
