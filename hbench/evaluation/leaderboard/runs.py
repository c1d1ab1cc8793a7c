"""Own rows of a leaderboard: made from a report, appended to a file, scored again from their embedding file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from hbench.core import schema
from hbench.core.errors import ComparisonError, ConfigError, SubmissionError, UnknownName, UsageError, examples
from hbench.core.files import write_text
from hbench.core.untrusted import read_json
from hbench.engine.settings import Settings, Signature
from hbench.evaluation.leaderboard import FOLDER, Leaderboard, Row, read, read_file, user_folder
from hbench.evaluation.leaderboard.edits import locked, without_rows
from hbench.evaluation.reports.report import Document, Score

DIGITS = 3  # of a percentage: finer than the noise of float32 similarities
NOISE = Decimal("0.0005")  # percent: what another block size may move a mean by
PAPER = "paper"


class Check(NamedTuple):
    """A recorded score and the same metric scored again, in percent; `differs`: by more than the recorded precision."""

    source: str
    metric: str
    recorded: Decimal
    rescored: Decimal | None
    differs: bool


def recorded(row: Row, board: Leaderboard) -> Settings:
    """The conditions under which `row` is scored again: those of its signature, the dataset's own for a published row.

    >>> from hbench.evaluation.leaderboard import read
    >>> recorded(read("sop").rows[0], read("sop")).protocol
    'official'
    """
    if row.run is None:
        return Settings(protocol=board.protocol)
    try:
        return Signature.parse(row.run.signature).settings
    except UsageError:
        raise SubmissionError(
            "this row is of object detection: no embedding file gives its scores",
            found=row.run.signature,
            fix="hbench detect RECIPE --score detections.json --root DIR",
        ) from None


def scores_under(board: Leaderboard, document: Document) -> Mapping[str, Score]:
    """The report's scores under the leaderboard's protocol; SubmissionError without them, or of another dataset."""
    expected, reported = f"{board.dataset}@{board.version}", f"{document.dataset}@{document.dataset_version}"
    if expected != reported:
        raise SubmissionError("the report is of another dataset", expected=expected, found=reported)
    if (document.protocol == PAPER) == (board.protocol == PAPER):
        return document.scores
    if board.protocol == PAPER or not document.official:
        raise SubmissionError(
            f"the report has no scores under the {board.protocol} protocol, which this leaderboard's rows have",
            found=f"protocol {document.protocol}",
            fix=f"hbench evaluate … --protocol {board.protocol}",
        )
    return document.official


def rankable_scores(board: Leaderboard, document: Document) -> Mapping[str, Score]:
    """Like `scores_under`, but also refuse ties or relevance that are not those of the rows: luck in ties must not gain a place."""
    signature = Signature.parse(document.signature)
    if signature.left_out:
        raise SubmissionError(
            "the report leaves items out that the rows have", expected="every item of the tests",
            found=f"left-out:{signature.left_out}",
            fix="embed these items as well: hbench embed without --skip-unreadable names them",
        )  # fmt: skip
    rows = [recorded(row, board) for row in board.rows]
    if rows and not any(_same_scale(row, signature.settings) for row in rows):
        usual = rows[0]
        raise SubmissionError(
            "the report's ties or relevance are not those of the rows",
            expected=f"ties:{usual.ties}, relevance {usual.relevance}, alpha {usual.alpha:g}",
            found=document.signature,
        )
    return scores_under(board, document)


def _same_scale(first: Settings, second: Settings) -> bool:
    return (first.ties, first.relevance, first.alpha) == (second.ties, second.relevance, second.alpha)


# Formats that hold the ids, too, and are read without torch.
ALONE = (".parquet", ".npz", ".safetensors", ".arrow", ".arrows", ".feather", ".ipc")


def refuse_several_files(name: str) -> None:
    """Refuse embeddings that are not one file, of a format that holds the ids, too: one url could not give them.

    Raises SubmissionError.
    """
    if Path(name).suffix.lower() not in ALONE or ", " in name or " + " in name:
        raise SubmissionError(
            f"{name} is not one file of vectors and ids", expected=", ".join(ALONE), fix="write one .parquet file"
        )


def row_of(
    document: Document, board: Leaderboard, *, method: str | None = None, url: str | None = None, **details: Any
) -> Row:
    """The row of a report: every score in percent, and all its provenance.

    `url`: where the embedding file can be had. `details`: backbone, dim, year, setup of the Row where they are known. Raises
    SubmissionError for a report without a method or a file, or that `rankable_scores` refuses.
    """
    scores = rankable_scores(board, document)
    name = method or document.method
    if not name:
        raise SubmissionError("the report names no method", fix="name it by --method")
    if url and document.embedding:
        refuse_several_files(document.embedding.file)
    if document.embedding is None:
        raise SubmissionError(
            "the report is of arrays, not of a file: its row could not be scored again",
            fix="hbench evaluate FILE … of the written embeddings",
        )
    dim = details.get("dim")
    if dim and document.embedding.dim and dim != document.embedding.dim:
        raise UsageError(
            f"the report is of {document.embedding.dim} dimensions", found=f"--dim {dim}", fix="leave it out"
        )
    run: dict[str, Any] = {
        "sha256": document.embedding.sha256,
        "file": document.embedding.file,
        "signature": document.signature.replace(f"protocol:{document.protocol}", f"protocol:{board.protocol}"),
        "hbench": document.hbench_version,
        "dataset_digest": document.dataset_digest,
        "date": document.date,
        "queries": max(score.queries for score in scores.values()),
    }
    run |= {"url": url} if url else {}
    run |= {"doubt": "; ".join(document.doubts)} if document.doubts else {}
    percent = {metric: round(Decimal(100 * s.value), DIGITS) for metric, s in scores.items() if s.value is not None}
    known = {"year": int(document.date[:4]), "dim": document.embedding.dim} | {k: v for k, v in details.items() if v}
    return schema.build(Row, {"method": name, **known, "scores": percent, "run": run}, source="the report's row")


def carried_row(path: Path, name: str, **details: Any) -> tuple[Leaderboard, Row] | None:
    """The row that the report of another program carries, as that of `hbench detect` does, and the leaderboard of this name; None
    for a report of `hbench evaluate`.

    `details`: method, backbone, dim and year in place of the row's. Raises SubmissionError for a row of
    another dataset, ConfigError for a damaged one, UsageError for a setup or url, which the report states itself.
    """
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return None  # whoever reads it as a report of hbench evaluate says what is wrong
    if not (isinstance(content, dict) and isinstance(content.get("row"), dict)):
        return None
    board = read(name)
    if content.get("dataset") != (expected := f"{board.dataset}@{board.version}"):
        raise SubmissionError("the report is of another dataset", expected=expected, found=str(content.get("dataset")))
    if details.get("url") or details.get("setup"):
        raise UsageError("this report states the row's setup and file itself", fix="leave --url and --setup out")
    changed = {key: value for key, value in details.items() if value}
    return board, schema.build(Row, content["row"] | changed, source=f"the row in {path}")


def empty_board(document: Document) -> Leaderboard:
    """A leaderboard without rows for the dataset of a report."""
    return Leaderboard(
        dataset=document.dataset,
        version=document.dataset_version,
        protocol="paper" if document.protocol == PAPER else "official",
        levels=document.levels,
        averaged=document.tests if len(document.tests) > 1 else (),
        metric="H-AP" if "H-AP" in document.scores else next(iter(document.scores)),
        row=(),
    )


def target(name: str) -> Path:
    """The file own rows go to: a path as it is, else ./leaderboards/NAME.toml if that exists, else the user's file."""
    if name.endswith(".toml") or "/" in name:
        return Path(name)
    here = Path(FOLDER) / f"{name}.toml"
    return here if here.is_file() else user_folder() / f"{name}.toml"


