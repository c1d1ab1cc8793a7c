"""Fetching whole datasets through the command line, in real processes: killed, resumed, verified,
repaired, adopted.
"""

import hashlib
import json
import random
import re
import signal
import subprocess
import sys
import time

import filelock
import pytest
from click.testing import CliRunner

from hbench.cli.download import command
from hbench.core.errors import ConfigError, DataError, HBenchError, IntegrityError, SourceError
from hbench.datasets.download.all_files import (
    DownloadOptions,
    adopt,
    check_all,
    check_space,
    fetch_all,
    summary,
)
from hbench.datasets.download.sources import read_record, sources_of, state_of
from hbench.datasets.spec import RemoteFile, specs
from tests.command_line import at_a_terminal, run
from tests.file_server import PAGE, FileServer, status
from tests.raw_folders import omniglot_archives, tar_of, write_sources

OUTSIDE = ("/x", "a/../../x", ".hbench/x", "a\\\\b")
TABLE = "[[sop]]\nfile = 'x'\nurls = ['http://x']\n"


def random_files(number, seed=0, size=2_000):
    rng = random.Random(seed)
    return {f"a/{i % 7}/{seed}_{i}.jpg": rng.randbytes(rng.randrange(size)) for i in range(number)}


def found(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".hbench" not in path.parts
    }


def md5(body):
    return hashlib.md5(body).hexdigest()


@pytest.fixture
def server():
    with FileServer() as own:
        yield own


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "raw"


@pytest.fixture
def parts(server):
    """Four tars, with the lists of their checksums beside them, as Google Landmarks has them."""
    sources = []
    for i in range(4):
        body = tar_of(random_files(20, seed=i))
        server.files[f"images_{i}.tar"] = body
        server.files[f"md5.images_{i}.txt"] = f"{md5(body)}  images_{i}.tar\n".encode()
        address, listed = server.url(f"images_{i}.tar"), server.url(f"md5.images_{i}.txt")
        sources.append(RemoteFile(f"images_{i}.tar", (address,), unpack="train", md5_url=listed))
    return sources


def test_files_are_fetched_verified_and_unpacked_together_and_only_once(parts, server, folder):
    assert fetch_all(parts, DownloadOptions(folder)) == {}
    assert {state_of(folder, source) for source in parts} == {"done"}
    names = {f"train/{name}" for seed in range(4) for name in random_files(20, seed=seed)}
    assert {name for name in found(folder) if name.startswith("train/")} == names
    asked = len(server.asked)
    assert fetch_all(parts, DownloadOptions(folder)) == {}
    assert len(server.asked) == asked == 8


def test_every_failure_is_listed_at_the_end_and_the_rest_is_there(parts, server, folder):
    server.files["md5.images_1.txt"] = b"0" * 32 + b"  images_1.tar"
    server.faults["images_2.tar"] = [status(403)] * 9
    server.files["md5.images_3.txt"] = PAGE
    problems = fetch_all(parts, DownloadOptions(folder), jobs=2)
    kinds = {
        "images_1.tar": IntegrityError,
        "images_2.tar": SourceError,
        "images_3.tar": SourceError,
    }
    assert {name: type(problem) for name, problem in problems.items()} == kinds
    assert state_of(folder, parts[0]) == "done"
    told = str(summary(problems))
    assert summary(problems).exit_code == 5
    assert all(f"images_{i}.tar" in told for i in (1, 2, 3))


def test_archives_may_be_removed_and_are_not_fetched_again(parts, server, folder):
    fetch_all(parts, DownloadOptions(folder, remove_archives=True))
    assert not list(folder.glob("*.tar"))
    asked = len(server.asked)
    assert fetch_all(parts, DownloadOptions(folder, remove_archives=True)) == {}
    assert {state_of(folder, source) for source in parts} == {"unpacked"}
    assert check_all(parts, folder) == {}
    assert len(server.asked) == asked


def test_what_changed_on_disk_is_found_and_repaired(parts, server, folder):
    fetch_all(parts[:2], DownloadOptions(folder))
    whole = found(folder)
    flipped = bytearray(whole["images_0.tar"])
    flipped[-2000] ^= 1
    (folder / "images_0.tar").write_bytes(flipped)
    victim = next(
        name for name in whole if name.startswith("train/") and "/1_" in name and whole[name]
    )
    (folder / victim).write_bytes(whole[victim][:-1] + b"?")
    problems = check_all(parts[:2], folder)
    assert "wrong md5" in str(problems["images_0.tar"])
    assert victim.removeprefix("train/") in str(problems["images_1.tar"])
    asked = len(server.asked)
    assert fetch_all(parts[:2], DownloadOptions(folder, repair=True)) == {}
    assert found(folder) == whole
    assert [path for path, _ in server.asked[asked:]] == ["md5.images_0.txt", "images_0.tar"]


