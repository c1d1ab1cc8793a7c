"""Manifests as torch datasets: complete, in order, decoded, in worker processes, and with
torchvision's arguments.
"""

import pickle
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import datasets as vision
from torchvision.transforms import v2

import hbench
from hbench.core.errors import DataError, SourceError, UnknownName
from hbench.datasets import manifest as manifests
from hbench.datasets import specs
from hbench.datasets.benchmarks import glyphs
from hbench.datasets.dataset import Dataset, Protocol
from hbench.datasets.pictures import open_picture
from hbench.train.images.torch_dataset import torch_dataset, vision_dataset
from tests.file_server import FileServer
from tests.raw_folders import omniglot_archives, write_sources

pytestmark = pytest.mark.fast


def folder_dataset(root, images):
    for item, image in images.items():
        (root / item).parent.mkdir(parents=True, exist_ok=True)
        image.save(root / item)
    names = [("all", item.split("/")[0]) for item in images]
    manifest = manifests.from_names(list(images), names, levels=["any", "class"])
    return Dataset("own", "1", Protocol(), None, {"test": manifest}).rooted(root).tests["test"]


def test_an_item_is_image_labels_and_index(tmp_path):
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 20
    test = folder_dataset(
        tmp_path, {"b/1.png": Image.fromarray(pixels), "a/1.png": Image.new("L", (5, 4), 255)}
    )
    assert hbench.torch_dataset is torch_dataset
    images = torch_dataset(test)
    image, labels, index = images[0]
    assert type(image) is torch.Tensor
    assert torch.allclose(image, torch.from_numpy(pixels).permute(2, 0, 1) / 255)
    assert labels.dtype == torch.int64
    assert (labels.tolist(), index, len(images)) == ([0, 1], 0, 2)
    assert images[1][0].shape == (3, 4, 5)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_images_of_every_mode_become_rgb_and_take_a_transform_of_torchvision(tmp_path, mode):
    file = "a/1.tif" if mode in {"CMYK", "I;16"} else "a/1.png"
    test = folder_dataset(tmp_path, {file: Image.new(mode, (30, 20))})
    assert torch_dataset(test)[0][0].shape == (3, 20, 30)
    steps = [
        v2.Resize((25, 25)),
        v2.CenterCrop(22),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
    ]
    transform = v2.Compose(steps)
    assert torch_dataset(test, transform)[0][0].shape == (3, 22, 22)


def test_batches_come_complete_and_in_order_also_from_a_copy_as_workers_get_it():
    train = hbench.load("glyphs").train
    copy = pickle.loads(pickle.dumps(torch_dataset(train)))
    batches = list(DataLoader(torch.utils.data.Subset(copy, range(200)), batch_size=64))
    assert torch.cat([index for *_, index in batches]).tolist() == list(range(200))
    assert np.array_equal(
        torch.cat([labels for _, labels, _ in batches]).numpy(), train.labels[:200]
    )
    seen = (torch.cat([images for images, *_ in batches])[:, 0] * 255).round().byte().numpy()
    assert np.array_equal(seen, glyphs.images(train)[:200])


def test_a_missing_or_damaged_image_is_named_and_images_that_are_elsewhere_are_refused_at_once(
    tmp_path,
):
    test = folder_dataset(
        tmp_path, {"a/1.png": Image.new("RGB", (50, 50)), "b/1.png": Image.new("RGB", (50, 50))}
    )
    whole = (tmp_path / "a/1.png").read_bytes()
    (tmp_path / "a/1.png").write_bytes(whole[:60])
    (tmp_path / "b/1.png").unlink()
    for row in (0, 1):
        with pytest.raises(DataError, match=r"image of [ab]/1\.png cannot be read"):
            torch_dataset(test)[row]
    with pytest.raises(DataError, match="not on this disk"):
        torch_dataset(manifests.from_names(["a"], [("x",)], levels=["class"]))


