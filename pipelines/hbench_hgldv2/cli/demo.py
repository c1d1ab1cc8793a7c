"""Makes a work folder to try the review in: the release's labels, a reviewer half way through, and the release itself as
the second reviewer.

The labels are the 162 of the released training landmarks that are words (CC BY 4.0, Ramzi et al.), a landmark each;
the reviewer A is invented.
"""

from __future__ import annotations

from pathlib import Path

from hbench.core.files import write_text
from hbench_hgldv2.artefact import csv_text
from hbench_hgldv2.cli import clean as cleaning
from hbench_hgldv2.cli import cluster as clustering
from hbench_hgldv2.cli import encode as encoding
from hbench_hgldv2.curation import decisions_file
from hbench_hgldv2.grouping.cluster import Settings
from hbench_hgldv2.labels import released
from hbench_hgldv2.work_folder import Work

FILES = Path(decisions_file.__file__).with_name("demo")
K = 45  # clusters, for 29 groups


def make(work: Work) -> None:
    """Run the steps before the review, without a network; decisions.yaml is kept where there is one."""
    labels = FILES / "train_label_to_hierarchical.csv"
    rows = released.read(labels)
    cleaning.run(work, files=[("train", labels)])
    kinds = sorted({(row.hierarchical_label, row.natural_or_human_made) for row in rows})
    write_text(work / "names.csv", csv_text(kinds))
    encoding.run(work, "tfidf", names=work / "names.csv")
    clustering.run(work, Settings(K), "ward")
    if not (work / "decisions.yaml").exists():
        write_text(work / "decisions.yaml", (FILES / "decisions.yaml").read_text(encoding="utf-8"))
    write_text(work / "released.yaml", decisions_file.dumps(released.decisions_of([rows], work.labels())))