def test_a_file_that_is_there_is_checked_and_a_wrong_one_replaced_only_by_force(server, folder):
    body = tar_of(random_files(5))
    server.files["data.tar"] = body
    source = RemoteFile("data.tar", (server.url("data.tar"),), md5=md5(body), unpack=".")
    folder.mkdir()
    (folder / "data.tar").write_bytes(b"mine")
    assert isinstance(fetch_all([source], DownloadOptions(folder))["data.tar"], IntegrityError)
    assert (folder / "data.tar").read_bytes() == b"mine"
    (folder / "data.tar").write_bytes(body)
    assert state_of(folder, source) == "unchecked"
    assert fetch_all([source], DownloadOptions(folder)) == {}
    assert server.asked == []
    (folder / "data.tar").write_bytes(b"mine")
    assert fetch_all([source], DownloadOptions(folder, repair=True)) == {}


def test_own_files_are_adopted_where_they_are(server, folder, tmp_path):
    body = tar_of(random_files(5))
    sources = [
        RemoteFile("data.tar", (server.url("x"),), md5=md5(body), unpack="."),
        RemoteFile("meta/list.txt", (server.url("y"),), md5=md5(b"1")),
    ]
    (tmp_path / "mine" / "sub").mkdir(parents=True)
    (tmp_path / "mine" / "sub" / "data.tar").write_bytes(body)
    (tmp_path / "mine" / "list.txt").write_bytes(b"1")
    assert adopt(sources, folder, tmp_path / "mine") == ["data.tar", "meta/list.txt"]
    assert fetch_all(sources, DownloadOptions(folder)) == {}
    assert server.asked == []
    assert not (folder / "data.tar").exists()
    assert (folder / "meta" / "list.txt").read_bytes() == b"1"
    assert (folder / "a" / "0" / "0_0.jpg").exists()


def test_too_small_a_disk_is_refused_before_anything_is_fetched(server, folder):
    source = RemoteFile("data.tar", (server.url("data.tar"),), size=10**18, unpack=".")
    with pytest.raises(DataError, match=r"is too small[^$]*2,000,000,000,000,000,000 free bytes"):
        fetch_all([source], DownloadOptions(folder))
    assert server.asked == []
    check_space([RemoteFile("data.tar", (), size=1000)], folder)


def test_two_downloads_into_one_folder_are_refused(parts, folder):
    (folder / ".hbench").mkdir(parents=True)
    with (
        filelock.FileLock(folder / ".hbench" / "lock"),
        pytest.raises(DataError, match="another download is writing"),
    ):
        fetch_all(parts, DownloadOptions(folder))


@pytest.fixture
def home(home):
    home.mkdir()
    return home


def test_a_dead_address_can_be_mended_by_the_user(home):
    shipped = sources_of(specs["cub200"])
    assert shipped[0].sha256 == "0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081"
    (home / "sources.toml").write_text(
        '[[cub200]]\nfile = "CUB_200_2011.tgz"\nurls = ["http://127.0.0.1/x"]\nunpack = "."\n'
    )
    assert [source.urls for source in sources_of(specs["cub200"])] == [("http://127.0.0.1/x",)]
    assert sources_of(specs["cub200"])[0].sha256 == shipped[0].sha256


def test_a_file_of_google_drive_goes_by_its_id(home):
    (home / "sources.toml").write_text(
        '[[cub200]]\nfile = "CUB_200_2011.tgz"\nurls = ["http://127.0.0.1/x"]\nunpack = "."\n'
        '[[sop]]\nfile = "x.zip"\nurls = ["gdrive:1TclrpQOF"]\n'
    )
    assert (
        sources_of(specs["sop"])[-1]
        .urls[0]
        .endswith("download?export=download&confirm=t&id=1TclrpQOF")
    )


def test_a_single_file_needs_one_pair_of_brackets(home):
    (home / "sources.toml").write_text('[sop]\nfile = "x.zip"\nurls = ["http://127.0.0.1/x"]\n')
    assert sources_of(specs["sop"])[-1].urls == ("http://127.0.0.1/x",)


@pytest.mark.usefixtures("home")
def test_a_mirror_goes_first():
    first = sources_of(specs["gldv2"], part="metadata", mirror="http://127.0.0.1:1/landmarks/")[0]
    assert first.urls[0] == "http://127.0.0.1:1/landmarks/metadata/train_clean.csv"
    assert first.urls[1].startswith("https://s3.amazonaws.com/google-landmark/metadata/")


