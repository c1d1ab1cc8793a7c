"""The Met: visitors' photographs as queries against the museum's pictures of 224,408 exhibits."""

from pathlib import Path

from hbench.datasets.raw_files import json_of
from hbench.datasets.spec import Protocol, Publication, Spec, Splits, queries_against

DATABASE = "ground_truth/MET_database.json"
QUERIES = "ground_truth/testset.json"


def exhibits(path: Path, number: str) -> dict[str, tuple[str]]:
    """Read {image: (exhibit,)}, names at the only level, from the JSON list of pictures at `path`.
    Pictures without an exhibit are left out, since they have no positives.

    `number`: the key of the exhibit's number in the list, which differs between the files.
    """
    with json_of(path, "a list of pictures", expected=f"path and {number}") as entries:
        return {
            entry["path"]: (f"exhibit {int(entry[number])}",)
            for entry in entries
            if entry.get(number) is not None
        }


def build(raw: Path) -> Splits:
    """Take the museum's pictures both as the training set and as the gallery, as the authors do,
    and visitors' pictures of exhibits as queries. `raw`: the folder of the downloaded files.
    """
    database = exhibits(raw / DATABASE, "id")
    queries = exhibits(raw / QUERIES, "MET_id")
    return {
        "train": database.items(),
        "test": queries_against(queries.items(), database.items(), SPEC.levels),
    }


PAPER = Publication(
    key="ypsilantis2021met",
    kind="inproceedings",
    title="The Met Dataset: Instance-level Recognition for Artworks",
    authors=(
        "Ypsilantis, Nikolaos-Antonios",
        "Garcia, Noa",
        "Han, Guangxing",
        "Ibrahimi, Sarah",
        "van Noord, Nanne",
        "Tolias, Giorgos",
    ),
    venue="Proceedings of the Neural Information Processing Systems Track on Datasets and "
    "Benchmarks",
    year=2021,
    arxiv="2202.01747",
    cited=("The Met dataset",),
)
SPEC = Spec(
    name="met",
    title="The Met dataset",
    levels=("exhibit",),
    build=build,
    markers=(DATABASE,),
    images=("images",),
    protocol=Protocol(metrics=("AP", "mAP@100"), recalls=(1, 10, 100)),
    licence="not found; the museum's own pictures come from its Open Access collection",
    papers=(PAPER,),
    citation="Ypsilantis et al., The Met dataset: instance-level recognition for artworks, NeurIPS "
    "2021 "
    "(datasets and benchmarks)",
    homepage="http://cmp.felk.cvut.cz/met/",
    counts={
        "train": {"images": 397_121, "exhibit": 224_408},
        "test": {"queries": 1_003, "gallery": 397_121},
    },
    defects=(
        "one level: these files do not say the department of an exhibit",
        "queries that show no exhibit (other art, no art) are left out, since a ranking cannot "
        "reject a query; the paper's "
        "GAP is not computed",
        "most exhibits have a single picture in the gallery",
    ),
    manual=(
        "page:   http://cmp.felk.cvut.cz/met/\n"
        "files:  the images and the ground truth\n"
        "layout: images/ and ground_truth/ side by side"
    ),
    layout="""\
ground_truth/
  MET_database.json      [{"id": 34, "path": "MET/34/0.jpg"}, …]
  testset.json           [{"path": …, "MET_id": 34}, …], those of no exhibit without MET_id
  valset.json            not needed
images/
  MET/EXHIBIT/NUMBER.jpg
  …                      pictures by visitors""",
)
