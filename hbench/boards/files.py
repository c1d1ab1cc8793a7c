"""Reads leaderboards. Published rows are shipped in one TOML file per dataset; the user's own rows
are in another file with the same name.

>>> board = read_board("sop")
>>> board.dataset, board.metric
('sop', 'H-AP')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hbench.boards.ranking import Leaderboard
from hbench.boards.rows import decimal_of
from hbench.core import schema
from hbench.core.arguments import checked
from hbench.core.errors import ConfigError, UnknownName, examples
from hbench.core.paths import data_home
from hbench.core.untrusted import read_text

FOLDER = "leaderboards"


def board_names() -> list[str]:
    """Return the sorted names of the datasets that have a leaderboard: a published one, or one of
    the user's own rows."""
    folders = [*_base_folders(), user_folder()]
    return sorted(
        {
            path.stem
            for folder in folders
            if folder.is_dir()
            for path in folder.glob("*.toml")
            if path.stem.isprintable()  # another name is no dataset's and would garble a terminal
        }
    )


def user_folder() -> Path:
    """Return the folder of the user's own rows. They are written to ./leaderboards instead, if that
    has a file for the dataset."""
    return data_home() / FOLDER


def board_files(name: str) -> list[Path]:
    """Return the files from which a leaderboard is read: at most one file of published rows,
    followed by the file of the user's own rows if it exists.

    `name` is a dataset's name, or a path (it ends with .toml or has a slash), which is returned
    alone, unchecked. Raises UnknownName if no file has the name.
    """
    if name.endswith(".toml") or "/" in name:
        return [Path(name)]
    published = [folder / f"{name}.toml" for folder in _base_folders()]
    found = [path for path in published if path.is_file()][:1]  # the first folder hides the others
    own = user_folder() / f"{name}.toml"
    if own.is_file():
        found.append(own)
    if not found:
        raise UnknownName("leaderboard", name, board_names())
    return found


@checked
def read_board(name: str | Path) -> Leaderboard:
    """Read the leaderboard of a dataset, published and own rows together.

    Args:
        name: a dataset's name (`hbench.list_leaderboards()`), or the path of one TOML file.

    Returns:
        The leaderboard.

    Raises:
        UnknownName: a dataset without a leaderboard.
        UsageError: a name that no file can have.
        ConfigError: what breaks the schema, with file, row and key.
    """
    boards = [(path, read_board_file(path)) for path in board_files(str(name))]
    (base, board), *others = boards
    for path, user_board in others:  # at most one, the user's file
        # scores of other versions, protocols, ties or relevances cannot be ranked together
        if _conditions(user_board) != _conditions(board):
            raise ConfigError(
                f"{path} cannot be read together with {base}",
                expected=_conditions(board),
                found=_conditions(user_board),
                fix=f"move it away, score its embeddings on {board.dataset}@{board.version} and "
                "add them again",
            )
        merged = dict(board) | {
            "citations": board.citations | user_board.citations,
            "rows": board.rows + user_board.rows,
        }
        # validated once more, since a row of one file may repeat a row of the other
        board = schema.build(Leaderboard, merged, source=f"{base} with {path}")

    return board


def read_board_file(path: Path) -> Leaderboard:
    """Read the leaderboard in one file. Raises ConfigError if it cannot be read."""
    if path.exists() and not path.is_file():  # reading a pipe would wait forever
        raise ConfigError(f"{path} is not a file", expected="a leaderboard, in TOML")
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read", expected="a leaderboard, in TOML", found=str(error)
        ) from None
    return parse_board(text, str(path))


def parse_board(text: str, source: str) -> Leaderboard:
    """Return the leaderboard that a TOML text describes. `source` names the text in errors. Raises
    ConfigError for an invalid text, and for scores that are no plain decimals."""

    def refuse(values: Mapping[str, Any]) -> None:
        """Raise ConfigError for scores such as 25 or 0x19. Scores are compared at the precision
        with which they are printed, and without digits after the point, every score within half a
        point would count as equal. `values` are the file's content, not validated yet."""
        if whole := list(_whole_scores(values)):
            raise ConfigError(
                f"{source} has scores without a point",
                expected="such as 25.0",
                found=examples(whole),
            )

    return schema.parse(Leaderboard, text, source=source, parse_float=decimal_of, refuse=refuse)


def _whole_scores(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a text, for an error message, for each score in a TOML file that is written as a whole
    number: a 25 does not state to how many digits it was rounded, as 25.0 does. `values` is the
    content of the file."""
    # the content is not validated yet, so each part may be of any type
    rows = values.get("row")
    if not isinstance(rows, list):
        return
    for row in filter(lambda row: isinstance(row, dict), rows):
        scores = row.get("scores")
        if not isinstance(scores, dict):
            continue
        for metric, score in scores.items():
            # only what the schema's validation would take: it refuses texts, booleans and negative
            # numbers itself
            if isinstance(score, int) and not isinstance(score, bool) and score >= 0:
                yield f"{row.get('method')}: {metric} = {score}"


def _conditions(board: Leaderboard) -> str:
    """The conditions that all rows of a leaderboard share, as a text to compare and to show."""
    scale = f"ties {board.ties}, relevance {board.relevance}"
    return f"{board.dataset}@{board.version}, protocol {board.protocol}, {scale}"


def _base_folders() -> list[Path]:
    """The folders of published rows, in order of precedence: below the current folder, as in a
    clone that is being edited; in the installed package; and in the clone that is run."""
    package = Path(__file__).parents[1]
    return [Path(FOLDER), package / FOLDER, package.parent / FOLDER]
