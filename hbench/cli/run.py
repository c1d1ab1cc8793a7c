"""hbench run: from names of models to reports, rows and pages, by means of embed, evaluate-all and
report."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hbench.cli import reporting
from hbench.cli.embed import SplitImages, embed_split
from hbench.cli.embed_options import MODEL
from hbench.cli.evaluate_all import report_of
from hbench.cli.names import FOLDER
from hbench.cli.option_blocks import words_of
from hbench.cli.terminal import bar, say, show_json, show_table
from hbench.core.errors import SubmissionError
from hbench.core.text import NONE
from hbench.records.shown import percent_note, shown

if TYPE_CHECKING:
    from hbench.cli.embed_options import ModelOptions
    from hbench.cli.reporting import MachineOptions, ScoringOptions
    from hbench.datasets import Dataset
    from hbench.records.document import Document
    from hbench.train.embedding.embed_dataset import Embedder

SCORES = Path("scores")  # where everything is kept, unless --out says otherwise
RANKED_BY = "H-AP"  # where a dataset has no leaderboard


class Embedding(NamedTuple):
    """The options of embedding: the batch size and the device."""

    batch: int
    device: str


class Scored(NamedTuple):
    """A dataset, and the reports of the models that were scored on it, {model: report}, with their
    files, {model: file}."""

    data: Dataset
    documents: dict[str, Document]
    files: dict[str, Path]

    @property
    def metric(self) -> str:
        """The metric that ranks: that of the dataset's leaderboard if all reports have it."""
        from hbench.evaluation import many

        board = reporting.board_of(self.data.name)
        usual = [board.metric] if board else []
        return many.main_metric(list(self.documents.values()), [*usual, RANKED_BY])

    def cell(self, model: str) -> str:
        """Format a model's score by the metric that ranks; a dash if it could not be scored."""
        document = self.documents.get(model)
        return NONE if document is None else shown(self.metric, document.scores[self.metric].value)

    def scores(self) -> dict[str, Any]:
        """Return the document for --json: the metric that ranks, and the scores of every model."""
        scores = {}
        for model, document in self.documents.items():
            scores[model] = {name: score.model_dump() for name, score in document.scores.items()}
        return {"metric": self.metric, "scores": scores}


@click.command("run", short_help="embed datasets with models, and score them: one command")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--dataset", "-d", "datasets", required=True, metavar="D[,D2…]")
@click.option(
    "--out",
    "-o",
    type=FOLDER,
    default=SCORES,
    show_default=True,
    help="The folder of all that is made; what is there already is not made again.",
)
@click.option(
    "--batch", type=click.IntRange(min=1), default=64, show_default=True, help="Images at a time."
)
@click.option(
    "--embed-on", default="auto", show_default=True, help="Embed on auto, cpu, cuda or cuda:1."
)
@MODEL
@reporting.SCORING
@click.option("--json", "as_json", is_flag=True, help="The table as JSON on stdout.")
@reporting.MACHINE
def command(
    models: tuple[str, ...],
    datasets: str,
    *,
    out: Path,
    batch: int,
    embed_on: str,
    loading: ModelOptions,
    scoring: ScoringOptions,
    as_json: bool,
    machine: MachineOptions,
) -> None:
    """Embed the test images of datasets with models, and score them: a table models × datasets.

    \b
    MODEL: what `hbench embed` takes (timm:NAME, open_clip:ARCH/TAG, ./FILE.py:NAME, a run's
    folder), or a file of embeddings. Below --out every dataset has a folder with the embeddings,
    reports, rows.toml for its leaderboard, and pages. Interrupted, the same command goes on.

    \b
    Example: hbench run timm:resnet50 torchvision:vit_b_16 -d sop,cub200
             hbench run timm:tf_efficientnet_lite0 -d grocery --weights lite0.pth
    """
    from hbench import datasets as known
    from hbench.train.processes import chosen_device

    _refuse_alike(models)  # different models whose reports would have the same file
    _refuse_one_file_for_several(models, loading)
    chosen_device(embed_on)  # one that is not there is refused before any model is loaded
    # a missing dataset is refused early as well, with the command that makes it; each dataset
    # begins without a report
    scored = [Scored(known.load(name), {}, {}) for name in dict.fromkeys(words_of(datasets))]
    embedding = Embedding(batch, embed_on)
    failed: dict[str, str] = {}  # the reason, by the model or "model on dataset"

    # model by model, so that each net is loaded once, and only one of them is in memory at a time
    for model in dict.fromkeys(models):
        with _told(model, failed):
            # a model to embed with, or a file of embeddings
            source = _source_of(model, loading)
            for data, documents, files in scored:
                # a block of its own for each dataset, so that one that fails does not stop the
                # others
                with _told(f"{model} on {data.name}", failed):
                    folder = out / data.name
                    file = _file_of(source, model, data, folder, embedding)
                    report = folder / f"{file.stem}.json"
                    file_scored = report_of(
                        file, report, data, settings=scoring.settings, machine=machine
                    )
                    document = file_scored.document
                    # `report_of` may return a report that was there already, without a method
                    if not document.method:
                        document = document.model_copy(update={"method": report.stem})
                    documents[model] = document
                    files[model] = report

    for each in scored:
        if each.documents:
            reporting.write_rows([*each.documents.values()], out / each.data.name / "rows.toml")
            _write_pages(each, out / each.data.name)
    _show(models, [each for each in scored if each.documents], as_json=as_json)
    if failed:
        # `failed` has one entry for a model that cannot be loaded, though it lacks the report on
        # every dataset: count the reports instead
        asked = len(set(models)) * len(scored)
        lacking = asked - sum(len(each.documents) for each in scored)
        raise SubmissionError(
            f"{lacking} of {asked} could not be scored",
            found=", ".join(failed),
            fix="mend what is said above, and run the same command again: the others are kept",
        )


