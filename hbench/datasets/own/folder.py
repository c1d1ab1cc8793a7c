"""Makes a table of a folder of images. Its nested folders are the levels:
`order/family/species/image.jpg`.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa

from hbench.core.errors import DataError, examples
from hbench.datasets.pictures import broken_links, images_below
from hbench.sheets.rows import default_levels
from hbench.sheets.words import PICTURES, split_words

SPLIT = "split"
OTHER_PICTURES = (  # suffixes of pictures that hbench does not open
    ".heic", ".heif", ".avif", ".jxl", ".jp2", ".j2k", ".svg", ".psd", ".tga", ".ico", ".dng",
    ".cr2", ".nef", ".arw",
)  # fmt: skip


def folder_table(
    folder: Path,
    *,
    levels: Sequence[str] = (),
    split_folders: bool = False,
    depth: int | None = None,
) -> pa.Table:
    """Make a table with a row per image below `folder`: its item, and the name of its folder at
    each level, "" below the last one.

    Args:
        folder: the folder of images.
        levels: the names of the levels, coarse to fine. Default: level1 and so on.
        split_folders: whether the outermost folders are the splits, and so not a level.
        depth: how many nested folders are levels, from the outermost; None: all.

    Raises:
        DataError: there are no images, or the folders are not as deep as `levels`.
    """
    items = sorted(images_below(folder))
    if not items:
        expected = f"files ending in {', '.join(PICTURES)}"
        raise DataError(
            f"no images below {folder}", expected=expected, found=not_taken(folder) or None
        )

    parts = [item.split("/")[:-1] for item in items]  # the folders around each image
    columns = {"item": pa.array(items)}
    outermost = [folders[0] if folders else "" for folders in parts]
    if split_folders:
        _require_folders_of_splits(outermost, folder)
        columns[SPLIT] = pa.array(outermost)
        parts = [folders[1:] for folders in parts]

    parts = [folders[:depth] for folders in parts]
    # from here on, the depth of the deepest image; some images may be in fewer folders
    depth = max(map(len, parts))
    # Folders such as train and test are hardly classes, so this raises, unless the user named a
    # level for every folder, the outermost ones too
    if not split_folders and _are_splits(outermost):
        _refuse_splits_as_level(folder, outermost, levels or (), depth)
    levels = list(levels or default_levels(depth))
    if len(levels) != depth or depth == 0:
        raise DataError(
            f"the folders below {folder} are {depth} deep",
            expected=f"one folder per level: {', '.join(levels)}",
            # the images in the deepest folders
            found=examples(
                item for item, folders in zip(items, parts, strict=True) if len(folders) == depth
            ),
            fix=f"take only the outermost folders: --depth {len(levels)}"
            if len(levels) < depth
            else None,
        )

    padded = np.asarray(
        [folders + [""] * (depth - len(folders)) for folders in parts], dtype=object
    )
    return pa.table(columns | {level: pa.array(padded[:, i]) for i, level in enumerate(levels)})


def _are_splits(outermost: Sequence[str]) -> bool:
    """Whether the outermost folders of the images are all called like splits. At least two are
    needed, since a single one, such as "test", may be any folder."""
    found = set(outermost)
    return len(found) > 1 and len(split_words(found)) == len(found)


def _refuse_splits_as_level(
    folder: Path, outermost: Sequence[str], levels: Sequence[str], depth: int
) -> None:
    """Raise DataError for outermost folders that are all called like splits (`outermost`), unless
    the user named as many `levels` as folders are deep (`depth`): then the outermost folders are
    meant as classes."""
    if len(levels) == depth:
        return
    raise DataError(
        f"the outermost folders of {folder} are called as splits are",
        expected="classes in the outermost folders",
        found=examples(sorted(set(outermost))),
        fix="--split-folders takes them for splits; where they are classes, name them as a level, "
        f"too, such as --levels {','.join(default_levels(depth))}",
    )


def _require_folders_of_splits(outermost: Sequence[str], folder: Path) -> None:
    """Raise DataError if some outermost folders are not called like splits."""
    found = set(outermost)
    # asked together, since "val" is a split only if there are other splits
    if other := sorted(found - set(split_words(found))):
        raise DataError(
            f"the outermost folders of {folder} are not a split",
            expected="train and test, train and val, train, val and test, or train, query and "
            "gallery",
            found=examples(map(repr, other)),
            fix="leave --split-folders out; --split-by LEVEL makes a split",
        )


def not_taken(folder: Path) -> str:
    """Describe the pictures below a folder in formats that hbench does not open, and the broken
    links; "" if there are none of these."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for item in sorted(images_below(folder, suffixes=OTHER_PICTURES)):
        by_kind[PurePosixPath(item).suffix.lower()].append(item)
    kinds = [f"{len(items):,} {kind} ({examples(items)})" for kind, items in by_kind.items()]
    how = (
        "make PNG or JPEG of them first (Pillow opens JP2, with pillow-heif also HEIC; cairosvg "
        "draws SVG)"
    )
    parts = [f"not taken: {', '.join(kinds)}; {how}"] if kinds else []
    if links := broken_links(folder):
        parts.append(f"{len(links):,} links lead nowhere, and are left out ({examples(links)})")
    return "; ".join(parts)
