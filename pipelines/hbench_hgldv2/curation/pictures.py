"""Chooses small example pictures of the cards of a review, so that curators see what they place.

A card has up to four, of different landmarks where it has as many: one of each of its labels, those
of most landmarks first, then a second of each. The choice follows from the cards, the
selection, GLDv2's lists and the files that are there.
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
TRIED = 1_000  # files of a card that are looked for, where a part of the images is there
MOST_LETTERS = 6_000_000  # of the pictures of a page, which are text in it
QUALITY = 75
FIRST = slice(0, 1)  # of a landmark's images
OTHERS = slice(1, None)
# where each split's images are listed, the first that is there, with the column of ids
LISTS = {
    "train": (gldv2.LISTS["train"], ("metadata/train.csv", "id")),
    "index": (gldv2.LISTS["index"],),
}
Card = Sequence[str]  # class ids, those of most landmarks first
T = TypeVar("T")


class Example(NamedTuple):
    """A picture of a label: the title of its landmark's category, and an address that holds it."""

    title: str
    address: str


class Candidate(NamedTuple):
    """An image that may become an example of a class: its landmark, and its path in the folder."""

    class_id: str
    landmark: CleanedLandmark
    item: str


@dataclass
class Examples:
    """The examples by class id, the number of `cards` that have some, the paths that were looked
    for in vain, and the cards that are `crowded` out, because a page holds only so much.
    """

    of_class: dict[str, list[Example]] = field(default_factory=dict)
    cards: int = 0
    missing: list[str] = field(default_factory=list)
    crowded: int = 0


def are_in(raw: Path) -> bool:
    """Whether a folder has images of GLDv2."""
    return any((raw / split).is_dir() for split in SPLITS)


def examples_of(raw: Path, selection: Iterable[CleanedLandmark], cards: Sequence[Card]) -> Examples:
    """Choose the examples of cards, which are given in the order of their importance, and say how
    many cards have some. `raw`: the folder of GLDv2; `selection`: the landmarks and their classes.
    """
    wanted = set(itertools.chain.from_iterable(cards))
    # a function from a card to images of its classes, the best examples first
    candidates = _candidates(raw, [row for row in selection if wanted.intersection(row.classes)])
    examples = Examples()
    room = MOST_LETTERS  # pictures stand in the page as text
    with terminal.bar("pictures") as moved:
        for done, card in enumerate(cards, start=1):
            moved(done, len(cards))
            chosen = _chosen(raw, candidates(card), examples.missing)
            room -= sum(len(example.address) for _, example in chosen)
            if room < 0:
                # this card and all after it stay without pictures
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
        for item in itertools.islice(sequence, 1):  # one, or none of a sequence that is at its end
            yield item
            running.append(sequence)


def _candidates(
    raw: Path, selection: Sequence[CleanedLandmark]
) -> Callable[[Card], Iterator[Candidate]]:
    """Return a function that yields the candidates of a card, the lists of images having been read
    once for all cards.

    First comes one image of each landmark, the card's classes in turn, then the landmarks' other
    images. A landmark with several classes (ambiguous) would show what is not the class, and is
    left out.
    """
    images = _images(raw, selection)
    landmarks: Mapping[str, list[CleanedLandmark]] = defaultdict(list)
    for row in selection:
        if row.status == "kept":
            landmarks[row.classes[0]].append(row)

    def of_landmark(class_id: str, row: CleanedLandmark, part: slice) -> Iterator[Candidate]:
        """The candidates of a landmark: a part of its images, in the order of their ids."""
        for image in sorted(images.get((row.split, row.landmark_id), ()))[part]:
            yield Candidate(class_id, row, gldv2.file_of(row.split, image))

    def of_class(class_id: str, part: slice) -> Iterator[Candidate]:
        """Those of a class, its landmarks in turn."""
        return in_turn(of_landmark(class_id, row, part) for row in landmarks[class_id])

    def of_card(card: Card) -> Iterator[Candidate]:
        """Those of a card, its classes in turn; the first image of every landmark before others."""
        for part in (FIRST, OTHERS):
            yield from in_turn(of_class(class_id, part) for class_id in card)

    return of_card


def _images(
    raw: Path, selection: Iterable[CleanedLandmark]
) -> Mapping[tuple[str, int], Sequence[str]]:
    """Read the ids of the images of the selected landmarks, by split and landmark; raises DataError
    where no list is there.
    """
    wanted = {(row.split, row.landmark_id) for row in selection}
    # {split: (file, its column of image ids)}
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
                    # a landmark has one row with all ids (train), or a row for each image (index)
                    images[key] += filter(_is_id, row[column].split())
    return images


def _list_of(raw: Path, split: str) -> tuple[Path, str] | None:
    """Find the list of a split's images, and its column of ids."""
    paths = ((gldv2.metadata_file(raw, name), column) for name, column in LISTS[split])
    return next(((path, column) for path, column in paths if path.exists()), None)


def _is_id(image: str) -> bool:
    """Whether a text is the id of an image, and not a way out of the folder; GLDv2 keeps an image
    in folders of its id's first three letters."""
    return image.isalnum() and len(image) > 2


def _chosen(
    raw: Path, candidates: Iterator[Candidate], missing: list[str]
) -> list[tuple[str, Example]]:
    """Make the examples (class id, picture) of a card, of the first candidates whose files can be
    read; the paths of others are added to `missing`."""
    opened = partial(open_upright, raw)
    chosen: list[tuple[str, Example]] = []
    # few are tried, for files that are missing take time, too, and fewer are shown
    for class_id, landmark, item in itertools.islice(candidates, TRIED):
        image = thumbnail(opened, item)
        if image is None:
            missing.append(item)
            continue
        category = landmark.category
        title = title_of(category).partition(":")[2] if category else str(landmark.landmark_id)
        chosen.append((class_id, Example(title, _address(image))))
        if len(chosen) == SHOWN:
            break
    return chosen


def _address(image: Image.Image) -> str:
    """Write a picture as an address that holds it."""
    image.save(file := io.BytesIO(), format="WEBP", quality=QUALITY)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()


def _tell(raw: Path, examples: Examples, number: int) -> None:
    """Say how many cards have pictures, and what was looked for in vain. `number`: of all cards."""
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