@pytest.mark.usefixtures("home")
def test_the_images_of_gldv2_are_620_archives_with_sums_of_their_own():
    parts = sources_of(specs["gldv2"], part="images")
    assert len(parts) == 620
    assert (parts[499].file, parts[499].unpack) == ("train/images_499.tar", "train")
    assert (
        parts[619].md5_url
        == "https://s3.amazonaws.com/google-landmark/md5sum/test/md5.images_019.txt"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[sop]]\nfile = 'x'\nurl = 'http://x'\n", "unknown key 'url'"),
        ("[[sop]]\nfile = 'x'\n", "urls: missing"),
        ("sop = [5]\n", "5"),
        ("[[sop]\n", "Expected"),
        *(
            (f"{TABLE}{odd}\n", odd.partition(" ")[0])
            for odd in ("size = 'x'", "md5 = 1", "count = -1", "part = 'all'")
        ),
        *(
            (f"{TABLE}unpack = '{folder}'\n", "unpack: it must stay inside")
            for folder in ("../x", ".hbench")
        ),
        *((TABLE.replace("'x'", f'"{name}"'), "file: it must stay inside") for name in OUTSIDE),
    ],
)
def test_a_broken_registry_of_the_user_is_refused(home, text, reason):
    (home / "sources.toml").write_text(text)
    with pytest.raises(ConfigError) as refusal:
        sources_of(specs["sop"])
    assert reason in refusal.value.found


@pytest.mark.parametrize("odd", [{"path": 5}, {"size": "many"}, {"unpacked": []}, {"md5": None}])
def test_a_record_of_other_types_counts_as_none(tmp_path, odd):
    source = RemoteFile("x.zip", ("http://x",))
    sound = {"path": "x.zip", "size": 1, "time": 2, "md5": "a", "sha256": "b", "unpacked": None}
    (tmp_path / ".hbench").mkdir()
    for record, is_one in ((sound, True), (sound | odd, False), ([], False)):
        (tmp_path / ".hbench" / "x.zip.json").write_text(json.dumps(record))
        assert (read_record(tmp_path, source) is not None) == is_one


@pytest.fixture
def omniglot(server, home):
    """The real small Omniglot sets, served from here; their published sizes and checksums hold."""
    server.files |= omniglot_archives()
    write_sources(home, server)
    return home / "data" / "omniglot-small" / "raw"


def run_here(*arguments):
    """Run it in this process; a refusal's message is returned as the text of its error."""
    result = CliRunner().invoke(command, [str(part) for part in arguments])
    return result, result.exception.exit_code if isinstance(
        result.exception, HBenchError
    ) else result.exit_code


def wait_for(condition, seconds=30):
    for _ in range(seconds * 200):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it never came to that")


def begun(server, omniglot):
    """A download from a slow server, in a process of its own, and the part of a file that it has so
    far.
    """
    server.chunk, server.pause = 1 << 14, 0.01
    line = [sys.executable, "-m", "hbench", "download", "omniglot-small", "--jobs", "1"]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    part = omniglot / ".images_background_small1.zip.part"
    wait_for(lambda: part.exists() and part.stat().st_size > 300_000)
    return process, part


def test_download_build_and_load_a_real_dataset(omniglot):
    done = run("download", "omniglot-small")
    assert done.stdout == ""
    assert "next: hbench build omniglot-small" in done.stderr
    counts = json.loads(run("build", "omniglot-small", "--json").stdout)["counts"]
    assert (counts["train"]["images"], counts["test"]["character"]) == (2_720, 156)
    assert run_here("omniglot-small", "--verify-only")[1] == 0
    listed, code = run_here("omniglot-small", "--offline")
    assert (code, listed.stdout.count("\tdone\t")) == (0, 2)


def test_a_killed_download_resumes_and_fetches_nothing_twice(omniglot, server):
    process, part = begun(server, omniglot)
    process.kill()
    process.wait()
    kept = part.stat().st_size
    server.pause = 0
    # it may still count a block sent to the killed process
    wait_for(lambda: len(server.ended) == len(server.asked))
    server.sent.clear()
    server.asked.clear()
    run("download", "omniglot-small", "--jobs", 1)
    archive = omniglot / "images_background_small1.zip"
    assert archive.read_bytes() == server.files[archive.name]
    assert [where for name, where in server.asked if name == archive.name] == [f"bytes={kept}-"]
    assert server.sent[archive.name] == len(server.files[archive.name]) - kept
    assert not list(omniglot.glob(".*.part*"))


def test_interrupting_ends_with_130_and_keeps_what_came(omniglot, server):
    process, part = begun(server, omniglot)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert part.stat().st_size > 300_000


def test_failures_end_with_their_exit_code_and_a_list(omniglot, server):
    body = server.files["images_background_small1.zip"]
    server.files["images_background_small1.zip"] = body[:-1] + b"?"
    result, code = run_here("omniglot-small")
    assert (code, "wrong sha256" in str(result.exception)) == (5, True)
    server.faults["images_background_small1.zip"] = [status(404)] * 5
    lines = run(
        "download", "omniglot-small", "--mirror", server.url("mirror"), code=6
    ).stderr.splitlines()
    start = next(
        i
        for i, line in enumerate(lines)
        if "images_background_small1.zip could not be fetched" in line
    )
    addresses = [server.url(f"{place}images_background_small1.zip") for place in ("mirror/", "")]
    assert [line.split()[0] for line in lines[start + 1 : start + 3]] == addresses


