"""Reads the addresses of a dataset's files, from `sources.toml` in this folder and from the user's,
and records downloads.

A file is one table, `[[DATASET]]`, with `file`, `urls` and, where known, `size`, `md5`, `sha256`.
`part` is "metadata" or "images" (default); `unpack` is the folder to unpack an archive into ("."
for most). `count = n` makes n files of one table, in which `{i}` becomes 000, 001 …. The address
`gdrive:ID` is a file on Google Drive. The user's table overrides the keys of the shipped table with
the same `file`; a table with a new `file` is added.

A file that was downloaded has a record (`.hbench/FILE.json`), so that none is fetched or verified
twice: its checksums, its size and time when they were computed, and how many files were unpacked
from it.
"""

import dataclasses
import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import AfterValidator, Field, NonNegativeInt, TypeAdapter, create_model

from hbench.core.errors import ConfigError, DataError
from hbench.core.files import full_disk_told, write_text
from hbench.core.schema import Strict, build
from hbench.core.untrusted import parse_toml, read_json, read_text

UNPRINTABLE = re.compile(r"[\\\x00-\x1f\x7f]")


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    outside = path.startswith("/") or ".." in parts or UNPRINTABLE.search(path)
    if outside or any(part.startswith(".hbench") for part in parts):
        raise ValueError(
            "it must stay inside the raw folder, and is not one of hbench's own records"
        )
    return path


Inside = Annotated[str, AfterValidator(_inside)]


@dataclass(frozen=True)
class RemoteFile:
    """One file to fetch: its path in the raw folder, its addresses, tried in order, and its size
    and checksums.

    `md5_url` is a file that starts with the md5. `part` is "metadata" or "images". `unpack` is the
    folder, in the raw folder, that an archive is unpacked into; None for a plain file. `most`: the
    largest size that is taken.
    """

    file: Annotated[Inside, Field(min_length=1)]
    urls: tuple[str, ...]
    size: NonNegativeInt | None = None
    md5: str | None = None
    sha256: str | None = None
    md5_url: str | None = None
    part: Literal["metadata", "images"] = "images"
    unpack: Inside | None = None
    most: int | None = None


# The schema of a table of a sources.toml: the fields of `count` RemoteFiles, in which `{i}` stands
# for their number.
FIELDS: dict[str, Any] = {
    field.name: (field.type, ... if field.default is dataclasses.MISSING else field.default)
    for field in dataclasses.fields(RemoteFile)
    if field.name != "most"
}
RemoteTable = create_model(
    "RemoteTable", __base__=Strict, **FIELDS, count=(int, Field(1, ge=0, le=100_000))
)


GDRIVE = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="


def own_file() -> Path:
    """The path of the user's sources.toml, in HBENCH_HOME or the system's settings folder; the file
    may not exist.
    """
    home = os.environ.get("HBENCH_HOME")
    return (Path(home) if home else platformdirs.user_config_path("hbench")) / "sources.toml"


def sources_of(
    dataset: str, *, part: str | None = None, mirror: str | None = None
) -> list[RemoteFile]:
    """List the files of a dataset, of one `part` or all; `mirror` is a base address to try before
    all others.
    """
    text = (
        resources.files("hbench.datasets.download")
        .joinpath("sources.toml")
        .read_text(encoding="utf-8")
    )
    tables = {table["file"]: table for table in parse_toml(text).get(dataset, [])}
    for table in _tables_of_user(own_file()).get(dataset, []):
        tables[table["file"]] = tables.get(table["file"], {}) | table
    sources = [source for table in tables.values() for source in _expanded(**table)]
    if mirror:
        base = mirror.rstrip("/")
        sources = [
            dataclasses.replace(source, urls=(f"{base}/{source.file}", *source.urls))
            for source in sources
        ]

    return [source for source in sources if part in {None, source.part}]


