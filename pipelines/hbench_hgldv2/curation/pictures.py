"""Chooses small example pictures for the cards of a review, so that curators see what they place.

A card has up to four pictures, of different landmarks where possible: one picture of each of its
labels, starting with the labels with most landmarks, then a second picture of each. The choice
depends only on the cards, the selection, GLDv2's lists, and the files that exist.
"""

import base64
import csv
import io
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from PIL import Image

from hbench.cli import terminal
from hbench.core.errors import DataError
from hbench.datasets.benchmarks import gldv2
from hbench.datasets.pictures import open_upright
from hbench.look.strips import thumbnail
from hbench_hgldv2.artefact import open_table
from hbench_hgldv2.labels.clean import CleanedLandmark
from hbench_hgldv2.labels.label import SPLITS
from hbench_hgldv2.wikimedia.facts import title_of

SHOWN = 4  # pictures of a card
TRIED = 1_000  # files of a card that are tried at most, since only a part of the images may exist
MOST_LETTERS = 6_000_000  # of a page's pictures, which are embedded as text
QUALITY = 75
FIRST = slice(0, 1)  # of a landmark's images
OTHERS = slice(1, None)
# the files that may list a split's images, with the column of ids; the first one that exists is
# read
LISTS = {
    "train": (gldv2.LISTS["train"], ("metadata/train.csv", "id")),
    "index": (gldv2.LISTS["index"],),
}
Card = Sequence[str]  # class ids, those with most landmarks first
T = TypeVar("T")


class Example(NamedTuple):
    """A picture of a label: the title of its landmark's category, and the picture itself as a data
    URL."""

    title: str
    address: str


class Candidate(NamedTuple):
    """An image that may become an example of a class: the class, the landmark, and the path of the
    image in the folder of GLDv2."""

    class_id: str
    landmark: CleanedLandmark
    item: str


@dataclass
class Examples:
    """The examples by class id, the number of `cards` that have some, the paths of the files that
    were not found or cannot be read, and the number of cards that are `crowded` out because the
    page can hold only so many pictures."""

    of_class: dict[str, list[Example]] = field(default_factory=dict)
    cards: int = 0
    missing: list[str] = field(default_factory=list)
    crowded: int = 0


def are_in(raw: Path) -> bool:
    """Whether a folder has images of GLDv2."""
    return any((raw / split).is_dir() for split in SPLITS)


def examples_of(raw: Path, selection: Iterable[CleanedLandmark], cards: Sequence[Card]) -> Examples:
    """Choose example pictures for the cards of the review page, and print how many cards have some.

    Args:
        raw: the folder of GLDv2.
        selection: the landmarks, each with its classes.
        cards: for each card, the ids of its classes; the most important cards and classes first.
    """
    wanted = set(itertools.chain.from_iterable(cards))
    # a function that yields the images of a card's classes, the best candidates first
    candidates = _candidates(raw, [row for row in selection if wanted.intersection(row.classes)])
    examples = Examples()
    room = MOST_LETTERS  # in characters, since pictures are embedded as text
    with terminal.bar("pictures") as moved:
        for done, card in enumerate(cards, start=1):
            moved(done, len(cards))
            # pairs (class id, example); paths without a readable picture go to `examples.missing`
            chosen = _chosen(raw, candidates(card), examples.missing)
            room -= sum(len(example.address) for _, example in chosen)
            if room < 0:
                # the page is full: this card and all later ones have no pictures
                examples.crowded = len(cards) - done + 1
                break
            if chosen:
                examples.cards += 1
            for class_id, example in chosen:
                examples.of_class.setdefault(class_id, []).append(example)

    _tell(raw, examples, len(cards))
    return examples


def in_turn(sequences: Iterable[Iterable[T]]) -> Iterator[T]:
    """Yield the first of each sequence, then the second of each, and so on.

    >>> list(in_turn(["ab", "c", "def"]))
    ['a', 'c', 'd', 'b', 'e', 'f']
    """
    running = deque(map(iter, sequences))
    while running:
        sequence = running.popleft()
        # at most one item; an exhausted sequence has none, and is not queued again
        for item in itertools.islice(sequence, 1):
            yield item
            running.append(sequence)


