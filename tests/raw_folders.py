"""Raw folders of benchmarks, made in tests, and what is built from them."""

import io
import tarfile
from pathlib import Path

import tomli_w

from hbench.datasets import build as building
from hbench.datasets import specs


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def touch(root, items, body=b"image"):
    for item in items:
        (root / item).parent.mkdir(parents=True, exist_ok=True)
        (root / item).write_bytes(body)
    return root


def tar_of(files, mode="w"):
    """The bytes of a tar with a folder, set, and files by name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        folder = tarfile.TarInfo("./set")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


def omniglot_archives():
    """The real archives of omniglot-small by name, which lie here in parts."""
    folder = Path(__file__).parent / "golden" / "omniglot"
    names = [f"images_background_small{number}.zip" for number in (1, 2)]
    return {
        name: b"".join(part.read_bytes() for part in sorted(folder.glob(f"{name}.part*")))
        for name in names
    }


def write_sources(home, server):
    """The user's list of sources, by which omniglot-small is fetched from a server."""
    tables = [{"file": name, "urls": [server.url(name)]} for name in server.files]
    (home / "sources.toml").write_text(tomli_w.dumps({"omniglot-small": tables}))


def names(manifest, item):
    """The names of an item, coarse to fine."""
    row = manifest.items.tolist().index(item)
    return [
        of_level[i] for of_level, i in zip(manifest.tree.names, manifest.labels[row], strict=True)
    ]


def build(name, root, **options):
    return building.build_published(specs[name], root, **options)[0]


class Evil:
    """An object that runs code where it is unpickled."""

    def __reduce__(self):
        return (print, ("this must never run",))
