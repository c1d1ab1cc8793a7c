"""Reads untrusted bytes: all files of users and responses of servers are parsed here.

They may be damaged, or made to do harm. These functions limit the memory and time that parsing
takes, and raise ValueError (OSError for pictures) for everything beyond; each caller makes its own
message of it. Nothing is ever unpickled. SECURITY.md lists the limits; tests/core/test_untrusted.py
forbids the plain calls (`json.loads`, `np.load`, `Image.open` …) elsewhere.

>>> parse_json("[" * 100_000)
Traceback (most recent call last):
ValueError: it is nested more than 100 deep
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # at run time imported by the functions that need them: most commands need none
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray
    from PIL.Image import Image

MAX_DEPTH = 100  # levels of nested brackets
MAX_TEXT_BYTES = 64 << 20  # of files that people write by hand
MAX_LIST_BYTES = 1 << 30  # of lists with a line or record per item
MAX_ANNOTATION_BYTES = 8 << 30  # of the annotations of a published dataset
MAX_UNPACKING = 20  # largest ratio of unpacked bytes to the size of a file …
ALWAYS_UNPACKED = 256 << 20  # … beyond this many unpacked bytes, which any file may have
MAX_MEMBERS = 10_000  # of a zip archive
ZIP_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
# bits of a zip member's flags: encrypted, patched, encrypted strongly
ENCRYPTED_OR_PATCHED = 0x1 | 0x20 | 0x40
PICTURE_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP", "JPEG2000")
TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep"

TO_SQUARE = bytes.maketrans(b"{}", b"[]")  # for the depth both kinds of brackets count alike
NO_MARKS = bytes(set(range(256)) - set(b'[]{}"'))  # all bytes but brackets and quotes
PART_OF_KEY = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
# a key or a table's heading of more than MAX_DEPTH parts
DOTTED_KEY = re.compile(
    rf"^\s*\[{{0,2}}\s*{PART_OF_KEY}(?:\s*\.\s*{PART_OF_KEY}){{{MAX_DEPTH},}}", re.MULTILINE
)
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_text(path: Path, *, most: int = MAX_TEXT_BYTES) -> str:
    """Read the UTF-8 text of a file, without its byte order mark. Raises ValueError for other
    encodings and for more than `most` bytes.
    """
    content = bytearray()
    with path.open("rb") as file:
        # in pieces, since a pipe has no size and read(most) would allocate all of it at once
        while part := file.read(1 << 20):
            content += part
            if len(content) > most:
                raise ValueError(f"it is larger than the {most >> 20:,} MiB such a file may have")
    return content.decode("utf-8-sig")


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text. Raises ValueError if it is broken, nested more than MAX_DEPTH deep, or
    has a lone surrogate, which is only half of a character."""
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    try:
        # `loads` itself refuses only texts nested nearly as deep as Python's recursion limit. Code
        # that walks the value recursively would exceed this limit earlier: hence `_is_deep`
        value = json.loads(text)
        if _is_deep(text):
            raise ValueError(TOO_DEEP)
        if SURROGATE.search(text):  # `loads` joins a pair; a lone one cannot be encoded
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    return value


def parse_json_lines(text: str) -> Iterator[tuple[int, Any]]:
    """Parse the JSON text in each line that is not blank. Yields the number of the line, from 1,
    and the value. Raises ValueError as `parse_json` does, with the number of the line.

    >>> list(parse_json_lines('{"a": 1}\\n\\n[2]'))
    [(1, {'a': 1}), (3, [2])]
    """
    # splitlines would also split at line breaks that JSON allows inside texts, such as U+2028
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, parse_json(line)
        except json.JSONDecodeError as error:  # its own message counts lines from this one
            raise ValueError(f"line {number:,}, column {error.colno}: {error.msg}") from None
        except ValueError as error:
            raise ValueError(f"line {number:,}: {error}") from None


def read_json(path: Path, *, most: int = MAX_TEXT_BYTES) -> Any:
    """Parse a JSON file. Raises ValueError as `read_text` and `parse_json` do."""
    return parse_json(read_text(path, most=most))


