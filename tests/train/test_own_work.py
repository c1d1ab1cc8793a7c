"""Training for people's own work: what is said while it goes on, nets and transforms of their own,
optimisers by name, averages of weights, rates by depth.
"""

import json

import numpy as np
import pytest
import torch
from torch import nn

from hbench.core.errors import ConfigError, UnknownName, UsageError
from hbench.datasets import Dataset, Protocol, load
from hbench.datasets import manifest as manifests
from hbench.evaluation.evaluate import evaluate
from hbench.submissions import embeddings
from hbench.train import loop
from hbench.train.embedding import embed_dataset as embedding
from hbench.train.fitting import keys
from hbench.train.images.batches import images_of, in_order
from hbench.train.images.transforms import augmentations
from hbench.train.models.blocks import blocks_of, by_depth, recompute
from hbench.train.models.model import build_model
from hbench.train.recipes.consent import trust
from hbench.train.recipes.files import losses_in_words, method_of, resolve
from hbench.train.recipes.recipe import Images, Model
from hbench.train.records import checkpoints
from hbench.train.steps import take
from hbench.train.steps.optimizers import BODY, set_rates
from hbench.train.steps.run import begin
from hbench.train.validation import split_off
from tests.command_line import ROOT, call, refusal
from tests.training import build_pictures, signalled_at, tiny

pytestmark = pytest.mark.usefixtures("one_thread")

OWN = """
import torch
from torch import nn

class Net(nn.Module):
    size, mean, std = 32, (0.5,), (0.5,)

    def __init__(self):
        super().__init__()
        self.layers = nn.Conv2d(1, 6, 5, stride=4)

    def forward(self, images):
        return self.layers(images).relu()

def vectors():
    net = nn.Sequential(Net(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.size, net.mean, net.std = 32, (0.5,), (0.5,)
    return net

def of_colours():
    return nn.Conv2d(1, 6, 5)

def nothing():
    return 7

def train(image):
    return image.resize((32, 32)).rotate(int(torch.randint(90, ()).item()))

def large(image):
    return image.resize((40, 40))
"""


@pytest.fixture
def own(tmp_path, consents):
    """A file of somebody's own, who has consented to it."""
    file = tmp_path / "mine.py"
    file.write_text(OWN, encoding="utf-8")
    trust(file)
    return file


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return build_pictures(tmp_path_factory.mktemp("noise"))


def written(folder, text):
    file = folder / "child.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


# what is said


def test_losses_of_a_child_replace_those_of_its_parent_where_one_is_new(tmp_path):
    child = written(tmp_path, 'extends = "glyphs-happier"\n[losses]\nsup_ap = {}\n')
    assert set(resolve(child).losses) == {"sup_ap"}


def test_losses_of_a_child_that_the_parent_has_change_it_and_the_others_are_said_to_stay(tmp_path):
    text = 'extends = "glyphs-happier"\n[losses]\nsup_hap = { weight = 0.5 }\n'
    child = written(tmp_path, text)
    recipe = resolve(child)
    assert recipe.losses["cluster"].weight == 0.1
    assert "0.5 sup_hap + 0.1 cluster (cluster from glyphs-happier)" in losses_in_words(
        recipe, child
    )


def test_a_run_is_named_by_the_losses_that_it_uses_not_by_those_of_its_parent(tmp_path):
    child = written(tmp_path, 'extends = "glyphs-happier"\n[losses]\ntriplet = {}\n')
    assert method_of(resolve(child)) == "triplet"
    off = ["losses.sup_hap.weight=0", "losses.triplet.weight=1"]
    assert method_of(resolve("glyphs-happier", off)) == "cluster + triplet"


def test_a_run_keeps_the_name_of_its_parent_where_it_minimises_the_same_or_names_itself(tmp_path):
    child = written(tmp_path, 'extends = "glyphs-happier"\n[losses]\nsup_hap.weight = 0.5\n')
    assert method_of(resolve(child)) == method_of(resolve("glyphs-happier"))
    own = 'extends = "glyphs-happier"\naim.method = "mine"\n[losses]\ntriplet = {}\n'
    assert method_of(resolve(written(tmp_path, own))) == "mine"


