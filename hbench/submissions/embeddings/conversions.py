"""Refusals of file formats that hbench does not open, each with a one-line command that converts
the file into a format that hbench can memory-map.

Pickles run code when they are opened; HDF5 and TFRecord need libraries of their own. The user
converts such a file once.
"""

import shlex
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from hbench.core.errors import HBenchError, SubmissionError, UsageError, examples
from hbench.sheets.dialect import suffix_of

# The part of each program that finds ids `i` and vectors `v` in `d`, a mapping or a list of pairs
# with any names. The vectors are the first table of floats, the ids a list of different texts (else
# numbers) of the same length. If there is no such table, each entry is the vector of its name.
FIND = (
    "d = dict(d) if isinstance(d, list) and d and isinstance(d[0], tuple) else d; "
    "f = lambda x: np.asarray(x.tolist() if getattr(x, 'dtype', '') == object else list(x) if "
    "np.ndim(x) == 1 else x); "
    "a = {k: f(x) for k, x in (d.items() if hasattr(d, 'items') else enumerate(d))}; "
    "m = [k for k in a if a[k].ndim == 2 and a[k].dtype.kind == 'f' and len(a[k]) > 1]; "
    "n = [k for k in a if m and a[k].ndim == 1 and len(a[k]) == len(a[m[0]]) == len(set(map(str, "
    "a[k])))]; "
    "n.sort(key=lambda k: ('id' not in str(k), a[k].dtype.kind not in 'OSU')); "
    "i, v = (a[n[0]], a[m[0]]) if m and n else (list(a), list(a.values())); "
)
SAVE = (
    "i = [x.decode() if isinstance(x, bytes) else str(x) for x in i]; "
    "np.savez(sys.argv[2], ids=np.array(i), vectors=np.asarray(v, dtype='float32').reshape(len(i), "
    "-1))"
)

PICKLED = {
    ".pkl": "import sys, pickle, numpy as np; d = pickle.load(open(sys.argv[1], 'rb')); "
    f"{FIND}{SAVE}",
    ".joblib": f"import sys, joblib, numpy as np; d = joblib.load(sys.argv[1]); {FIND}{SAVE}",
    ".npy": "import sys, numpy as np; np.save(sys.argv[2], np.array(np.load(sys.argv[1], "
    "allow_pickle=True).tolist()))",
    ".npz": "import sys, numpy as np; d = dict(np.load(sys.argv[1], allow_pickle=True)); "
    f"{FIND}{SAVE}",
    ".pt": "import sys, torch, numpy as np; d = torch.load(sys.argv[1], map_location='cpu', "
    "weights_only=False); "
    "t = lambda x: x.detach().float().numpy() if torch.is_tensor(x) and x.is_floating_point() else "
    "x; "
    f"d = {{k: t(x) for k, x in d.items()}} if hasattr(d, 'items') else [*map(t, d)]; {FIND}{SAVE}",
}
FOREIGN = {
    ".h5": "import sys, h5py, numpy as np; d = {}; h5py.File(sys.argv[1]).visititems("
    "lambda k, x: d.update({k: x[()]}) if hasattr(x, 'ndim') and 0 < x.ndim < 3 else None); "
    f"{FIND}{SAVE}",
    ".tfrecord": "import sys, numpy as np, tensorflow as tf; f = tf.io.FixedLenFeature([], "
    "tf.string), "
    "tf.io.VarLenFeature(tf.float32); d = [tf.io.parse_single_example(x, {'id': f[0], 'embedding': "
    "f[1]}) "
    "for x in tf.data.TFRecordDataset(sys.argv[1])]; i = [x['id'].numpy().decode() for x in d]; "
    f"v = [x['embedding'].values.numpy() for x in d]; {SAVE}",
}
FOREIGN[".h5ad"] = (
    "import sys, anndata, numpy as np; d = anndata.read_h5ad(sys.argv[1]); m = d.obsm; "
    "v = next(iter(m.values())) if len(m) == 1 else d.X; v = v.toarray() if hasattr(v, 'toarray') "
    f"else np.asarray(v); i = list(d.obs_names); {SAVE}"
)
SAME_AS = {
    ".pickle": ".pkl",
    ".pth": ".pt",
    ".hdf5": ".h5",
    ".hdf": ".h5",
    ".tfrecords": ".tfrecord",
}


def pickled(path: Path) -> SubmissionError:
    """The error for a file that holds pickled objects, with the command that converts it."""
    return SubmissionError(
        f"{path} holds pickled Python objects, which run code when they are opened",
        expected="plain arrays of numbers and strings",
        fix="if you trust who made it, convert it once: " + command(path, PICKLED),
    )


def foreign(path: Path) -> SubmissionError | None:
    """The error for a format that is known but not read, with the command that converts the file;
    None for any other suffix.
    """
    suffix = _suffix_of_format(path)
    if suffix in FOREIGN:
        return SubmissionError(
            f"{path}: {suffix} is not read as embeddings",
            found=_datasets_of(path) if suffix == ".h5" else None,
            fix="convert it once: " + command(path, FOREIGN),
        )
    return pickled(path) if suffix in (".pkl", ".joblib") else None


def unknown_suffix(path: Path, known: Sequence[str]) -> HBenchError:
    """The error for a file whose suffix is not that of embeddings. `known` are these
    suffixes. JSON is read as a ranking, so that a .json that comes here holds none."""
    if suffix_of(path) == ".json":
        return SubmissionError(
            f"{path} holds no ranking",
            expected='{"query": {"item": score, …}, …} or {"query": ["item", …], …}, with an item '
            "in some list",
            found="other JSON, or none",
            fix="write the lists so, or give the embeddings that they were made of",
        )
    return UsageError(
        f"{path} is not an embedding file by its suffix",
        expected=", ".join(known),
        found=path.suffix or "no suffix",
    )


def _datasets_of(path: Path) -> str | None:
    """The datasets of an HDF5 file with their shapes, in words; None if h5py is not installed, or
    the file cannot be read."""
    try:
        h5py: Any = import_module("h5py")
    except ImportError:
        return None

    sizes: list[str] = []

    def note(name: str, held: Any) -> None:
        """Add a dataset to the list. h5py ends the visit if this function returns a value."""
        if hasattr(held, "shape"):  # a group has none
            sizes.append(f"{name} {held.shape}")

    try:
        with h5py.File(path) as file:
            file.visititems(note)
    except (OSError, ValueError, RuntimeError, KeyError):
        return None

    return examples(sizes) or None  # the first five; "" if the file has no dataset


def command(path: Path, programs: dict[str, str]) -> str:
    """A shell command that converts the file at `path`. The command writes a new file beside this
    one: another .npy for an .npy, and an .npz for any other file. `programs` are Python programs by
    the suffix of the files that they convert."""
    suffix = path.suffix.lower()
    target = path.with_suffix(".npz")
    if suffix in (".npy", ".npz"):  # another name, so that the file is not overwritten
        target = path.with_name(f"{path.stem}.plain{suffix}")
    program = programs[_suffix_of_format(path)]
    return shlex.join(["python", "-c", program, str(path), str(target)])


def _suffix_of_format(path: Path) -> str:
    """The suffix under which the format of a file is listed, in lower case: .pkl for .pickle."""
    return SAME_AS.get(path.suffix.lower(), path.suffix.lower())
