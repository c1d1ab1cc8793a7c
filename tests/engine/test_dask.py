"""Evaluation over a real scheduler and real workers on 127.0.0.1, one of which is killed: the same
report to the bit.
"""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from hbench.core.errors import SourceError, UsageError
from hbench.engine.job import Job
from hbench.evaluation.evaluate import report_on
from hbench.evaluation.examination import examine
from hbench.submissions import embeddings
from tests import zoo

pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
psutil = pytest.importorskip("psutil")
cluster = pytest.importorskip("hbench.engine.executors.dask")
READER = cluster.FileReader(embeddings.read, embeddings.joined)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def started(folder, *arguments):
    """A dask process, and the address it says it listens at."""
    log = folder / f"{time.monotonic_ns()}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stdout=file, stderr=file, cwd=folder
        )
    while not (found := re.search(r"(?:Scheduler|worker) at:\s+(tcp://\S+)", log.read_text())):
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    return process, found[1]


ALONE = ("--host", "127.0.0.1", "--no-dashboard")


@pytest.fixture
def scheduler(tmp_path):
    """A scheduler's process and address, and the function that starts a worker of it in a
    folder."""
    process, address = started(tmp_path, "distributed.cli.dask_scheduler", *ALONE, "--port", "0")
    running = [process]

    def start_worker(folder):
        more = ["--nthreads", "1", "--no-nanny", "--death-timeout", "60"]
        running.append(started(folder, "distributed.cli.dask_worker", address, *ALONE, *more)[0])
        return running[-1]

    yield process, address, start_worker
    for each in running:
        each.kill()
        each.wait()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    zoo.make(folder, items=4_500)
    return folder


def test_a_worker_killed_in_mid_run_changes_no_bit_of_the_report(home, scheduler, tmp_path):
    examined = examine(home / zoo.FILE, home / zoo.DATASET, also_official=True)
    _, address, start_worker = scheduler
    workers = [start_worker(tmp_path) for _ in range(2)]
    killed = []

    def kill_one(done, blocks):
        if not killed:
            killed.append(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)

    with cluster.connected(address, 0) as client:
        client.wait_for_workers(2)
        execute = cluster.on_cluster(client, [cluster.File(home / zoo.FILE)], READER)
        report = report_on(examined, execute=execute, on_test=lambda name: kill_one)
    assert killed
    assert zoo.same(report, report_on(examined))


def test_workers_that_do_not_see_the_file_get_it_from_one_that_does(home, scheduler, tmp_path):
    examined = examine(home / zoo.FILE, home / zoo.DATASET)
    near, far = tmp_path / "near", tmp_path / "far"
    for folder in (near, far):
        folder.mkdir()
    for path in home.iterdir():
        (near / path.name).write_bytes(path.read_bytes())
    _, address, start_worker = scheduler
    for folder in (near, far):
        start_worker(folder)
    with cluster.connected(address, 0) as client:
        client.wait_for_workers(2)
        file = cluster.File(cluster.Path(zoo.FILE))  # relative: each worker looks in its own folder
        report = report_on(examined, execute=cluster.on_cluster(client, [file], READER))
        with pytest.raises(UsageError, match="no worker sees"):
            report_on(
                examined,
                execute=cluster.on_cluster(
                    client, [cluster.File(cluster.Path("elsewhere.npy"))], READER
                ),
            )
    assert zoo.same(report, report_on(examined))


def test_a_killed_scheduler_is_reported(home, scheduler, tmp_path):
    examined = examine(home / zoo.FILE, home / zoo.DATASET)
    process, address, start_worker = scheduler
    start_worker(tmp_path)
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        cluster.connected(address, 0) as client,
    ):
        client.wait_for_workers(1)
        execute = cluster.on_cluster(client, [cluster.File(home / zoo.FILE)], READER)
        with pytest.raises(SourceError, match="the scheduler is gone"):
            report_on(
                examined, execute=execute, on_test=lambda name: lambda done, blocks: process.kill()
            )


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        *(
            (address, UsageError, "is not an address of a scheduler")
            for address in ("nonsense", "tcp://[::", "tcp://127.0.0.1", "")
        ),
        ("tcp://127.0.0.1:9", SourceError, r"no scheduler answers at tcp://127\.0\.0\.1:9"),
    ],
)
def test_addresses_that_are_invalid_or_do_not_answer_are_refused(address, error, words):
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(error, match=words),
        cluster.connected(address, 0),
    ):
        pass


def test_ctrl_c_reaches_one_process_and_ends_all(home):
    evaluate = [
        sys.executable,
        "-m",
        "hbench",
        "evaluate",
        home / zoo.FILE,
        "-d",
        home / zoo.DATASET,
        "--workers",
        "2",
    ]
    process = subprocess.Popen(
        evaluate, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    whole = psutil.Process(process.pid)
    while len(workers := whole.children(recursive=True)) < 3:  # and what multiprocessing needs
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in output
    assert output.endswith("hbench: interrupted\n")
    assert not psutil.wait_procs(workers, timeout=10)[1]


def test_a_job_of_arrays_is_refused():
    execute = cluster.on_cluster(None, [], READER)
    with pytest.raises(UsageError, match="embedding files"):
        list(execute(Job(None, []), [0]))


def test_local_worker_processes_give_the_same_report_by_the_command_line(home, tmp_path):
    evaluate = [
        sys.executable,
        "-m",
        "hbench",
        "evaluate",
        home / zoo.FILE,
        "-d",
        home / zoo.DATASET,
    ]
    for name, options in {"here": [], "workers": ["--workers", "2"]}.items():
        subprocess.run(
            [*evaluate, "-o", tmp_path / name, *options], check=True, stdout=subprocess.DEVNULL
        )
    assert (tmp_path / "here").read_text() == (tmp_path / "workers").read_text()
