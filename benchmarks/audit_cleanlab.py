"""cleanlab's Datalab on vectors, by the Python that has it (benchmarks/audit.py calls this one):
neither hbench nor its environment is needed. With -I, for datasets.py lies beside it and is not the
package of that name.

    pip install "cleanlab[datalab]"
    python -I benchmarks/audit_cleanlab.py IN.npz OUT.npz

IN: `vectors` (N, D), and an array of labels (N,) under each further name. OUT, under each of these
names: (N, 2), the label's score, low where it is doubtful, and whether it is said to be an issue.
"""

from __future__ import annotations

import contextlib
import io
import sys

import numpy as np
from cleanlab import Datalab


def main(given: str, out: str) -> None:
    """Read vectors and labels from the file IN, and write cleanlab's scores to OUT."""
    with np.load(given) as file:
        arrays = dict(file)
    vectors = arrays.pop("vectors")
    found = {}
    for name, labels in arrays.items():
        with contextlib.redirect_stdout(io.StringIO()):  # Datalab prints what it does
            lab = Datalab({"label": labels}, label_name="label", verbosity=0)
            lab.find_issues(features=vectors, issue_types={"label": {}})
        issues = lab.get_issues("label")
        found[name] = np.stack([issues["label_score"], issues["is_label_issue"]], axis=1)
    np.savez(out, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