def test_a_trained_run_has_its_name_in_its_report(letters, tmp_path):
    changes = ["losses.sup_hap.weight=0", "losses.cluster.weight=0", "losses.triplet.weight=1"]
    report = loop.train(tiny("glyphs-happier", *changes), tmp_path, dataset=letters)
    assert report.document.method == "triplet"


def test_validations_are_told_as_they_come_and_so_is_the_checkpoint_that_is_scored(
    letters, tmp_path
):
    told, said = [], []
    recipe = tiny("glyphs-happier", "epochs=3", "validation=0.3", "evaluate_every=1")
    loop.train(recipe, tmp_path, dataset=letters, on_validation=told.append, on_remark=said.append)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    logged = {line["step"]: line["validation"]["H-AP"] for line in lines if "validation" in line}
    assert {each.step: each.score for each in told} == logged
    best = max(logged, key=lambda step: logged[step])
    assert told[-1].best_step == best
    assert any(f"step {best}," in remark for remark in said)


def test_a_step_is_printed_as_often_as_it_is_logged(letters_folder, tmp_path):
    changes = [
        f"dataset={letters_folder}",
        "epochs=1",
        "steps_per_epoch=6",
        "log_every=2",
        "sampler.batch=16",
    ]
    words = [word for change in changes for word in ("--set", change)]
    printed = call("train", "glyphs-nsm", *words, "--out", tmp_path / "run").stderr
    assert [f"step {n}/6" in printed for n in range(1, 7)] == [False, True] * 3


def test_weights_that_are_no_file_are_refused_by_print_too():
    said = refusal("train", "glyphs-nsm", "--set", "model.weights=rnadom", "--print")
    assert "rnadom" in said


def test_remarks_on_the_scores_are_those_of_an_evaluation(letters_folder, tmp_path):
    changes = [f"dataset={letters_folder}", "epochs=1", "steps_per_epoch=2", "sampler.batch=16"]
    words = [word for change in changes for word in ("--set", change)]
    trained = call("train", "glyphs-nsm", *words, "--out", tmp_path / "run").stderr
    evaluated = call(
        "evaluate", tmp_path / "run" / "test.parquet", "-d", letters_folder, "--remarks"
    )
    remarks = [line for line in evaluated.stderr.splitlines() if line.startswith(("note", "doubt"))]
    assert remarks
    assert set(remarks) <= set(trained.splitlines())


@pytest.mark.parametrize(
    ("change", "word"),
    [("model.freeze_batch_norm=true", "batch norms"), ("optimizer.lr=5e-5", "optimizer.lr")],
)
def test_what_suits_pretrained_weights_alone_is_remarked_of_random_ones(
    letters, tmp_path, change, word
):
    said = []
    loop.train(tiny("glyphs-nsm", change), tmp_path, dataset=letters, on_remark=said.append)
    assert any("weights are random" in remark and word in remark for remark in said)
    assert not any("no pretrained weights" in remark for remark in said)
    pretrained = tiny("glyphs-nsm", change, "model.weights=pretrained")
    loop.train(pretrained, tmp_path / "again", dataset=letters, on_remark=said.append)
    assert any("hbench:small has no pretrained weights" in remark for remark in said)


def test_a_comparison_says_where_images_of_different_sizes_were_embedded(letters, tmp_path):
    for size in (32, 48):
        file = tmp_path / f"{size}.parquet"
        vectors = np.random.default_rng(0).normal(size=(len(letters.tests["test"]), 4))
        embeddings.write(
            file,
            letters.tests["test"].items.tolist(),
            vectors.astype(np.float32),
            metadata={"image_size": str(size)},
        )
        report = evaluate(file, letters)
        report.write(tmp_path / f"{size}.json")
        report.write_by_query(tmp_path / f"{size}.by-query.parquet")
    one, other = tmp_path / "32.json", tmp_path / "48.json"
    assert "at 32 and at 48 pixels" in call("compare", one, other).output
    assert "pixels" not in call("compare", one, one).output


