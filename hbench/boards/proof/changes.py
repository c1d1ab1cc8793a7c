"""Finds what a branch changes in a leaderboard's file, for those who verify it before they merge
it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from hbench.boards import FOLDER, Leaderboard, Row, parse_board, read_board_file
from hbench.core.errors import ConfigError, UsageError, examples


class BoardChanges(NamedTuple):
    """The numbers of the rows that are new or changed, the methods whose rows are gone, the keys of
    the head that changed, and the rows that new ones take the place of, by the numbers of these.
    """

    rows: tuple[int, ...]
    gone: tuple[str, ...]
    head: tuple[str, ...]
    replaced: Mapping[int, Row] = MappingProxyType({})


def changes_since(revision: str, path: Path) -> BoardChanges:
    """Compare a leaderboard's file with what it was at a git revision. Raises UsageError for an
    unknown revision.

    A new file is a leaderboard of its dataset, whose name it must have; a new citation changes no
    head. Raises ConfigError for a link: what it leads to has no revisions here.
    """
    if path.is_symlink() or path.parent.is_symlink():
        raise ConfigError(
            f"{path} is a link to another place", expected="a file of this folder, with revisions"
        )
    return compared(_at(revision, path), read_board_file(path), path.stem)


def compared(before: Leaderboard | None, after: Leaderboard, name: str) -> BoardChanges:
    """Compare a leaderboard, whose file has this name, with what it was; None for a new one, of
    which all rows are new, and whose head has nothing that it could differ from but its name."""
    if before is None:
        is_misnamed = name != after.dataset
        head = ("dataset, which the file is not named by",) if is_misnamed else ()
        return BoardChanges(tuple(range(len(after.rows))), (), head)
    rows = tuple(number for number, row in enumerate(after.rows) if row not in before.rows)
    gone, replaced = _gone(before, after)
    return BoardChanges(rows, tuple(gone), tuple(_head(before, after)), replaced)


def deleted_since(revision: str) -> list[str]:
    """Return the names of the leaderboards of this folder that are there at a git revision, and no
    longer. Raises UsageError for an unknown revision. A leaderboard that is gone is a change that
    nobody would see among the files that are there."""
    _refuse_unknown(Path(), revision)
    listed = _git(Path(), "ls-tree", "--name-only", revision, f"{FOLDER}/").stdout.decode(
        errors="replace"
    )
    paths = [Path(line) for line in listed.splitlines() if line.endswith(".toml")]
    return [path.stem for path in paths if not path.is_file()]


def _gone(before: Leaderboard, after: Leaderboard) -> tuple[list[str], dict[int, Row]]:
    """Find the rows of `before` that are no longer in `after`: the methods of those that are gone,
    and, by the number of a new row, the row that it takes the place of: of the same method, and
    also of a run, or of a paper. A new row takes the place of one.
    """
    new = [number for number, row in enumerate(after.rows) if row not in before.rows]
    gone = []
    replaced = {}
    for row in before.rows:
        if row in after.rows:
            continue
        successor = next((number for number in new if _succeeds(after.rows[number], row)), None)
        if successor is None:
            gone.append(row.method)
        else:
            new.remove(successor)  # no other row gives way to it
            replaced[successor] = row
    return gone, replaced


def in_place_of(new: Row, old: Row) -> str:
    """Say what a `new` row takes the place of, the `old` one, and how its scores change: those that
    both have and that differ, and those that the new one lacks."""
    changes = [
        f"{metric} {old.scores[metric]} → {score}"
        for metric, score in new.scores.items()
        if metric in old.scores and old.scores[metric] != score
    ]
    parts = [examples(changes) or "equal scores"]
    if lost := [metric for metric in old.scores if metric not in new.scores]:
        parts.append(f"without {examples(lost)}")
    return f"in place of {old.source}: {'; '.join(parts)}"


def _succeeds(new: Row, old: Row) -> bool:
    """Whether a new row may take the place of an old one: of the same method, and both of runs, or
    both of papers."""
    return new.method == old.method and (new.run is None) == (old.run is None)


def _head(before: Leaderboard, after: Leaderboard) -> list[str]:
    """List the keys of a leaderboard's head, which is all but its rows, that changed; citations
    that were added change nothing that was said before."""
    fields = [field for field in Leaderboard.model_fields if field not in {"rows", "citations"}]
    changed = [field for field in fields if getattr(before, field) != getattr(after, field)]
    kept = {key: after.citations.get(key) for key in before.citations}
    if kept != before.citations:
        changed.append("citations")
    return changed


def _at(revision: str, path: Path) -> Leaderboard | None:
    """Read a leaderboard's file as it was at a git revision; None where it did not exist. Raises
    UsageError for an unknown revision, which is asked for first, since git says the same of a
    missing file."""
    folder = path.resolve().parent
    _refuse_unknown(folder, revision)
    shown = subprocess.run(
        ["git", "show", f"{revision}:./{path.name}"], cwd=folder, capture_output=True, check=False
    )
    return None if shown.returncode else parse_board(shown.stdout.decode(), f"{path} at {revision}")


def _refuse_unknown(folder: Path, revision: str) -> None:
    """Raise UsageError unless git knows this revision in a folder; a text that git would take for
    an option is none."""
    _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder; the last argument is the revision that an error quotes."""
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