def test_what_needs_no_files_says_so_and_an_empty_folder_cannot_be_adopted(home, tmp_path):
    result, code = run_here("glyphs")
    assert (code, "glyphs needs no files" in result.stderr) == (0, True)
    result, code = run_here("sop", "--adopt", tmp_path)
    assert code == 4
    assert "Ebay_train.txt, Stanford_Online_Products.zip" in str(result.exception)
    assert not (home / "data").exists()


def test_offline_and_dry_run_touch_nothing(omniglot, server):
    offline, code = run_here("omniglot-small", "--offline")
    assert (code, "missing" in offline.stdout) == (4, True)
    dry, code = run_here("omniglot-small", "--dry-run")
    assert (code, "images_background_small2.zip" in dry.stdout, "1,580,917" in dry.stdout) == (
        0,
        True,
        True,
    )
    assert server.asked == []
    assert not omniglot.exists()


def test_adopted_archives_are_unpacked_offline(omniglot, server, tmp_path):
    for name in ("images_background_small1.zip", "images_background_small2.zip"):
        (tmp_path / name).write_bytes(server.files[name])
    refused, code = run_here("omniglot-small", "--adopt", tmp_path, "--offline", "--dry-run")
    assert (code, "leave one out" in str(refused.exception)) == (2, True)
    assert not omniglot.exists()
    assert run_here("omniglot-small", "--adopt", tmp_path, "--offline")[1] == 0
    assert (omniglot / "images_background_small2" / "Latin" / "character01").is_dir()
    (tmp_path / "images_background_small1.zip").unlink()
    assert run_here("omniglot-small", "--offline")[1] == 0  # what was unpacked is still there
    assert server.asked == []


def test_what_cannot_be_automated_says_where_to_get_it_and_can_be_adopted(home, tmp_path):
    result, code = run_here("dyml-animal")
    assert code == 4
    assert "OneDrive" in str(result.exception)
    assert "bmk_{fine,middle,coarse}" in str(result.exception)
    mine = tmp_path / "DyML-Animal" / "animal"
    (mine / "bmk_fine").mkdir(parents=True)
    assert run_here("dyml-animal", "--adopt", tmp_path / "DyML-Animal")[1] == 0
    adopted = (home / "data" / "dyml-animal" / "raw" / "adopted.txt").read_text().strip()
    assert adopted == str(mine.resolve())


@pytest.mark.usefixtures("omniglot")
def test_the_bar_of_an_archive_counts_each_byte_once_then_the_files_unpacked(server):
    server.chunk, server.pause = 1_000_000, 0.3  # seconds after a chunk, for the bar to show it
    shown = at_a_terminal("download", "omniglot-small", columns=120, remarks=True)
    assert "1.0" in re.findall(r"small1.zip \S* *(\d\.\d)/1.3 MB", shown)
    numbers = re.findall(r"small1.zip: ([\d,]+) files unpacked \S* *1.3/1.3 MB", shown)
    assert 0 < int(numbers[-1].replace(",", "")) < 3000


def test_a_disk_that_fills_up_keeps_the_part_and_says_so(server, small_disk):
    body = random.Random(0).randbytes(3_000_000)
    server.files["big.bin"] = body
    source = RemoteFile("big.bin", (server.url("big.bin"),), md5=md5(body))
    problem = fetch_all([source], DownloadOptions(small_disk))["big.bin"]
    assert "the disk is full" in str(problem)
    came = (small_disk / ".big.bin.part").stat().st_size
    assert came > 0
    assert problem.expected == f"{len(body) - came:,} more bytes free"
    assert not (small_disk / "big.bin").exists()


def test_a_disk_that_fills_up_while_unpacking_keeps_whole_files_only(small_disk, tmp_path):
    files = {f"{i}.bin": random.Random(i).randbytes(100_000) for i in range(30)}
    (tmp_path / "set.tar").write_bytes(tar_of(files))
    digest = md5((tmp_path / "set.tar").read_bytes())
    sources = [RemoteFile("set.tar", ("http://127.0.0.1/set.tar",), md5=digest, unpack="out")]
    adopt(sources, small_disk, tmp_path)
    assert "the disk is full" in str(fetch_all(sources, DownloadOptions(small_disk))["set.tar"])
    for name, body in found(small_disk / "out").items():
        assert name.startswith(".") or files[name] == body


def test_a_read_only_folder_is_one_clear_message(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(DataError, match="cannot be written"):
        fetch_all([RemoteFile("small.bin", ())], DownloadOptions(small_disk))