def _refuse_alike(models: Sequence[str]) -> None:
    """Raise UsageError for two models whose reports would have the same file."""
    from hbench.core.errors import UsageError
    from hbench.train.embedding.embed_models import file_name

    by_report: dict[str, str] = {}
    for model in dict.fromkeys(models):
        path = Path(model)
        # a file of embeddings is scored itself; for a net a file is made, named after it
        report = path.stem if path.is_file() else Path(file_name(model)).stem
        if report in by_report:
            raise UsageError(
                "two models would share a report",
                found=f"{by_report[report]} and {model}",
                fix="give them different names, or run them with another --out",
            )
        by_report[report] = model


@contextmanager
def _told(what: str, failed: dict[str, str]) -> Iterator[None]:
    """Print why the block failed, note it in `failed` under the name `what`, and go on. A library
    that is not installed counts as a failure; any other missing module is a bug, and is raised."""
    from hbench.core import extras
    from hbench.core.errors import HBenchError

    try:
        yield
    except HBenchError as error:
        failed[what] = str(error)
    except ModuleNotFoundError as error:
        # the error to show for a library that an extra installs; None for any other module
        refusal = extras.missing(error)
        if refusal is None:
            raise
        failed[what] = str(refusal)
    if what in failed:
        say(f"{what}: failed\n{failed[what]}")


def _refuse_one_file_for_several(models: Sequence[str], loading: ModelOptions) -> None:
    """Raise UsageError if a file of weights (--weights in `loading`) is given for several models,
    since it belongs to one at most."""
    from hbench.core.errors import UsageError

    if Path(loading.weights).is_file() and len(set(models)) > 1:
        raise UsageError(
            f"{loading.weights} holds the weights of one model",
            found=f"{len(set(models))} models",
            fix="run each with its own --weights; hbench evaluate-all compares the files made",
        )


def _source_of(model: str, loading: ModelOptions) -> Embedder | Path:
    """Return the source of a model's vectors: the path of its file of embeddings, or else the net
    of this name, loaded with the options in `loading`."""
    from hbench.submissions.embeddings.files import READERS

    path = Path(model)
    return path if path.is_file() and path.suffix.lower() in READERS else loading.load(model)


def _file_of(
    source: Embedder | Path, model: str, data: Dataset, folder: Path, embedding: Embedding
) -> Path:
    """Return the file of a model's embeddings of a dataset: `source` itself if it is a file, the
    existing one in `folder`, or a new one there. If memory is too small for a batch, half as many
    images at a time are tried. Raises UsageError for a file there with other embeddings."""
    import torch

    from hbench.train.embedding.embed_dataset import EmbedOptions
    from hbench.train.embedding.embed_models import file_name

    if isinstance(source, Path):
        return source
    file = folder / file_name(model)
    # a file states how large its batches were, since vectors differ in their last bits by that; one
    # made with a halved batch is found again, too
    if _is_there(source, data, file, embedding.batch):
        say(f"{file} is there")
        return file

    folder.mkdir(parents=True, exist_ok=True)
    batch = embedding.batch
    while True:
        images = SplitImages(
            data=data, split="test", options=EmbedOptions(batch=batch), device=embedding.device
        )
        try:
            embed_split(source, images, file)
        except (torch.OutOfMemoryError, MemoryError):
            if batch == 1:
                raise
            # Finished vectors are kept in this folder until the file is whole. Those of larger
            # batches may differ in the last bits, so start again.
            shutil.rmtree(file.with_name(f"{file.name}.parts"), ignore_errors=True)
            batch //= 2
            say(f"the memory is too small: embedding {batch} images at a time")
        else:
            return file


def _is_there(net: Embedder, data: Dataset, file: Path, batch: int) -> bool:
    """Whether a file has the embeddings of `net` with batches of this size or its halves, which are
    tried because an earlier call may have halved the batch for lack of memory. False: there is no
    file. Raises UsageError for a file with other embeddings."""
    from hbench.core.errors import UsageError
    from hbench.train.embedding.embed_dataset import EmbedOptions, is_embedded

    while True:
        try:
            return is_embedded(net, file, data, "test", EmbedOptions(batch=batch))
        except UsageError:  # the file states another batch size, or another net or images
            if batch == 1:
                raise
            batch //= 2


def _write_pages(scored: Scored, folder: Path) -> None:
    """Write the pages of all models, the best first."""
    from hbench.evaluation import many
    from hbench.look.report.folder import write_report
    from hbench.look.report.runs import read_runs

    reports = {scored.files[model]: document for model, document in scored.documents.items()}
    paths = [standing.path for standing in many.standings(reports, scored.metric)]
    index = folder / "pages" / "index.html"
    with bar("writing pages"):
        write_report(read_runs(paths), folder / "pages")
    say(f"open this page: {index}")


def _show(models: Sequence[str], scored: Sequence[Scored], *, as_json: bool) -> None:
    """Print the table of models × datasets, each dataset by the metric of its leaderboard. Datasets
    without any score have no column; without columns there is no table."""
    if as_json:
        show_json({each.data.name: each.scores() for each in scored})
        return
    header = ["model", *(f"{each.data.name} {each.metric}" for each in scored)]
    rows = []
    for model in dict.fromkeys(models):
        rows.append([model, *(each.cell(model) for each in scored)])
    if scored:
        note = percent_note([each.metric for each in scored])
        show_table(None, header, rows, note, left=["model"])
