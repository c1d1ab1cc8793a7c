"""Computes the blocks of a job as tasks of a dask.distributed cluster, which retries and
reschedules them.

Embeddings never pass through the client. A worker that sees their files opens them itself, and maps
them into memory where the format allows. A worker that does not see the files gets the embeddings
from one that does. In both cases the worker makes the same job and checks its digest, so that the
values are the same bits on whichever worker a block is computed.
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
    """Two functions by which a worker gets embeddings, an object with `ids` (N,) and `vectors`
    (N, D).

    `read(path, ids=…)`: opens an embedding file, with the file of its ids. `join(ids, vectors)`:
    makes embeddings of ids and vectors that another worker sent.
    """

    read: Callable[..., Any]
    join: Callable[[NDArray[Any], NDArray[Any]], Any]


class File(NamedTuple):
    """An embedding file, by the path at which the workers look for it. `ids`: the file of its ids,
    None if they are in the embedding file."""

    path: Path
    ids: Path | None = None


@contextmanager
def connected(scheduler: str | None, workers: int) -> Iterator[Client]:
    """A client of the dask scheduler at the address `scheduler`. If that is None, a client of a new
    cluster of this many `workers`: local processes of one thread each, which end with the client.

    Raises UsageError for text that is no address, and SourceError if no scheduler answers there.
    """
    if scheduler is not None:
        if not ADDRESS.fullmatch(scheduler):
            raise UsageError(
                f"{scheduler!r} is not an address of a scheduler", expected="tcp://HOST:PORT"
            )
        try:
            # not as the default client: other code of this process may use dask for itself
            client = Client(scheduler, set_as_default=False)
        except (OSError, ValueError) as error:
            reason = f"no scheduler answers at {scheduler}"
            fix = "start one: dask scheduler"
            raise SourceError(reason, found=str(error), fix=fix) from None
        with client:
            yield client
        return

    with ExitStack() as stack:
        # workers that start while Ctrl-C is blocked inherit the block: only this process gets it
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
    """Block the signal of Ctrl-C in this thread inside of `with`. Threads and processes that are
    started meanwhile inherit the block and keep it for good.

    A terminal sends Ctrl-C to all of its processes. Only this process is to be interrupted; it then
    ends its workers itself.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    # This helper process of multiprocessing is started before the signal is blocked, because Python
    # unblocks Ctrl-C in this thread when it starts the helper.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def on_cluster(client: Client, files: Sequence[File], reader: FileReader) -> Execute:
    """Return an executor that lets the workers of the client's cluster compute the blocks. Each
    block is one task, and values are yielded as they arrive.

    `files`: the files of the queries' and of the gallery's vectors; `reader`: how workers get the
    embeddings of a file. The executor raises UsageError if none of the workers sees the files, or
    if the job was not made from files.
    """

    def execute(job: Job, blocks: Sequence[int]) -> Iterator[tuple[int, Values]]:
        """Compute blocks of queries, given by their numbers, on the cluster. The key of a task
        names its job and block, so that if a worker dies, only its own blocks are repeated."""
        if job.rebuild is None:
            raise UsageError(
                "a cluster computes jobs of embedding files", expected="a file that the workers see"
            )

        name = f"hbench-{job.digest}"
        # every worker gets the plugin, which makes the job there at the first task: from the
        # `files`, which `reader` reads, or from their contents
        client.register_plugin(
            Opened(job.rebuild, job.digest, files=tuple(files), reader=reader), name=name
        )
        tasks: dict[Future[Values], int] = {}
        try:
            # the files' contents, which a worker that sees the files reads for those that do not;
            # empty if all workers see them
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
                # if the scheduler is lost, dask returns another object instead of raising an error
                if not isinstance(values, Values):
                    fix = "run again; with --resume what is finished stays"
                    raise SourceError("the scheduler is gone", found=str(values), fix=fix)
                yield tasks[task], values
        finally:
            with suppress(OSError, CancelledError):  # the scheduler may be gone
                client.cancel(list(tasks))
                client.unregister_worker_plugin(name)

    return execute


