"""Names of torch's devices, and the refusal of those that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hbench.core.errors import UsageError
from hbench.core.text import first_line

NAMES = "cuda, cuda:1, or several as cuda:0,cuda:1"


@contextmanager
def refuse_device(name: str) -> Iterator[None]:
    """Raise UsageError where torch does not know the device of this name, or there is none here;
    torch itself raises RuntimeError, or AssertionError where it was built without that kind."""
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"there is no device {name!r} here",
            expected="cpu, " + NAMES,
            found=first_line(error),
            fix="leave --device out, or name another",
        ) from None
