"""Pictures that a script draws from the code are those that the script draws today."""

import importlib.util
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from PIL import Image

from hbench.look.palette import color_of
from hbench.look.plots import kinds
from hbench.losses.baselines.blackbox import blackbox_rank
from tests.look.plotting import luminance

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"


GALLERY = (PICTURES.parent / "gallery.md").read_text(encoding="utf-8")


def script(name):
    spec = importlib.util.spec_from_file_location(name, PICTURES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wings():
    return script("wings")


def test_the_picture_of_the_wings_is_that_of_the_imports():
    assert (PICTURES / "wings.svg").read_text(encoding="utf-8") == wings().drawn(), (
        "run docs/pictures/wings.py"
    )


def test_every_arrow_of_the_picture_leads_upwards():
    drawing = wings()
    for wing, targets in drawing.arrows().items():
        assert all(drawing.place(target)[1] < drawing.place(wing)[1] for target in targets), wing


def test_every_picture_has_the_script_that_draws_it():
    scripts = {path: path.read_text(encoding="utf-8") for path in PICTURES.glob("*.py")}
    for picture in [*PICTURES.glob("*.png"), *PICTURES.glob("*.svg")]:
        own = PICTURES / f"{picture.stem}.py"
        assert own in scripts or any(f'"{picture.name}"' in text for text in scripts.values()), (
            picture.name
        )


def test_the_idea_is_told_apart_in_grey_print():
    """Its two middle levels once were 1.14 : 1."""
    with Image.open(PICTURES / "idea.png") as image:
        painted = {
            "#{:02x}{:02x}{:02x}".format(*color[:3])
            for _, color in image.convert("RGB").getcolors(1 << 20)
        }
    levels = [color_of(level, 4) for level in range(5)]
    assert set(levels) <= painted
    for darker, lighter in pairwise(levels):
        assert (luminance(lighter) + 0.05) / (luminance(darker) + 0.05) > 1.4


def test_the_gallery_has_every_kind_and_its_pictures_are_there_and_small():
    commands = script("gallery").lines(GALLERY)
    assert {words[2] for words in commands if words[:2] == ["hbench", "plot"]} == set(kinds)
    shown = re.findall(r"\]\((pictures/gallery/[^)]+)\)", GALLERY)
    written = map(script("gallery").target, commands)
    assert sorted(Path(each).name for each in shown) == sorted(
        name for name in written if name.endswith(".png")
    )
    for each in shown:
        path = PICTURES.parent / each
        assert path.stat().st_size < 100_000
        with Image.open(path) as image:
            assert image.format == "PNG"
            assert image.width >= 990


@pytest.mark.parametrize("kind", ["time", "pareto"])
def test_a_command_of_the_gallery_draws_its_picture(tmp_path, kind):
    gallery = script("gallery")
    (words,) = (words for words in gallery.lines(GALLERY) if words[1:3] == ["plot", kind])
    kept = gallery.keep(gallery.run(words, tmp_path), tmp_path / "kept")
    with Image.open(kept) as own, Image.open(PICTURES / "gallery" / f"{kind}.png") as checked_in:
        assert own.size == checked_in.size


def test_a_training_of_the_gallery_that_is_there_is_not_done_again(tmp_path):
    gallery = script("gallery")
    (tmp_path / "happier").mkdir()
    (tmp_path / "happier" / "report.json").write_text("{}")
    assert gallery.run(gallery.lines(GALLERY)[0], tmp_path) == tmp_path / "happier"
    assert [each.name for each in (tmp_path / "happier").iterdir()] == ["report.json"]


def test_the_drawn_interpolation_of_a_rank_has_the_slope_of_the_black_box():
    drawing = script("losses")
    scores = torch.rand(50, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    _, slope = drawing.interpolated(scores, lambda rank: rank[:, 0], 0.3)
    leaf = scores.clone().requires_grad_()
    blackbox_rank(leaf, 0.3)[:, 0].sum().backward()
    torch.testing.assert_close(slope, leaf.grad)


def test_the_drawn_interpolation_of_ap_has_the_slope_that_it_says():
    """By differences, away from its kinks; so it is continuous there."""
    drawing, step = script("losses"), 1e-7
    scores = torch.rand(50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    value, slope = drawing.interpolated(scores, drawing.loss_of_ap, 2.0)
    moved = scores.clone()
    moved[:, 0] += step
    further, _ = drawing.interpolated(moved, drawing.loss_of_ap, 2.0)
    torch.testing.assert_close((further - value) / step, slope[:, 0], rtol=1e-5, atol=1e-5)


def test_the_toy_of_the_gap_is_as_the_page_says():
    drawing = script("losses")
    loose = list(drawing.LOOSE.values())
    both = tuple([*loose[0][part], *loose[1][part]] for part in (0, 1))
    assert [drawing.average_precision(batch) for batch in loose] == [1, 1]
    # the positives are at ranks 1, 2, 6 and 7
    assert drawing.average_precision(both) == pytest.approx((1 + 1 + 3 / 6 + 4 / 7) / 4)
