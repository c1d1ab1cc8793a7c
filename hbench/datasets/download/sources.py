"""Lists the files of a dataset, from its SPEC and the user's `sources.toml`, and records downloads.

sources.toml has tables `[[DATASET]]` with the fields of a RemoteFile. If the SPEC has a file of the
same name (`file`), the table overrides its fields; otherwise it adds a file.

A downloaded file has a record (`.hbench/FILE.json`), so that it is not fetched or verified twice.
The record holds its checksums, its size and time when they were computed, and how many files were
unpacked from it.
"""

import dataclasses
import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import TypeAdapter, create_model

from hbench.core.errors import ConfigError, DataError
from hbench.core.files import full_disk_told, write_text
from hbench.core.schema import Strict, build
from hbench.core.untrusted import parse_toml, read_json, read_text
from hbench.datasets.spec import RemoteFile, Spec

# The fields of a table in the user's sources.toml, as {name: (type, default)}: those of a
# RemoteFile without `most`. The default `...` means that a field is required.
FIELDS: dict[str, Any] = {
    field.name: (field.type, ... if field.default is dataclasses.MISSING else field.default)
    for field in dataclasses.fields(RemoteFile)
    if field.name != "most"
}
RemoteTable = create_model("RemoteTable", __base__=Strict, **FIELDS)

GDRIVE = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="


def own_file() -> Path:
    """Return the path of the user's sources.toml, in HBENCH_HOME or the system's settings folder.
    The file may not exist."""
    home = os.environ.get("HBENCH_HOME")
    return (Path(home) if home else platformdirs.user_config_path("hbench")) / "sources.toml"


def sources_of(
    spec: Spec, *, part: str | None = None, mirror: str | None = None
) -> list[RemoteFile]:
    """List the files of a dataset, from its spec and the user's sources.toml.

    `part`: "metadata" or "images", None for all files; `mirror`: a base address that is tried
    before all others.
    """
    files = {file.file: file for file in spec.files}
    # The user's tables override fields of known files, or add files. They are stored by the name of
    # the raw files (`source`), which several datasets may share.
    for table in _tables_of_user(own_file()).get(spec.source, []):
        known = files.get(table["file"])
        files[table["file"]] = RemoteFile(**table) if known is None else replace(known, **table)

    # one entry may stand for several numbered files
    sources = [source for file in files.values() for source in _files_of_entry(file)]
    if mirror:
        base = mirror.rstrip("/")
        sources = [
            replace(source, urls=(f"{base}/{source.file}", *source.urls)) for source in sources
        ]

    return [source for source in sources if part in {None, source.part}]


def _files_of_entry(file: RemoteFile) -> Iterator[RemoteFile]:
    """Yield the `count` files of one entry. In each one's texts, `{i}` becomes the number of the
    file, 000, 001 …, and `gdrive:` the address of Google Drive. A text that is None stays None."""
    for number in (f"{i:03d}" for i in range(file.count)):
        urls = tuple(url.replace("{i}", number).replace("gdrive:", GDRIVE) for url in file.urls)
        yield replace(
            file,
            file=file.file.replace("{i}", number),
            urls=urls,
            md5_url=file.md5_url and file.md5_url.replace("{i}", number),
            unpack=file.unpack and file.unpack.replace("{i}", number),
            count=1,
        )


