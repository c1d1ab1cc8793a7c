"""Computes the blocks of a job as tasks of a dask.distributed cluster, which retries and
reschedules them.

Embeddings never pass through the client. A worker that sees their files opens them itself, and maps
them where the format allows; a worker that does not gets them from one that does. Either way it
makes the same job and checks its digest, so that the values are the same bits wherever a block is
computed.
"""

import logging
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from distributed import Client, Future, LocalCluster, WorkerPlugin, as_completed, get_worker
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hbench.core.errors import IntegrityError, SourceError, UsageError
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute, Job, Values

Content = tuple[NDArray[Any], NDArray[Any]]  # the ids and the vectors of a file
RETRIES = 3
ADDRESS = re.compile(r"([a-z]+://)?(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):\d{1,5}")


class FileReader(NamedTuple):
    """The functions by which a worker gets embeddings, with their `ids` (N,) and `vectors` (N, D):
    `read` opens a file (and that of its ids), `join` takes ids and vectors that were sent."""

    read: Callable[..., Any]
    join: Callable[[NDArray[Any], NDArray[Any]], Any]


class File(NamedTuple):
    """An embedding file and the file of its ids, if that is another, where the workers look for
    them.
    """

    path: Path
    ids: Path | None = None


@contextmanager
def connected(scheduler: str | None, workers: int) -> Iterator[Client]:
    """A client of the scheduler at this address; or, for None, of this many `workers`: local
    processes of one thread each, which end with the client.

    Raises UsageError for an address that is none, SourceError where no scheduler answers.
    """
    if scheduler is not None:
        if not ADDRESS.fullmatch(scheduler):
            raise UsageError(
                f"{scheduler!r} is not an address of a scheduler", expected="tcp://HOST:PORT"
            )
        try:
            # not the default: other code of this process may use dask for something else
            client = Client(scheduler, set_as_default=False)
        except (OSError, ValueError) as error:
            reason = f"no scheduler answers at {scheduler}"
            fix = "start one: dask scheduler"
            raise SourceError(reason, found=str(error), fix=fix) from None
        with client:
            yield client
        return

    with ExitStack() as stack:
        with _interrupts_wait():
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=logging.ERROR,
            )
            client = Client(stack.enter_context(cluster), set_as_default=False)
        yield stack.enter_context(client)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Hold Ctrl-C back in this thread meanwhile. Threads and processes that are started in here
    inherit that, and keep it for good.

    A terminal sends Ctrl-C to all its processes, but only this one is to be interrupted, and then
    ends its workers itself.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    # started first: Python lets Ctrl-C through again when it starts this helper process
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def on_cluster(client: Client, files: Sequence[File], reader: FileReader) -> Execute:
    """An executor that lets the workers of the client's cluster compute the blocks: one task per
    block, results as they come. `files`: those of the queries' and the gallery's vectors; `reader`:
    reads one.

    Raises UsageError when no worker sees the files, or the job is not one of files.
    """

    def execute(job: Job, blocks: Sequence[int]) -> Iterator[tuple[int, Values]]:
        """Compute blocks of queries, given by their numbers, on the cluster. A task's key names its
        job and block, so that a worker that died costs its own blocks alone."""
        if job.rebuild is None:
            raise UsageError(
                "a cluster computes jobs of embedding files", expected="a file that the workers see"
            )

        name = f"hbench-{job.digest}"
        client.register_plugin(
            Opened(job.rebuild, job.digest, files=tuple(files), reader=reader), name=name
        )
        tasks: dict[Future[Values], int] = {}
        try:
            # the files' bytes, sent to workers that do not see them; empty where all do
            contents = _contents(client, name, files)
            for block in blocks:
                submitted = client.submit(
                    _values,
                    name,
                    block,
                    contents,
                    key=f"{name}-{block}",
                    retries=RETRIES,
                    pure=False,
                )
                tasks[submitted] = block
            for task, values in as_completed(tasks, with_results=True, loop=client.loop):
                # where the scheduler is lost, dask gives something else and raises nothing
                if not isinstance(values, Values):
                    fix = "run again; with --resume what is finished stays"
                    raise SourceError("the scheduler is gone", found=str(values), fix=fix)
                yield tasks[task], values
        finally:
            with suppress(OSError, CancelledError):  # there may be nobody left to tell
                client.cancel(list(tasks))
                client.unregister_worker_plugin(name)

    return execute


