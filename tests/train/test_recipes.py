"""Recipes: all that are shipped resolve, aim at rows that exist, build their nets and losses, and
take two steps.
"""

import dataclasses
import json
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hbench import boards as leaderboard
from hbench.core.errors import ConfigError, DataError, UnknownName, UsageError
from hbench.datasets import Dataset, Protocol, specs
from hbench.datasets import manifest as manifests
from hbench.train.fitting.sizes import fitted_to
from hbench.train.models.backbones import build_backbone
from hbench.train.models.model import build_model
from hbench.train.recipes.commands import command_of
from hbench.train.recipes.files import as_toml, names, resolve, shipped
from hbench.train.recipes.recipe import Model
from hbench.train.steps import take
from hbench.train.steps.optimizers import set_rates
from hbench.train.steps.run import begin
from tests.command_line import call, refusal

pytestmark = pytest.mark.usefixtures("one_thread")
FOLDER = Path(__file__).parents[2] / "hbench" / "train" / "recipes"
COUNTS = {  # classes per level, coarse to fine, by the depth of the dataset
    1: (48,), 2: (4, 48), 3: (3, 9, 48), 4: (3, 5, 12, 48), 7: (2, 3, 4, 6, 12, 24, 48),
}  # fmt: skip


def path_of(fine, counts):
    """The names of a class's path: the classes of a level are shared out evenly among those of the
    level above.
    """
    path = [fine]
    for count, below in zip(counts[-2::-1], counts[:0:-1], strict=True):
        path.append(path[-1] * count // below)
    return [f"{level}-{node}" for level, node in enumerate(reversed(path))]


def synthetic(name):
    """A dataset of this many levels, 6 images of each of 48 classes, of which nothing is on a
    disk."""
    counts = COUNTS[len(specs[name].levels) if name else 3]
    rows = [path_of(fine, counts) for fine in range(counts[-1]) for _ in range(6)]
    items = [f"{i:04d}" for i in range(len(rows))]
    manifest = manifests.from_names(items, rows, levels=[f"l{i}" for i in range(len(counts))])
    return Dataset(name, "1", Protocol(), manifest, {"test": manifest})


class Noise(torch.utils.data.Dataset):
    """An image of noise of every row, the same each time."""

    def __getitems__(self, keys):
        pictures = [
            torch.from_numpy(np.random.default_rng(row).normal(size=(1, 32, 32))).float()
            for row, _ in keys
        ]
        return torch.stack(pictures), torch.tensor([row for row, _ in keys])


@pytest.mark.parametrize("name", names())
def test_a_recipe_is_read_back_as_written_and_names_a_published_row(name, tmp_path):
    recipe = resolve(name)
    (tmp_path / "recipe.toml").write_text(as_toml(recipe))
    assert resolve(str(tmp_path / "recipe.toml")) == recipe
    if recipe.aim and recipe.aim.table:
        rows = leaderboard.read_board(recipe.dataset).rows
        assert [
            row for row in rows if (row.method, row.source) == (recipe.aim.method, recipe.aim.table)
        ]


@pytest.mark.parametrize("name", names())
def test_a_recipe_takes_two_steps(name, tmp_path, monkeypatch):
    """Its own sampler, losses, optimisers, schedule, on 48 classes of its dataset's depth; a small
    net, 16 images.
    """
    monkeypatch.setattr(take, "images_of", lambda *args, **options: Noise())
    recipe = resolve(
        name, ["sampler.batch=16", "sampler.per_class=4", "steps_per_epoch=2", "epochs=1"]
    )
    recipe = recipe.model_copy(update={"model": SMALL, "two_pass": 8 if recipe.two_pass else 0})
    data = synthetic(recipe.dataset)
    recipe = fitted_to(recipe, data.train)
    run = begin(recipe, data)
    before = [weight.clone() for weight in run.objective.parameters()]
    moments = list(take.steps(run, recipe, data, tmp_path))
    assert [moment.step for moment in moments] == [1, 2]
    assert all(np.isfinite(moment.loss) for moment in moments)
    assert set(moments[0].terms) == set(recipe.losses)
    learning = moments[0].rates.get("proxies", 0) > 0
    assert (
        all(not torch.equal(a, b) for a, b in zip(before, run.objective.parameters(), strict=True))
        or not learning
    )


SMALL = Model(backbone="hbench:small", weights="random", dim=16)
NETS = {json.dumps(resolve(name).model.model_dump(), sort_keys=True) for name in names()}


@pytest.mark.parametrize("settings", sorted(NETS), ids=lambda text: json.loads(text)["backbone"])
def test_every_net_of_the_recipes_gives_embeddings_of_its_dimension(settings):
    """Built without memory for its weights (torch's meta device), so that shapes are checked, not
    numbers.
    """
    requested = Model(**{**json.loads(settings), "weights": "random"})
    with torch.device("meta"):
        model = build_model(requested).eval()
        colours = 1 if requested.backbone == "hbench:small" else 3
        side = 32 if colours == 1 else 224
        assert model(torch.zeros(2, colours, side, side)).shape == (2, requested.dim or 384)


@pytest.mark.parametrize(
    ("pattern", "changes"),
    [
        ("*-deit-s-*", ["model.backbone=deit:small"]),
        ("cub200-b64-*", ["model.layer_norm=false"]),
        ("sop-deit-s-roadmap", ["sampler.batches_per_group=10", "sampler.batch=128"]),
        ("inat18-base-b384-roadmap", ["sampler.batch=384", "epochs=90"]),
        ("*-rod-recall-proxies", ["losses.sup_recall.weight=0.5", "losses.cluster.weight=0.5"]),
        ("dyml-product-*", ["optimizer.lr_min=1e-5"]),
        ("*-b64-xbm", ["losses.xbm.params.warm_up=0"]),
        (
            "inshop-roadmap",
            ["sampler.batch=128", "sampler.per_class=8", "sampler.batches_per_group=4"],
        ),
        (
            "inshop-roadmap",
            ["images.size=256", "images.resize=288", "images.fit=none", "images.test_fit=square"],
        ),
        ("inshop-roadmap", ["optimizer.weight_decay=1e-4"]),
        (
            "cars196-*",
            [
                "sampler.batch=256",
                "images.size=224",
                "optimizer.weight_decay=4e-4",
                "model.pooling=gem",
            ],
        ),
        (
            "sfm-120k-*",
            ["sampler.batch=128", "images.test_fit=square", "images.resize=224", "epochs=50"],
        ),
    ],
)
def test_values_of_the_recipes_are_the_released_ones(pattern, changes):
    chosen = [name for name in names() if fnmatch(name, pattern)]
    assert chosen
    for name in chosen:
        recipe = resolve(name)
        if "xbm" in name:
            assert recipe.losses["xbm"].params.get("warm_up", 0) == 0
        else:
            assert resolve(name, changes) == recipe


def test_distilled_deit_is_a_plain_one_without_the_distillation_token():
    net = build_backbone("deit:small", weights="random", pools=True).net.eval()
    assert net.pos_embed.shape == (1, 197, 384)
    image = torch.rand(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(net(image), net.forward_features(image)[:, 0])


def test_there_is_a_recipe_for_every_method_on_its_datasets():
    assert len(names()) > 140
    some = {
        "sop-happier",
        "inat18-full-csl",
        "dyml-animal-roadmap",
        "hgldv2-happier-f",
        "cub200-vit-b-roadmap-memory",
    }
    some |= {
        f"own-{method}" for method in ("data", "happier", "roadmap", "smooth-ap", "nsm", "fast-ap")
    }
    assert some <= set(names())


def test_the_recipe_of_own_data_is_happier():
    assert resolve("own-data") == resolve("own-happier")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("glyphs-happier", []),
        ("sop-roadmap", ["seed=3", "optimizer.lr=3e-5", "losses.calibration.weight=.5"]),
        ("cub200-happier", ["model.backbone=torchvision:resnet50/IMAGENET1K_V2", "images.flip=0"]),
        ("omniglot-happier", ["losses.sup_hap.weight=0", "losses.triplet.params.margin=.3"]),
        ("own-happier", ["dataset=cub200", "schedule.milestones=[2, 4]", "images.scale=[.2, 1]"]),
    ],
)
def test_the_command_of_a_recipe_makes_the_same_one(name, changes):
    recipe = resolve(name, changes)
    hbench, verb, again, *settings = shlex.split(command_of(recipe, ["--threads", "1"]))
    assert (hbench, verb, settings[-2:]) == ("hbench", "train", ["--threads", "1"])
    assert set(settings[:-2:2]) <= {"--set"}
    assert resolve(again, settings[1:-2:2]) == recipe
    if changes == []:
        assert again == name