def _tables_of_user(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Read the tables of the user's sources.toml: {dataset: the fields of a RemoteFile that each
    table sets}. Empty if the file does not exist. Raises ConfigError if it is not valid."""
    if not path.exists():
        return {}

    try:
        tables = parse_toml(read_text(path))
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML", found=str(error)) from None

    # [sop] is a single table, [[sop]] a list of tables
    listed = {
        dataset: files if isinstance(files, list) else [files] for dataset, files in tables.items()
    }
    for dataset, files in listed.items():
        for table in files:
            if not isinstance(table, dict):
                raise ConfigError(
                    f"{path} is not a list of files",
                    expected=f"[[{dataset}]]",
                    found=f"{table!r:.80}",
                )
            # only to refuse invalid tables: an instance would also have the fields that the table
            # does not set, and their defaults would override those of a known file
            build(RemoteTable, table, source=f"{path} [[{dataset}]]")

    return listed


RECORDS = ".hbench"


@dataclass(frozen=True)
class DownloadRecord:
    """The record of one file on disk.

    Attributes:
        path: where the file is; that of an adopted archive is outside of the raw folder.
        size: in bytes, when it was verified.
        time: when the file was last changed, in nanoseconds, at the time it was verified.
        md5: "" if it was not computed, since a sha256 is published.
        sha256: of the file.
        unpacked: the number of files unpacked from it; None if it was not unpacked yet.
    """

    path: str
    size: int
    time: int
    md5: str
    sha256: str
    unpacked: int | None = None


RECORD = TypeAdapter(DownloadRecord)


def read_record(folder: Path, source: RemoteFile) -> DownloadRecord | None:
    """Read the record of a source; return None if it is missing or unreadable."""
    try:
        return RECORD.validate_python(read_json(_path_of_record(folder, source)))
    except (OSError, ValueError):  # pydantic's ValidationError is a ValueError
        return None


def write_record(folder: Path, source: RemoteFile, record: DownloadRecord) -> None:
    """Write the record of a source's download, whole or not at all."""
    write_text(_path_of_record(folder, source), json.dumps(asdict(record)) + "\n")


def record_file(
    folder: Path, source: RemoteFile, path: Path, sums: dict[str, str]
) -> DownloadRecord:
    """Write and return the record of a source whose file at `path` was just verified. `sums`: its
    checksums, "sha256" and perhaps "md5".

    The record has the file's size and time, too. As long as these stay the same, the file is not
    verified again.
    """
    size = path.stat().st_size
    time = path.stat().st_mtime_ns
    record = DownloadRecord(
        path=str(path), size=size, time=time, md5=sums.get("md5", ""), sha256=sums["sha256"]
    )
    write_record(folder, source, record)
    return record


def place_of(folder: Path, source: RemoteFile) -> tuple[Path, DownloadRecord | None]:
    """Return the path of a source's file, and its record, None if there is none."""
    record = read_record(folder, source)
    return Path(record.path) if record else folder / source.file, record


def state_of(folder: Path, source: RemoteFile) -> str:
    """Return the state of a source.

    - "done": verified, and unpacked if it is an archive.
    - "unpacked": an archive that was unpacked and then removed.
    - "verified": an archive that is not unpacked yet.
    - "unchecked": the file exists, but has no record, or has changed since it was recorded.
    - "partial": a part of the file was fetched.
    - "missing": none of these.
    """
    target = folder / source.file
    # where the file is: `target`, unless an archive in another folder was adopted; `record` is None
    # if there is none
    file, record = place_of(folder, source)
    if record and source.unpack is not None and record.unpacked is not None:  # it was unpacked
        return "done" if file.exists() else "unpacked"
    # the same size and time: the file was verified and has not changed since
    if (
        record
        and file.is_file()
        and (file.stat().st_size, file.stat().st_mtime_ns) == (record.size, record.time)
    ):
        return "done" if source.unpack is None else "verified"
    # an adopted file that has changed or gone is not used any more: only `target` counts now
    if target.exists():
        return "unchecked"
    return "partial" if target.with_name(f".{target.name}.part").exists() else "missing"


def _path_of_record(folder: Path, source: RemoteFile) -> Path:
    """Return the path of a source's record. All records are in one folder, even if the files are in
    several."""
    return folder / RECORDS / f"{source.file.replace('/', '__')}.json"


LOCKED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def disk_errors(path: Path, *, missing: Callable[[], int | None] = lambda: None) -> Iterator[None]:
    """Turn errors of a full or read-only disk under `path` into a DataError. `missing` returns the
    number of bytes still to write, None if it is not known."""
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
