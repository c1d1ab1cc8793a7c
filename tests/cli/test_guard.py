"""Unforeseen errors, and those of other packages and terminals: one line, and work that continues
where it can.
"""

import json
import os
import re
import sys

import numpy as np
import pytest

from hbench.records.tables import PrintedTable, latex, markdown
from tests.command_line import process

PLUGINS = """
[hbench.similarities]
broken = plugin_broken:function
typed = plugin_typed:VALUE
leaving = plugin_leaving:function
panicking = plugin_panicking:function
good = plugin_good:similarity
[hbench.metrics]
halves = plugin_metric:halves
[hbench.verbs]
count = plugin_verb:command
"""
MODULES = {
    "plugin_broken": "raise KeyError('weights')",
    "plugin_typed": "VALUE = 3",
    "plugin_leaving": "import sys; sys.exit(3)",
    "plugin_panicking": "class Panic(BaseException): pass\nraise Panic('in Rust')",
    "plugin_good": "from hbench.engine.similarity import dot as similarity",
    "plugin_metric": "from hbench.metrics.definitions import metric\n@metric('halves')\ndef "
    "halves(sequence):\n    return 0.5",
    "plugin_verb": "import click\ncommand = click.Command('count', callback=lambda: "
    "click.echo('three'))",
}


@pytest.fixture
def folder(tmp_path):
    """A dataset of six items with its embeddings."""
    rows = "".join(f"é{n},a,a{n % 2}\n" for n in range(6))
    (tmp_path / "d.csv").write_text(f"item,genus,species\n{rows}", encoding="utf-8")
    np.savez(
        tmp_path / "e.npz",
        ids=[f"é{n}" for n in range(6)],
        embeddings=np.arange(12.0).reshape(6, 2) + 1,
    )
    return tmp_path


def hbench(folder, *words, **options):
    return process("-m", "hbench", *words, folder=folder, **options)


def test_what_nobody_foresaw_is_one_line_and_exit_code_70(folder):
    odd = (
        "import hbench.cli.info as info\ndef odd(**_):\n    raise ZeroDivisionError('by\\nzero')\n"
    )
    (folder / "sitecustomize.py").write_text(f"{odd}info.command.callback = odd\n")
    words = {"HBENCH_GUARD": "1", "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    output = hbench(folder, "info", code=70, **words).stderr
    assert output.count("\n") == 1
    assert "hbench info failed unexpectedly: ZeroDivisionError: by zero" in output
    assert "Traceback" in hbench(folder, "-v", "info", code=70, **words).stderr


def test_plug_ins_that_cannot_be_used_are_left_out_and_named(folder):
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    about = folder / "other_package-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: other-package\nVersion: 1\n")
    (about / "entry_points.txt").write_text(PLUGINS)
    words = (
        "evaluate",
        "e.npz",
        "-d",
        "d.csv",
        "--json",
        "--similarity",
        "good",
        "--metrics",
        "halves",
    )
    run = hbench(folder, *words, PYTHONPATH=os.pathsep.join([str(folder), *sys.path]))
    remarks = [
        line
        for line in run.stderr.splitlines()
        if "of the package other-package is left out" in line
    ]
    assert [line.split("'")[1] for line in remarks] == ["broken", "typed", "leaving", "panicking"]
    raising, _, leaving, panicking = remarks
    assert raising.endswith("plugin_broken.py, line 1")
    assert leaving.endswith("plugin_leaving.py, line 1")
    assert panicking.endswith("plugin_panicking.py, line 2")
    report = json.loads(run.stdout)
    assert "|sim:good|" in report["signature"]
    assert report["scores"]["halves"]["value"] == 0.5
    path = os.pathsep.join([str(folder), *sys.path])
    assert re.search(
        r"count +from another package", hbench(folder, "--help", PYTHONPATH=path).stdout
    )
    assert hbench(folder, "count", PYTHONPATH=path).stdout == "three\n"


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_an_encoding_cannot_show_is_replaced(folder, encoding):
    words = ("look", "e.npz", "-d", "d.csv", "--item", "é0")
    assert "species" in hbench(folder, *words, PYTHONIOENCODING=encoding).stdout


def test_a_test_without_a_gallery_is_refused(folder):
    from hbench.datasets import manifest

    items = [f"é{n}" for n in range(6)]
    names = [("a", f"a{n % 2}") for n in range(6)]
    test = manifest.from_names(items, names, levels=["genus", "species"], gallery=np.zeros(6, bool))
    test.write(folder / "lone.parquet")
    assert (
        "has no gallery items"
        in hbench(folder, "evaluate", "e.npz", "-d", "lone.parquet", code=4).stderr
    )


def test_a_name_never_leaves_its_comment_or_heading():
    content = PrintedTable(("method", "AP"), [("mine\n\\input{x}", "1")], [])
    for text in (
        latex(content, title="mine\n\\input{x}"),
        markdown(content, title="mine\n\\input{x}"),
    ):
        assert not any(line.startswith("\\input") for line in text.splitlines())


def test_a_net_of_ones_own_that_ends_the_process_is_named_with_its_line(folder):
    lines = [
        "import sys",
        "from torch import nn",
        "class Net(nn.Module):",
        "    size, mean, std, calls = 32, (0.5,), (0.5,), 0",
        "    def forward(self, images):",
        "        Net.calls += 1",
        "        return sys.exit(0) if Net.calls > 1 else images.flatten(1)[:, :4]",
    ]
    (folder / "mine.py").write_text("\n".join(lines))
    words = ("embed", "./mine.py:Net", "-d", "glyphs", "-o", "out.npz")
    said = hbench(folder, *words, code=3, HBENCH_HOME=str(folder / "home")).stderr
    assert "mine.py, line 7" in said
    assert not (folder / "out.npz").exists()
