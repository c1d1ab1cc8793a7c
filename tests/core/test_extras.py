"""A verb whose extra is not installed says so in one line; the module it misses and the extra that
has it agree.
"""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hbench_hgldv2 import artefact
from hbench_hgldv2.grouping import encode
from hbench_hgldv2.labels.label import Label

from hbench.core import extras
from tests.command_line import process

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
PACKAGES = {
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "faiss": "faiss-cpu",
    "dask": "distributed",
}
CODE = """
import sys

class Without:  # as where the module was never installed
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
sys.argv = {argv!r}
from hbench.cli import main
main()
"""


def labels_and_vectors(work):
    """A work folder of the pipeline as its first steps leave it."""
    labels = [
        Label(f"Q{number}", name, number, 1, 0, ())
        for number, name in enumerate(("church", "castle", "lake"))
    ]
    artefact.write_rows(
        work / "labels.csv", labels, Label, record=artefact.made_by("clean", [], {}), counts={}
    )
    record = artefact.made_by("encode", [work / "labels.csv"], {})
    artefact.write(
        work / "embeddings.npz",
        record,
        {},
        lambda file: encode.save(file, labels, np.eye(3, dtype="f4")),
    )


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("torch", "losses", "train"),
        ("torch", "losses sup_hap", "train"),
        ("torch", "train glyphs-happier --out run", "train"),
        ("torch", "embed torchvision:resnet50 --dataset glyphs --out x.parquet", "train"),
        ("torch", "evaluate e.npz --dataset t.csv --device cuda", "train"),
        ("torch", "hgldv2 --work w encode", "train"),
        ("open_clip", "hgldv2 --work w encode", "pipelines"),
        ("fastcluster", "hgldv2 --work w cluster --algorithm ward --k 2", "pipelines"),
        ("distributed", "evaluate e.npz --dataset t.csv --workers 2", "cluster"),
        ("pandas", "leaderboard export sop --format latex", "look"),
        ("yaml", "hgldv2 --work w review", "pipelines"),
    ],
)
def test_a_missing_extra_is_one_message(module, command, extra, tmp_path):
    (tmp_path / "t.csv").write_text("item,class\na,x\nb,x\n")
    np.savez(tmp_path / "e.npz", ids=["a", "b"], embeddings=np.eye(2))
    labels_and_vectors(tmp_path / "w")
    code = CODE.format(module=module, argv=["hbench", *command.split()])
    output = process("-c", code, code=2, folder=tmp_path).stderr
    advice = output.partition(f"{module} is not installed\n  next:     pip install ")[2]
    assert PACKAGES.get(module, module) in advice.replace("open_clip_torch", "open_clip").split()
    assert f"pip install '.[{extra}]'" in advice
    assert "Traceback" not in output


def test_a_defect_of_our_own_is_shown_whole():
    assert (
        extras.missing(
            ModuleNotFoundError("No module named 'hbench.nothing'", name="hbench.nothing")
        )
        is None
    )


@pytest.mark.parametrize(
    ("extra", "module"), [(extra, each) for extra, all_ in extras.MODULES.items() for each in all_]
)
def test_the_extra_that_is_named_installs_the_module(extra, module):
    listed = [re.match(r"[\w.-]+", each)[0] for each in PROJECT["optional-dependencies"][extra]]
    assert PACKAGES.get(module, module) in [
        name.replace("-", "_") if "_" in module else name for name in listed
    ] or (f"{module}_torch" in listed)


def test_nothing_that_scoring_does_without_is_installed_with_it():
    core = {re.match(r"[\w.-]+", each)[0] for each in PROJECT["dependencies"]}
    assert not core & {
        PACKAGES.get(module, module) for all_ in extras.MODULES.values() for module in all_
    }


LOOKS = """
import inspect, pydoc
import hbench
assert hasattr(hbench, "embed") and not hasattr(hbench, "no_such_name")
assert not hasattr(hbench, "losses")  # a package of torch alone
members = dict(inspect.getmembers(hbench))
assert members.keys() >= set(dir(hbench)), set(dir(hbench)) - members.keys()
text = pydoc.plain(pydoc.render_doc(hbench))
assert "embed(" in text and "list_datasets(" in text
print(hbench.score([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0]], [[0, 0], [0, 0], [1, 1]], metrics="R@1").scores["R@1"])
try:
    hbench.embed("a", "b", "c")
except hbench.UsageError as refusal:
    print(refusal)
"""


@pytest.mark.parametrize("way", ["a finder that refuses it", "None in sys.modules"])
def test_help_and_completion_of_hbench_work_without_torch(way, tmp_path):
    without = CODE.partition("sys.argv")[0].format(module="torch")
    code = (
        without if way.startswith("a finder") else "import sys\nsys.modules['torch'] = None\n"
    ) + LOOKS
    scored, refused = process("-c", code, folder=tmp_path).stdout.split("\n", 1)
    assert float(scored) == pytest.approx(2 / 3)
    assert refused.startswith("torch is not installed\n  next:     pip install ")
