"""hbench build: turn raw annotations, or your own table or folder, into a dataset."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hbench.cli import terminal
from hbench.cli.names import DATASET, FILE, FOLDER
from hbench.cli.option_blocks import block, given_among, words_of
from hbench.core.errors import UsageError, examples

if TYPE_CHECKING:
    from hbench.datasets import Dataset, Spec
    from hbench.datasets.own.source import OwnSource


@dataclass(frozen=True)
class OwnOptions:
    """The options of how to read a user's own table or folder, and what to do with its items."""

    levels: str | None
    image_column: str | None
    boxes: str
    separator: str | None
    taxonomy: Path | None
    several: bool
    depth: int | None
    background: str
    split_column: str | None
    split_folders: bool
    split_by: str | None
    test_fraction: float
    seed: int
    policy: tuple[str, ...]
    tree: Path | None
    edges: str
    copies: str
    decisions: Path | None

    def source(self, path: Path, root: Path | None) -> OwnSource:
        """Make an OwnSource of the table or folder at `path` with these options. `root`: the folder
        of the images."""
        from hbench.datasets.own.source import OwnSource

        return OwnSource(
            path,
            self.levels or (),
            root,
            image_column=self.image_column,
            depth=self.depth,
            split_column=self.split_column,
            split_folders=self.split_folders,
            split_by=self.split_by,
            test_fraction=self.test_fraction,
            seed=self.seed,
            policies=self.policy,
            tree=self.tree,
            copies=self.copies,
            background=self.background,
            separator=self.separator,
            taxonomy=self.taxonomy,
            edges=tuple(words_of(self.edges)),  # the option is one text with a comma
            several=self.several,
            decisions=self.decisions,
            boxes=self.boxes,
        )


OWN = block(
    "own",
    OwnOptions,
    [
        click.option(
            "--levels",
            metavar="A,B,C",
            help="Your levels, coarse to fine: columns, or names of nested folders.",
        ),
        click.option(
            "--item",
            "--item-column",
            "--image-column",
            "image_column",
            help="Column of the ids, or of the images' paths below --root.",
        ),
        click.option(
            "--box-columns",
            "boxes",
            default="",
            metavar="X1,Y1,X2,Y2",
            help="Boxes to cut from the pictures: corners, or x,y,width,height, or one column.",
        ),
        click.option(
            "--separator", help="What stands between the names of a path in a cell, such as '>'."
        ),
        click.option(
            "--taxonomy",
            type=FILE,
            help="A table of taxa, whose ids a column holds: taxonID, parentNameUsageID, …",
        ),
        click.option(
            "--several",
            is_flag=True,
            help="Items may have several paths: lists, cells a;b, several rows or parents.",
        ),
        click.option("--depth", type=click.IntRange(1), help="How many nested folders are levels."),
        click.option(
            "--background",
            default="white",
            show_default=True,
            help="Under transparent images; none: ignore it, and EXIF.",
        ),
        click.option(
            "--split-column", help="Column that says train or test (or train, query, gallery)."
        ),
        click.option(
            "--split-folders", is_flag=True, help="The outermost folders are train and test."
        ),
        click.option(
            "--split-by",
            metavar="LEVEL",
            help="Open set: deal whole nodes of this level to train and test.",
        ),
        click.option(
            "--test-fraction",
            default=0.5,
            show_default=True,
            help="Share of those nodes that test.",
        ),
        click.option("--seed", default=0, show_default=True, help="Seed of --split-by."),
        click.option(
            "--policy",
            metavar="NAME",
            multiple=True,
            help="Mend labels that form no tree: hbench tree validate.",
        ),
        click.option(
            "--tree", type=FILE, help="A tree, whose nodes the one column of --levels names."
        ),
        click.option(
            "--edges",
            default="",
            metavar="PARENT,CHILD",
            help="The columns of a list of edges, for --tree.",
        ),
        click.option(
            "--copies",
            type=click.Choice(["keep", "first", "merge"]),
            default="keep",
            show_default=True,
            help="Of pictures that are there several times: keep all, the first, or make them (and "
            "classes "
            "of the same pictures) one.",
        ),
        click.option(
            "--decisions",
            type=FILE,
            help="What was decided about labels: decisions.csv of hbench audit.",
        ),
    ],
)


@click.command(short_help="turn raw annotations, or your own table, into a dataset")
@click.argument("name", type=DATASET, required=False)
@click.option("--root", type=FOLDER, help="Folder of the raw files or images; it may be read-only.")
@click.option(
    "--out",
    "-o",
    type=FOLDER,
    help="Folder to write; by default hbench's data folder, where every verb finds it.",
)
@click.option(
    "--unofficial", is_flag=True, help="Accept other counts than published, or missing images."
)
@click.option(
    "--from-scratch",
    type=FOLDER,
    metavar="WORK",
    help="hgldv2: rebuild its labels from Wikimedia, in WORK.",
)
@click.option(
    "--contact",
    metavar="MAIL",
    help="Your address, which Wikimedia asks for; without it nothing is fetched.",
)
@click.option(
    "--from",
    "source",
    type=FILE,
    help="Your own CSV, parquet, folder of images, or COCO's JSON; or a dataset that is built.",
)
@OWN
@click.option("--force", is_flag=True, help="Replace your dataset of this name.")
@click.option(
    "--cards",
    is_flag=True,
    help="Describe the folder for Hugging Face datasets and Croissant, too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was built as JSON.")