def add(row: Row, board: Leaderboard, path: Path, *, replace: bool = False) -> list[Row]:
    """Append `row` of `board` to the file at `path`, whose other text stays as it is; it is replaced whole or not at all.

    `replace`: remove the file's rows of runs of the same method, or of the same run, and return them. A new file begins with the
    leaderboard's head. Raises ConfigError for a run that is there already, or a metric the leaderboard does not know.
    """
    if path.is_file():
        read_file(path)  # a file that is no leaderboard is refused before anything is written
    with locked(path):
        text = path.read_text(encoding="utf-8") if path.is_file() else head(board)
        rows = read_file(path).rows if path.is_file() else ()
        old = [n for n, each in enumerate(rows) if replace and each.run and _is_of(each, row)]
        gone = [rows[number] for number in old]
        kept = [each for each in (*board.rows, *rows) if each not in gone]
        _refuse_again([each for each in kept if each.identity == row.identity], row, path)
        source = f"the leaderboard {board.dataset} with the new row"
        others = tuple(each for each in board.rows if each not in gone)
        schema.build(Leaderboard, dict(board) | {"rows": (*others, row)}, source=source)
        text = without_rows(path, text, old).rstrip("\n") + "\n\n" + block(row)
        schema.parse(Leaderboard, text, source=f"{path} with the new row")
        write_text(path, text)
    return gone


