"""Defines the option for the contact that Wikimedia requires of every client, and the error of a
run without one."""

import importlib.metadata
import re
from typing import Annotated

import requests

from hbench.core.errors import UsageError

POLICY = "https://foundation.wikimedia.org/wiki/Policy:Wikimedia_Foundation_User-Agent_Policy"
ADDRESS = re.compile(r"[^\s()<>@]+@[^\s()<>@]+\.[^\s()<>@]+|https?://[^\s()<>]+")
WHY = f"Wikimedia asks every client to say whom to write to ({POLICY})"

# the option of every step that sends requests to Wikimedia
Contact = Annotated[
    str | None, "Your mail address or URL: Wikimedia asks every client to say whom to write to."
]


def missing_contact(command: str, *, found: str = "no --contact") -> UsageError:
    """Make the error for a `command` that would send requests without a contact: what is missing,
    why, and the command that works."""
    return UsageError(
        "nothing is fetched from Wikimedia without --contact",
        expected=f"your mail address or URL: {WHY}",
        found=found,
        fix=f"{command} --contact you@example.org (your address in its place)",
    )


def user_agent(contact: str) -> str:
    """Return the User-Agent `hbench/<version> (<contact>) requests/<version>`. Raises UsageError
    for an invalid contact."""
    if not ADDRESS.fullmatch(contact):
        raise UsageError(
            "the contact is neither a mail address nor a URL",
            expected=f"your mail address or URL: {WHY}",
            found=repr(contact),
            fix="--contact you@example.org (your address in its place)",
        )
    return (
        f"hbench/{importlib.metadata.version('hbench')} ({contact}) requests/{requests.__version__}"
    )
