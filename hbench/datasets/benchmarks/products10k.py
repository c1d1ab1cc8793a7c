"""Products-10K: 10,000 products of a web shop, each in a group. The test images are customers'
photographs.
"""

from pathlib import Path

from hbench.core.errors import DataError, examples
from hbench.datasets.raw_files import cells_of
from hbench.datasets.spec import Protocol, Publication, Spec, Splits

TRAIN = "train.csv"
TEST = "test_kaggletest.csv"


def build(raw: Path) -> Splits:
    """Read image, product and group from train.csv in the folder `raw`, and image and product from
    the list of the test. That list has no groups: a product has its group of train.csv.
    """
    train = cells_of(raw / TRAIN, "name", "class", "group")
    test = cells_of(raw / TEST, "name", "class")
    group_of = {product: group for _, product, group in train}
    if lost := sorted({product for _, product in test} - set(group_of)):
        raise DataError(f"products of {raw / TEST} are not in {TRAIN}", found=examples(lost))
    splits = {}
    for split, rows in (("train", train), ("test", test)):
        # the rows of train.csv have a third cell, the group
        splits[split] = [
            (f"{split}/{image}", (f"group {group_of[product]}", f"product {product}"))
            for image, product, *_ in rows
        ]
    return splits


PAPER = Publication(
    key="bai2020products",
    kind="misc",
    title="Products-10K: A Large-scale Product Recognition Dataset",
    authors=("Bai, Yalong", "Chen, Yuxiang", "Yu, Wei", "Wang, Linfang", "Zhang, Wei"),
    year=2020,
    arxiv="2008.10545",
    cited=("Products-10K",),
)
SPEC = Spec(
    name="products-10k",
    title="Products-10K",
    levels=("group", "product"),
    build=build,
    markers=(TRAIN,),
    protocol=Protocol(recalls=(1, 10, 100)),
    licence="not found",
    papers=(PAPER,),
    citation="Bai et al., Products-10K: a large-scale product recognition dataset, 2020",
    homepage="https://products-10k.github.io/",
    defects=(
        "a closed set: the products of the test are those of the training",
        "products and groups have numbers, not names",
    ),
    manual=(
        "page:   https://products-10k.github.io/ (OneDrive, or Kaggle with a login)\n"
        "files:  train.zip, test.zip, train.csv, test_kaggletest.csv\n"
        "layout: all in one folder, the archives unpacked"
    ),
    layout="""\
train.csv                name, class, group
test_kaggletest.csv      name, class, Usage
train/
  IMAGE.jpg
test/
  IMAGE.jpg""",
)
