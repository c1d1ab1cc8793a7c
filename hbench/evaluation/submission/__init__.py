"""Submissions: what a user submits for scoring, embeddings or a ranking, as files or as arrays."""

from __future__ import annotations

from pathlib import Path

from hbench.core.errors import UsageError
from hbench.evaluation.submission.embedding import EmbeddingSubmission
from hbench.evaluation.submission.ranking import RankingSubmission
from hbench.records.other_files import refuse_for_embeddings, refuse_predictions
from hbench.submissions import embeddings as embedding_files
from hbench.submissions.embeddings import Embeddings
from hbench.submissions.embeddings.files import VECTORS_ALONE
from hbench.submissions.rankings import files as run_files
from hbench.submissions.rankings.files import Ranking

Submission = EmbeddingSubmission | RankingSubmission


def read(path: Path, *, ids: Path | None = None, movable: bool = False) -> Submission:
    """Read a file of embeddings or of a ranking; its content tells which.

    `ids`: the file of ids for a file that has only vectors. `movable`: whether the evaluation may
    reorder the vectors in place, because nobody uses them afterwards.
    """
    if path.is_file():
        refuse_for_embeddings(path)  # raises for a report
        refuse_predictions(path)
    # formats of vectors without ids, such as .npy, cannot hold a ranking
    if path.suffix.lower() not in VECTORS_ALONE and run_files.kind_of(path) == "ranking":
        return RankingSubmission(run_files.read(path))
    return EmbeddingSubmission(embedding_files.read(path, ids=ids), movable=movable)


def as_submission(
    given: str | Path | Embeddings | tuple[Embeddings, Embeddings] | Ranking | Submission,
) -> Submission:
    """Convert the path of a file, or what was read from one, to a submission. A pair of embeddings
    is queries and gallery. Raises UsageError for anything else.
    """
    if isinstance(given, str | Path):
        return read(Path(given))
    if isinstance(given, Embeddings):
        return EmbeddingSubmission(given)
    if isinstance(given, Ranking):
        return RankingSubmission(given)
    if isinstance(given, EmbeddingSubmission | RankingSubmission):
        return given
    if isinstance(given, tuple) and all(isinstance(part, Embeddings) for part in given):
        return EmbeddingSubmission(*given)

    raise UsageError(
        "this is not a submission",
        expected="a file, or vectors with ids=…",
        found=type(given).__name__,
        fix="give the ids of the vectors' rows: hbench.evaluate(vectors, dataset, ids=ids)",
    )
