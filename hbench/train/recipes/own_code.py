"""Loads a function or class from a user's Python file, which is named FILE.py:NAME.

Loading runs the file as a program. It is run only if the user names it, or has consented to it.
hbench runs nothing else that it reads.
"""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hbench.core.errors import ConfigError, UnknownName
from hbench.train.recipes.consent import is_trusted, program_in

SEPARATOR = ".py:"
MODULE = "own_"  # prefix of the names of modules that are users' own files


def is_own_code(name: str) -> bool:
    """Whether a name is FILE.py:NAME.

    >>> is_own_code("./mynet.py:Net"), is_own_code("torchvision:resnet50")
    (True, False)
    """
    return SEPARATOR in name


@dataclass(frozen=True)
class OwnCode:
    """A function or class in a file. Only its place is kept, so that other processes can load the
    file themselves."""

    file: Path
    name: str

    @staticmethod
    def parse(name: str) -> "OwnCode":
        """Parse FILE.py:NAME."""
        file, _, attribute = name.rpartition(":")
        return OwnCode(Path(file), attribute)

    def is_trusted(self) -> bool:
        """Whether somebody has consented to this file as it is now."""
        file = self.file.resolve()
        return file.is_file() and is_trusted(file, program_in(file))

    def load(self) -> Any:
        """Run the file, only once in a process, and return its function or class of this name.

        Raises ConfigError for a file that is missing, that fails, or that the user has not
        consented to, UnknownName for a name that it does not have.
        """
        module = _module_of(self.file.resolve())
        if not hasattr(module, self.name):
            known = [each for each in vars(module) if not each.startswith("_")]
            raise UnknownName(f"name in {self.file}", self.name, known)
        return getattr(module, self.name)


@contextmanager
def blamed_on(code: OwnCode) -> Iterator[None]:
    """Turn any error inside of `with`, where a user's own function or class (`code`) is called,
    into a ConfigError that names the line of the user's file."""
    try:
        yield
    except (Exception, SystemExit) as error:  # a user's program may call sys.exit
        raise ConfigError(
            f"{code.file}:{code.name} fails",
            expected="a class or a function that can be called without arguments",
            found=f"{type(error).__name__}: {error}{place_in(code, error)}",
        ) from error


def place_in(code: OwnCode, error: BaseException) -> str:
    """Return the innermost line of a user's file in which an error was raised, as text to append to
    the error's; "" if it was raised elsewhere.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == code.file.resolve()]
    return f" (line {lines[-1]} of {code.file})" if lines else ""


def programs_in(values: Mapping[str, Any]) -> Iterator[OwnCode]:
    """Yield the functions and classes that nested tables of a recipe, or of changes to one, name as
    FILE.py:NAME.

    >>> [code.name for code in programs_in({"model": {"backbone": "./mynet.py:Net"}, "epochs": 2})]
    ['Net']
    """
    for value in values.values():
        if isinstance(value, Mapping):
            yield from programs_in(value)
        elif isinstance(value, str) and is_own_code(value):
            yield OwnCode.parse(value)


@cache
def _module_of(file: Path) -> ModuleType:
    """Run a file, given by its resolved path, as a module, only once in a process. While it runs it
    can import files from its folder. Raises ConfigError if the user has not consented to it, or if
    it fails."""
    program = program_in(file)
    if not is_trusted(file, program):
        raise ConfigError(
            f"{file} is a program that a recipe, a list or a checkpoint names, so it is not run "
            "unasked",
            expected="your consent, which is remembered until the file changes",
            found=f"sha256 {hashlib.sha256(program).hexdigest()}",
            fix=f'read it, then add --trust-code {file} (in Python: trust_code=["{file}"])',
        )
    # the prefix MODULE tells users' own modules from those of packages, also in reports of errors
    specification = importlib.util.spec_from_file_location(f"{MODULE}{file.stem}", file)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    sys.path.insert(0, str(file.parent))
    try:
        # execute the very bytes that were checked, not a file changed meanwhile or a __pycache__
        exec(compile(program, file, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:  # a user's program may call sys.exit
        raise ConfigError(
            f"{file} cannot be run",
            found=f"{type(error).__name__}: {error}",
            fix=f"python {file} shows where",
        ) from error
    finally:
        sys.path.remove(str(file.parent))
    return module
