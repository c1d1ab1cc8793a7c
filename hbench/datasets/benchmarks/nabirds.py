"""NABirds: North American birds. A species without subordinate forms is repeated as its only
form."""

from pathlib import Path

from hbench.core.errors import TreeError
from hbench.datasets.raw_files import rows_of
from hbench.datasets.spec import Protocol, Publication, Spec, Splits

DEPTH = 4  # levels of the hierarchy below its root


def build(raw: Path) -> Splits:
    """Read the path of each class from hierarchy.txt in the folder `raw` (lines `child parent`; the
    root is 0). A path with fewer than DEPTH classes repeats its last one, since all paths need all
    levels.

    images.txt, image_class_labels.txt and train_test_split.txt are joined by the image's id.
    """
    # the name includes the number, since several classes in the file share a name
    names = {
        number: f"{name} #{number}" for number, name in rows_of(raw / "classes.txt", columns=2)
    }
    parents = dict(rows_of(raw / "hierarchy.txt", columns=2))

    of_class = {}
    for leaf in names:  # inner classes, too: no image has them, so their paths do no harm
        path = [leaf]  # numbers of classes, coarse to fine
        while (parent := parents.get(path[0], "0")) != "0":
            if len(path) >= DEPTH:  # too deep, or a cycle, in which the loop would never end
                raise TreeError(
                    f"class {leaf} of {raw / 'hierarchy.txt'} lies too deep",
                    expected=f"at most {DEPTH} levels",
                )
            path.insert(0, parent)
        # a path that is too short repeats its last class
        of_class[leaf] = tuple(names[number] for number in path + path[-1:] * (DEPTH - len(path)))

    labels = dict(rows_of(raw / "image_class_labels.txt", columns=2))
    training = dict(rows_of(raw / "train_test_split.txt", columns=2))
    images = rows_of(raw / "images.txt", columns=2)
    splits = {}
    for split, flag in (("train", "1"), ("test", "0")):
        splits[split] = [
            (path, of_class[labels[image]]) for image, path in images if training[image] == flag
        ]
    return splits


PAPER = Publication(
    key="vanhorn2015nabirds",
    kind="inproceedings",
    title="Building a Bird Recognition App and Large Scale Dataset "
    "with Citizen Scientists: The Fine Print in Fine-Grained Dataset Collection",
    authors=(
        "Van Horn, Grant",
        "Branson, Steve",
        "Farrell, Ryan",
        "Haber, Scott",
        "Barry, Jessie",
        "Ipeirotis, Panos",
        "Perona, Pietro",
        "Belongie, Serge",
    ),
    venue="IEEE Conference on Computer Vision and Pattern Recognition (CVPR)",
    year=2015,
    pages="595--604",
    cited=("Van Horn et al., Building a bird",),
)
SPEC = Spec(
    name="nabirds",
    title="NABirds",
    levels=("order", "family", "species", "form"),
    build=build,
    markers=("hierarchy.txt",),
    images=("images",),
    protocol=Protocol(recalls=(1, 2, 4, 8)),
    licence="non-commercial",
    papers=(PAPER,),
    citation="Van Horn et al., Building a bird recognition app and large scale dataset, CVPR 2015",
    homepage="https://dl.allaboutbirds.org/nabirds",
    size="9.6 GB",
    counts={
        "train": {"images": 23_929, "form": 555, "order": 22},
        "test": {"images": 24_633, "form": 555, "order": 22},
    },
    defects=(
        "a closed set: the classes of the test are those of the training",
        "290 of the 555 leaves end one level above the others and are repeated",
    ),
    manual=(
        "page:   https://dl.allaboutbirds.org/nabirds, a form\n"
        "files:  nabirds.tar.gz\n"
        "layout: images/, images.txt, hierarchy.txt, … as in the archive"
    ),
    layout="""\
nabirds/
  classes.txt                  CLASS NAME
  hierarchy.txt                CHILD PARENT
  images.txt                   IMAGE PATH
  image_class_labels.txt       IMAGE CLASS
  train_test_split.txt         IMAGE 1 (train) or 0
  images/
    0295/
      IMAGE.jpg""",
)