def _expanded(urls: Sequence[str], count: int = 1, **table: Any) -> Iterator[RemoteFile]:
    """Yield the files of one table, with `{i}` and `gdrive:` replaced."""
    for number in (f"{i:03d}" for i in range(count)):
        addresses = tuple(url.replace("{i}", number).replace("gdrive:", GDRIVE) for url in urls)
        texts = {
            key: text.replace("{i}", number) for key, text in table.items() if isinstance(text, str)
        }
        yield RemoteFile(urls=addresses, **{**table, **texts})


def _tables_of_user(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Read and check the tables of the user's sources.toml; an absent file has none."""
    if not path.exists():
        return {}

    try:
        tables = parse_toml(read_text(path))
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML", found=str(error)) from None

    for dataset, files in tables.items():
        listed = files if isinstance(files, list) else [files]
        for table in listed:
            if not isinstance(table, dict):
                raise ConfigError(
                    f"{path} is not a list of files",
                    expected=f"[[{dataset}]]",
                    found=f"{table!r:.80}",
                )
            build(RemoteTable, table, source=f"{path} [[{dataset}]]")

    return tables


RECORDS = ".hbench"


@dataclass(frozen=True)
class DownloadRecord:
    """The record of one file; an adopted one has its `path` elsewhere. `unpacked`: the number of
    files unpacked from it, None before that. `md5` is empty where a sha256 is published."""

    path: str
    size: int
    time: int
    md5: str
    sha256: str
    unpacked: int | None = None


RECORD = TypeAdapter(DownloadRecord)


def read_record(folder: Path, source: RemoteFile) -> DownloadRecord | None:
    """Read the record of a source; None where it is missing or unreadable."""
    try:
        return RECORD.validate_python(read_json(_path(folder, source)))
    except (OSError, ValueError):  # pydantic's ValidationError is a ValueError
        return None


def write_record(folder: Path, source: RemoteFile, record: DownloadRecord) -> None:
    """Write the record of a source."""
    write_text(_path(folder, source), json.dumps(asdict(record)) + "\n")


def record_file(
    folder: Path, source: RemoteFile, path: Path, sums: dict[str, str]
) -> DownloadRecord:
    """Write and return the record of a source whose file at `path` has these checksums now."""
    size = path.stat().st_size
    time = path.stat().st_mtime_ns
    record = DownloadRecord(str(path), size, time, sums.get("md5", ""), sums["sha256"])
    write_record(folder, source, record)
    return record


def place_of(folder: Path, source: RemoteFile) -> tuple[Path, DownloadRecord | None]:
    """Return the path of a source's file, and its record, if there is one."""
    record = read_record(folder, source)
    return Path(record.path) if record else folder / source.file, record


def state_of(folder: Path, source: RemoteFile) -> str:
    """Return the state of a source: "done", "unpacked" (and its archive removed), "verified",
    "unchecked", "partial" or "missing"."""
    target = folder / source.file
    file, record = place_of(folder, source)
    if record and source.unpack is not None and record.unpacked is not None:
        return "done" if file.exists() else "unpacked"
    if (
        record
        and file.is_file()
        and (file.stat().st_size, file.stat().st_mtime_ns) == (record.size, record.time)
    ):
        return "done" if source.unpack is None else "verified"
    if target.exists():
        return "unchecked"
    return "partial" if target.with_name(f".{target.name}.part").exists() else "missing"


def _path(folder: Path, source: RemoteFile) -> Path:
    return folder / RECORDS / f"{source.file.replace('/', '__')}.json"


LOCKED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def disk_errors(path: Path, *, missing: Callable[[], int | None] = lambda: None) -> Iterator[None]:
    """Turn a full or read-only disk under `path` into a DataError; `missing` returns the bytes left
    to write, if known.
    """
    try:
        with full_disk_told(path, missing=missing):
            yield
    except OSError as error:
        if error.errno in LOCKED:
            raise DataError(
                f"{error.filename or path} cannot be written",
                found=str(error.strerror),
                fix="choose another folder with --root DIR, or use existing files with --adopt DIR",
            ) from None
        raise