def _is_of(old: Row, new: Row) -> bool:
    return old.method == new.method or old.identity == new.identity


def _refuse_again(same: Sequence[Row], row: Row, path: Path) -> None:
    """Refuse a run that the leaderboard has."""
    if not same or row.run is None:
        return
    named = "" if same[0].method == row.method else f", as {same[0].method}"
    raise ConfigError(
        f"the run of {row.method} is there already{named}: nothing was added to {path}",
        found=f"sha256 {row.run.sha256[:12]}…, {row.run.signature}",
        fix="--replace replaces the row; hbench leaderboard remove NAME METHOD removes it",
    )


def head(board: Leaderboard) -> str:
    """Return the head of a leaderboard's file, as TOML."""
    kept = {"dataset", "version", "protocol", "levels", "averaged", "metric", "foreign_metrics"}
    return tomli_w.dumps(board.model_dump(include=kept, exclude_defaults=True))


def block(row: Row) -> str:
    """One row as TOML, a line per key.

    >>> from hbench.evaluation.leaderboard import Paper
    >>> print(block(Row(method="mine", scores={"R@1": 81}, paper=Paper(citation="Me", table="Tab. 1"))))
    [[row]]
    method = "mine"
    scores = { "R@1" = 81.0 }
    paper = { citation = "Me", table = "Tab. 1" }
    <BLANKLINE>
    """
    values = row.model_dump(exclude_none=True, exclude_defaults=True)
    lines = [f"{key} = {_inline(v)}\n" if isinstance(v, dict) else tomli_w.dumps({key: v}) for key, v in values.items()]
    return "[[row]]\n" + "".join(lines)


def _inline(table: Mapping[str, Any]) -> str:
    return f"{{ {', '.join(tomli_w.dumps(table).splitlines())} }}"


def verify(board: Leaderboard, method: str, sha256: str, rescore: Callable[[Row], Document]) -> list[Check]:
    """Every score recorded for `method` against the embedding file of that hash, which `rescore` evaluates for a row.

    An own row must be of this very file; a published method is compared with each of its rows. A score is equal when it
    rounds to the recorded digits, up to the noise of float32 similarities. Raises UnknownName for the method,
    ComparisonError where nothing can be compared.
    """
    rows = [row for row in board.rows if row.method == method]
    if not rows:
        raise UnknownName("method", method, dict.fromkeys(row.method for row in board.rows))
    hashes = [row.run.sha256 for row in rows if row.run]
    if hashes and sha256 not in hashes:
        raise ComparisonError(
            f"this is not the file that the row of {method!r} was made from",
            expected=f"sha256 {' or '.join(hashes)}",
            found=f"sha256 {sha256}",
        )
    same_file = [row for row in rows if row.run and row.run.sha256 == sha256]
    checks = [check for row in same_file or rows for check in _checks(board, row, rescore)]
    if not checks:
        raise ComparisonError(f"no score of {method!r} is one that hbench computes", found=", ".join(rows[0].scores))
    return checks


def refuse_differences(checks: list[Check]) -> None:
    """Raise ComparisonError when a score differs by more than its recorded precision."""
    wrong = [check for check in checks if check.differs]
    if wrong:
        raise ComparisonError(
            f"{len(wrong)} of {len(checks)} scores differ from the recorded ones",
            expected=examples(f"{check.metric} {check.recorded}" for check in wrong),
            found=examples(f"{check.metric} {check.rescored}" for check in wrong),
        )


def _checks(board: Leaderboard, row: Row, rescore: Callable[[Row], Document]) -> Iterator[Check]:
    metrics = [metric for metric in row.scores if metric not in board.foreign_metrics]
    document = rescore(row)
    if row.run and document.dataset_digest != row.run.dataset_digest:
        raise ComparisonError(
            f"{board.dataset} is not what it was when the row of {row.method!r} was made",
            expected=f"digest {row.run.dataset_digest}",
            found=f"digest {document.dataset_digest}",
        )
    scores = scores_under(board, document)
    for metric in metrics:
        recorded, value = row.scores[metric], scores[metric].value
        rescored = None if value is None else round(Decimal(100 * value), 2 * DIGITS)
        allowed = Decimal("0.5").scaleb(int(recorded.as_tuple().exponent)) + NOISE
        yield Check(row.source, metric, recorded, rescored, rescored is None or abs(rescored - recorded) > allowed)
