"""Reads and writes decisions.yaml. The file is YAML with one JSON value per line, so that the
review page can write the same bytes.

>>> decision = "- {id: d1, op: move, labels: [Q16970], to: church}"
>>> text = "groups: {church: {kind: human-made}}\\ndecisions:\\n" + decision + "\\n"
>>> print(dumps(loads(text)), end="")
schema: 1
inputs: {}
groups:
  "church": {"kind": "human-made"}
decisions:
- {"id": "d1", "op": "move", "labels": ["Q16970"], "to": "church"}
approvals: []
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import ValidationError

from hbench.core.errors import ConfigError, DataError
from hbench.core.untrusted import parse_yaml, read_text
from hbench_hgldv2.curation.decisions import Decisions

DecisionsFile = Annotated[Path | None, "Decisions; by default decisions.yaml in the work folder."]


def decisions_in(work: Path, path: Path | None = None) -> Decisions:
    """Read the decisions at `path` or, without a path, those in the work folder. Return empty
    decisions where the work folder has none."""
    default = work / "decisions.yaml"
    return load(path or default) if path or default.exists() else Decisions()


def load(path: Path) -> Decisions:
    """Read decisions from a file. Raises DataError when it is missing, ConfigError when it violates
    the schema."""
    try:
        return loads(read_text(path), source=str(path))
    except FileNotFoundError:
        raise DataError(
            f"{path} does not exist",
            fix="export it from the review page, or start with `schema: 1`",
        ) from None
    except ValueError as error:
        raise ConfigError(
            f"{path} cannot be read", expected="decisions, in YAML", found=str(error)
        ) from None


def loads(text: str, *, source: str = "decisions") -> Decisions:
    """Read decisions from a text, which errors call `source`. Raises ConfigError for a text that is
    not YAML, is empty or breaks the schema; it lists the first eight problems."""
    try:
        content = parse_yaml(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} is not YAML", found=str(error)) from None

    if content is None:
        raise ConfigError(
            f"{source} is empty", expected="decisions", fix="start with the line `schema: 1`"
        )

    try:
        return Decisions.model_validate(content)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, p['loc'])) or 'file'}: {p['msg']}" for p in error.errors()]
        raise ConfigError(
            f"{source} breaks the schema of decisions",
            found="; ".join(problems[:8]),
            fix="the operations and their keys are in docs/hgldv2.md",
        ) from None


def dumps(decisions: Decisions) -> str:
    """Return decisions as the text of a file: YAML whose values are JSON, one per line. The same
    decisions give the same bytes, here and in the review page."""
    # by_alias gives the keys of the file, such as "schema" for the field `schema_`
    content = decisions.model_dump(by_alias=True, exclude_none=True, mode="json")
    # `flow` gives one line of JSON; a block without lines is written as "groups: {}"
    lines = ["schema: 1", f"inputs: {flow(content['inputs'])}"]
    lines += _block(
        "groups",
        (f"  {flow(name)}: {flow(group)}" for name, group in content["groups"].items()),
        "{}",
    )
    lines += _block("decisions", (f"- {flow(decision)}" for decision in content["decisions"]), "[]")
    lines += _block("approvals", (f"- {flow(approval)}" for approval in content["approvals"]), "[]")
    return "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """Return a value as one line that is both JSON and YAML. Characters that YAML would take for a
    line break, or refuse, are escaped."""
    return _SPECIAL.sub(
        lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False)
    )


def _block(title: str, lines: Iterable[str], empty: str) -> list[str]:
    """A block of YAML: the title with the lines below it or, without lines, the title with `empty`
    behind it."""
    listed = list(lines)
    return [f"{title}:", *listed] if listed else [f"{title}: {empty}"]


_SPECIAL = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML's safe loader, except that a repeated key is refused. YAML itself would keep the last
    value."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return the dictionary of a YAML node; `deep` is yaml's own argument. Raises
        MarkedYAMLError for a repeated key; yaml itself would silently keep the last value."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if len(set(keys)) != len(keys):
            twice = [key for key in keys if keys.count(key) > 1]
            raise yaml.MarkedYAMLError(
                problem=f"key {twice[0]!r} is given twice", problem_mark=node.start_mark
            )
        return super().construct_mapping(node, deep)  # type: ignore[no-any-return]
