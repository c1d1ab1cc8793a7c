"""Leaderboards: rows of methods' scores with their sources, read, ranked and placed."""

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
