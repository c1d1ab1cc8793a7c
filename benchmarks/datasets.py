"""Time and memory of opening and building datasets of the largest published sizes, made up in their
form.

    python benchmarks/datasets.py [open] [build] [fetch]

Each figure is of a process of its own: seconds, imports told apart, and peak memory.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
INAT_IMAGES = 461_939
INAT_NODES = (6, 25, 57, 273, 1_120, 4_412, 8_142)  # of the levels, coarse to fine
# of Google Landmarks v2
TRAIN_LANDMARKS = 93_000
TRAIN_IMAGES = 1_580_470
INDEX_LANDMARKS = 101_302
INDEX_IMAGES = 761_757
QUERIES = 1_129
GROUPS = 78
LABELLED = 0.6  # of the landmarks, with a group


def measured(code: str) -> dict[str, float]:
    """Run `code` in a process of its own, and return what it told: seconds since the lap before, by
    `lap("NAME s")`; what it put into `told`; and the peak of its memory, "peak MB".
    """
    program = f"""
import json, sys, time
sys.path.insert(0, {str(ROOT)!r})
began = time.perf_counter()
told = {{}}
def lap(name):
    global began
    now = time.perf_counter(); told[name] = round(now - began, 3); began = now
{code}
status = open("/proc/self/status").read()
told["peak MB"] = int(status.split("VmHWM:")[1].split()[0]) // 1024
print(json.dumps(told))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(run.stdout)
    return found


def show(name: str, told: dict[str, float], *, limit: str) -> None:
    """Print the figures of a measurement, and what they should be."""
    figures = "  ".join(f"{key} {value:g}" for key, value in told.items())
    print(f"{name:<44}{figures}   (aim: {limit})")


def inat_manifest(path: Path) -> None:
    """Write a manifest of the size and depth of iNaturalist 2018 with all its levels."""
    sys.path.insert(0, str(ROOT))
    from hbench.datasets import manifest

    rng = np.random.default_rng(0)
    species = np.sort(rng.integers(0, INAT_NODES[-1], INAT_IMAGES))
    levels = ["kingdom", "phylum", "class", "order", "family", "genus", "species"]
    columns = []
    for nodes in INAT_NODES:
        node = species * nodes // INAT_NODES[-1]
        columns.append([f"name of node {i}" for i in node])
    items = [f"train_val2018/Insecta/{one}/{i:032x}.jpg" for i, one in enumerate(species)]
    # the paths of the nodes of each level; a number behind their names tells nodes apart
    nested = [
        list(dict.fromkeys(zip(*columns[: level + 1], strict=True))) for level in range(len(levels))
    ]
    names = [{path: f"{path[-1]} ({i})" for i, path in enumerate(own)} for own in nested]
    rows = zip(*columns, strict=True)
    named = [tuple(names[level][row[: level + 1]] for level in range(len(levels))) for row in rows]
    manifest.from_names(items, named, levels=levels).write(path)


def landmarks(raw: Path) -> None:
    """Write the metadata of Google Landmarks v2 at full size, with random contents: the landmarks
    of both splits with their groups, their images, and the queries."""
    rng = np.random.default_rng(0)
    (raw / "metadata").mkdir()
    (raw / "ground_truth").mkdir()
    for space, number in (("train", TRAIN_LANDMARKS), ("index", INDEX_LANDMARKS)):
        groups = rng.integers(0, GROUPS, number)
        labelled = rng.random(number) < LABELLED
        with (raw / "metadata" / f"{space}_label_to_hierarchical.csv").open("w") as file:
            file.write(
                "landmark_id,category,supercategory,hierarchical_label,natural_or_human_made\n"
            )
            for i in range(number):
                label = ",,"
                if labelled[i]:
                    origin = "natural" if groups[i] < 18 else "human-made"
                    label = f"some kind,group {groups[i]},{origin}"
                file.write(
                    f"{i},http://commons.wikimedia.org/wiki/Category:Landmark_number_{i},{label}\n"
                )
    of_landmark = np.sort(rng.integers(0, TRAIN_LANDMARKS, TRAIN_IMAGES))
    # the images of landmark i are those from bounds[i] to bounds[i + 1]
    bounds = np.searchsorted(of_landmark, np.arange(TRAIN_LANDMARKS + 1))
    with (raw / "metadata" / "train_clean.csv").open("w") as file:
        file.write("landmark_id,images\n")
        for i in range(TRAIN_LANDMARKS):
            images = " ".join(f"{image:016x}" for image in range(bounds[i], bounds[i + 1]))
            file.write(f"{i},{images}\n")
    with (raw / "metadata" / "index_image_to_landmark.csv").open("w") as file:
        file.write("id,landmark_id\n")
        file.writelines(f"{i:016x},{rng.integers(INDEX_LANDMARKS)}\n" for i in range(INDEX_IMAGES))
    with (raw / "ground_truth" / "retrieval_solution_v2.1.csv").open("w") as file:
        file.write("id,images,Usage\n")
        file.writelines(
            f"q{i:015x},{' '.join(f'{j:016x}' for j in range(i, i + 20))},Public\n"
            for i in range(QUERIES)
        )


def opening(folder: Path) -> None:
    """How long a manifest of the size of iNaturalist takes to open."""
    path = folder / "inat.parquet"
    inat_manifest(path)
    code = f"""
from pathlib import Path
from hbench.datasets import manifest
lap("import s")
opened = manifest.read(Path({str(path)!r}))
opened.tree.paths
lap("open s")
told["rows"] = len(opened)
"""
    show("open iNat-full (461,939 rows, 7 levels)", measured(code), limit="open < 1 s, < 500 MB")


def building(folder: Path) -> None:
    """How long Google Landmarks v2 takes to be built and saved."""
    raw = folder / "gldv2"
    raw.mkdir()
    landmarks(raw)
    code = f"""
from pathlib import Path
from hbench.datasets import build as building
from hbench.datasets import save, specs
lap("import s")
dataset, found, errors = building.build_published(specs["hgldv2"], Path({str(raw)!r}), unofficial=True)
lap("build s")
save(dataset, Path({str(folder / "built")!r}))
lap("save s")
told["images"] = sum(len(one) for one in dataset.manifests.values())
"""
    show("build H-GLDv2 (synthetic, full size)", measured(code), limit="build + save < 60 s")


def fetching(folder: Path) -> None:
    """Our downloader against the bare copy of the same bytes from the same server, by requests."""
    sys.path.insert(0, str(ROOT))
    import requests

    from hbench.datasets.download import Requester, fetch, session
    from hbench.datasets.download.sources import RemoteFile
    from tests.file_server import FileServer

    body = np.random.default_rng(0).bytes(400_000_000)
    with (
        FileServer(files={"x": body}) as server,
        session() as own,
        contextlib.closing(requests.Session()) as bare,
    ):
        server.chunk = 1 << 20
        began = time.perf_counter()
        with bare.get(server.url("x"), stream=True) as answer, (folder / "bare").open("wb") as file:
            for block in answer.iter_content(1 << 18):
                file.write(block)
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        fetch(RemoteFile("x", (server.url("x"),)), folder / "ours", Requester(own))
        ours = time.perf_counter() - began
    told = {
        "ours s": round(ours, 2),
        "bare requests s": round(seconds, 2),
        "ratio": round(ours / seconds, 2),
    }
    show("fetch 400 MB, md5 and sha256 checked", told, limit="ratio below 3")


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["open", "build", "fetch"]
    for name, run in (("open", opening), ("build", building), ("fetch", fetching)):
        if name in chosen:
            with tempfile.TemporaryDirectory() as temporary:
                run(Path(temporary))
