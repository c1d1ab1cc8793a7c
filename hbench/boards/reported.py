"""Selects the scores of a report that a leaderboard accepts: those of its dataset and under its
conditions."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel

from hbench.boards.rows import Name, canonical_relevance
from hbench.core.errors import SubmissionError
from hbench.core.schema import STRICT
from hbench.datasets import specs
from hbench.engine.settings import Signature
from hbench.records.document import Document, Score

PAPER = "paper"


class BoardHead(BaseModel):
    """The conditions that all rows of a leaderboard share. `Leaderboard` explains the fields."""

    model_config = STRICT
    dataset: Name
    version: Name
    protocol: Literal["paper", "official"]
    ties: str = "pessimistic"
    relevance: str = "alpha=1"
    levels: tuple[Name, ...] = ()
    averaged: tuple[Name, ...] = ()


def scores_under(board: BoardHead, document: Document) -> Mapping[str, Score]:
    """Return the scores of a report under the leaderboard's protocol, by metric. Raises
    SubmissionError if the report has none, or if it is of another dataset or version.
    """
    expected = f"{board.dataset}@{board.version}"
    reported = f"{document.dataset}@{document.dataset_version}"
    if expected != reported:
        raise SubmissionError("the report is of another dataset", expected=expected, found=reported)
    # any protocol that is not the paper's is a name of the official one
    if (document.protocol == PAPER) == (board.protocol == PAPER):
        return document.scores
    # a report under the paper's protocol may also have official scores, but not the other way round
    if board.protocol == PAPER or not document.official:
        raise SubmissionError(
            f"the report has no scores under the {board.protocol} protocol, which this "
            "leaderboard's rows have",
            found=f"protocol {document.protocol}",
            fix=f"hbench evaluate … --protocol {board.protocol}",
        )
    return document.official


def rankable_scores(board: BoardHead, document: Document) -> Mapping[str, Score]:
    """Return the scores of a report, under the leaderboard's protocol and by metric, that may be
    ranked among the rows.

    Raises SubmissionError if the queries are names, if no published counts or digests show that the
    tests have the right images, and for all that `recordable_scores` refuses.
    """
    signature = Signature.parse(document.signature)
    if signature.asks_by_name:
        raise SubmissionError(
            "the report's queries are names, and the rows' are items",
            expected="the queries of the dataset",
            found=f"queries:{signature.words.queries}",
            fix="hbench leaderboard add takes its row, which --by-name shows",
        )
    scores = recordable_scores(board, document)
    # `is_compared`: a build compares the tests with published counts or digests. A dataset that
    # hbench does not ship is the user's own, and its reports are ranked without this.
    if board.dataset in specs and not specs[board.dataset].is_compared:
        raise SubmissionError(
            f"no counts of the tests of {board.dataset} are at hand, so that nothing says whether "
            "the report is of the same images",
            expected="a dataset whose tests were counted when it was built",
        )
    return scores


def recordable_scores(board: BoardHead, document: Document) -> Mapping[str, Score]:
    """Return the scores of a report, by metric, that may become a row of the leaderboard. Whether
    its queries are names is not checked, since such rows are ranked separately.

    Raises SubmissionError if items are left out, or if the ties policy or the relevance differs
    from that of the rows.
    """
    signature = Signature.parse(document.signature)
    if signature.words.left_out:
        raise SubmissionError(
            "the report leaves items out that the rows have",
            expected="every item of the tests",
            found=f"left-out:{signature.words.left_out}",
            fix="embed these items as well: hbench embed without --skip-unreadable names them",
        )

    found = (signature.words.ties, canonical_relevance(signature.words.relevance))
    if found != (board.ties, canonical_relevance(board.relevance)):
        raise SubmissionError(
            "the report's ties or relevance are not those of the rows",
            expected=f"ties:{board.ties}, rel:{board.relevance}",
            found=document.signature,
        )

    return scores_under(board, document)