def test_a_picture_of_600_megapixels_is_refused_without_decoding_it(tmp_path):
    row = b"\0" * (30_000 // 8 + 1)

    def chunk(kind, body):
        return len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)

    compressor = zlib.compressobj(9)
    body = b"".join(compressor.compress(row) for _ in range(20_000)) + compressor.flush()
    header = (30_000).to_bytes(4) + (20_000).to_bytes(4) + bytes([1, 0, 0, 0, 0])
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    (tmp_path / "big.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    with pytest.raises(DataError, match=r"(?s)big\.png cannot be read.*600000000 pixels"):
        open_picture(tmp_path, "big.png")


@pytest.fixture(scope="module")
def served():
    """The real small Omniglot sets on a server of their own."""
    with FileServer(files=omniglot_archives()) as server:
        yield server


@pytest.fixture(autouse=True)
def _addresses(empty_home, served):
    empty_home.mkdir()
    write_sources(empty_home, served)
    served.asked.clear()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("omniglot")


def test_the_package_has_vision_datasets():
    assert hbench.vision_dataset is vision_dataset


def test_a_dataset_is_downloaded_once_for_all_splits(served, tmp_path):
    vision_dataset("omniglot-small")(tmp_path, "test", download=True)
    train = vision_dataset("omniglot-small")(tmp_path, download=True)
    assert (len(train), len(served.asked)) == (2_720, 2)


def test_the_arguments_of_torchvision_choose_a_split_and_its_transforms(root):
    test = vision_dataset("omniglot-small")(
        root, "test", transform=v2.ToImage(), target_transform=str, download=True
    )
    assert isinstance(test, vision.VisionDataset)
    assert (len(test), len(test.classes)) == (3_120, 156)
    image, target = test[5]
    assert (image.shape, target) == ((3, 105, 105), str(test.targets[5]))
    assert test.class_to_idx[test.classes[7]] == 7
    with pytest.raises(UnknownName, match="'test'"):
        vision_dataset("omniglot-small")(root, "tset")


def test_items_classes_and_pictures_are_those_of_an_image_folder(root):
    train = vision_dataset("omniglot-small")(root, download=True)
    assert train[0][0].mode == "RGB"
    theirs = vision.ImageFolder(str(root / "images_background_small1"))
    assert [str(root / item) for item in train.manifest.items] == [
        path for path, _ in theirs.samples
    ]
    assert train.manifest.labels[:, 0].tolist() == theirs.targets
    assert list(train.manifest.tree.names[0]) == theirs.classes
    assert np.array_equal(np.asarray(train[7][0]), np.asarray(theirs[7][0]))


def test_without_download_nothing_is_fetched_and_a_wrong_download_is_refused(
    served, tmp_path, monkeypatch
):
    with pytest.raises(DataError, match="raw files of omniglot-small are not in"):
        vision_dataset("omniglot-small")(tmp_path / "here")
    assert served.asked == []
    for name in list(served.files):
        monkeypatch.setitem(served.files, name, b"other bytes")
    with pytest.raises(SourceError, match="another size"):
        vision_dataset("omniglot-small")(tmp_path / "here", download=True)


def test_torchvision_reads_the_same_inaturalist(tmp_path):
    names = [
        "00000_Plantae_Tracheophyta_Liliopsida_Asparagales_Iridaceae_Iris_germanica",
        "00001_Animalia_Arthropoda_Insecta_Mantodea_Tarachodidae_Iris_oratoria",
        "00002_Animalia_Chordata_Aves_Passeriformes_Corvidae_Corvus_corax",
    ]
    for name in names:
        for folder in ("train_mini", "val"):
            folder_dataset(
                tmp_path / folder, {f"{name}/{n}.jpg": Image.new("RGB", (2, 2)) for n in (1, 2)}
            )
    (tmp_path / "2021_train_mini").symlink_to(tmp_path / "train_mini")
    levels = ["kingdom", "phylum", "class", "order", "family", "full"]
    theirs = vision.INaturalist(
        str(tmp_path), version="2021_train_mini", target_type=levels, loader=str
    )
    ours = specs["inat21-mini"].manifests(tmp_path)["train"]
    labels = np.array([theirs[row][1] for row in range(len(theirs))])
    for column, level in enumerate((0, 1, 2, 3, 4, 6)):
        partitions = {
            tuple(row) for row in np.column_stack([ours.labels[:, level], labels[:, column]])
        }
        assert len(partitions) == len(set(labels[:, column])) == len(set(ours.labels[:, level]))


def test_torchvision_reads_the_same_aircraft(tmp_path):
    data = tmp_path / "fgvc-aircraft-2013b" / "data"
    (data / "images").mkdir(parents=True)
    rows = [
        ("1", "707-320", "Boeing 707", "Boeing"), ("2", "727-200", "Boeing 727", "Boeing"),
        ("3", "A300B4", "A300", "Airbus"),
    ]  # fmt: skip
    levels = {"variant": "variants", "family": "families", "manufacturer": "manufacturers"}
    for place, (level, plural) in enumerate(levels.items(), 1):
        (data / f"{plural}.txt").write_text(
            "".join(f"{name}\n" for name in dict.fromkeys(row[place] for row in rows))
        )
        for part in ("trainval", "test"):
            (data / f"images_{level}_{part}.txt").write_text(
                "".join(f"{row[0]} {row[place]}\n" for row in rows)
            )
    splits = specs["fgvc-aircraft"].manifests(data)
    for place, level in enumerate(("manufacturer", "family", "variant")):
        theirs = vision.FGVCAircraft(str(tmp_path), split="test", annotation_level=level)
        pairs = zip(theirs._image_files, theirs._labels, strict=True)
        named = {Path(file).name: theirs.classes[label] for file, label in pairs}
        for manifest in splits.values():
            for item, label in zip(manifest.items, manifest.labels[:, place], strict=True):
                assert manifest.tree.names[place][label] == named[Path(item).name]
