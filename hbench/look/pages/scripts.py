"""Writes data as scripts: a page opened from a disk may load scripts beside it, but may not fetch files.

Each script hands one value to the page by its name. The text of names from outside stays text: it is JSON, without the
characters by which a script could end early, and no such name is ever the key of an object.

>>> script("items-0", ["</script>"])
'hbench.put("items-0",["\\\\u003c/script>"]);\\n'
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ESCAPED = {"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def script(name: str, value: Any) -> str:
    """The script that hands a JSON value to the page; ValueError for NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escaped in ESCAPED.items():
        text = text.replace(character, escaped)
    return f"hbench.put({json.dumps(name)},{text});\n"


def write_script(folder: Path, name: str, value: Any) -> None:
    """Write the script of a value as NAME.js."""
    (folder / f"{name}.js").write_text(script(name, value), encoding="utf-8")


def write_chunks(folder: Path, name: str, rows: Sequence[Any], size: int) -> None:
    """Write rows in scripts of `size` each: NAME-0.js, NAME-1.js, …"""
    for number, start in enumerate(range(0, len(rows), size)):
        write_script(folder, f"{name}-{number}", rows[start : start + size])
