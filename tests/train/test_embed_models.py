"""hbench embed --models: a file per model, those that fail named at the end, what is there left as
it is.
"""

import numpy as np
import pytest
from click.testing import CliRunner

from hbench.cli import group
from hbench.core.errors import ConfigError, DataError
from hbench.datasets import load
from hbench.submissions import embeddings
from hbench.train.embedding.embed_models import file_name, read_models
from tests.training import build_pictures

MODELS = """\
timm:test_resnet    # tiny nets, which begin at random
timm:no_such_net

torchvision:mobilenet_v3_small
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "models.txt").write_text(MODELS, encoding="utf-8")
    return folder


def embed(folder, *more):
    words = [
        "embed",
        "--models",
        folder / "models.txt",
        "-d",
        folder / "data",
        "-o",
        folder / "out",
    ]
    options = ["--weights", "random", "--size", "64", "--workers", "0", *more]
    return CliRunner().invoke(group, list(map(str, [*words, *options])))


@pytest.fixture(scope="module")
def embedded(folder):
    """A first run over the list, and the files that it left."""
    build_pictures(folder)
    return embed(folder), sorted((folder / "out").iterdir())


def times_of(files):
    return [path.stat().st_mtime_ns for path in files]


def test_the_model_that_fails_is_named_at_the_end(embedded):
    first, _ = embedded
    assert isinstance(first.exception, DataError), first.output
    assert first.exception.exit_code == 4
    assert "1 of 3 models failed" in str(first.exception)
    assert "timm:no_such_net" in str(first.exception)


def test_every_other_model_has_a_file_of_its_vectors(folder, embedded):
    _, files = embedded
    assert [path.name for path in files] == [
        "timm-test_resnet.parquet",
        "torchvision-mobilenet_v3_small.parquet",
    ]
    items = load(folder / "data").tests["test"].items.tolist()
    vectors = [embeddings.read(path) for path in files]
    for each in vectors:
        assert each.ids.tolist() == items
        assert np.isfinite(each.vectors).all()
    assert vectors[0].dim != vectors[1].dim


def test_files_that_are_there_are_used_again(folder, embedded):
    _, files = embedded
    times = times_of(files)
    again = embed(folder)
    assert again.output.count("is there") == 2
    assert times_of(files) == times


def test_files_of_other_settings_are_not_replaced(folder, embedded):
    _, files = embedded
    times = times_of(files)
    other = embed(folder, "--flip")
    assert "3 of 3 models failed" in str(other.exception)
    assert times_of(files) == times


def test_a_list_that_is_missing_empty_or_names_a_model_twice_and_a_model_next_to_a_list_are_refused(
    tmp_path,
):
    for text in (None, "", "# none\n", "timm:a\ntimm:a\n", "timm:a/b\ntimm:a-b\n"):
        if text is not None:
            (tmp_path / "models.txt").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError):
            read_models(tmp_path / "models.txt", tmp_path)
    words = ["embed", "timm:x", "--models", "m.txt", "-d", "glyphs", "-o", "x"]
    assert CliRunner().invoke(group, words).exit_code == 2
    assert (
        file_name("transformers:facebook/dinov2-small")
        == "transformers-facebook-dinov2-small.parquet"
    )
