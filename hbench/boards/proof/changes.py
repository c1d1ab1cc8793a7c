"""Finds the changes that a branch makes to a leaderboard's file, so that they can be verified
before the branch is merged.
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
    """The changes of a leaderboard's file since a git revision."""

    rows: tuple[int, ...]  # the indices of rows that are new or changed
    gone: tuple[str, ...]  # the methods of removed rows
    head: tuple[str, ...]  # the changed keys of the head
    replaced: Mapping[int, Row] = MappingProxyType({})  # the old row, by the index of the new one


def changes_since(revision: str, path: Path) -> BoardChanges:
    """Return what has changed in a leaderboard's file since a git revision: the indices of new
    and changed rows, the methods of removed rows, the changed keys of the head, and the old rows.

    Raises UsageError for an unknown revision. Raises ConfigError if the file or its folder is a
    symbolic link, since git does not store the revisions of the file behind the link.
    """
    if path.is_symlink() or path.parent.is_symlink():
        raise ConfigError(
            f"{path} is a link to another place", expected="a file of this folder, with revisions"
        )
    return compared(_at(revision, path), read_board_file(path), path.stem)


def compared(before: Leaderboard | None, after: Leaderboard, name: str) -> BoardChanges:
    """Compare a leaderboard with an earlier version, `before`, which is None if the leaderboard is
    new. `name` is the name of its file, without the suffix.

    Returns the indices of rows that are new or changed, the methods of removed rows, the changed
    keys of the head (all but the rows), and the replaced rows by the index of the new row.
    """
    # In a new leaderboard all rows are new. A file that is not named after its dataset counts as a
    # change of the head, which is reported.
    if before is None:
        is_misnamed = name != after.dataset
        head = ("dataset, which the file is not named by",) if is_misnamed else ()
        return BoardChanges(rows=tuple(range(len(after.rows))), gone=(), head=head)
    rows = tuple(number for number, row in enumerate(after.rows) if row not in before.rows)
    gone, replaced = _gone(before, after)
    return BoardChanges(
        rows=rows, gone=tuple(gone), head=tuple(_head(before, after)), replaced=replaced
    )


def deleted_since(revision: str) -> list[str]:
    """Return the names of leaderboards that exist at a git revision, but no longer in the current
    folder; a comparison of the existing files would not find them. Raises UsageError for an unknown
    revision.
    """
    _refuse_unknown(Path(), revision)
    listed = _git(Path(), "ls-tree", "--name-only", revision, f"{FOLDER}/").stdout.decode(
        errors="replace"
    )
    paths = [Path(line) for line in listed.splitlines() if line.endswith(".toml")]
    return [path.stem for path in paths if not path.is_file()]


def _gone(before: Leaderboard, after: Leaderboard) -> tuple[list[str], dict[int, Row]]:
    """Find the rows of `before` that are no longer in `after`. Return the methods of removed rows,
    and the replaced rows by the index, in `after`, of the new row.

    A row is replaced by the first new row of the same method and kind of source (a run or a paper),
    and each new row replaces at most one row.
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
            new.remove(successor)  # it cannot replace another row as well
            replaced[successor] = row
    return gone, replaced


def in_place_of(new: Row, old: Row) -> str:
    """A sentence on the `old` row that a `new` row replaces: which scores change, and which the new
    row lacks."""
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
    """Whether a new row replaces an old one: both have the same method, and both are of runs, or
    both of papers."""
    return new.method == old.method and (new.run is None) == (old.run is None)


def _head(before: Leaderboard, after: Leaderboard) -> list[str]:
    """Return the keys of a leaderboard's head, which is all but the rows, whose value changed.
    Citations that were only added are no change, since the existing rows do not use them."""
    fields = [field for field in Leaderboard.model_fields if field not in {"rows", "citations"}]
    changed = [field for field in fields if getattr(before, field) != getattr(after, field)]
    kept = {key: after.citations.get(key) for key in before.citations}
    if kept != before.citations:
        changed.append("citations")
    return changed


def _at(revision: str, path: Path) -> Leaderboard | None:
    """Return the leaderboard that a file held at a git revision, or None if the file did not exist
    there. Raises UsageError for an unknown revision."""
    folder = path.resolve().parent
    # `git show` fails in the same way for an unknown revision and a missing file
    _refuse_unknown(folder, revision)
    # git reads "./" as relative to `folder`; other paths start at the root of the clone
    shown = subprocess.run(
        ["git", "show", f"{revision}:./{path.name}"], cwd=folder, capture_output=True, check=False
    )
    return None if shown.returncode else parse_board(shown.stdout.decode(), f"{path} at {revision}")


def _refuse_unknown(folder: Path, revision: str) -> None:
    """Raise UsageError unless git knows this revision in a folder."""
    # --end-of-options: a revision that begins with a dash must not act as an option
    _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder and return the finished process. Raises UsageError if git is not
    installed, or if it fails. The message on a failure always says that the revision is unknown: it
    quotes the last of the `arguments`, without git's suffix "^{commit}"."""
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
