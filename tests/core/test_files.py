"""A file is written whole or not at all, and nothing else is ever put in the place of what is not a
file.
"""

import gc
import os
import stat
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hbench.core.errors import DataError, UsageError
from hbench.core.files import refuse_unwritable, replacing, write_text


def test_a_file_is_replaced_whole_or_stays_as_it_was(tmp_path):
    path = tmp_path / "new" / "report.json"
    write_text(path, "first")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        assert temporary.write_text("half of the sec") / 0
    assert path.read_text() == "first"
    assert [each.name for each in path.parent.iterdir()] == ["report.json"]


def test_a_link_stays_a_link_and_the_file_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "store").mkdir()
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "store" / "today.json")
    for text in ("first", "second"):
        write_text(link, text)
        assert (tmp_path / "store" / "today.json").read_text() == text
    assert link.is_symlink()
    assert [each.name for each in (tmp_path / "store").iterdir()] == ["today.json"]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "through")
    reader.join()
    assert heard == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_cannot_be_written_is_refused_before_work_and_nothing_is_left_behind(tmp_path):
    (tmp_path / "file").write_text("")
    for path, reason in (
        (tmp_path, "is a folder"),
        (tmp_path / "file" / "report.json", "cannot be written"),
    ):
        with pytest.raises(UsageError, match=reason):
            refuse_unwritable(path)
    with pytest.raises(UsageError, match="is a folder"):
        write_text(tmp_path, "")
    refuse_unwritable(tmp_path / "file")
    refuse_unwritable(tmp_path / "folders" / "to" / "come" / "report.json")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def with_numpy(path):
    np.save(path.open("wb"), np.zeros(1 << 20))


def with_parquet(path):
    pq.write_table(pa.table({"x": np.random.default_rng(0).random(1 << 20)}), path)


def with_torch(path):
    torch = pytest.importorskip("torch")
    torch.save({"weight": torch.zeros(1 << 20)}, path)


def with_text(path):
    path.write_text("x" * (1 << 21))


@pytest.mark.parametrize("write", [with_numpy, with_parquet, with_torch, with_text])
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
def test_a_full_disk_is_one_message_whoever_writes_and_the_old_file_stays(small_disk, write):
    path = small_disk / "it"
    path.write_text("old")
    with (
        pytest.raises(DataError, match=f"the disk is full: {path} could not be written") as refusal,
        replacing(path) as it,
    ):
        write(it)
    assert refusal.value.exit_code == 4
    assert path.read_text() == "old"
    assert [each.name for each in small_disk.iterdir()] == ["it"]
    del refusal  # with the file that numpy could not close, so that its warning is of this test
    gc.collect()