def test_the_command_names_files_without_their_folders():
    said = command_of(resolve("glyphs-happier", ["model.weights=/home/me/net.pth"]), [])
    assert said == "hbench train glyphs-happier --set model.weights=net.pth"


def test_a_recipe_of_a_program_or_with_a_loss_taken_away_has_no_command(tmp_path):
    assert command_of(resolve("glyphs-happier", ["model.backbone=./net.py:Net"]), []) is None
    file = tmp_path / "mine.toml"
    file.write_text('extends = "glyphs-happier"\n[losses.nsm]\n', encoding="utf-8")
    assert list(resolve(str(file)).losses) == ["nsm"]  # which --set would set beside the others
    assert command_of(resolve(str(file)), []) is None


def test_two_recipes_of_a_method_differ_where_their_files_differ():
    assert shipped().methods["happier"]["losses"] == {
        "sup_hap": {"weight": 0.9},
        "cluster": {"weight": 0.1},
    }
    sop, full = resolve("sop-happier"), resolve("inat18-full-happier")
    assert sop.losses["sup_hap"].weight == full.losses["sup_hap"].weight == 0.9
    assert (sop.sampler.name, full.sampler.name) == ("hierarchical", "m_per_class")
    assert resolve("sop-happier-f").losses["sup_hap"].params == {"alpha": 5.0}
    assert resolve("dyml-animal-happier").losses["cluster"].weight == 0.5


