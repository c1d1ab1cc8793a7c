"""Reads leaderboards: published rows, which are shipped, one TOML file per dataset, with the user's
own rows, in a file of that name.

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
    """The datasets that have a leaderboard here: shipped ones and the user's."""
    folders = [*_base_folders(), user_folder()]
    return sorted(
        {
            path.stem
            for folder in folders
            if folder.is_dir()
            for path in folder.glob("*.toml")
            if path.stem.isprintable()  # a dataset's name is, and a terminal shows no other
        }
    )


def user_folder() -> Path:
    """Return the folder of the user's own rows, which take ./leaderboards where that has a file for
    the dataset.
    """
    return data_home() / FOLDER


def board_files(name: str) -> list[Path]:
    """The files a leaderboard is read from: published rows and, where there is one, the user's
    file; a path is itself.

    Raises UnknownName when there is none.
    """
    if name.endswith(".toml") or "/" in name:
        return [Path(name)]
    published = [folder / f"{name}.toml" for folder in _base_folders()]
    found = [path for path in published if path.is_file()][:1]  # the first hides the others
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
    for path, user_board in others:  # one at most: the user's, behind the published one
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
        board = schema.build(Leaderboard, merged, source=f"{base} with {path}")

    return board


def read_board_file(path: Path) -> Leaderboard:
    """The leaderboard of one file; raises ConfigError."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise ConfigError(f"{path} is not a file", expected="a leaderboard, in TOML")
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read", expected="a leaderboard, in TOML", found=str(error)
        ) from None
    return parse_board(text, str(path))


def parse_board(text: str, source: str) -> Leaderboard:
    """The leaderboard that a text describes; raises ConfigError, which names the source, and the
    scores that are no plain decimals: 25 and 0x19 would be compared by half a point.
    """

    def refuse(values: Mapping[str, Any]) -> None:
        """Refuse whole numbers, which do not say how many digits a paper prints."""
        if whole := list(_whole_scores(values)):
            raise ConfigError(
                f"{source} has scores without a point",
                expected="such as 25.0",
                found=examples(whole),
            )

    return schema.parse(Leaderboard, text, source=source, parse_float=decimal_of, refuse=refuse)


def _whole_scores(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the scores in the values of a TOML file that are whole numbers, in words. The values
    are not checked yet, so that every part may be of another kind."""
    rows = values.get("row")
    if not isinstance(rows, list):
        return
    for row in filter(lambda row: isinstance(row, dict), rows):
        scores = row.get("scores")
        if not isinstance(scores, dict):
            continue
        for metric, score in scores.items():
            # the check of the schema refuses all else: texts, truth values, what is below 0
            if isinstance(score, int) and not isinstance(score, bool) and score >= 0:
                yield f"{row.get('method')}: {metric} = {score}"


def _conditions(board: Leaderboard) -> str:
    """Write the conditions that all rows of a leaderboard have in common, to compare two of them
    and to show them."""
    scale = f"ties {board.ties}, relevance {board.relevance}"
    return f"{board.dataset}@{board.version}, protocol {board.protocol}, {scale}"


def _base_folders() -> list[Path]:
    """The folders of published rows, the one that counts first: below the folder in which one is,
    as in a clone that is edited; in the installed package; and in the clone that it is run from."""
    package = Path(__file__).parents[1]
    return [Path(FOLDER), package / FOLDER, package.parent / FOLDER]
