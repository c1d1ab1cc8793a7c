"""Builds a folder laid out as ImageNet, whose classes are synsets, on WordNet's `is_a` pairs.

A synset may have several parents: a dog is a canine and a domestic animal. A policy picks one of
them, or `several=True` keeps all paths. Leaves end at different depths; a policy repeats them down
to the finest level.
"""

from pathlib import Path

from PIL import Image

import hbench

# a parent and a child on each line, as in ImageNet's wordnet.is_a.txt
IS_A = """\
n00015388 n01861778
n00015388 n01317541
n01861778 n02083346
n01861778 n02120997
n02083346 n02084071
n01317541 n02084071
n02083346 n02114100
n02084071 n02085620
n02084071 n02099601
n02114100 n02114367
n02120997 n02129165
n02120997 n02130308
"""
SYNSETS = {
    "n02085620": "Chihuahua", "n02099601": "golden retriever", "n02114367": "timber wolf",
    "n02129165": "lion", "n02130308": "cheetah",
}  # fmt: skip


def write_raw(folder: Path) -> None:
    """Lay out some pictures as ImageNet does: train/ and val/, a folder for each synset."""
    folder.mkdir(exist_ok=True)
    (folder / "wordnet.is_a.txt").write_text(IS_A)
    for number, synset in enumerate(SYNSETS):
        for split, size in (("train", 4), ("val", 2)):
            (folder / split / synset).mkdir(parents=True, exist_ok=True)
            for shot in range(size):
                colour = (40 * number, 60 * shot, 200 if split == "val" else 90)
                file = f"{synset}_{split}_{shot}.JPEG"
                Image.new("RGB", (32, 32), colour).save(folder / split / synset / file)


if __name__ == "__main__":
    raw = Path("imagenet")
    write_raw(raw)
    pairs = raw / "wordnet.is_a.txt"
    chosen = {"split_folders": True, "tree": pairs}
    one = hbench.OwnSource(raw, policies=["majority-parent", "repeat-leaf"], **chosen)
    data = hbench.build("imagenet-mini", source=one, out=Path("one"))
    print(data)
    paths = data.tests["test"].to_pandas()[list(data.levels)].drop_duplicates()
    for *names, leaf in paths.itertuples(index=False):
        above = [name for name in names if name != leaf]
        print(" > ".join([*above, SYNSETS[leaf]]))

    every = hbench.OwnSource(raw, policies=["unknown"], several=True, **chosen)
    both = hbench.build("imagenet-dag", source=every, out=Path("every"))
    print(f"{both.tests['test'].more.owners} test pictures of dogs have two paths")
