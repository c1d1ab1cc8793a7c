"""Execution: which executor computes an evaluation, within which bounds, and what is kept on the
way.
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
from hbench.records.report import Report
from hbench.submissions import embeddings

ELSEWHERE = ("blocks", "workers", "scheduler", "device", "resume")
APART = {  # an option, what it does, and the options that it cannot be joined with
    "device": ("ranks in this process", ("workers", "scheduler")),
    "trees": ("keeps no first results", ("top_k",)),
    "top_k": ("ranks in this process, in one go", ELSEWHERE),
}


@dataclass(frozen=True)
class Execution:
    """Who computes, and what is kept.

    `threads`, `memory` (bytes beyond the embeddings); a torch `device`; the number of local
    `workers`, or a dask `scheduler`; the folder in which finished blocks are kept to `resume` from;
    the share i/n of the `blocks` that alone is computed, and kept there; the first `top_k` results
    to keep; other `trees` to score under, in words, whose lists of edges have these columns
    (`edges`).

    Raises UsageError for what does not go together.
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
        """Raise UsageError for options that exclude each other, before anything is read. APART has,
        for an option, what it does, and the options that it cannot be joined with."""
        for option, (does, others) in APART.items():
            joined = [other for other in others if getattr(self, option) and getattr(self, other)]
            if joined:
                option, other = (name.replace("_", "-") for name in (option, joined[0]))
                raise UsageError(f"--{option} {does}: leave --{other} out")
        # What few evaluations need is imported by them alone: every command starts a tenth of a
        # second sooner.
        if self.blocks:
            Share.parse(self.blocks)  # raises for what is no share i/n
        if self.blocks and not self.resume:
            raise UsageError(
                "a share of the blocks needs a folder to keep them in",
                fix="name one by --resume DIR",
            )
        if self.trees:
            from hbench.evaluation.variants.trees import parse

            parse(self.trees, self.edges)  # raises for files that hold no tree

    @contextmanager
    def open(
        self,
        files: Sequence[tuple[Path, Path | None]],
        announce: Callable[[str], None] | None = None,
    ) -> Iterator[Execute]:
        """Yield the executor that these options choose; a cluster's workers end with it.

        `files`: those of the embeddings, each with the file of its ids or None, which a cluster
        reads for itself; `announce` is called before kernels are compiled.
        """
        execute: Execute = partial(on_threads, threads=self.threads, announce=announce)
        kept = self.resume
        with ExitStack() as stack:
            if self.device:
                from hbench.engine.executors.gpu import on_devices

                execute = on_devices(self.device)
                # a card's last bits differ from a processor's: its blocks lie apart, in a folder of
                # the kind of device, "cuda" of "cuda:0"
                if kept is not None:
                    kept = kept / self.device.partition(":")[0]
            elif self.scheduler or self.workers:
                from hbench.engine.executors import dask

                client = stack.enter_context(dask.connected(self.scheduler, self.workers or 0))
                reader = dask.FileReader(embeddings.read, embeddings.joined)
                execute = dask.on_cluster(
                    client, [dask.File(path.resolve(), ids) for path, ids in files], reader
                )
            yield kept_in(kept, execute) if kept else execute

    def report(self, examined: Examined, execute: Execute, on_test: OnTest | None = None) -> Report:
        """Measure every test of what was examined and report, also under other trees, and with the
        first results, where these options ask for them; `execute`: what `open` yields. `on_test`:
        is called with a test's name and returns a function for progress."""
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

    def keep_blocks(
        self, examined: Examined, execute: Execute, on_test: OnTest | None = None
    ) -> int:
        """Compute the share of every test's blocks, which `execute` keeps in the folder to resume
        from; return their number.

        Raises UsageError for a ranking, which has no blocks. `on_test`: is called with a test's
        name and returns a function for progress. `blocks`: which share, "i/n", None for all;
        `trees`: other trees to score under, too."""
        share = Share.parse(self.blocks or "1/1")
        if self.trees:
            from hbench.evaluation.variants.trees import jobs_under, parse

            jobs = jobs_under(examined, parse(self.trees, self.edges), memory=self.memory)
        else:
            jobs = examined.jobs(memory=self.memory)
        if set(jobs) != set(examined.data.tests):  # a ranking makes no job
            raise UsageError("rankings have no blocks", expected="embeddings")
        number = 0
        for name, job in jobs.items():
            own = share.of_blocks(job.ranker.blocks)
            on_block = on_test(name) if on_test else None
            measure(job, execute=execute, blocks=own, on_block=on_block)
            number += len(own)
        return number