def _candidates(
    raw: Path, selection: Sequence[CleanedLandmark]
) -> Callable[[Card], Iterator[Candidate]]:
    """Return a function that yields the candidates of a card: images that may become examples of
    one of its classes. The lists of images are read once, for all cards.

    The first images of all landmarks come first: one of each of the card's classes, then a second
    of each, and so on. The landmarks' other images follow in the same way. Only landmarks with the
    status "kept", which have one class, are used: images of an ambiguous landmark may show another
    of its classes.
    """
    # (split, landmark id) -> ids of the landmark's images
    images = _images(raw, selection)
    # class id -> its landmarks
    landmarks: Mapping[str, list[CleanedLandmark]] = defaultdict(list)
    for row in selection:
        if row.status == "kept":
            landmarks[row.classes[0]].append(row)

    def of_landmark(class_id: str, row: CleanedLandmark, part: slice) -> Iterator[Candidate]:
        """The candidates of a landmark: its images in the order of their ids, cut to the slice
        `part`."""
        for image in sorted(images.get((row.split, row.landmark_id), ()))[part]:
            yield Candidate(class_id=class_id, landmark=row, item=gldv2.file_of(row.split, image))

    def of_class(class_id: str, part: slice) -> Iterator[Candidate]:
        """The candidates of a class, its landmarks in turn."""
        return in_turn(of_landmark(class_id, row, part) for row in landmarks[class_id])

    def of_card(card: Card) -> Iterator[Candidate]:
        """The candidates of a card, its classes in turn; the first image of every landmark comes
        before any others."""
        for part in (FIRST, OTHERS):
            yield from in_turn(of_class(class_id, part) for class_id in card)

    return of_card


def _images(
    raw: Path, selection: Iterable[CleanedLandmark]
) -> Mapping[tuple[str, int], Sequence[str]]:
    """Return {(split, landmark id): ids of the landmark's images} for the selected landmarks.

    An id has three or more letters and digits, and nothing else; other texts are skipped. Raises
    DataError where no split has a list of images.
    """
    wanted = {(row.split, row.landmark_id) for row in selection}
    # split -> (file, the name of its column of image ids)
    lists = {split: found for split in SPLITS if (found := _list_of(raw, split)) is not None}
    if not lists:
        raise DataError(
            f"{raw} does not say which images a landmark has",
            expected=" or ".join(name for names in LISTS.values() for name, _ in names),
            fix=f"hbench download hgldv2 --part metadata --root {raw}, or leave --raw out: the "
            "page needs no pictures",
        )

    images: Mapping[tuple[str, int], list[str]] = defaultdict(list)
    for split, (path, column) in lists.items():
        with open_table(path) as lines:
            for row in csv.DictReader(lines):
                key = (split, int(row["landmark_id"]))
                if key in wanted:
                    # the list of train has one row per landmark with all its image ids, that of
                    # index one row per image
                    images[key] += filter(_is_id, row[column].split())
    return images


def _list_of(raw: Path, split: str) -> tuple[Path, str] | None:
    """Find the file that lists a split's images, and its column of ids; None if there is none."""
    paths = ((gldv2.metadata_file(raw, name), column) for name, column in LISTS[split])
    return next(((path, column) for path, column in paths if path.exists()), None)


def _is_id(image: str) -> bool:
    """Whether a text is the id of an image. Anything else, such as a path out of the folder, is not
    used. GLDv2 keeps an image in folders named after the first three letters of its id."""
    return image.isalnum() and len(image) > 2


def _chosen(
    raw: Path, candidates: Iterator[Candidate], missing: list[str]
) -> list[tuple[str, Example]]:
    """Return up to SHOWN pairs (class id, example) of a card, from the first candidates whose files
    can be read. The paths of files that were tried and cannot be read are added to `missing`."""
    opened = partial(open_upright, raw)
    chosen: list[tuple[str, Example]] = []
    # the number of candidates is limited, since looking up a missing file takes time, too
    for class_id, landmark, item in itertools.islice(candidates, TRIED):
        image = thumbnail(opened, item)
        if image is None:
            missing.append(item)
            continue
        category = landmark.category  # the URL of a page, …/wiki/Category:X; the title is "X"
        title = title_of(category).partition(":")[2] if category else str(landmark.landmark_id)
        # the image is a part of the page, in its address (a data URL)
        chosen.append((class_id, Example(title, _address(image))))
        if len(chosen) == SHOWN:
            break
    return chosen


def _address(image: Image.Image) -> str:
    """Return a picture as a data URL, which contains it."""
    image.save(file := io.BytesIO(), format="WEBP", quality=QUALITY)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()


def _tell(raw: Path, examples: Examples, number: int) -> None:
    """Print how many cards have pictures, and which files were not found. `number` is the number of
    all cards."""
    said = f"{examples.cards:,} of {number:,} cards have pictures"
    if examples.crowded:
        said += (
            f"; the last {examples.crowded:,} have none, because a page holds "
            f"{MOST_LETTERS // 1_000_000} MB of them"
        )
    terminal.say(said)
    if examples.missing:
        terminal.say(
            f"{len(examples.missing):,} pictures were not found or cannot be read, such as "
            f"{raw / examples.missing[0]}"
        )
