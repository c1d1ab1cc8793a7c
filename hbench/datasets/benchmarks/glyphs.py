"""glyphs, a benchmark without downloads: the letters of five scripts in sixteen fonts that
matplotlib ships.

An image is one letter in one font, 32×32 grey, drawn on this machine. To retrieve é for ê is a mild
mistake (the same base letter); to retrieve ж for é is a severe one.
"""

import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, features

from hbench.core import paths
from hbench.core.files import replacing
from hbench.core.untrusted import parse_toml, read_array
from hbench.datasets.manifest import Manifest
from hbench.datasets.raw_files import shipped
from hbench.datasets.spec import Spec, Splits, held_out, split_by

SIDE = 32  # pixels of an image's side
MARGIN = 1  # pixels without ink at each edge
POINTS = 22  # size of a font; letters that do not fit into the image at this size are drawn smaller
VERSION = "1"
# The beginning of the sha256 of all letters' pixels, in order. DRAWN, the pixels that FreeType 2.14
# draws, is version 1 of the dataset.
DRAWN = "fd5dbb33"
PIXELS = {
    "2.13.2": "486c8d5b",
    "2.13.3": "486c8d5b",
    "2.14.1": DRAWN,
    "2.14.3": DRAWN,
}  # by version of FreeType; 184 of 20,638 images differ
CASES = {"Lu": "capital", "Ll": "small"}  # by Unicode's category of a letter
BASE = 2  # the index of the base letter in a path


def letters() -> list[tuple[int, str]]:
    """List every pair of a letter's code point and a font that has the letter, sorted. They come
    from a file that hbench ships, so that they are the same on every machine.

    A group of letters in that file has `codes` and `fonts`. `codes` are hexadecimal code points and
    ranges of them, such as "41-5A 61"; `fonts` has a 1 for each font that has these letters, and a
    0 for each that has not.
    """
    data = parse_toml(shipped("glyphs.toml"))
    pairs = []
    for group in data["letters"]:
        fonts = [
            font for font, flag in zip(data["fonts"], group["fonts"], strict=True) if flag == "1"
        ]
        for run in group["codes"].split():
            first, _, last = run.partition("-")
            codes = range(int(first, 16), int(last or first, 16) + 1)
            pairs += [(code, font) for code in codes for font in fonts]
    return sorted(pairs)


def version_of(freetype: str | None) -> str:
    """Return the dataset's version, given the version of FreeType that draws it (None: not known).

    It is "1" if this FreeType draws the published pixels. Otherwise it is "1+" and the digest of
    the pixels, or the version of FreeType if their digest is not known: scores are only comparable
    between equal pixels.

    >>> version_of("2.14.1"), version_of("2.13.2"), version_of("9.9")
    ('1', '1+486c8d5b', '1+freetype-9.9')
    """
    # PIXELS: {version of FreeType: digest of the pixels that it draws}; DRAWN: the published digest
    # (the version itself takes the place of an unknown digest; None gives "1+freetype-None")
    digest = PIXELS.get(freetype or "", f"freetype-{freetype}")
    return VERSION if digest == DRAWN else f"{VERSION}+{digest}"


@cache
def path_of(code: int) -> tuple[str, str, str, str]:
    """Return the path of a letter in the tree, given its code point: script, script with case, base
    letter, character.

    The base letter is the first code point of Unicode's decomposition NFD, which separates accents:
    e for é. A name below the script includes the code point, so that it is unique in the tree.

    >>> path_of(ord("é"))
    ('Latin', 'Latin small', 'e U+0065', 'é U+00E9')
    """
    character = chr(code)
    script = unicodedata.name(character).split()[0].title()
    base = unicodedata.normalize("NFD", character)[0]
    case = f"{script} {CASES[unicodedata.category(character)]}"
    return script, case, f"{base} U+{ord(base):04X}", f"{character} U+{code:04X}"


def item_of(code: int, font: str) -> str:
    """Return the item of a letter in a font, given the letter's code point. It is
    SCRIPT/CATEGORY/CODE/FONT.png, with Unicode's category (lu: capital, ll: small).

    >>> item_of(ord("É"), "DejaVuSans-Bold")
    'latin/lu/00c9/DejaVuSans-Bold.png'
    """
    script = path_of(code)[0].lower()
    return f"{script}/{unicodedata.category(chr(code)).lower()}/{code:04x}/{font}.png"


