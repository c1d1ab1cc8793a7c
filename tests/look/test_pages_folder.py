"""Pages are replaced as a whole, what killed processes left of them goes, and what is not hbench's
stays.
"""

import os
import subprocess
import sys

import pytest

from hbench.core.errors import UsageError
from hbench.look.pages.folder import replacing_folder

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="whether a process runs is asked on POSIX alone"
)


def dead_process():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def pages(folder, text):
    with replacing_folder(folder, "site") as temporary:
        (temporary / "index.html").write_text(text)


def test_what_a_killed_process_left_goes(tmp_path):
    left = tmp_path / f".site.{dead_process()}.part"
    left.mkdir()
    (left / "index.html").write_text("half")
    pages(tmp_path / "site", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]
    assert (tmp_path / "site" / "index.html").read_text() == "whole"


def test_pages_that_a_killed_process_had_moved_away_come_back(tmp_path):
    pages(tmp_path / "site", "earlier")
    (tmp_path / "site").rename(tmp_path / f".site.{dead_process()}.old")
    with pytest.raises(RuntimeError), replacing_folder(tmp_path / "site", "site"):
        raise RuntimeError
    assert (tmp_path / "site" / "index.html").read_text() == "earlier"


def test_what_a_running_process_makes_stays(tmp_path):
    making = tmp_path / f".site.{os.getppid()}.part"
    making.mkdir()
    pages(tmp_path / "site", "whole")
    assert making.exists()


def test_files_that_hbench_did_not_write_stay_and_old_pages_go(tmp_path):
    with replacing_folder(tmp_path / "site", "site") as temporary:
        (temporary / "data").mkdir()
        (temporary / "data" / "old.js").write_text("of hbench")
    (tmp_path / "site" / "data" / "mine.txt").write_text("of mine")
    (tmp_path / "site" / "decisions.csv").write_text("of mine, too")
    pages(tmp_path / "site", "whole")
    pages(tmp_path / "site", "whole again")
    assert (tmp_path / "site" / "index.html").read_text() == "whole again"
    assert (tmp_path / "site" / "data" / "mine.txt").read_text() == "of mine"
    assert (tmp_path / "site" / "decisions.csv").read_text() == "of mine, too"
    assert not (tmp_path / "site" / "data" / "old.js").exists()


def test_a_file_in_the_way_of_a_new_one_is_refused(tmp_path):
    with replacing_folder(tmp_path / "site", "site") as temporary:
        (temporary / "start.html").write_text("of hbench")
    (tmp_path / "site" / "index.html").write_text("of mine")
    with pytest.raises(UsageError, match=r"index\.html is not of hbench"):
        pages(tmp_path / "site", "whole")
    assert (tmp_path / "site" / "index.html").read_text() == "of mine"
