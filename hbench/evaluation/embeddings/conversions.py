"""Conversions: the one line that turns a file hbench will not open into one that it can map.

Pickles run code when they are opened, HDF5 and TFRecord need libraries of their own: such a file is converted once.
"""

import shlex
from pathlib import Path

from hbench.core.errors import SubmissionError

SAVE = "np.savez(sys.argv[2], ids=np.array(i, dtype=str), vectors=np.asarray(v, dtype='float32'))"
UNFOLD = "i, v = (d['ids'], d['embeddings']) if 'ids' in d else (list(d), list(d.values()))"

PICKLED = {
    ".pkl": f"import sys, pickle, numpy as np; d = pickle.load(open(sys.argv[1], 'rb')); {UNFOLD}; {SAVE}",
    ".joblib": f"import sys, joblib, numpy as np; d = joblib.load(sys.argv[1]); {UNFOLD}; {SAVE}",
    ".npy": "import sys, numpy as np; np.save(sys.argv[2], np.array(np.load(sys.argv[1], allow_pickle=True).tolist()))",
    ".npz": "import sys, numpy as np; d = np.load(sys.argv[1], allow_pickle=True); i = d['ids']; "
    f"v = list(d['vectors' if 'vectors' in d else 'embeddings']); {SAVE}",
    ".pt": "import sys, torch, numpy as np; d = torch.load(sys.argv[1], map_location='cpu', weights_only=False); "
    f"i, v = d['ids'], torch.as_tensor(d['embeddings']).float().numpy(); {SAVE}",
}
FOREIGN = {
    ".h5": "import sys, h5py, numpy as np; d = h5py.File(sys.argv[1]); i, v = d['ids'].asstr()[:], d['embeddings'][:]; "
    + SAVE,
    ".tfrecord": "import sys, numpy as np, tensorflow as tf; f = tf.io.FixedLenFeature([], tf.string), "
    "tf.io.VarLenFeature(tf.float32); d = [tf.io.parse_single_example(x, {'id': f[0], 'embedding': f[1]}) "
    "for x in tf.data.TFRecordDataset(sys.argv[1])]; i = [x['id'].numpy().decode() for x in d]; "
    f"v = [x['embedding'].values.numpy() for x in d]; {SAVE}",
    ".csv": "import sys, numpy as np, pandas as pd; d = pd.read_csv(sys.argv[1], dtype={0: str}); "
    f"i, v = d.iloc[:, 0], d.iloc[:, 1:]; {SAVE}",
}
SAME_AS = {".pickle": ".pkl", ".pth": ".pt", ".hdf5": ".h5", ".hdf": ".h5", ".tfrecords": ".tfrecord"}


def pickled(path: Path) -> SubmissionError:
    """The refusal of a file that holds pickled objects, with its conversion."""
    return SubmissionError(
        f"{path} holds pickled Python objects, which run code when they are opened",
        expected="plain arrays of numbers and strings",
        fix="if you trust who made it, convert it once: " + command(path, PICKLED),
    )


def foreign(path: Path) -> SubmissionError | None:
    """The refusal of a format that is known and not read, with its conversion; None for any other suffix."""
    suffix = _suffix(path)
    if suffix in FOREIGN:
        return SubmissionError(
            f"{path}: {suffix} is not read as embeddings", fix="convert it once: " + command(path, FOREIGN)
        )
    return pickled(path) if suffix in (".pkl", ".joblib") else None


def command(path: Path, programs: dict[str, str]) -> str:
    """A shell line that writes an .npz (for one array, an .npy) beside `path`, and nothing over it."""
    suffix = path.suffix.lower()
    target = path.with_name(f"{path.stem}.plain{suffix}") if suffix in (".npy", ".npz") else path.with_suffix(".npz")
    return shlex.join(["python", "-c", programs[_suffix(path)], str(path), str(target)])


def _suffix(path: Path) -> str:
    return SAME_AS.get(path.suffix.lower(), path.suffix.lower())
