"""Finds what a branch changes in a leaderboard's file, for those who verify it before they merge
it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from hbench.boards import FOLDER, Leaderboard, Row, parse, read_file
from hbench.core.errors import UsageError


class BoardChanges(NamedTuple):
    """The numbers of the rows that are new or changed, the methods whose rows are gone, and the
    keys of the head that changed.
    """

    rows: tuple[int, ...]
    gone: tuple[str, ...]
    head: tuple[str, ...]


def changes_since(revision: str, path: Path) -> BoardChanges:
    """Compare a leaderboard's file with what it was at a git revision. Raises UsageError for an
    unknown revision.

    A new file is a leaderboard of its dataset, whose name it must have; a new citation changes no
    head.
    """
    return compared(_at(revision, path), read_file(path), path.stem)


def compared(before: Leaderboard | None, after: Leaderboard, name: str) -> BoardChanges:
    """Compare a leaderboard, whose file has this name, with what it was; None for a new one."""
    if before is None:
        misnamed = name != after.dataset
        return BoardChanges(
            tuple(range(len(after.rows))),
            (),
            ("dataset, which the file is not named by",) * misnamed,
        )
    rows = tuple(number for number, row in enumerate(after.rows) if row not in before.rows)
    return BoardChanges(rows, tuple(_gone(before, after)), tuple(_head(before, after)))


def deleted_since(revision: str) -> list[str]:
    """Return the names of the leaderboards of this folder that are there at a git revision, and no
    longer.
    """
    listed = _git(Path(), "ls-tree", "--name-only", revision, f"{FOLDER}/").stdout.decode(
        errors="replace"
    )
    paths = [Path(line) for line in listed.splitlines() if line.endswith(".toml")]
    return [path.stem for path in paths if not path.is_file()]


def _gone(before: Leaderboard, after: Leaderboard) -> list[str]:
    """The methods of rows that are gone and have no successor: a row of the same method and kind
    that is new.
    """
    new = [row for row in after.rows if row not in before.rows]
    gone = []
    for row in before.rows:
        if row in after.rows:
            continue
        successor = next((other for other in new if _succeeds(other, row)), None)
        if successor is None:
            gone.append(row.method)
        else:
            new.remove(successor)
    return gone


def _succeeds(new: Row, old: Row) -> bool:
    return new.method == old.method and (new.run is None) == (old.run is None)


def _head(before: Leaderboard, after: Leaderboard) -> list[str]:
    fields = [field for field in Leaderboard.model_fields if field not in {"rows", "citations"}]
    changed = [field for field in fields if getattr(before, field) != getattr(after, field)]
    kept = {key: after.citations.get(key) for key in before.citations}
    if kept != before.citations:
        changed.append("citations")
    return changed


def _at(revision: str, path: Path) -> Leaderboard | None:
    """The leaderboard at a git revision; None where it had none."""
    folder = path.resolve().parent
    _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    shown = subprocess.run(
        ["git", "show", f"{revision}:./{path.name}"], cwd=folder, capture_output=True, check=False
    )
    return None if shown.returncode else parse(shown.stdout.decode(), f"{path} at {revision}")


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError(
            "--changed-since needs git", fix="install git, or verify all rows"
        ) from None
    if done.returncode:
        raise UsageError(
            f"{folder.resolve()} has no such revision",
            found=arguments[-1].removesuffix("^{commit}"),
        )
    return done
