"""Reads bytes from outside: the one door through which files and answers of servers come in.

Whatever others wrote may be damaged, or made to harm. These functions bound what it may cost and
refuse the rest with a ValueError (an OSError for pictures), which every caller turns into its own
message; nothing here is ever unpickled. SECURITY.md lists the bounds; tests/core/test_untrusted.py
forbids the bare calls (`json.loads`, `np.load`, `Image.open` …) elsewhere.

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

if TYPE_CHECKING:  # each is loaded by the functions that need it: most commands need none
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray
    from PIL.Image import Image

MAX_DEPTH = 100  # of brackets in brackets
MAX_TEXT_BYTES = 64 << 20  # of what people write by hand
MAX_LIST_BYTES = 1 << 30  # of a list with a line or record per item
MAX_ANNOTATION_BYTES = 8 << 30  # of the annotations of a published dataset
MAX_UNPACKING = 20  # times the size of a file that its content may have
ALWAYS_UNPACKED = 256 << 20  # bytes that the content of any file may have, however small
MAX_MEMBERS = 10_000  # of a zip archive
ZIP_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
# bits of a zip member's flags: encrypted, patched, encrypted strongly
ENCRYPTED_OR_PATCHED = 0x1 | 0x20 | 0x40
PICTURE_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP", "JPEG2000")
TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep"

TO_SQUARE = bytes.maketrans(b"{}", b"[]")  # both kinds of brackets nest alike
NO_MARKS = bytes(set(range(256)) - set(b'[]{}"'))  # letters that neither nest nor quote
PART_OF_KEY = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
# a key or a table's heading of more than MAX_DEPTH parts
DOTTED_KEY = re.compile(
    rf"^\s*\[{{0,2}}\s*{PART_OF_KEY}(?:\s*\.\s*{PART_OF_KEY}){{{MAX_DEPTH},}}", re.MULTILINE
)
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_text(path: Path, *, most: int = MAX_TEXT_BYTES) -> str:
    """The UTF-8 text of a file, without its byte order mark; ValueError for other bytes or more
    than `most`.
    """
    content = bytearray()
    with path.open("rb") as file:
        # piece by piece: a pipe has no size, and read(most) would take it at once
        while part := file.read(1 << 20):
            content += part
            if len(content) > most:
                raise ValueError(f"it is larger than the {most >> 20:,} MiB such a file may have")
    return content.decode("utf-8-sig")


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError for a broken one, one nested more than MAX_DEPTH deep,
    and one with half a surrogate pair, which is no letter."""
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    try:
        # Python refuses only near its own limit, which those who walk the value meet earlier
        value = json.loads(text)
        if _is_deep(text):
            raise ValueError(TOO_DEEP)
        if SURROGATE.search(text):  # half a pair can be neither written nor printed
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    return value


def read_json(path: Path, *, most: int = MAX_TEXT_BYTES) -> Any:
    """The value in a JSON file; ValueError as `read_text` and `parse_json` raise it."""
    return parse_json(read_text(path, most=most))


def _is_deep(text: str) -> bool:
    """Whether a sound JSON text is nested more than MAX_DEPTH deep, by passes of bytes.replace: a
    tenth of the parser's time.
    """
    # What is left are brackets and the quotes around texts. An escaped quote is none of these, but
    # one behind an escaped backslash is: so pairs of backslashes go first.
    marks = (
        text.encode(errors="replace")
        .replace(b"\\\\", b"")
        .replace(b'\\"', b"")
        .translate(TO_SQUARE, NO_MARKS)
    )
    # then texts with the brackets inside them; most hold none, and are gone at once
    marks = re.sub(rb'"[^"]*"', b"", marks.replace(b'""', b""))
    # every pass takes the innermost level off: what is left is deeper
    for _ in range(MAX_DEPTH):
        marks = marks.replace(b"[]", b"")
    return bool(marks)


def parse_toml(text: str, *, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """The tables of a TOML text; tomllib.TOMLDecodeError, a ValueError, for broken or deep ones.

    A dotted key is a table in a table for each of its dots, and each is a dictionary: 100 kB of
    dots would take gigabytes.
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
    except ValueError as error:  # a date of a thirteenth month, a number of 5,000 digits
        raise tomllib.TOMLDecodeError(str(error)) from None


def _refused_yaml(problem: str, event: Any) -> Exception:
    """The error of PyYAML for a document that is not read, at the place of an event."""
    import yaml

    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def parse_yaml(text: str, loader: Any) -> Any:
    """The value of a YAML text by a safe loader; yaml.YAMLError for broken, deep or aliased ones.

    The events come first, since libyaml builds nested nodes on the processor's stack and dies of
    many.
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
    except (ValueError, TypeError, OverflowError) as error:  # dates and numbers that are none
        raise yaml.YAMLError(str(error)) from None


def parse_xml(text: str) -> Any:
    """The root element of an XML text; ValueError for broken or deep ones, and for those that
    define entities.
    """
    from defusedxml import ElementTree

    depth = 0
    root = None  # the element that ends last
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
    """Raise ValueError where `unpacked` bytes come out of `size` bytes, beyond what this module
    allows.
    """
    allowed = max(MAX_UNPACKING * size, ALWAYS_UNPACKED)
    if unpacked > allowed:
        raise ValueError(
            f"{what} unpacks to more than the {allowed >> 20:,} MiB that a file of {size:,} bytes "
            "may: write it with less compression, or none"
        )


def read_gzip(path: Path) -> bytes:
    """Read a gzip file to the checksum at its end; ValueError for a damaged one, and for a bomb."""
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
    """A zip archive whose members are few, unencrypted and not too large; ValueError for others,
    and for damage that is met while its members are read."""
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
    # zipfile raises the last two for damaged headers: of unknown versions, and of cut-off fields
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, IndexError) as error:
        raise ValueError(f"it is not a sound zip archive: {error}") from None


