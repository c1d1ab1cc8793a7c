"""Execution: the options that choose who computes an evaluation, with how much memory, and what is
kept on disk.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hbench.core.errors import UsageError
from hbench.engine.executors.kept_blocks import Share, kept_in
from hbench.engine.executors.threads import on_threads
from hbench.engine.job import Execute
from hbench.evaluation.evaluate import report_on
from hbench.evaluation.examination import Examined
from hbench.evaluation.measurement import OnTest, measure
from hbench.evaluation.submission.ranking import RankingSubmission
from hbench.records.report import Report
from hbench.submissions import embeddings

ELSEWHERE = ("blocks", "workers", "scheduler", "device", "resume")
# {option: (what it does, the options that it excludes)}
APART = {
    "device": ("ranks in this process", ("workers", "scheduler")),
    "trees": ("keeps no first results", ("top_k",)),
    "top_k": ("ranks in this process, in one go", ELSEWHERE),
}


@dataclass(frozen=True)
class Execution:
    """Who computes an evaluation, and what is kept. Raises UsageError for options that exclude each
    other.

    Attributes:
        threads: number of threads; None: all.
        memory: bytes held beyond the embeddings; None: the default.
        device: a torch device.
        workers: number of local dask workers.
        scheduler: address of a dask scheduler.
        resume: folder in which finished blocks are kept, and from which they are read again.
        blocks: the share "i/n" of the blocks to compute, which is only kept in `resume`.
        top_k: number of first results of every query to keep.
        trees: other label trees to score under, as typed by the user.
        edges: the columns of parent and child in files of `trees` that list edges.
    """

    threads: int | None = None
    memory: int | None = None
    device: str | None = None
    workers: int | None = None
    scheduler: str | None = None
    resume: Path | None = None
    blocks: str | None = None
    top_k: int = 0
    trees: str | None = None
    edges: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise UsageError for options that exclude each other, before the submission and the
        dataset are read. Raises the errors of `parse` for `trees`, whose files are read here."""
        # APART: {option: (what it does, the options that it excludes)}
        for option, (does, others) in APART.items():
            joined = [other for other in others if getattr(self, option) and getattr(self, other)]
            if joined:
                option, other = (name.replace("_", "-") for name in (option, joined[0]))
                raise UsageError(f"--{option} {does}: leave --{other} out")
        if self.blocks:
            Share.parse(self.blocks)  # raises unless it is "i/n"
        if self.blocks and not self.resume:
            raise UsageError(
                "a share of the blocks needs a folder to keep them in",
                fix="name one by --resume DIR",
            )
        if self.edges and not self.trees:
            raise UsageError(
                "--edges names the columns of a list of edges, for --trees",
                found="no --trees",
                fix="name the file by --trees FILE, or leave --edges out",
            )
        if self.trees:
            # imported only here, which saves other commands a tenth of a second
            from hbench.evaluation.variants.trees import parse

            parse(self.trees, self.edges)  # raises for files without a tree

    @contextmanager
    def open(
        self,
        files: Sequence[tuple[Path, Path | None]],
        announce: Callable[[str], None] | None = None,
    ) -> Iterator[Execute]:
        """Yield the executor that the options choose: a GPU, dask workers, or threads. With
        `resume`, finished blocks are kept on disk. Local dask workers stop when the `with` block
        ends.

        `files`: the embedding files, each with the file of its ids, or None if it holds them; dask
        workers read these files themselves. `announce`: called with a line of text before kernels
        are compiled.
        """
        execute: Execute = partial(on_threads, threads=self.threads, announce=announce)
        kept = self.resume
        with ExitStack() as stack:
            if self.device:
                from hbench.engine.executors.gpu import on_devices

                execute = on_devices(self.device)
                # GPU and CPU results differ in the last bits, so their blocks are kept in separate
                # folders: those of "cuda:0" in "cuda"
                if kept is not None:
                    kept = kept / self.device.partition(":")[0]
            elif self.scheduler or self.workers:
                from hbench.engine.executors import dask

                # the number of workers has no effect beside a scheduler, which has its own
                client = stack.enter_context(dask.connected(self.scheduler, self.workers or 0))
                # the functions by which a worker opens a file, and joins ids and vectors
                reader = dask.FileReader(embeddings.read, embeddings.joined)
                execute = dask.on_cluster(
                    client, [dask.File(path.resolve(), ids) for path, ids in files], reader
                )
            yield kept_in(kept, execute) if kept else execute

    def report(self, examined: Examined, execute: Execute, on_test: OnTest | None = None) -> Report:
        """Measure every test of an examined submission, and return the report. With `trees`, it
        also has scores under other trees (`edges`: columns of parent and child in their files);
        with `top_k`, the first results of every query.

        `execute`: the executor that `open` yields. `on_test`: called with the name of a test;
        returns a function that is called with the number of finished blocks and that of all.
        """
        if self.trees:
            from hbench.evaluation.variants.trees import parse, report_under

            return report_under(  # without `top_k`, which `trees` excludes
                examined,
                parse(self.trees, self.edges),
                memory=self.memory,
                execute=execute,
                on_test=on_test,
            )
        return report_on(
            examined, memory=self.memory, execute=execute, on_test=on_test, top_k=self.top_k
        )

    def refuse_unfit(self, examined: Examined) -> None:
        """Raise the errors of an evaluation that come before anything is ranked: those of the
        similarity, of other trees, of the memory and of the device."""
        if self.device:
            from hbench.engine.executors.gpu import on_devices

            on_devices(self.device)  # raises for a device that does not exist here
        if self.trees:
            from hbench.evaluation.variants.trees import jobs_under, parse

            jobs_under(examined, parse(self.trees, self.edges), memory=self.memory)
        else:
            examined.jobs(memory=self.memory)

    def refuse_for_ranking(self, examined: Examined) -> None:
        """Raise UsageError for options of who ranks, if a ranking was submitted."""
        unused = [f"--{name}" for name in ELSEWHERE if getattr(self, name)]
        if unused and isinstance(examined.submission, RankingSubmission):
            raise UsageError(
                f"{examined.submission.source.file} is ranked already",
                expected="embeddings, which hbench ranks",
                fix=f"leave {' and '.join(unused)} out",
            )

    def keep_blocks(
        self, examined: Examined, execute: Execute, on_test: OnTest | None = None
    ) -> int:
        """Compute this process's share of every test's blocks, and return how many blocks it has.

        With `trees`, the job of each test also computes its blocks under the other trees (`edges`:
        columns of parent and child in their files).

        `execute`: the executor that `open` yields; it keeps the blocks in the folder `resume` of
        the options. `on_test`: called with the name of a test; returns a function that is called
        with the number of finished blocks and that of all. Raises UsageError for a ranking, which
        has no blocks.
        """
        share = Share.parse(self.blocks or "1/1")  # "i/n"; "1/1" is all blocks
        if self.trees:
            from hbench.evaluation.variants.trees import jobs_under, parse

            jobs = jobs_under(examined, parse(self.trees, self.edges), memory=self.memory)
        else:
            jobs = examined.jobs(memory=self.memory)
        if set(jobs) != set(examined.data.tests):  # a ranking makes no job
            raise UsageError("rankings have no blocks", expected="embeddings")
        number = 0
        for name, job in jobs.items():
            own = share.of_blocks(job.ranker.blocks)  # a range, out of the number of all blocks
            on_block = on_test(name) if on_test else None
            measure(job, execute=execute, blocks=own, on_block=on_block)
            number += len(own)
        return number
