"""Programs that a recipe, a list or a checkpoint names: run after consent alone."""

import importlib.util
import json
import py_compile

import pytest
import transformers

from hbench.core.errors import ConfigError, UsageError
from hbench.train import loop
from hbench.train.embedding import embed_dataset as embedding
from hbench.train.recipes.consent import trust
from hbench.train.recipes.files import resolve
from hbench.train.recipes.own_code import OwnCode
from tests.command_line import call, refusal
from tests.training import tiny

pytestmark = pytest.mark.usefixtures("one_thread", "consents")

STRANGE = """
from pathlib import Path
from torch import nn

Path({mark!r}).write_text("it ran")

class Net(nn.Sequential):
    size, mean, std = 32, (0.5,), (0.5,)

    def __init__(self):
        super().__init__(nn.Conv2d(1, 6, 8, stride=4), nn.ReLU())

def vectors():
    net = nn.Sequential(Net(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.size, net.mean, net.std = 32, (0.5,), (0.5,)
    return net

def varied(image):
    return image
"""


@pytest.fixture
def mark(tmp_path):
    """A file that is there once the stranger's program has run."""
    return tmp_path / "mark.txt"


@pytest.fixture
def program(tmp_path, mark):
    file = tmp_path / "stranger.py"
    file.write_text(STRANGE.format(mark=str(mark)), encoding="utf-8")
    return file


@pytest.fixture
def recipe(tmp_path, program):
    file = tmp_path / "stranger.toml"
    lines = [
        'extends = "glyphs-nsm"',
        "epochs = 1",
        "steps_per_epoch = 2",
        "[model]",
        f'backbone = "{program}:Net"',
        'weights = "random"',
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "words",
    [
        ("--print",),
        ("--sweep", "optimizer.lr=1e-3,1e-4"),
        ("--resume",),
        ("--set", "images.augment=none"),
    ],
)
def test_a_program_that_a_recipe_names_is_not_run_unasked(recipe, mark, tmp_path, words):
    assert "--trust-code" in refusal("train", recipe, *words, "--out", tmp_path / "run")
    assert not mark.exists()


def test_a_transform_that_a_recipe_names_is_not_run_unasked(program, mark, tmp_path):
    file = tmp_path / "varied.toml"
    text = f'extends = "glyphs-nsm"\n[images]\naugment = "{program}:varied"\n'
    file.write_text(text, encoding="utf-8")
    assert "--trust-code" in refusal("train", file, "--print")
    assert not mark.exists()


def test_a_program_that_a_list_of_models_names_is_not_run_unasked(program, mark, tmp_path):
    models = tmp_path / "models.txt"
    models.write_text(f"{program}:vectors\n", encoding="utf-8")
    words = ("embed", "--models", models, "-d", "glyphs", "-o", tmp_path / "files")
    assert "--trust-code" in refusal(*words)
    assert not mark.exists()


def test_a_program_is_run_after_consent_which_is_remembered(recipe, program, mark):
    call("train", recipe, "--print", "--trust-code", program)
    assert mark.exists()
    call("train", recipe, "--print")


def test_consent_ends_when_the_file_changes(program):
    trust(program)
    assert OwnCode(program, "Net").is_trusted()
    program.write_text(program.read_text(encoding="utf-8") + "\n# more\n", encoding="utf-8")
    assert not OwnCode(program, "Net").is_trusted()


def test_consent_is_for_one_place_since_a_program_runs_what_lies_beside_it(program, tmp_path):
    trust(program)
    copied = tmp_path / "elsewhere" / program.name
    copied.parent.mkdir()
    copied.write_bytes(program.read_bytes())
    assert not OwnCode(copied, "Net").is_trusted()


def test_a_program_that_is_typed_is_run(program, mark):
    call("train", "glyphs-nsm", "--set", f"model.backbone={program}:Net", "--print")
    assert mark.exists()


def test_what_is_run_is_the_file_and_no_compiled_one_beside_it(program, mark):
    other = program.with_name("other.py")
    other.write_text("Net = 7\n", encoding="utf-8")
    kept = importlib.util.cache_from_source(str(program))
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), cfile=kept, invalidation_mode=unchecked)
    trust(program)
    assert OwnCode(program, "Net").load() != 7
    assert mark.exists()


def test_python_trains_by_a_recipe_with_a_program_after_consent(letters, program, tmp_path):
    recipe = tiny("glyphs-nsm", f"model.backbone={program}:Net")
    with pytest.raises(ConfigError, match="trust_code"):
        loop.train(recipe, tmp_path / "run", dataset=letters)
    loop.train(recipe, tmp_path / "run", dataset=letters, trust_code=[program])
    embedding.embedder(str(tmp_path / "run"))  # the same program, so no word is needed


def test_the_net_of_a_run_that_changed_is_typed_again(letters, program, tmp_path):
    recipe = tiny("glyphs-nsm", f"model.backbone={program}:Net")
    loop.train(recipe, tmp_path / "run", dataset=letters, trust_code=[program])
    program.write_text(program.read_text(encoding="utf-8") + "\n# more\n", encoding="utf-8")
    with pytest.raises(UsageError, match="--net"):
        embedding.embedder(str(tmp_path / "run"))


def test_a_folder_that_others_may_write_to_keeps_no_consent(program, consents):
    consents.mkdir(parents=True)
    consents.chmod(0o777)
    with pytest.raises(ConfigError, match="others may write"):
        trust(program)


def test_what_a_recipe_of_names_holds_is_read_without_running_it(recipe, program, mark):
    assert resolve(str(recipe)).model.backbone == f"{program}:Net"
    assert not mark.exists()


def test_code_of_a_models_authors_is_neither_run_nor_asked_about(tmp_path, mark):
    folder = tmp_path / "model"
    transformers.ViTImageProcessor().save_pretrained(folder)
    lines = ["from pathlib import Path", f"Path({str(mark)!r}).write_text('it ran')"]
    (folder / "strange.py").write_text("\n".join(lines), encoding="utf-8")
    named = {"AutoConfig": "strange.Config", "AutoModel": "strange.Model"}
    config = {"model_type": "strange", "auto_map": named}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ConfigError, match="code of its authors"):
        embedding.embedder(f"transformers:{folder}")
    assert not mark.exists()