def _is_deep(text: str) -> bool:
    """Whether a valid JSON text is nested more than MAX_DEPTH deep. Repeated bytes.replace takes a
    tenth of the parser's time."""
    # Keep only brackets, all made square, and quotes that are not escaped: those around strings. A
    # quote after an escaped backslash is not escaped, so pairs of backslashes are removed first.
    marks = (
        text.encode(errors="replace")
        .replace(b"\\\\", b"")
        .replace(b'\\"', b"")
        .translate(TO_SQUARE, NO_MARKS)
    )
    # Remove strings with the brackets in them. Most are just two quotes by now, and `replace` is
    # faster for these. It turns "[""]" into "[]", one string, whose brackets are still in quotes.
    marks = re.sub(rb'"[^"]*"', b"", marks.replace(b'""', b""))
    # every pass removes the innermost level; marks that are left over are nested deeper
    for _ in range(MAX_DEPTH):
        marks = marks.replace(b"[]", b"")
    return bool(marks)


def parse_toml(text: str, *, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a TOML text. Raises tomllib.TOMLDecodeError, a ValueError, if it is broken or deep.

    Each dot in a dotted key makes a nested dictionary, so that 100 kB of dots would take gigabytes:
    such keys are refused before parsing.
    """
    if dotted := DOTTED_KEY.search(text):
        line = text.count("\n", 0, dotted.start()) + 1
        raise tomllib.TOMLDecodeError(f"line {line}: {TOO_DEEP}")
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except RecursionError:
        raise tomllib.TOMLDecodeError(TOO_DEEP) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:  # such as a date in month 13, or a number of 5,000 digits
        raise tomllib.TOMLDecodeError(str(error)) from None


def _refused_yaml(problem: str, event: Any) -> Exception:
    """Make a PyYAML error with the place of an event, for a document that is refused."""
    import yaml

    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def parse_yaml(text: str, loader: Any) -> Any:
    """Parse a YAML text with `loader`, a safe loader class. Raises yaml.YAMLError if it is broken,
    deep, or has aliases, by which a short text could stand for a huge value.

    The depth is checked on the events first: libyaml builds nested nodes recursively on the C
    stack, and would crash on a deep document.
    """
    import yaml

    try:
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.AliasEvent):
                raise _refused_yaml("aliases are not read", event)
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            if isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                raise _refused_yaml(TOO_DEEP, event)
        return yaml.load(text, Loader=loader)
    except (ValueError, TypeError, OverflowError) as error:  # invalid dates and numbers
        raise yaml.YAMLError(str(error)) from None


def parse_xml(text: str) -> Any:
    """Parse an XML text, and return its root element. Raises ValueError if it is broken, deep, or
    defines entities."""
    from defusedxml import ElementTree

    depth = 0
    root = None  # the last element that ended, which is the root after the loop
    try:
        for event, element in ElementTree.iterparse(io.StringIO(text), events=("start", "end")):
            depth += 1 if event == "start" else -1
            if depth > MAX_DEPTH:
                raise ValueError(TOO_DEEP)
            root = element
    except SyntaxError as error:  # ElementTree's ParseError is one
        raise ValueError(str(error)) from None
    return root


def refuse_bomb(size: int, unpacked: int, what: str = "it") -> None:
    """Raise ValueError if a file of `size` bytes unpacks to more than this module allows.
    `unpacked`: the bytes so far. `what`: the subject of the message."""
    allowed = max(MAX_UNPACKING * size, ALWAYS_UNPACKED)
    if unpacked > allowed:
        raise ValueError(
            f"{what} unpacks to more than the {allowed >> 20:,} MiB that a file of {size:,} bytes "
            "may: write it with less compression, or none"
        )


def read_gzip(path: Path) -> bytes:
    """Unpack a gzip file, whose checksum is verified. Raises ValueError if it is damaged or unpacks
    to too much."""
    size = path.stat().st_size
    content = bytearray()
    try:
        with gzip.open(path) as stream:
            while part := stream.read(1 << 20):
                content += part
                refuse_bomb(size, len(content))
    except (zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(str(error)) from None
    return bytes(content)


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive whose members are not too many, not too large and unencrypted. Raises
    ValueError for others, and for damage that is found while the caller reads members."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            if len(infos) > MAX_MEMBERS:
                raise ValueError(f"it has {len(infos):,} members, more than {MAX_MEMBERS:,}")
            for info in infos:
                if info.flag_bits & ENCRYPTED_OR_PATCHED:
                    raise ValueError(f"its member {info.filename!r} is encrypted or patched")
                if info.compress_type not in ZIP_METHODS:
                    raise ValueError(
                        f"its member {info.filename!r} is compressed otherwise than by deflate"
                    )
            refuse_bomb(path.stat().st_size, sum(info.file_size for info in infos))
            yield archive
    # zipfile raises the last two errors for damaged headers: unknown versions, truncated fields
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, IndexError) as error:
        raise ValueError(f"it is not a sound zip archive: {error}") from None


class NpyHeader(NamedTuple):
    """The description of an array in the header of an .npy file. `fortran`: whether the values are
    stored column by column."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


def npy_header(file: IO[bytes]) -> NpyHeader:
    """Read an .npy file's header: shape, order, type. Raises ValueError if it is invalid."""
    import numpy as np

    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise ValueError(f"NumPy file version {version}, which plain arrays do not need")
    try:
        shape, fortran, dtype = readers[version](file)
    except Exception as error:
        # numpy parses it as Python: SyntaxError, TokenError, RecursionError, MemoryError …
        raise ValueError(f"its header cannot be read: {type(error).__name__}") from None
    # the header is a Python literal, in which True would pass as a length of 1
    if any(isinstance(width, bool) or width < 0 for width in shape):
        raise ValueError(f"shape {shape}")
    return NpyHeader(shape, fortran, dtype)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an .npz file, by name. Raises ValueError, KeyError or OSError if it is
    damaged or has an array of objects."""
    arrays = {}
    with open_zip(path) as archive:
        for info in archive.infolist():
            opened = partial(archive.open, info)  # a function, since `_array_in` opens it twice
            arrays[info.filename.removesuffix(".npy")] = _array_in(opened, info.file_size)
    return arrays


def read_array(path: Path) -> NDArray[Any]:
    """Read the array of an .npy file. Raises ValueError if it is damaged or of objects."""
    return _array_in(lambda: path.open("rb"), path.stat().st_size)


def _array_in(opened: Callable[[], IO[bytes]], size: int) -> NDArray[Any]:
    """Read the array of an .npy file of `size` bytes. `opened` opens the file at its beginning.

    The shape in the header is compared with the size before the array is read: numpy would first
    allocate whatever shape the header claims.
    """
    import numpy as np

    with opened() as stream:
        head = npy_header(stream)
    if math.prod(head.shape) * head.dtype.itemsize > size:
        raise ValueError(f"{size:,} bytes are too few for {head.dtype} of shape {head.shape}")
    with opened() as stream:  # opened again, since zipfile verifies no checksum after a seek
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def load_tensors(path: Path, *, mapped: bool = False) -> Any:
    """Load a torch file of plain tensors and containers into CPU memory. Raises
    pickle.UnpicklingError for objects that would run code, ValueError if the file is damaged.

    `mapped`: map the file into memory where its format allows it, instead of reading it whole.
    """
    from pickle import UnpicklingError

    import torch

    in_zip = zipfile.is_zipfile(path)
    if in_zip:
        with open_zip(path):  # refuses files that unpack to too much, which torch does not check
            pass
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and in_zip)
    except (UnpicklingError, OSError):
        raise
    # torch's parser may raise anything: KeyError, AttributeError, RuntimeError …
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def arrow_batches(path: Path, fields: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow IPC file or stream, mapped into memory and validated. `fields`:
    the numbers of the columns to read; none: all of them.

    Validation checks all offsets and lengths, so that no value is outside of its buffer. It costs a
    pass over the offsets, but none over the numbers. With `fields` Arrow copies the columns.
    """
    import pyarrow as pa

    # the mapped buffers stay alive as long as any array that refers to them
    with pa.memory_map(str(path)) as source:
        reader = _arrow_reader(source, fields)
        batches = reader  # the reader of a stream yields its batches itself
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            batches = map(reader.get_batch, range(reader.num_record_batches))

        for batch in batches:
            batch.validate(full=True)
            yield batch


def arrow_schema(path: Path) -> pa.Schema:
    """Read the schema of an Arrow IPC file or stream."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        return _arrow_reader(source, ()).schema


def _arrow_reader(source: pa.MemoryMappedFile, fields: Sequence[int]) -> Any:
    """Make a reader of an Arrow IPC file, which is recognised by its magic bytes, or else of a
    stream. `fields`: the numbers of the columns to read; none: all of them."""
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=list(fields))
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    return (
        pa.ipc.open_file(source, options=options)
        if is_file
        else pa.ipc.open_stream(source, options=options)
    )


@contextmanager
def open_parquet(
    path: Path, *, dictionaries: Sequence[str] = (), mapped: bool = False
) -> Iterator[pq.ParquetFile]:
    """Open a parquet file; `parquet_batches` reads its batches, `parquet_table` all at once. Raises
    ValueError if two columns have the same name, since it is unclear which one is meant.

    `dictionaries`: columns with repeated texts, each of which is kept once. `mapped`: map the file
    into memory instead of reading it. Nothing is read ahead (`pre_buffer`), which saves memory.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(
        path, read_dictionary=list(dictionaries), memory_map=mapped, pre_buffer=False
    ) as file:
        names = file.schema_arrow.names
        if len(set(names)) < len(names):
            doubled = next(name for place, name in enumerate(names) if name in names[:place])
            raise ValueError(f"two columns are named {doubled!r}")
        yield file


def parquet_batches(
    file: pq.ParquetFile, *, rows: int, columns: Sequence[str] | None = None, size: int
) -> Iterator[pa.RecordBatch]:
    """Yield validated batches of up to `rows` rows of a parquet file of `size` bytes. `columns`:
    those to read; None: all. One thread reads, which bounds the memory. Raises ValueError once the
    file has unpacked to too much."""
    total = 0
    chosen = None if columns is None else list(columns)
    for batch in file.iter_batches(rows, columns=chosen, use_threads=False):
        total += batch.nbytes
        refuse_bomb(size, total)
        batch.validate(full=True)
        yield batch


def parquet_table(
    path: Path, *, columns: Sequence[str] | None = None, dictionaries: Sequence[str] = ()
) -> pa.Table:
    """Read a parquet file as one table. `columns`: those to read; None: all. `dictionaries`: those
    to keep as indices into their distinct values. Raises ValueError (ArrowInvalid) or OSError if
    the file is damaged."""
    import pyarrow as pa

    with open_parquet(path, dictionaries=dictionaries) as file:
        schema = file.schema_arrow
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
        size = path.stat().st_size
        # in batches, so that a small file that unpacks to very much is refused early: `size` is
        # compared with what was unpacked so far
        batches = list(parquet_batches(file, rows=1 << 16, columns=columns, size=size))
        # a file without rows may have no batches, which could not tell the columns
        return pa.Table.from_batches(batches, schema=schema)


def load_picture(source: Path | IO[bytes]) -> Image:
    """Decode the picture in a file or stream. Raises OSError if it is damaged, decodes to too much,
    or is of a format not in PICTURE_FORMATS. Pillow has more: it would run the PostScript program
    in an EPS file with Ghostscript."""
    with _open_picture(source) as image:
        image.load()
        return image


def check_picture(source: Path | IO[bytes]) -> None:
    """Read all bytes of a picture to find damage. It is decoded as coarsely as its format allows,
    which for JPEG takes a fraction of the time. Raises OSError as `load_picture` does."""
    with _open_picture(source) as image:
        image.draft("L", (1, 1))
        image.load()


@contextmanager
def _open_picture(source: Path | IO[bytes]) -> Iterator[Image]:
    """Open a picture: its header is read, its pixels are not decoded yet."""
    from PIL import Image

    try:
        # "JPEG" also opens MPO, a file of several JPEG pictures
        with Image.open(source, formats=PICTURE_FORMATS) as image:
            yield image
    except OSError:
        raise
    # Pillow's plug-ins may raise anything for damaged bytes, also MemoryError
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from None