def command(
    name: str | None,
    *,
    source: Path | None,
    root: Path | None,
    out: Path | None,
    unofficial: bool,
    from_scratch: Path | None,
    contact: str | None,
    own: OwnOptions,
    force: bool,
    cards: bool,
    as_json: bool,
) -> None:
    """Build the dataset NAME from its raw files, or your own from --from, under NAME.

    \b
    hbench build sop --root /data/sop
    hbench build birds --from birds.csv --levels order,family,species --split-by species
    """
    from hbench.datasets import specs
    from hbench.datasets.build import build, save_built, writable_folder

    if source is None:
        # raises if the user set one of `OwnOptions`, which need --from; the name is for the message
        _refuse_own_options(name)
    if source is not None and from_scratch is not None:
        raise UsageError(
            "--from-scratch makes the labels of a known dataset",
            expected="NAME and --from-scratch, or --from with your own",
            found="--from and --from-scratch",
        )
    _refuse_idle_options(is_from_scratch=from_scratch is not None)
    # the pipeline makes the labels as in the paper, instead of reading the released ones
    if name is not None and from_scratch is not None:
        dataset = _from_scratch(specs[name], root, from_scratch, contact)
        folder = out or writable_folder(dataset.name)
        save_built(dataset, folder, cards=cards, on_remark=terminal.say)
    else:
        # refuses a missing NAME, unless `source` is given, whose file or folder then gives the name
        dataset = build(
            name,
            source=None if source is None else own.source(source, root),
            root=root,
            out=out,
            unofficial=unofficial,
            force=force,
            cards=cards,
            on_remark=terminal.say,
        )
    _tell(dataset, out or writable_folder(dataset.name), as_json=as_json)


def _refuse_own_options(name: str | None) -> None:
    """Raise UsageError for options that need --from, a table or folder of the user's own. It is
    called without --from: a published dataset has its own levels and splits. `name`: the dataset's,
    for the message."""
    # the options that the user set, as "--levels"
    if given := given_among({field.name for field in fields(OwnOptions)}):
        raise UsageError(
            f"{examples(given)} are of a table or folder of your own",
            expected="--from with that table or folder",
            found=f"hbench build {name or ''}".rstrip(),
            fix="leave them out: a published dataset has levels and splits of its own",
        )


def _refuse_idle_options(*, is_from_scratch: bool) -> None:
    """Raise UsageError for options that would do nothing: with --from-scratch those about released
    files and about a dataset of one's own, without it the address for a pipeline's requests."""
    if is_from_scratch and (given := given_among({"unofficial", "force"})):
        raise UsageError(
            f"{examples(given)} with --from-scratch would do nothing",
            expected="NAME, --from-scratch, --root, --contact, --out and --cards",
            fix="leave them out: the labels are made anew",
        )
    if not is_from_scratch and given_among({"contact"}):
        raise UsageError(
            "--contact is the address for the requests of --from-scratch",
            expected="both, or neither",
            fix="leave --contact out: without --from-scratch no server is asked",
        )


def _from_scratch(spec: Spec, root: Path | None, work: Path, contact: str | None) -> Dataset:
    """Make a dataset whose labels are computed anew by its pipeline, a function of another package
    whose entry point has the dataset's name. The pipeline works in the folder `work`, and writes
    the dataset to its subfolder "dataset", from which the dataset is read.

    `root`: the folder of the raw files or one above it, None for the folder of downloads;
    `find_raw` returns that of the files. `contact`: an address that the pipeline sends to servers,
    None if it is to ask none. Raises UsageError for a dataset without a pipeline.
    """
    from importlib.metadata import entry_points

    from hbench.datasets import read
    from hbench.datasets.build import find_raw

    pipelines = entry_points(group="hbench.pipelines")
    if spec.name not in pipelines.names:
        raise UsageError(
            f"the labels of {spec.name} cannot be made from scratch",
            expected=f"one of {', '.join(sorted(pipelines.names))}",
        )
    pipelines[spec.name].load()(find_raw(spec, root), work, contact)
    return read(work / "dataset")


def _tell(dataset: Dataset, folder: Path, *, as_json: bool) -> None:
    """Print what was built: the counts of every split. JSON also has the digests and, for a user's
    own table or folder, how its columns were understood (`dataset.read`).

    The table has a line for each split. Its columns are those of the first split, since all splits
    of a dataset have the same levels.
    """
    from hbench.datasets.build import count_contents

    # {split: {name of what is counted: number}}
    numbers = {split: count_contents(manifest) for split, manifest in dataset.manifests.items()}
    if as_json:
        digests = {split: manifest.digest for split, manifest in dataset.manifests.items()}
        built: dict[str, Any] = {
            "name": dataset.name,
            "version": dataset.version,
            "folder": str(folder),
        }
        if dataset.read is not None:
            built["read"] = dataset.read.document()
        terminal.show_json({**built, "counts": numbers, "digests": digests})
        return
    header = [f"{dataset.name}@{dataset.version}", *next(iter(numbers.values()))]
    rows = []
    for split, counts in numbers.items():
        rows.append([split, *(f"{number:,}" for number in counts.values())])
    terminal.show_table(None, header, rows, caption=str(folder))
