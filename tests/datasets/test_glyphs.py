"""The embedded benchmark: its definition derived again from the installed fonts, its digests, its
pictures.
"""

import hashlib
import unicodedata
from collections import Counter
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.ft2font import FT2Font
from PIL import features

from hbench.core.errors import IntegrityError
from hbench.datasets import load
from hbench.datasets.benchmarks import glyphs
from hbench.tree.names import class_rows

pytestmark = pytest.mark.fast

SCRIPTS = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN")


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HBENCH_HOME", str(tmp_path_factory.getbasetemp() / "home"))


@pytest.fixture(scope="module")
def dataset():
    return load("glyphs")


def test_the_letters_are_those_that_eight_of_the_installed_fonts_hold():
    fonts = Path(mpl.get_data_path()) / "fonts" / "ttf"
    faces = [
        path for path in fonts.glob("*.ttf") if path.stem.startswith(("DejaVu", "STIXGeneral"))
    ]
    faces = [path for path in faces if "Display" not in path.stem]
    held = {(code, path.stem) for path in faces for code in FT2Font(str(path)).get_charmap()}
    number_of_fonts = Counter(code for code, _ in held)
    letters = {code for code in number_of_fonts if unicodedata.category(chr(code)) in {"Lu", "Ll"}}
    of_scripts = {
        code for code in letters if unicodedata.name(chr(code), "?").split()[0] in SCRIPTS
    }
    assert len(faces) == 16
    assert glyphs.letters() == sorted(
        (c, font) for c, font in held if c in of_scripts and number_of_fonts[c] >= 8
    )


def test_names_tell_nodes_apart_without_their_parents(dataset):
    rows = []
    for each in dataset.manifests.values():
        rows += map(class_rows(each.tree).__getitem__, each.labels[:, -1].tolist())
    assert len(rows) == 20_638
    assert [len({row[: level + 1] for row in rows}) for level in range(4)] == [5, 10, 873, 1_635]
    assert [len({row[level] for row in rows}) for level in range(4)] == [5, 10, 873, 1_635]


def test_no_base_letter_is_in_both_splits(dataset):
    bases = [len(manifest.tree.names[2]) for manifest in dataset.manifests.values()]
    assert bases == [437, 436]  # of 873


def test_it_is_the_published_one(dataset):
    assert (
        dataset.train.digest == "096cdb9c507cead2d873b5ab535015bd9e467b5f7dd2fe52c175ab9cb577883d"
    )
    assert (
        dataset.tests["test"].digest
        == "63a093ce92dcab0b309507a952d2fa33a2b348271c10092dba82321c3c797da5"
    )


def test_every_item_of_the_test_is_a_query_and_in_the_gallery(dataset):
    assert dataset.tests["test"].query.all()
    assert dataset.tests["test"].gallery.all()


def test_other_letters_are_refused(monkeypatch):
    monkeypatch.setattr(
        glyphs, "letters", lambda: [(code, "DejaVuSans") for code in range(ord("a"), ord("z") + 1)]
    )
    with pytest.raises(IntegrityError, match="glyphs/train is not the published one"):
        load("glyphs")


def test_pictures_are_drawn_whole_and_in_the_middle(dataset):
    pictures = glyphs.images(dataset.tests["test"])
    assert pictures.shape == (11_164, 32, 32)
    assert pictures.dtype == np.uint8
    ink = pictures > 0
    assert ink.any(axis=(1, 2)).all()
    border = np.concatenate([ink[:, 0], ink[:, -1], ink[:, :, 0], ink[:, :, -1]], axis=1)
    assert not border.any()
    for axis in (1, 2):
        lines = ink.any(axis=axis)
        before, after = lines.argmax(axis=1), lines[:, ::-1].argmax(axis=1)
        assert np.abs(before - after).max() <= 1


def test_no_letter_is_the_box_of_a_missing_one(dataset):
    fonts = {font for _, font in glyphs.letters()}
    missing = {
        font: glyphs.picture(Path(), f"none/none/10ffff/{font}.png").tobytes() for font in fonts
    }
    for manifest in dataset.manifests.values():
        for item, pixels in zip(manifest.items, glyphs.images(manifest), strict=True):
            assert pixels.tobytes() != missing[item.rsplit("/")[-1].removesuffix(".png")]


def test_pictures_follow_the_order_of_the_items_and_come_back_from_the_cache(dataset):
    test = dataset.tests["test"]
    drawn, cached = glyphs.images(test), glyphs.images(test)
    assert np.array_equal(drawn, cached)
    for row in (0, 5_000, -1):
        assert np.array_equal(np.asarray(test.picture(test.items[row])), drawn[row])


def test_the_version_says_which_pixels_were_drawn(dataset):
    """Drawn by another FreeType, 184 images differ: the same signature must not stand for both."""
    by_item = {}
    for manifest in dataset.manifests.values():
        by_item |= dict(zip(manifest.items, glyphs.images(manifest), strict=True))
    drawn = np.stack([by_item[glyphs.item_of(*pair)] for pair in glyphs.letters()])
    digest = hashlib.sha256(drawn.tobytes()).hexdigest()
    freetype = features.version("freetype2")
    assert glyphs.PIXELS.get(freetype, digest[:8]) == digest[:8], f"another FreeType {freetype}?"
    assert dataset.version == glyphs.version_of(freetype)
    assert load("glyphs").version == dataset.version