class NpyHeader(NamedTuple):
    """What the head of a .npy says of its array; `fortran`: whether its numbers lie column by
    column."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


def npy_header(file: IO[bytes]) -> NpyHeader:
    """The head of the .npy that a stream begins with; ValueError where it makes no sense."""
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
        # numpy's parser is Python's: SyntaxError, TokenError, RecursionError, MemoryError …
        raise ValueError(f"its header cannot be read: {type(error).__name__}") from None
    # the header is a Python literal: True would be taken for a length of 1
    if any(isinstance(width, bool) or width < 0 for width in shape):
        raise ValueError(f"shape {shape}")
    return NpyHeader(shape, fortran, dtype)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz, by name, none of objects; ValueError, KeyError or OSError for a
    damaged one.
    """
    arrays = {}
    with open_zip(path) as archive:
        for info in archive.infolist():
            opened = partial(archive.open, info)
            arrays[info.filename.removesuffix(".npy")] = _array_in(opened, info.file_size)
    return arrays


def read_array(path: Path) -> NDArray[Any]:
    """The array of a .npy, not of objects; ValueError for a damaged one."""
    return _array_in(lambda: path.open("rb"), path.stat().st_size)


def _array_in(opened: Callable[[], IO[bytes]], size: int) -> NDArray[Any]:
    """The array of a .npy of `size` bytes, which `opened` opens from its beginning.

    Its header is compared with the size before an array is made: numpy would first take the memory
    of whatever shape the header claims.
    """
    import numpy as np

    with opened() as stream:
        head = npy_header(stream)
    if math.prod(head.shape) * head.dtype.itemsize > size:
        raise ValueError(f"{size:,} bytes are too few for {head.dtype} of shape {head.shape}")
    with opened() as stream:  # from the beginning: a zip archive compares no checksum after a seek
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def load_tensors(path: Path, *, mapped: bool = False) -> Any:
    """Load a torch file of plain tensors and containers, onto the processor. Raises
    pickle.UnpicklingError for objects that would have to run code, ValueError for a damaged file.

    `mapped`: tensors stay in the file until they are used, where its format allows it.
    """
    from pickle import UnpicklingError

    import torch

    in_zip = zipfile.is_zipfile(path)
    if in_zip:
        with open_zip(path):  # refuses a bomb before torch, which looks for none, opens the file
            pass
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and in_zip)
    except (UnpicklingError, OSError):
        raise
    # torch raises whatever its parser meets: KeyError, AttributeError, RuntimeError …
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def arrow_batches(path: Path, fields: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow IPC file or stream, mapped, each validated in full; all fields, or
    those chosen.

    Validation looks at all offsets and lengths, so that no value can lie outside of its buffer; it
    costs one pass over the offsets, none over the numbers. A choice of fields makes Arrow copy
    them.
    """
    import pyarrow as pa

    # its buffers live as long as an array does that lies in them
    with pa.memory_map(str(path)) as source:
        reader = _arrow_reader(source, fields)
        batches = reader
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            batches = map(reader.get_batch, range(reader.num_record_batches))

        for batch in batches:
            batch.validate(full=True)
            yield batch


def arrow_schema(path: Path) -> pa.Schema:
    """The schema of an Arrow IPC file or stream."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        return _arrow_reader(source, ()).schema


def _arrow_reader(source: pa.MemoryMappedFile, fields: Sequence[int]) -> Any:
    """A reader, of the fields with these numbers alone, of an IPC file, which begins with its magic
    bytes, or else of a stream."""
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
    """A parquet file; its batches come from `parquet_batches`, or all at once from `parquet_table`.
    ValueError for one with two columns of a name, of which no reader could say which is meant.

    `dictionaries`: columns of repeated texts, each text of which is kept once. `mapped`: the file
    is mapped into memory rather than read.
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
    """The validated batches of up to `rows` rows of a parquet file of `size` bytes, with these
    columns (None: all); ValueError once they are larger than it may unpack to.
    """
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
    """A parquet file as one table, with these columns (None: all), of which the `dictionaries` are
    kept as numbers into their distinct values; ValueError (ArrowInvalid) or OSError for a damaged
    file."""
    import pyarrow as pa

    with open_parquet(path, dictionaries=dictionaries) as file:
        schema = file.schema_arrow
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
        batches = list(
            parquet_batches(file, rows=1 << 16, columns=columns, size=path.stat().st_size)
        )
        return pa.Table.from_batches(batches, schema=schema)


def load_picture(source: Path | IO[bytes]) -> Image:
    """The decoded picture in a file or stream; OSError for one that is damaged, a bomb, or of a
    format that is not in PICTURE_FORMATS: Pillow would hand an EPS to Ghostscript, which is a
    programming language."""
    with _open_picture(source) as image:
        image.load()
        return image


def check_picture(source: Path | IO[bytes]) -> None:
    """Read all bytes of a picture, as coarsely as its format can be decoded, which for JPEG takes a
    fraction of the time; OSError as `load_picture` raises it."""
    with _open_picture(source) as image:
        image.draft("L", (1, 1))
        image.load()


@contextmanager
def _open_picture(source: Path | IO[bytes]) -> Iterator[Image]:
    """A picture whose header is read, and whose pixels are not decoded yet."""
    from PIL import Image

    try:
        # the opener of JPEG also reads MPO, several in one
        with Image.open(source, formats=PICTURE_FORMATS) as image:
            yield image
    except OSError:
        raise
    # Pillow's plugins raise whatever they meet in damaged bytes, and MemoryError
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from None