def test_every_key_of_a_recipe_is_explained():
    explained = {row.key for row in keys.rows()}

    def keys_in(table, prefix=""):
        for key, value in table.items():
            if prefix + key in ("losses", "aim", "proxies"):
                continue
            if isinstance(value, dict):
                yield from keys_in(value, f"{prefix}{key}.")
            else:
                yield prefix + key

    assert set(keys_in(resolve("sop-happier").model_dump())) < explained
    assert all(row.meaning and row.allowed for row in keys.rows())


def test_the_page_of_keys_is_what_the_command_prints():
    page = (ROOT / "docs" / "recipe-keys.md").read_text(encoding="utf-8")
    assert keys.markdown() in page


# refused before anything is loaded or written


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("images.augment=crop", "made in memory"),
        ("images.augment=cutmix", "resized_crop, shifted\n  next:     one of your own is"),
        ("images.jitter=0.4", "decoded anew"),
        ("optimizer.name=adamm", "adam"),
        ("sampler.name=by_class", "m_per_class"),
        ("model.pooling=mean", "avg"),
        ("model.backbone=torchvison:resnet50", "torchvision"),
        ("model.backbone=./none.py:Net", "does not exist"),
        ("model.backbone=hbench:smal", "did you mean 'small'"),
        ("model.backbone=timm:resnet5", "did you mean 'resnet50'"),
        ("model.weights=./none.pt", "from the folder that the command runs in"),
        ("optimizer.lr=1e99", "optimizer.lr: expected less"),
        ("ema=1", "nothing is learned"),
        ("select_by=AP/genus", "unknown level 'genus'"),
        ("validation_level=genus", "unknown level 'genus'"),
        ("losses.sup_happ.weight=1", "sup_hap"),
    ],
)
def test_a_choice_that_is_not_allowed_is_refused_by_print_and_before_anything_is_written(
    tmp_path, change, word
):
    assert word in refusal("train", "glyphs-happier", "--set", change, "--print")
    refusal("train", "glyphs-happier", "--set", change, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


# nets and transforms of one's own


def test_a_net_of_ones_own_trains_and_its_run_embeds_where_the_net_is_typed(letters, own, tmp_path):
    backbone = f"{own}:Net"
    recipe = tiny("glyphs-nsm", f"model.backbone={backbone}")
    loop.train(recipe, tmp_path / "run", dataset=letters)
    own.rename(tmp_path / "moved.py")
    with pytest.raises(UsageError, match="--net"):
        embedding.embedder(str(tmp_path / "run"))
    backbone = f"{tmp_path / 'moved.py'}:Net"
    given = embedding.embedder(str(tmp_path / "run"), net=backbone)
    found = embeddings.read(
        embedding.embed(given, letters, tmp_path / "again.parquet", device="cpu")
    )
    trained = embeddings.read(tmp_path / "run" / loop.EMBEDDINGS)
    np.testing.assert_allclose(found.vectors, trained.vectors, atol=1e-6)


def test_features_of_a_net_of_ones_own_are_embedded(letters, own, tmp_path):
    given = embedding.embedder(f"{own}:vectors")
    file = embedding.embed(given, letters, tmp_path / "own.parquet", device="cpu", size=None)
    assert embeddings.read(file).vectors.shape[1] == 6


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("nothing", "makes no net"),
        ("Nett", "Net"),
        ("Net", "pooling"),
        ("of_colours", "attributes"),
    ],
)
def test_a_file_without_such_a_net_is_refused(own, name, word):
    with pytest.raises((ConfigError, UnknownName), match=word):
        embedding.embedder(f"{own}:{name}")


