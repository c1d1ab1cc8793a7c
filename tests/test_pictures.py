"""Pictures that a script draws from the code are those that the script draws today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"


def wings():
    spec = importlib.util.spec_from_file_location("wings", PICTURES / "wings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_of_the_wings_is_that_of_the_imports():
    assert (PICTURES / "wings.svg").read_text(encoding="utf-8") == wings().drawn(), "run docs/pictures/wings.py"


def test_every_arrow_of_the_picture_leads_upwards():
    drawing = wings()
    for wing, targets in drawing.arrows().items():
        assert all(drawing.place(target)[1] < drawing.place(wing)[1] for target in targets), wing
