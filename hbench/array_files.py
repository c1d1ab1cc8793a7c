"""An array file: named arrays with a header in JSON, whole or not at all, as the parts of an evaluation are kept.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     write(Path(folder) / "part.npz", {"block": 3}, {"values": np.zeros(2)})
...     header, arrays = read(Path(folder) / "part.npz")
>>> header, arrays["values"].tolist()
({'block': 3}, [0.0, 0.0])
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.atomic import replacing
from hbench.errors import SubmissionError

HEADER = "header"
DAMAGED = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, KeyError, TypeError)


def write(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a .npz of the arrays, none of objects, and of the header as UTF-8 bytes."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **{HEADER: text}, **arrays)


def read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays; SubmissionError for a file that is missing, damaged or of another kind."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = dict(archive)
        return dict(json.loads(arrays.pop(HEADER).tobytes())), arrays
    except DAMAGED as error:
        found = "another .npz" if isinstance(error, KeyError) else (str(error).splitlines() or ["damage"])[0]
        raise SubmissionError(f"{path} cannot be read", expected="arrays that hbench kept", found=found) from None