def test_files_that_extend_each_other_in_a_circle_or_cannot_be_read_are_refused(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name, base in {
        "a": "a",
        "b": "c",
        "c": "b",
        **{f"x{n}": f"x{n + 1}" for n in range(30)},
    }.items():
        (tmp_path / f"{name}.toml").write_text(f'extends = "{base}.toml"\n')
    (tmp_path / "number.toml").write_text("extends = 3\n")
    (tmp_path / "bad.toml").write_text("dataset = ")
    problems = dict.fromkeys(("a", "b", "x0"), "a recipe extends itself, or too many others")
    problems |= {"number": "extends 3", "bad": "cannot be read", "absent": "cannot be read"}
    for name, problem in problems.items():
        with pytest.raises(ConfigError, match=problem):
            resolve(f"{name}.toml")


def test_unknown_recipes_and_settings_that_break_the_schema_are_named():
    for change, problem in (
        ("optimizer.learning_rate=1", "unknown key 'learning_rate'"),
        ("modle.dim=1", "did you mean 'model'"),
        ("optimizer.lr=fast", "valid number, found fast"),
        ("optimizer.lr=-1", "greater than or equal to 0"),
        ("sampler.batch=10", "no multiple of sampler.per_class = 4; the next is 12"),
        ("optimizer.lr=nan", "optimizer.lr: expected a finite number, found nan"),
        ("schedule.warm_up=1.5", r"schedule\.warm_up: expected an integer, found 1\.5"),
        ("seed=unset", "seed: expected an integer, found no value"),
        ("images.scale=[2,1.]", "smallest and the largest share"),
        ("images.scale=[0.5]", "images.scale 2: missing"),
        ("images.scale=0.5,1", r"expected a list, such as \[0.5, 1\], found 0.5,1"),
        ("optimizer.nesterov=true", "nesterov needs optimizer.momentum > 0"),
        ("seed=99999999999999999999", "seed: expected less"),
        ("patience=3", "patience need validation > 0"),
        ("losses.sup_hap.alpha=2", "its key is params.alpha"),
        ("sampler.batch=4", "one class of sampler.per_class"),
        ("losses.sup_hap.wieght=2", "did you mean 'weight'"),
        ("optimizer.lr=True", "hbench recipes --keys"),
        ("precision=float8", "expected 'auto', 'float32', 'bfloat16' or 'float16'"),
    ):
        with pytest.raises(ConfigError, match=problem):
            resolve("sop-happier", [change])
        with pytest.raises(UnknownName, match="did you mean 'sop-happier'"):
            resolve("sop-hapier", [change])
        with pytest.raises(UsageError, match="changes nothing"):
            resolve("sop-happier", [change.partition("=")[0]])


def test_a_recipe_is_found_by_its_verb_and_by_the_name_of_its_loss():
    for name, meant in (
        ("voc07-rambo", "did you mean hbench detect voc07-rambo, a recipe of that verb?"),
        ("own-triplet", "did you mean 'own-tl-sh'?"),
        ("own-sum-triplet", "did you mean 'own-sum-tl-sh'?"),
        ("own-proxy-nca-pp", "did you mean 'own-nca'?"),
    ):
        assert meant in refusal("train", name, "--print")


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ("images.std=0.5", "[0.5]"),
        ("images.scale=.8,1.2", "[.8, 1.2]"),
        ("losses.csl.params.margins=.45,.25", "margins=[.45, .25]"),
    ],
)
def test_a_list_that_is_typed_without_brackets_is_shown_with_them(change, written):
    said = refusal("train", "glyphs-happier", "--set", "losses.csl.weight=1", "--set", change)
    assert written in said


