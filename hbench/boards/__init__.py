"""Leaderboards: rows with the scores of methods and their sources. They are read from files and
ranked, and the place of a new score among them can be found."""

from hbench.boards.files import (
    FOLDER,
    board_files,
    board_names,
    parse_board,
    read_board,
    read_board_file,
    user_folder,
)
from hbench.boards.ranking import (
    BoardPlace,
    Citation,
    Leaderboard,
    Standing,
    as_one,
    joined,
    leader,
    place,
    rank,
)
from hbench.boards.rows import Paper, Row, RunProvenance, Setup

__all__ = [
    "FOLDER", "BoardPlace", "Citation", "Leaderboard", "Paper", "Row", "RunProvenance", "Setup",
    "Standing", "as_one", "board_files", "board_names", "joined", "leader", "parse_board", "place",
    "rank", "read_board", "read_board_file", "user_folder",
]  # fmt: skip
