"""Recognises files that were given by mistake in place of a report or of embeddings. The error says
what the file is and what to do with it.
"""

import shlex
from pathlib import Path

from hbench.core.errors import SubmissionError, examples
from hbench.core.untrusted import read_json
from hbench.sheets import words
from hbench.sheets.dialect import dialect_of, head_of

VECTORS = (
    ".npz",
    ".npy",
    ".parquet",
    ".safetensors",
    ".arrow",
    ".arrows",
    ".feather",
    ".ipc",
    ".h5",
    ".hdf5",
    ".pt",
    ".pth",
    ".pkl",
)
TABLES = (".csv", ".tsv", ".txt", ".jsonl")
# names of columns that no table of vectors or rankings has beside its ids
PREDICTED = (
    "path", "prediction", "predicted", "predicted_label", "predicted_class", "taxon", "lineage",
)  # fmt: skip
MOST_COLUMNS = 6  # of a table of predictions; vectors have more
BESIDE = (".by-query.parquet", ".top-k.parquet")
REPORT = "a report of hbench evaluate"
ANSWERS = "the answers of hbench name --trust"
SIZES = "the scores by size of hbench evaluate --dims or --bits"
# the keys by which a JSON document is recognised, and what it is
KINDS = {
    ("signature", "trust"): ANSWERS,
    ("signature", "reliability"): "the scores of hbench name without --trust",
    ("sizes",): SIZES,
    ("signature", "scores"): REPORT,
}
WRITES = "hbench evaluate {file} -d DATASET -o {report}"


def refuse_for_report(path: Path) -> None:
    """Raise SubmissionError for a folder, and for a file whose name shows that it is no report."""
    if path.is_dir():
        _refuse_folder(path)
    # the suffix of a table that is written beside a report, such as ".top-k.parquet"
    if beside := next((suffix for suffix in BESIDE if path.name.endswith(suffix)), None):
        named = shlex.quote(str(path.with_name(path.name.removesuffix(beside) + ".json")))
        raise SubmissionError(
            f"{path} lies beside a report and is none",
            expected="the report, in JSON",
            found=path.name,
            fix=f"give {named}",
        )
    if path.suffix.lower() in (*VECTORS, *TABLES):
        # the report that `hbench evaluate`, the command in WRITES, would write for this file
        report = shlex.quote(str(path.with_suffix(".json")))
        raise SubmissionError(
            f"{path} is not a report",
            expected="a report, in JSON",
            found="a file of embeddings or rankings, by its name",
            fix=f"{WRITES.format(file=shlex.quote(str(path)), report=report)}, then give {report}",
        )


def _refuse_folder(path: Path) -> None:
    """Raise SubmissionError for a folder where a report was expected. The error names the files in
    the folder that may be meant."""
    reports = [file.name for file in sorted(path.glob("*.json"))]
    embeddings = [file.name for file in sorted(path.iterdir()) if file.suffix.lower() in VECTORS]
    # the tables beside a report are parquet as well, but hold no vectors
    embeddings = [name for name in embeddings if not name.endswith(BESIDE)]
    quoted = shlex.quote(str(path))
    if reports:
        fix = f"give files of it: {quoted}/*.json"
    elif embeddings:
        evaluate_all = f"hbench evaluate-all {quoted} -d DATASET -o REPORTS"
        fix = f"{evaluate_all}, then give reports of that folder"
    else:
        fix = "give the file of a report"
    raise SubmissionError(
        f"{path} is a folder",
        expected="a report, in JSON",
        found=examples(reports or embeddings) or "no report",
        fix=fix,
    )


def refuse_for_embeddings(path: Path) -> None:
    """Raise SubmissionError for a report in place of embeddings, and for a folder without parquet
    files. A folder with parquet files is accepted, since they are the parts of one table.
    """
    if path.suffix.lower() == ".json" and path.is_file() and _is_report(path):
        raise SubmissionError(
            f"{path} is not embeddings",
            expected="the embedding file itself",
            found="a report",
            fix="give the file that was scored: the report names it under embedding.file",
        )
    if path.is_dir() and not any(path.glob("*.parquet")):
        found = [file.name for file in sorted(path.iterdir()) if file.suffix.lower() in VECTORS]
        raise SubmissionError(
            f"{path} is a folder",
            expected="an embedding file",
            found=examples(found) or "no embedding file",
            fix=f"give files of it: {shlex.quote(str(path))}/{found[0] if found else 'FILE'}",
        )


def refuse_predictions(path: Path) -> None:
    """Raise SubmissionError for a table of predictions, which another command scores. It is
    recognised by the names of its columns: one of ids, and another of predictions."""
    if path.suffix.lower() not in TABLES:
        return
    head = head_of(path)  # the first lines; None if the file does not begin with text
    rows = dialect_of(head, path.suffix.lower()).rows if head is not None else []
    if not rows or len(rows[0]) > MOST_COLUMNS:  # a wider table holds vectors
        return
    header = rows[0]
    # the names of the columns of predictions and of ids in the header, "" if there is none
    predicted = words.first_of(header, PREDICTED)
    items = words.first_of(header, words.SURE_IDS)
    if predicted and items and predicted != items:
        raise SubmissionError(
            f"{path} is a table of predictions",
            expected="embeddings, or a ranking",
            found=", ".join(header),
            fix=f"hbench name {shlex.quote(str(path))} -d DATASET scores it",
        )


def _is_report(path: Path) -> bool:
    """Whether a JSON file is a report, by the keys that every report has."""
    return kind_of_json(path) == REPORT


def kind_of_json(path: Path) -> str:
    """What a JSON file is, in words: one of KINDS, or its first keys, or why it cannot be read."""
    try:
        content = read_json(path)
    except (ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    if not isinstance(content, dict) or not content:
        return "no JSON object with keys" if not isinstance(content, dict) else "an empty object"
    # by the order of KINDS: of several kinds that fit, the first one
    known = (kind for keys, kind in KINDS.items() if set(keys) <= content.keys())
    return next(known, f"a JSON object with the keys {examples(content)}")
