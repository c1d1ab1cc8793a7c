"""Reads where a dataset's files can be fetched: `sources.toml` here, and the user's own `sources.toml`, which wins.

One table per file, `[[DATASET]]`, with `file`, `urls` and, as far as they are known, `size`, `md5`, `sha256`; `part`
is "metadata" or "images" (default), `unpack` the folder to unpack an archive into ("." for most). `count = n` makes n
files of one table, in which `{i}` becomes 000, 001 …. The address `gdrive:ID` is a file of Google Drive. A table of the
user's replaces what the shipped one says of the same `file`; a new `file` is added.
"""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import AfterValidator, Field, NonNegativeInt, ValidationError

from hbench.core.errors import ConfigError, UnknownName
from hbench.core.schema import Strict
from hbench.core.untrusted import parse_toml, read_text


@dataclass(frozen=True)
class RemoteFile:
    """One file to fetch: its path in the raw folder, where it is to be had, and what tells that it is whole.

    `urls` are tried in order. `md5_url` is a file that starts with the md5.
    `part` is metadata or images. `unpack` is the folder, in the raw folder, that an archive is unpacked into; None
    for a plain file.
    """

    file: str
    urls: tuple[str, ...]
    size: int | None = None
    md5: str | None = None
    sha256: str | None = None
    md5_url: str | None = None
    part: str = "images"
    unpack: str | None = None


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if (
        path.startswith("/")
        or ".." in parts
        or any(part.startswith(".hbench") for part in parts)
        or UNPRINTABLE.search(path)
    ):
        raise ValueError("it must stay inside the raw folder, and is not one of hbench's own records")
    return path


Inside = Annotated[str, AfterValidator(_inside)]


class RemoteTable(Strict):
    """A table of a sources.toml: the fields of a RemoteFile; `count` of them where `{i}` stands for a number."""

    file: Inside = Field(min_length=1)
    urls: tuple[str, ...]
    size: NonNegativeInt | None = None
    md5: str | None = None
    sha256: str | None = None
    md5_url: str | None = None
    part: Literal["metadata", "images"] = "images"
    unpack: Inside | None = None
    count: int = Field(default=1, ge=0, le=100_000)


GDRIVE = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="
FIELDS = set(RemoteTable.model_fields)
UNPRINTABLE = re.compile(r"[\\\x00-\x1f\x7f]")


def own_file() -> Path:
    """The user's sources.toml, in HBENCH_HOME or the system's folder for settings; it need not exist."""
    home = os.environ.get("HBENCH_HOME")
    return (Path(home) if home else platformdirs.user_config_path("hbench")) / "sources.toml"


def sources_of(dataset: str, *, part: str | None = None, mirror: str | None = None) -> list[RemoteFile]:
    """The files of a dataset, of one `part` or all; `mirror` is a base address that is tried before every other."""
    tables = {table["file"]: table for table in _shipped().get(dataset, [])}
    for table in _own().get(dataset, []):
        tables[table["file"]] = tables.get(table["file"], {}) | table
    sources = [source for table in tables.values() for source in _expanded(table)]
    if mirror:
        sources = [
            dataclasses.replace(source, urls=(f"{mirror.rstrip('/')}/{source.file}", *source.urls))
            for source in sources
        ]
    return [source for source in sources if part in {None, source.part}]


def _expanded(table: dict[str, Any]) -> list[RemoteFile]:
    rest = {key: value for key, value in table.items() if key != "count"}
    return [RemoteFile(**_filled(rest, f"{i:03d}")) for i in range(table.get("count", 1))]


def _filled(table: dict[str, Any], number: str) -> dict[str, Any]:
    filled = {key: value.replace("{i}", number) if isinstance(value, str) else value for key, value in table.items()}
    return filled | {"urls": tuple(url.replace("{i}", number).replace("gdrive:", GDRIVE) for url in table["urls"])}


def _shipped() -> dict[str, list[dict[str, Any]]]:
    text = resources.files("hbench.datasets.download").joinpath("sources.toml").read_text(encoding="utf-8")
    return _checked(parse_toml(text), Path("sources.toml"))


def _own() -> dict[str, list[dict[str, Any]]]:
    path = own_file()
    if not path.exists():
        return {}
    try:
        return _checked(parse_toml(read_text(path)), path)
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML", found=str(error)) from None


def _checked(tables: dict[str, Any], path: Path) -> dict[str, list[dict[str, Any]]]:
    for dataset, files in tables.items():
        for table in files if isinstance(files, list) else [{}]:
            if not isinstance(table, dict):
                raise ConfigError(f"{path} is no list of files", expected=f"[[{dataset}]]", found=f"{table!r:.80}")
            if unknown := sorted(set(table) - FIELDS):
                raise UnknownName(f"key in {path} [[{dataset}]]", unknown[0], sorted(FIELDS))
            try:
                RemoteTable.model_validate(table)
            except ValidationError as error:
                first = error.errors()[0]
                raise ConfigError(
                    f"a table of {path} is incomplete or holds what it must not",
                    expected='[[DATASET]] with file = "…" and urls = ["…"], inside its folder',
                    found=f"{dataset}: {'.'.join(map(str, first['loc']))}: {first['msg']}",
                ) from None
    return tables