def test_a_transform_of_ones_own_varies_training_images_alone_by_torchs_seed(pictures, own):
    manifest = load(pictures).tests["test"]
    settings = Images(size=32, resize=32, augment=f"{own}:train")
    rows = np.arange(4)

    def drawn(vary, workers=0):
        images = images_of("noise", manifest, settings, vary=vary)
        return next(iter(in_order(images, rows, batch=4, workers=workers)))[0]

    assert torch.equal(drawn(True), drawn(True, workers=1))
    assert not torch.equal(drawn(True), drawn(False))


def test_a_transform_of_ones_own_that_returns_another_size_is_refused(pictures, own):
    manifest = load(pictures).tests["test"]
    settings = Images(size=32, resize=32, augment=f"{own}:large")
    with pytest.raises(ConfigError, match="large returns an image of another shape"):
        images_of("noise", manifest, settings, vary=True)


@pytest.mark.parametrize("name", ["rand_augment", "resized_crop", "crop"])
def test_colours_change_and_rectangles_are_erased(pictures, name):
    manifest = load(pictures).tests["test"]
    image = manifest.picture(manifest.items[0])
    plain = Images(size=16, resize=16, augment=name, flip=0.0)

    def made(settings):
        torch.manual_seed(1)
        return augmentations[name](settings)(image)

    assert made(plain).dtype == torch.uint8
    erased = made(plain.model_copy(update={"erase": 1.0}))
    assert (erased == 0).sum() > (made(plain) == 0).sum()
    assert not torch.equal(made(plain.model_copy(update={"jitter": 0.5})), made(plain))


# optimisers, averages, rates by depth, activations computed again


@pytest.mark.parametrize("name", ["nadam", "rmsprop", "radam", "lamb", "lion", "sgd"])
def test_an_optimiser_is_taken_by_its_name(letters, tmp_path, name):
    recipe = tiny("glyphs-nsm", f"optimizer.name={name}", "optimizer.lr=0.001")
    before = begin(recipe, letters).model.projection.weight.detach().clone()
    loop.train(recipe, tmp_path, dataset=letters)
    state = checkpoints.load_file(checkpoints.latest(tmp_path) / checkpoints.MODEL)
    moved = (state["projection.weight"] - before).abs().max()
    assert 0 < float(moved) < 1


def test_an_optimiser_that_refuses_the_weights_is_refused(letters):
    with pytest.raises(ConfigError, match="muon"):  # only for matrices, and nets have biases
        begin(tiny("glyphs-nsm", "optimizer.name=muon"), letters)


def test_an_average_is_that_of_the_weights_of_all_steps(letters, tmp_path):
    recipe = tiny("glyphs-nsm", "ema=0.7")
    run = begin(recipe, letters)
    expected = None
    for _step in take.steps(run, recipe, letters, tmp_path):
        now = run.model.projection.weight.detach().clone()
        expected = now if expected is None else 0.7 * expected + 0.3 * now
    torch.testing.assert_close(run.tested.projection.weight, expected)
    assert not torch.equal(run.model.projection.weight, expected)


def test_a_run_with_an_average_resumes_to_the_same_bits(letters, tmp_path):
    recipe = tiny("glyphs-nsm", "ema=0.7", "epochs=3")
    loop.train(recipe, tmp_path / "whole", dataset=letters)
    with pytest.raises(loop.TrainingInterrupted):
        loop.train(recipe, tmp_path / "cut", dataset=letters, on_progress=signalled_at(4))
    loop.train(recipe, tmp_path / "cut", dataset=letters, resume=True)
    whole, cut = (
        (checkpoints.latest(tmp_path / each) / checkpoints.MODEL).read_bytes()
        for each in ("whole", "cut")
    )
    assert whole == cut


def test_rates_fall_block_by_block_towards_the_images(letters):
    recipe = tiny("glyphs-nsm", "optimizer.layer_decay=0.5", "optimizer.lr=0.8")
    run = begin(recipe, letters)
    set_rates(run.optimizers, recipe, epoch=0)
    groups = [group for group in run.optimizers[0].param_groups if group["name"] == BODY]
    # four convolutions and four norms, one after the other
    assert [group["lr"] for group in groups] == [0.8 * 0.5**below for below in range(8)[::-1]]
    assert groups[0]["params"][0] is next(iter(run.model.backbone.parameters()))