def build(_raw: Path) -> Splits:
    """Split the letters by base letter: a letter and its accented forms are all for training or all
    for testing. A hash with seed 0 chooses half of the base letters for testing.

    The raw folder is not read, since the images are drawn.
    """
    pairs = letters()
    # the name at index BASE of a path is the base letter
    test_bases = held_out((path_of(code)[BASE] for code, _ in pairs), fraction=0.5, seed=0)
    labelled = [(item_of(code, font), path_of(code)) for code, font in pairs]
    return split_by(labelled, trains=lambda names: names[BASE] not in test_bases)


def images(manifest: Manifest) -> NDArray[np.uint8]:
    """Return the images of the N items of a manifest, in its order, uint8 (N, 32, 32): ink is 255,
    the ground 0. They are drawn once and then read from the user's cache.
    """
    # the file's name has everything that decides the pixels, so that a change makes another file
    drawn_with = f"{features.version('freetype2')}-{SIDE}-{POINTS}"
    cached = paths.cache_home() / "glyphs" / f"{manifest.digest[:16]}-{drawn_with}.npy"
    if cached.exists():
        by_item = read_array(cached)
    else:
        # `picture` draws an item; it does not read the folder, its first argument
        by_item = np.stack([np.asarray(picture(Path(), item)) for item in sorted(manifest.items)])
        # written under another name and renamed: an interrupted process leaves no partial file
        with replacing(cached) as temporary, temporary.open("wb") as file:
            np.save(file, by_item, allow_pickle=False)
    # the cache has the images sorted by item; applying argsort twice gives each item's place in
    # that order: for [c, a, b], argsort is [1, 2, 0], and its argsort is [2, 0, 1]
    place = np.argsort(np.argsort(manifest.items.astype(str)))
    in_order: NDArray[np.uint8] = by_item[place]
    return in_order


def picture(_root: Path, item: str) -> Image.Image:
    """Draw the 32×32 grey image of one item, such as "latin/lu/00c9/DejaVuSans-Bold.png": the
    letter, white on black, in the middle.

    The letter is drawn at the largest font size, from POINTS downwards, at which it fits. The
    folder of items is not read.
    """
    _, _, code, file = item.split("/")
    character = chr(int(code, 16))
    name = file.removesuffix(".png")
    largest = SIDE - 2 * MARGIN  # pixels, with a margin at both edges
    for points in range(POINTS, 0, -1):
        # drawn inside a canvas so large that no letter is cut off, and then cropped to its ink
        canvas = Image.new("L", (4 * SIDE, 4 * SIDE))
        ImageDraw.Draw(canvas).text((SIDE, SIDE), character, fill=255, font=_font(name, points))
        ink = canvas.crop(canvas.getbbox())
        if max(ink.size) <= largest:
            break
    # `ink` is the letter at the size at which the loop ended
    image = Image.new("L", (SIDE, SIDE))
    image.paste(ink, ((SIDE - ink.width) // 2, (SIDE - ink.height) // 2))
    return image


@cache
def _font(name: str, points: int) -> ImageFont.FreeTypeFont:
    """Open a font that matplotlib ships, such as "DejaVuSans-Bold", at a size in points."""
    import matplotlib as mpl  # slow to import, and only needed to draw

    file = Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
    # the other layout engine, Raqm, is not always installed and places some letters differently
    return ImageFont.truetype(file, points, layout_engine=ImageFont.Layout.BASIC)


SPEC = Spec(
    name="glyphs",
    title="Letters of five scripts in sixteen fonts",
    levels=("script", "case", "base", "character"),
    build=build,
    version=version_of(features.version("freetype2")),
    picture=picture,
    licence="fonts: Bitstream Vera and STIX licences (free); labels: Unicode",
    citation="hbench",
    homepage="drawn from the fonts that matplotlib installs",
    size="nothing to download",
    counts={
        "train": {"images": 9_474, "base": 437, "character": 745},
        "test": {"images": 11_164, "base": 436, "character": 890},
    },
    digests={
        "train": "096cdb9c507cead2d873b5ab535015bd9e467b5f7dd2fe52c175ab9cb577883d",
        "test": "63a093ce92dcab0b309507a952d2fa33a2b348271c10092dba82321c3c797da5",
    },
    defects=(
        "17 Greek letters occur twice (tonos and oxia, canonically equivalent): equal images, two "
        "labels",
        "drawn by the installed FreeType: 184 images differ between 2.13 and 2.14; the version "
        "then has a + and a digest",
        "letters such as A, Α and А look alike across scripts: about 1,600 images equal another "
        "one",
    ),
)
