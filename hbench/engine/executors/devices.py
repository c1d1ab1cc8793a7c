"""Names of torch's devices, and the error for a device that does not exist here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hbench.core.errors import UsageError
from hbench.core.text import first_line

NAMES = "cuda, cuda:1, or several as cuda:0,cuda:1"


@contextmanager
def refuse_device(name: str) -> Iterator[None]:
    """Turn torch's errors inside of `with` into UsageError, for a device `name` that torch does not
    know or that does not exist here. torch raises RuntimeError, or AssertionError if it was built
    without support for the device."""
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"there is no device {name!r} here",
            expected="cpu, " + NAMES,
            found=first_line(error),
            fix="leave --device out, or name another",
        ) from None
