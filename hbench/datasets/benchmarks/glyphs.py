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

SIDE = 32
MARGIN = 1
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
CASES = {"Lu": "capital", "Ll": "small"}


def letters() -> list[tuple[int, str]]:
    """Read every pair of code point and font, in order, from shipped data, so that they are the
    same on every machine.
    """
    data = parse_toml(shipped("glyphs.toml"))
    pairs = []
    for group in data["letters"]:
        fonts = [
            font for font, flag in zip(data["fonts"], group["fonts"], strict=True) if flag == "1"
        ]
        for run in group["codes"].split():
            first, _, last = run.partition("-")
            pairs += [
                (code, font)
                for code in range(int(first, 16), int(last or first, 16) + 1)
                for font in fonts
            ]
    return sorted(pairs)


def version_of(freetype: str | None) -> str:
    """Return the dataset's version for a version of FreeType: "1" for the published pixels, else
    "1+" and their digest.

    Where the digest is not known, the version of FreeType stands in its place.

    >>> version_of("2.14.1"), version_of("2.13.2"), version_of("9.9")
    ('1', '1+486c8d5b', '1+freetype-9.9')
    """
    digest = PIXELS.get(freetype or "", f"freetype-{freetype}")
    return VERSION if digest == DRAWN else f"{VERSION}+{digest}"


@cache
def path_of(code: int) -> tuple[str, str, str, str]:
    """Return the path of a letter: script, script with case, base letter (first code point of NFD),
    character.

    >>> path_of(ord("é"))
    ('Latin', 'Latin small', 'e U+0065', 'é U+00E9')
    """
    character = chr(code)
    script = unicodedata.name(character).split()[0].title()
    base = unicodedata.normalize("NFD", character)[0]
    case = f"{script} {CASES[unicodedata.category(character)]}"
    return script, case, f"{base} U+{ord(base):04X}", f"{character} U+{code:04X}"


def item_of(code: int, font: str) -> str:
    """Return the item of a letter in a font.

    >>> item_of(ord("É"), "DejaVuSans-Bold")
    'latin/lu/00c9/DejaVuSans-Bold.png'
    """
    script = path_of(code)[0].lower()
    return f"{script}/{unicodedata.category(chr(code)).lower()}/{code:04x}/{font}.png"


def build(_raw: Path) -> Splits:
    """Split the letters by base letter: half of these train, the others test (seed 0)."""
    pairs = letters()
    test_bases = held_out((path_of(code)[2] for code, _ in pairs), fraction=0.5, seed=0)
    labelled = [(item_of(*pair), path_of(pair[0])) for pair in pairs]
    return split_by(labelled, trains=lambda names: names[2] not in test_bases)


def images(manifest: Manifest) -> NDArray[np.uint8]:
    """Return the images of all items, uint8 (N, 32, 32), ink 255 on 0; they are drawn once, then
    read from the cache.
    """
    drawn_with = f"{features.version('freetype2')}-{SIDE}-{POINTS}"
    cached = paths.cache_home() / "glyphs" / f"{manifest.digest[:16]}-{drawn_with}.npy"
    if cached.exists():
        by_item = read_array(cached)
    else:
        by_item = np.stack([np.asarray(picture(Path(), item)) for item in sorted(manifest.items)])
        with replacing(cached) as temporary, temporary.open("wb") as file:
            np.save(file, by_item, allow_pickle=False)
    # the cache has the images in the order of their items' names: argsort twice gives each item's
    # place in it
    place = np.argsort(np.argsort(manifest.items.astype(str)))
    in_order: NDArray[np.uint8] = by_item[place]
    return in_order


def picture(_root: Path, item: str) -> Image.Image:
    """Draw the 32×32 grey image of one item, its ink in the middle."""
    _, _, code, file = item.split("/")
    character = chr(int(code, 16))
    name = file.removesuffix(".png")
    largest = SIDE - 2 * MARGIN
    # the largest size of type at which the ink fits
    for points in range(POINTS, 0, -1):
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
    import matplotlib as mpl  # slow to import, and only needed to draw

    file = Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"
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