class Opened(WorkerPlugin):
    """A job as a worker keeps it: its embeddings, `read`, and the job itself, `made`, both None
    until their first use; `lock`: held while one thread makes them, so that others wait for it."""

    def __init__(
        self,
        rebuild: Callable[[Any], Job],
        digest: str,
        *,
        files: Sequence[File],
        reader: FileReader,
    ) -> None:
        """`rebuild`: makes the job of the embeddings; `digest`: that of the client's job, which it
        must have; `files`: the embedding files; `reader`: two functions, one that reads a file and
        one that joins ids and vectors which were sent."""
        self.rebuild = rebuild
        self.digest = digest
        self.files = files
        self.reader = reader

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to the workers; their `setup` makes the rest, a lock and the results."""
        return {
            "rebuild": self.rebuild,
            "files": self.files,
            "digest": self.digest,
            "reader": self.reader,
        }

    def setup(self, worker: Any) -> None:
        """Called by dask on each worker when the plugin arrives there."""
        self.lock = threading.RLock()  # `job` calls `embedded` while it holds the lock
        self.read: list[Any] | None = None
        self.made: Job | None = None
        threadpool_limits(1, user_api="blas")  # for good: tasks run beside one another

    def embedded(self, contents: Sequence[Content] = ()) -> list[Any]:
        """The embeddings of all files, read once; made of `contents`, the ids and vectors of each
        file, where these were sent because this worker does not see the files."""
        with self.lock:  # other threads of the worker wait for what is being read
            if self.read is None:
                read, join = self.reader
                sent = [join(*content) for content in contents]
                self.read = sent or [read(path, ids=ids) for path, ids in self.files]
            return self.read

    def job(self, contents: Sequence[Content]) -> Job:
        """The job, made once from the embeddings; the same as the client's, whose `digest` came
        with the plugin, or IntegrityError. `contents`: as at `embedded`."""
        with self.lock:  # other threads of the worker wait for what is being made
            if self.made is None:
                made = self.rebuild(self.embedded(contents))
                if made.digest != self.digest:
                    raise IntegrityError(
                        f"a worker reads different content from {self.files[0].path}",
                        expected=f"job {self.digest[:16]}",
                        found=f"job {made.digest[:16]}",
                        fix="give all workers the same files and version of hbench",
                    )
                self.made = made
            return self.made


def _opened(name: str) -> Opened:
    """The plugin of this name, `hbench-DIGEST`, of the worker that runs the calling task."""
    plugin: Any = get_worker().plugins[name]
    return cast(Opened, plugin)


def _values(name: str, block: int, contents: Sequence[Content]) -> Values:
    """The task of one block, as it runs on a worker: `name` is that of the plugin with the job,
    `contents` the files' ids and vectors, empty where the worker reads them itself.

    One thread: a worker runs a task on each of its threads already.
    """
    [(_, values)] = on_threads(_opened(name).job(contents), [block], threads=1)
    return values


def _contents(client: Client, name: str, files: Sequence[File]) -> list[Any]:
    """Return the files' contents, as futures of workers that see the files, for those that do not;
    empty where all see them. `name`: of the plugin by which the workers read them; `files`: in the
    order of the result."""
    sees = client.run(
        lambda: all(path.exists() for file in files for path in file if path is not None)
    )
    seeing = [worker for worker, found in sees.items() if found]
    if not seeing:
        raise UsageError(
            f"no worker sees {', '.join(str(file.path) for file in files)}",
            expected="a path on a shared file system",
            found=f"{len(sees)} workers",
            fix="start a worker on the machine that holds the files",
        )
    if len(seeing) == len(sees):
        return []

    # pure=False: read anew, and not the result of an earlier call, for the files may have changed
    submit = partial(client.submit, workers=seeing, retries=RETRIES, pure=False)
    return [submit(_content, name, number) for number in range(len(files))]


def _content(name: str, number: int) -> Content:
    """The ids and the vectors of file `number`, as a worker that sees it reads them; copies, for
    what is mapped from disk cannot be sent."""
    whole = _opened(name).embedded()[number]
    return np.array(whole.ids), np.array(whole.vectors)
