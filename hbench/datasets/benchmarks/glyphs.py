"""glyphs, a benchmark without downloads: the letters of five scripts in the sixteen fonts that
matplotlib ships.

An image is one letter in one font, 32×32 grey, drawn on this machine. é for ê is a mild mistake
(the same base letter), ж for é a severe one.
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
# sha256 of the pixels of all letters in order, as FreeType 2.14 draws them: version 1
DRAWN = "fd5dbb33"
PIXELS = {
    "2.13.2": "486c8d5b",
    "2.13.3": "486c8d5b",
    "2.14.1": DRAWN,
    "2.14.3": DRAWN,
}  # 184 of 20,638 images differ
CASES = {"Lu": "capital", "Ll": "small"}  # by Unicode's categories
BASE = 2  # place of the base letter in a path


def letters() -> list[tuple[int, str]]:
    """Read every pair of a letter's code point and a font that has it, in order, from a file that
    hbench ships, so that they are the same on every machine.

    A group of that file has `codes`, single code points and runs of them in hexadecimal such as
    "41-5A 61", and `fonts`, a 0 or 1 for each of the fonts: whether that font has these letters.
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
    """Return the dataset's version for the version of FreeType that draws it (None: not known):
    "1" where it draws the published pixels, else "1+" and the digest of those that it draws.

    Scores of other pixels are not comparable, hence another version. Where the digest is not
    known, the version of FreeType stands in its place.

    >>> version_of("2.14.1"), version_of("2.13.2"), version_of("9.9")
    ('1', '1+486c8d5b', '1+freetype-9.9')
    """
    digest = PIXELS.get(freetype or "", f"freetype-{freetype}")
    return VERSION if digest == DRAWN else f"{VERSION}+{digest}"


@cache
def path_of(code: int) -> tuple[str, str, str, str]:
    """Return the path of a letter in the tree, given its code point: script, script with case, base
    letter, character.

    The base letter is the first code point of NFD, Unicode's form that takes accents off: e for é.
    Every name below the script is unique in the tree, so a letter has its code point with it.

    >>> path_of(ord("é"))
    ('Latin', 'Latin small', 'e U+0065', 'é U+00E9')
    """
    character = chr(code)
    script = unicodedata.name(character).split()[0].title()
    base = unicodedata.normalize("NFD", character)[0]
    case = f"{script} {CASES[unicodedata.category(character)]}"
    return script, case, f"{base} U+{ord(base):04X}", f"{character} U+{code:04X}"


def item_of(code: int, font: str) -> str:
    """Return the item of a letter in a font, given its code point:
    SCRIPT/CATEGORY/CODE/FONT.png, with Unicode's category of the letter (lu: capital, ll: small).

    >>> item_of(ord("É"), "DejaVuSans-Bold")
    'latin/lu/00c9/DejaVuSans-Bold.png'
    """
    script = path_of(code)[0].lower()
    return f"{script}/{unicodedata.category(chr(code)).lower()}/{code:04x}/{font}.png"


def build(_raw: Path) -> Splits:
    """Split the letters by base letter: half of the base letters train with all that belongs to
    them, the others test (chosen by a hash with seed 0).

    The raw folder is not read: the images are drawn.
    """
    pairs = letters()
    test_bases = held_out((path_of(code)[BASE] for code, _ in pairs), fraction=0.5, seed=0)
    labelled = [(item_of(code, font), path_of(code)) for code, font in pairs]
    return split_by(labelled, trains=lambda names: names[BASE] not in test_bases)


def images(manifest: Manifest) -> NDArray[np.uint8]:
    """Return the images of all N items of a manifest, in its order, uint8 (N, 32, 32), ink 255 on
    0; they are drawn once, then read from the user's cache.
    """
    # all that decides the pixels is in the file's name, so that a change of it draws anew
    drawn_with = f"{features.version('freetype2')}-{SIDE}-{POINTS}"
    cached = paths.cache_home() / "glyphs" / f"{manifest.digest[:16]}-{drawn_with}.npy"
    if cached.exists():
        by_item = read_array(cached)
    else:
        by_item = np.stack([np.asarray(picture(Path(), item)) for item in sorted(manifest.items)])
        # written aside and renamed: a process that is interrupted leaves no half file
        with replacing(cached) as temporary, temporary.open("wb") as file:
            np.save(file, by_item, allow_pickle=False)
    # the cache has the images in the order of their items' names: argsort twice gives each item's
    # place in it, as in [c, a, b] -> argsort [1, 2, 0] -> argsort [2, 0, 1]
    place = np.argsort(np.argsort(manifest.items.astype(str)))
    in_order: NDArray[np.uint8] = by_item[place]
    return in_order


def picture(_root: Path, item: str) -> Image.Image:
    """Draw the 32×32 grey image of one item such as "latin/lu/00c9/DejaVuSans-Bold.png" (the
    letter's code point and the font), white on black, its ink in the middle.

    The folder of items is not read. The letter is drawn at the largest size of type, from POINTS
    downwards, at which it fits.
    """
    _, _, code, file = item.split("/")
    character = chr(int(code, 16))
    name = file.removesuffix(".png")
    largest = SIDE - 2 * MARGIN
    for points in range(POINTS, 0, -1):
        # drawn in the midst of a canvas so large that no letter is cut off
        canvas = Image.new("L", (4 * SIDE, 4 * SIDE))
        ImageDraw.Draw(canvas).text((SIDE, SIDE), character, fill=255, font=_font(name, points))
        ink = canvas.crop(canvas.getbbox())
        if max(ink.size) <= largest:
            break
    image = Image.new("L", (SIDE, SIDE))
    image.paste(ink, ((SIDE - ink.width) // 2, (SIDE - ink.height) // 2))
    return image


@cache
def _font(name: str, points: int) -> ImageFont.FreeTypeFont:
    """Open one of the fonts that matplotlib ships, such as "DejaVuSans-Bold", at a size."""
    import matplotlib as mpl  # slow to import, and only needed to draw

    file = Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
    # the other layout, Raqm, is not installed everywhere and places some letters otherwise
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
