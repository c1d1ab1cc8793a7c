"""Describes in a sentence which place on a leaderboard a report would have."""

from hbench.boards import Leaderboard, RunProvenance, place
from hbench.boards.reported import rankable_scores
from hbench.core.errors import SubmissionError, examples
from hbench.records.document import Document
from hbench.records.shown import shown


def placing(document: Document, board: Leaderboard) -> str | None:
    """Return a sentence on the place that a report would have on a leaderboard, and on the results
    above and below. The place is by the leaderboard's own metric and under its protocol.

    If the report cannot be ranked there, the sentence says why. Returns None for a report without
    a score by that metric. `document` is the report as it is stored.
    """
    if board.metric not in document.scores:
        return None

    try:
        score = rankable_scores(board, document)[board.metric]
    except SubmissionError as refusal:
        return f"no place on the {board.dataset} leaderboard: {refusal.problem}"

    if score.value is None:  # no query has a positive
        return None

    # If the scored file is on the leaderboard already, the report is not compared with the file's
    # own rows.
    same = [row for row in board.rows if row.run and _is_of(row.run, document)]
    others = tuple(row for row in board.rows if row not in same)
    standing = place(board.model_copy(update={"rows": others}), board.metric, score.value)
    # "below" the result that is better, as in the printed table
    above = (
        f", below {standing.better.rows[0].method} ({standing.better.score})"
        if standing.better
        else ""
    )
    below = (
        f", above {standing.worse.rows[0].method} ({standing.worse.score})"
        if standing.worse
        else ""
    )

    methods = examples(row.method for row in same)
    # `standing.of` counts the other results, so the report itself is added below
    is_place = f"is, as the row {methods}," if same else "would be"
    return (
        f"{board.metric} {shown(board.metric, score.value)} ({board.protocol} protocol) {is_place} "
        f"place {standing.place} "
        f"of {standing.of + 1} on the {board.dataset} leaderboard{above}{below}"
    )


def _is_of(run: RunProvenance, document: Document) -> bool:
    """Whether a report scored the same file as the run of a row."""
    file = document.embedding
    return file is not None and file.content is not None and run.is_of(file.content, file.sha256)