def test_the_command_lists_recipes_with_their_source():
    listed = call("recipes", "sop-*")
    assert "sop-happier" in listed.output
    assert "HAPPIER, ECCV 2022, Tab. 1" in listed.output
    assert "inat18" not in listed.output.split("recipe", 1)[1].split("sop-b64")[0]


def test_the_command_prints_a_recipe_with_its_changes_and_as_json():
    printed = call("recipes", "sop-happier", "--set", "epochs=7")
    assert tomllib.loads(printed.output)["epochs"] == 7
    as_json = call("recipes", "sop-happier", "--json")
    assert json.loads(as_json.output)["losses"]["cluster"]["weight"] == 0.1


def test_the_command_says_whose_the_values_of_every_setup_are():
    printed = call("recipes", "--setups").output
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines()[2:]]
    assert [row[0].strip("`") for row in rows] == sorted(shipped().setups)
    assert all(len(row) == 7 and row[-1] for row in rows), (
        "a setup does not say whose its values are"
    )


@pytest.mark.parametrize(
    ("name", "rates"),
    # at epochs 1, 5, 6, 50 and 100, where the run is that long: body, head, and proxies that have
    # an optimiser of their own
    [
        (
            "sop-happier",
            [
                (0, 1e-4, 10),
                (0, 1e-4, 10),
                (5e-5, 1e-4, 10),
                (2.968e-5, 5.937e-5, 5.977),
                (4.429e-7, 8.856e-7, 0.1877),
            ],
        ),
        (
            "inat18-base-happier",
            [(0, 2e-5), (0, 2e-5), (1e-5, 2e-5), (6.343e-6, 1.2281e-5), (1.0797e-6, 1.1683e-6)],
        ),
        (
            "inat18-base-b64-roadmap",
            [(1e-5, 2e-5), (1e-5, 2e-5), (1e-5, 2e-5), (3e-6, 6e-6), (9e-7, 1.8e-6)],
        ),
        ("cub200-b64-roadmap", [(1e-6, 1e-6)] * 5),
        ("sop-deit-s-roadmap", [(1e-5, 10), (1e-5, 10), (1e-5, 10), (3e-6, 3), (9e-7, 0.9)]),
        ("inat18-base-deit-s-roadmap", [(1e-5,), (1e-5,), (1e-5,), (3e-6,), (9e-7,)]),
        ("cub200-deit-s-roadmap", [(1e-6,)] * 5),
        ("sfm-120k-deit-s-roadmap", [(1e-5,)] * 5),
        ("inshop-roadmap", [(1e-5, 2e-5)] * 5),
        (
            "cars196-happier",
            [
                (1e-4, 2e-4),
                (9.961e-5, 1.992e-4),
                (9.938e-5, 1.988e-4),
                (5.157e-5, 1.031e-4),
                (2.467e-8, 4.934e-8),
            ],
        ),
        (
            "inat18-base-deit-s-roadmap-memory",
            [(1e-5,), (9.961e-6,), (9.938e-6,), (5.157e-6,), (2.467e-9,)],
        ),
    ],
)
def test_rates_at_some_epochs_are_those_of_the_table(name, rates):
    recipe = resolve(name)
    net, own = recipe.optimizer, recipe.proxies
    groups = [{"name": "body", "lr_max": net.lr, "lr_min": net.lr_min}]
    if recipe.model.dim:
        groups.append({"name": "head", "lr_max": net.lr * net.head, "lr_min": net.lr_min})
    if name.startswith("sop"):
        groups.append({"name": "proxies", "lr_max": own.lr, "lr_min": own.lr_min})
    for epoch, expected in zip((1, 5, 6, 50, 100), rates, strict=True):
        found = set_rates([SimpleNamespace(param_groups=groups)], recipe, epoch - 1)
        assert list(found.values()) == pytest.approx(expected, rel=1e-3)


