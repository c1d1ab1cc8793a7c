"""The memory of a real process: mapped files stay mapped, float16 is not inflated, parts are copied
once.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.command_line import python

ROWS, DIM = 200_000, 1024  # 410 MB of float16, 819 MB as float32
LIMITED = """
import re, resource, sys
from pathlib import Path
import numpy as np
from hbench.submissions import embeddings

# Bytes of private memory beyond what the process has; a mapped file does not count.
used = int(re.search(r"VmData:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + int(sys.argv[2]), resource.RLIM_INFINITY))
found = embeddings.read(Path(sys.argv[1]))
problems = embeddings.problems(found, wanted=found.ids, cosine=False)
rows = embeddings.align(found, found.ids[::-1])
print(found.vectors.dtype, found.vectors.shape, problems, rows[:2].tolist())
try:
    found.vectors.astype(np.float32)
except MemoryError:
    print("no room for a float32 copy")
"""
WATCHED = """
import re, sys, threading, time
from pathlib import Path
from hbench.submissions import embeddings

def private():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) * 1024

def watch():
    while not done.wait(0.002):
        seen.append(private())

before, seen, done = private(), [], threading.Event()
thread = threading.Thread(target=watch)
thread.start()
found = embeddings.read(Path(sys.argv[1]))
assert embeddings.problems(found, wanted=found.ids, cosine=False) == []
done.set()
thread.join()
print(max(seen) - before - found.vectors.nbytes)
"""


def test_a_mapped_file_of_410_mb_is_read_checked_and_joined_in_160_mb(tmp_path):
    path = tmp_path / "emb.npy"
    # zeros, which take no space on the disk
    np.lib.format.open_memmap(path, "w+", np.float16, (ROWS, DIM)).flush()
    path.with_name("ids.txt").write_text("\n".join(f"item-{row}" for row in range(ROWS)))
    assert python(LIMITED, path, 160 << 20).splitlines() == [
        f"float16 ({ROWS}, {DIM}) [] [{ROWS - 1}, {ROWS - 2}]",
        "no room for a float32 copy",
    ]


def test_parquet_is_held_once_in_its_own_type(tmp_path):
    rows = 60_000  # 123 MB: less than a second copy, or one of float32, would take
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * DIM, np.float16)), DIM)
    table = pa.table({"id": [f"item-{row}" for row in range(rows)], "embedding": vectors})
    pq.write_table(
        table,
        tmp_path / "emb.parquet",
        row_group_size=10_000,
        use_dictionary=False,
        compression="none",
    )
    beyond = python(WATCHED, tmp_path / "emb.parquet")
    assert int(beyond) < 110_000_000
