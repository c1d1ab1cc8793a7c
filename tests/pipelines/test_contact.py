"""Without a contact nothing is fetched, and the refusal says what is missing, why, and the command
that works.
"""

import shlex

import pytest

from hbench.cli import group
from tests.command_line import refusal
from tests.pipelines.test_steps import raw_folder
from tests.pipelines.wikimedia_world import world_of

POLICY = "Wikimedia_Foundation_User-Agent_Policy"


@pytest.fixture
def raw(tmp_path):
    return raw_folder(world_of(6), tmp_path / "raw files")


def advised(message):
    """The words of the command that a refusal advises."""
    line = next(line for line in message.splitlines() if line.startswith("  next:"))
    return shlex.split(line.removeprefix("  next:").partition(" (")[0])


def test_from_scratch_names_the_missing_contact_the_policy_and_the_command(raw, tmp_path):
    work = tmp_path / "work"
    said = refusal("build", "hgldv2", "--root", raw, "--from-scratch", work)
    assert "nothing is fetched from Wikimedia without --contact" in said
    assert POLICY in said
    assert "--offline" not in said
    program, *words = advised(said)
    assert program == "hbench"
    expected = ["build", "hgldv2", "--root", raw, "--from-scratch", work]
    assert words == [*map(str, expected), "--contact", "you@example.org"]


@pytest.mark.parametrize("step", ["scrape", "taxonomy"])
def test_a_step_names_its_own_command(step, raw, tmp_path):
    options = ["--raw", raw] if step == "scrape" else []
    command = ["hgldv2", "--work", tmp_path / "w", step, *options]
    said = refusal(*command)
    assert POLICY in said
    assert advised(said) == [*map(str, ["hbench", *command]), "--contact", "you@example.org"]


def test_the_advised_command_is_understood(raw, tmp_path):
    program, *words = advised(refusal("hgldv2", "--work", tmp_path, "scrape", "--raw", raw))
    assert program == "hbench"
    context = group.make_context("hbench", words)
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    assert name == "hgldv2"
    inner = command.make_context(name, rest, parent=context)
    step, parsed, options = command.resolve_command(inner, [*inner._protected_args, *inner.args])
    assert step == "scrape"
    assert parsed.make_context(step, options, parent=inner).params["contact"] == "you@example.org"


def test_a_contact_that_is_no_address_is_refused_with_the_policy(raw, tmp_path):
    said = refusal("hgldv2", "--work", tmp_path, "scrape", "--raw", raw, "--contact", "me")
    assert "neither a mail address nor a URL" in said
    assert POLICY in said


def test_offline_needs_no_contact(raw, tmp_path):
    said = refusal("hgldv2", "--work", tmp_path, "scrape", "--raw", raw, "--offline")
    assert "this request is not in the cache" in said
    assert "without --offline" in said
