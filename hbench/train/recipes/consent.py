"""Records which Python files the user has allowed hbench to run, by their path and content.

Files that a user types on the command line, or passes to a function, are the user's own. Files that
a recipe, a list of models or a checkpoint names may come from anybody: they are run only with the
user's consent, which holds until the file changes.
"""

import hashlib
from pathlib import Path

from hbench.core.compiled import is_own
from hbench.core.errors import ConfigError
from hbench.core.files import write_text
from hbench.core.paths import consent_home


def program_in(file: Path) -> bytes:
    """Return the bytes of a Python file. Raises ConfigError if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise ConfigError(
            f"{file} {reason}",
            expected="FILE.py:NAME, of a file on this disk",
            found=str(error.strerror),
        ) from None


def trust(file: Path) -> None:
    """Record the user's consent to run a Python file with its present content. It holds whichever
    recipe or list names the file. The record is a file in the folder of consents, named by path and
    content. Raises ConfigError if this folder cannot be written, or if other users can write to
    it."""
    file = file.resolve()
    folder = consent_home()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_safe = is_own(folder)
        if is_safe:
            write_text(_record_of(file, program_in(file)), f"{file}\n")
    except OSError as error:
        raise _not_remembered(folder, str(error.strerror)) from None
    if not is_safe:
        raise _not_remembered(folder, "others may write to it")


def is_trusted(file: Path, program: bytes) -> bool:
    """Whether a file (resolved path) with these bytes may run: its consent is recorded, in a folder
    to which no other user can write."""
    return _record_of(file, program).is_file() and is_own(consent_home())


def _record_of(file: Path, program: bytes) -> Path:
    """Return the file whose existence means that a program may run.

    Its name is a digest of the program's path and content. The path matters since a program can
    import files from its folder.
    """
    digest = hashlib.sha256(str(file).encode(errors="surrogateescape") + b"\0" + program)
    return consent_home() / f"{digest.hexdigest()}.txt"


def _not_remembered(folder: Path, reason: str) -> ConfigError:
    """Make the error for a folder in which consent cannot be recorded, for this `reason`."""
    return ConfigError(
        f"{folder} cannot keep which programs may run",
        expected="a folder that you, and nobody else, can write to",
        found=reason,
        fix="let HBENCH_HOME name another one",
    )