def test_what_cannot_be_begun_is_refused():
    def refused(error, words, *changes, model=SMALL, train=True):
        recipe, data = resolve("sop-deit-s-roadmap", changes), synthetic("sop")
        with pytest.raises(error, match=words):
            begin(
                recipe.model_copy(update={"model": model}),
                data if train else dataclasses.replace(data, train=None),
            )

    refused(ConfigError, "did you mean 'tau'", "losses.sup_ap.params.taus=2")
    resting = SMALL.model_copy(update={"dim": 0})
    refused(
        ConfigError, "nothing would learn during the warm-up", "schedule.warm_up=5", model=resting
    )
    refused(DataError, "no training images", train=False)
    refused(
        UsageError,
        "two passes",
        "two_pass=4",
        model=SMALL.model_copy(update={"freeze_batch_norm": False}),
    )


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_a_recipe_file_has_at_most_25_lines_and_opens_with_what_it_is(path):
    text = path.read_text(encoding="utf-8")
    # a setup that a method changes nothing in is a line of a list, to be skipped
    assert len([line for line in text.splitlines() if not line.endswith(" = {}")]) <= 25
    assert text.startswith("# ")


@pytest.mark.parametrize(
    ("typed", "rate"), [(".5", 0.5), ("5.", 5.0), (".5e-1", 0.05), ("+.25", 0.25), ("2", 2.0)]
)
def test_numbers_are_taken_as_people_type_them(typed, rate):
    assert resolve("sop-happier", [f"optimizer.lr={typed}"]).optimizer.lr == rate


def test_a_key_is_unset_as_the_page_of_keys_says_it():
    assert resolve("glyphs-nsm").model.channels_last
    unset = resolve("glyphs-nsm", ["model.channels_last=unset"])
    assert unset.model.channels_last is None
    assert command_of(unset, []) == "hbench train glyphs-nsm --set model.channels_last=unset"