class Opened(WorkerPlugin):
    """A dask plugin by which a worker opens a job and keeps it.

    `read`: the embeddings, and `made`: the job, both None until their first use. `lock`: held by
    the thread that makes them, so that other threads wait.
    """

    def __init__(
        self,
        rebuild: Callable[[Any], Job],
        digest: str,
        *,
        files: Sequence[File],
        reader: FileReader,
    ) -> None:
        """Keep what a worker needs to make the job.

        Args:
            rebuild: makes the job from the embeddings of all files.
            digest: the digest of the client's job; the worker's job must have the same.
            files: the embedding files.
            reader: how a worker gets the embeddings of a file.
        """
        self.rebuild = rebuild
        self.digest = digest
        self.files = files
        self.reader = reader

    def __getstate__(self) -> dict[str, Any]:
        """The attributes that are sent to the workers. `setup` sets the others there, as a lock
        cannot be sent."""
        return {
            "rebuild": self.rebuild,
            "files": self.files,
            "digest": self.digest,
            "reader": self.reader,
        }

    def setup(self, worker: Any) -> None:
        """Called by dask on each worker when the plugin arrives there."""
        # an RLock, because `job` calls `embedded` while it holds the lock
        self.lock = threading.RLock()
        self.read: list[Any] | None = None
        self.made: Job | None = None
        threadpool_limits(1, user_api="blas")  # for good, because tasks run in parallel

    def embedded(self, contents: Sequence[Content] = ()) -> list[Any]:
        """The embeddings of all files, made at the first call. `contents`: the ids and vectors of
        each file, if another worker sent them because this one may not see the files; empty if
        this worker is to read the files."""
        with self.lock:  # other threads of the worker wait for what is being read
            if self.read is None:
                read, join = self.reader  # read(path, ids=…), join(ids, vectors): embeddings
                sent = [join(*content) for content in contents]
                # a File has a path, and that of a second file with the ids, None if there is none
                self.read = sent or [read(path, ids=ids) for path, ids in self.files]
            return self.read

    def job(self, contents: Sequence[Content]) -> Job:
        """The job, made from the embeddings at the first call. Raises IntegrityError if it is not
        the same as the client's job. `contents`: the ids and vectors of each file, if another
        worker sent them; empty if this worker is to read the files."""
        # other threads of the worker wait for what is being made; the lock is reentrant, as
        # `embedded` takes it again
        with self.lock:
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
    """The plugin with this name, `hbench-DIGEST`, on the worker that runs the calling task."""
    plugin: Any = get_worker().plugins[name]
    return cast(Opened, plugin)


def _values(name: str, block: int, contents: Sequence[Content]) -> Values:
    """Compute the values of one block: a task that runs on a worker.

    `name`: of the plugin (`Opened`) that has the job on this worker. `contents`: the ids and
    vectors of all files, empty if the worker reads the files itself. The client passes futures,
    which dask replaces by what they hold.
    """
    # one thread, as a worker already runs a task on each of its threads
    [(_, values)] = on_threads(_opened(name).job(contents), [block], threads=1)
    return values


def _contents(client: Client, name: str, files: Sequence[File]) -> list[Any]:
    """Let workers that see the files read them for the workers that do not. Return the contents of
    the files as dask futures, in the order of `files`, or an empty list if all workers see the
    files. `name`: of the plugin by which the workers read files."""
    # {address of a worker: whether it sees every file}; a file may have a second one, with its ids
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

    # pure=False: read the files anew, as they may have changed since an equal call
    submit = partial(client.submit, workers=seeing, retries=RETRIES, pure=False)
    return [submit(_content, name, number) for number in range(len(files))]


def _content(name: str, number: int) -> Content:
    """The ids and the vectors of file `number`, read by a worker that sees it. They are copied,
    because arrays that are mapped from disk cannot be sent."""
    whole = _opened(name).embedded()[number]
    return np.array(whole.ids), np.array(whole.vectors)