def test_blocks_of_a_transformer_are_its_layers_between_what_is_before_and_after():
    layer = nn.TransformerEncoderLayer(4, 1, 8)
    net = nn.ModuleDict(
        {
            "before": nn.Linear(2, 4),
            "stack": nn.ModuleList([layer, *(nn.Linear(4, 4) for _ in range(3))]),
            "after": nn.Linear(4, 2),
        }
    )
    assert blocks_of(net) == list(net["stack"])
    depths = list(by_depth(net))
    assert depths[0] == list(net["before"].parameters())
    assert depths[-1] == list(net["after"].parameters())
    assert sum(map(len, depths)) == len(list(net.parameters()))


def test_activations_that_are_computed_again_give_the_same_gradient():
    torch.manual_seed(0)
    net = build_model(Model(backbone="hbench:small", weights="random", dim=8))
    images = torch.randn(4, 1, 32, 32)

    def gradient():
        net.zero_grad()
        net(images)[:, 0].sum().backward()
        return [weight.grad.clone() for weight in net.parameters()]

    plain = gradient()
    recompute(net.backbone)
    for one, other in zip(plain, gradient(), strict=True):
        assert torch.equal(one, other)


def test_batch_norms_that_learn_would_see_a_batch_twice(letters):
    recipe = tiny("glyphs-nsm", "model.recompute=true")
    with pytest.raises(UsageError, match="twice"):
        begin(recipe, letters)


@pytest.mark.parametrize("classes", [2, 3, 4, 7, 40])
def test_the_advice_on_too_few_held_out_classes_works(classes):
    names = [(f"a{number}", f"a{number} b") for number in range(classes) for _ in range(2)]
    items = [f"{number:03}" for number in range(len(names))]
    manifest = manifests.from_names(items, names, levels=["coarse", "fine"])
    data = Dataset("few", "1", Protocol(), manifest, {"test": manifest})
    changes = ["validation=0.01", "validation_level=coarse"]
    with pytest.raises(ConfigError, match="too few") as refused:
        split_off(data, resolve("glyphs-nsm", changes))
    advised = str(refused.value).rpartition("--set ")[2]
    if classes < 3:
        assert advised == "validation_level="
        return
    _, held = split_off(data, resolve("glyphs-nsm", [*changes, advised]))
    assert 2 <= len(held.tests["validation"].tree.names[0]) < classes


def test_more_pictures_than_memory_holds_are_refused_before_anything_is_written(letters, tmp_path):
    changes = ["images.size=3000", "images.resize=3000"]
    with pytest.raises(ConfigError, match="held in memory"):
        loop.train(tiny("glyphs-nsm", *changes), tmp_path / "run", dataset=letters)
    assert not (tmp_path / "run").exists()


def test_a_net_that_gives_vectors_of_length_0_is_refused_with_what_helps(tmp_path):
    (tmp_path / "dead.py").write_text(
        "import torch\n\nclass Dead(torch.nn.Module):\n    size, mean, std = 32, (0.5,), (0.5,)\n\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.ones(1))\n\n"
        "    def forward(self, images):\n"
        "        return 0 * self.weight * images.flatten(1)[:, :8]\n"
    )
    words = ("--set", f"model.backbone={tmp_path}/dead.py:Dead", "--set", "model.pooling=own")
    short = ("--set", "epochs=1", "--set", "steps_per_epoch=1", "--set", "sampler.batch=16")
    free = ("--set", "model.dim=0", "--set", "model.layer_norm=false")
    said = refusal("train", "glyphs-nsm", *words, *short, *free, "--out", tmp_path / "run")
    assert "vector 0" in said
    assert "optimizer.lr" in said
