"""Remembers which Python files somebody has let hbench run: by their place and their content.

What somebody types on the command line, or hands to a function, is theirs. What a recipe, a list of
models or a checkpoint names may be anybody's, and is run only after a word of consent, which holds
until the file changes.
"""

import hashlib
from pathlib import Path

from hbench.core.compiled import is_own
from hbench.core.errors import ConfigError
from hbench.core.files import write_text
from hbench.core.paths import consent_home


def program_in(file: Path) -> bytes:
    """The bytes of a Python file; raises ConfigError where there is none."""
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
    """Let a Python file run, as it is now, whoever names it; raises ConfigError where that cannot
    be remembered safely."""
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
    """Whether a resolved file with these bytes may run: somebody consented to it, in a folder that
    nobody else can write to."""
    return _record_of(file, program).is_file() and is_own(consent_home())


def _record_of(file: Path, program: bytes) -> Path:
    """The file whose existence says that a program may run.

    Its name is made of the program's place and content: the place counts, too, since a program runs
    what lies beside it.
    """
    digest = hashlib.sha256(str(file).encode(errors="surrogateescape") + b"\0" + program)
    return consent_home() / f"{digest.hexdigest()}.txt"


def _not_remembered(folder: Path, reason: str) -> ConfigError:
    """Make the error that is raised where consent cannot be kept in a folder, for this reason."""
    return ConfigError(
        f"{folder} cannot keep which programs may run",
        expected="a folder that you, and nobody else, can write to",
        found=reason,
        fix="let HBENCH_HOME name another one",
    )
