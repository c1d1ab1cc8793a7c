"""hbench cite: print the BibTeX of a dataset, a metric, a loss or a method of a leaderboard."""

import importlib.util
import re

import click

from hbench.cli.names import Known
from hbench.cli.terminal import show

OWN = "hbench"
RANK_LOSSES = (
    "Ramzi et al., Optimization of Rank Losses for Image Retrieval, TPAMI 2025 (arXiv 2309.08250)"
)
HAPPIER = (
    "Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, "
    "ECCV 2022 (arXiv 2207.04873)"
)
METRIC_SOURCES = {  # name = the paper that defines it
    "H-AP": HAPPIER,
    "R": "Jégou et al., Product Quantization for Nearest Neighbor Search, TPAMI 2011",
    "H-P": RANK_LOSSES,
    "H-R": RANK_LOSSES,
    "wAP": HAPPIER,
    "ASI": "Sun et al., Dynamic Metric Learning: Towards a Scalable Metric Space, CVPR 2021",
    "NDCG": "Järvelin & Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002",
    "mAP@R": "Musgrave et al., A Metric Learning Reality Check, ECCV 2020 (arXiv 2003.08505)",
    "mAP": "Weyand et al., Google Landmarks Dataset v2, CVPR 2020 (arXiv 2004.01804)",
    "HD": "Bertinetto et al., Making Better Mistakes, CVPR 2020 (arXiv 1912.09393)",
}


def _names() -> list[str]:
    """List the names that can be cited, for completion and for the error of an unknown name. Losses
    and methods are left out, since listing them would load torch and all leaderboards."""
    from hbench.datasets import specs

    return sorted({OWN, *specs, *METRIC_SOURCES})


@click.command("cite")
@click.argument("name", type=Known("name", _names))
def command(name: str) -> None:
    """Print the BibTeX of NAME: a dataset, a metric, a loss, a method as leaderboards spell it, or
    hbench.

    A paper is an @inproceedings or @article with its authors; what is not a paper, such as a
    README, an @misc with a note.

    \b
    Example: hbench cite hgldv2
             hbench cite H-AP
             hbench cite HAPPIER
    """
    from hbench.core.errors import UnknownName, UsageError
    from hbench.datasets.metadata.publications import bibtex
    from hbench.metrics.definitions import metrics

    # `Known` only completes names in the shell, so `name` may be any text
    if not (listed := sources(name)):
        base = _base_of(name).partition("@")[0]
        if base in {spelling.partition("@")[0].rstrip("/#") for spelling in metrics}:
            raise UsageError(
                f"no paper is known here that defines {name}",
                expected=f"one of {', '.join(METRIC_SOURCES)}",
                fix="cite the evaluator: hbench cite hbench",
            )
        raise UnknownName("dataset, metric, loss or method", name, _names())
    show(bibtex(listed).rstrip("\n"))


def sources(name: str) -> dict[str, str]:
    """Return the sources to cite for a name, {short name: text}; empty for an unknown name. The
    text is a citation; for hbench itself it is only the word "hbench". A dataset has precedence
    over a metric, and a metric over a method."""
    from hbench.datasets import specs

    if name == OWN:
        return {OWN: OWN}
    if name in specs:
        # the dataset's own paper, then those of others, as of its tree or split: NAME, NAME 2, …
        parts = specs[name].citation.split("; ")
        return {
            name if place == 0 else f"{name} {place + 1}": text for place, text in enumerate(parts)
        }
    # a method and its loss often have the same name, but two papers: return both
    return _of_metric(name) or (_of_rows(name) | _of_loss(name))


def _of_metric(name: str) -> dict[str, str]:
    """Return the paper of a metric. Parts of its name that the paper does not define are ignored: a
    level (AP/genus), a relevance (H-AP(…)), partial lists (AP#), a cut (NDCG@10, but not mAP@R), or
    what is counted (HD-first-mistake)."""
    metric = _base_of(name)
    without_rank = metric.partition("@")[0]
    without_count = metric.partition("-mistake")[0].removesuffix("-first")
    for spelling in (metric, without_rank, without_count):
        if spelling in METRIC_SOURCES:
            return {spelling: METRIC_SOURCES[spelling]}
    return {}


def _base_of(name: str) -> str:
    """A metric's name without level, parameters and cut, but with @R."""
    return re.split(r"[/(#]", name)[0]


def _of_rows(method: str) -> dict[str, str]:
    """Return the papers of a method's rows on any leaderboard, {short name: text}. The case of
    `method` does not matter. Rows of runs have no paper."""
    from hbench.boards import board_names, read_board

    citations = {}
    for board in map(read_board, board_names()):
        for row in board.rows:
            if row.method.lower() == method.lower() and row.paper is not None:
                # a row names its paper by the key of the leaderboard's citations
                citations[row.paper.citation] = board.citations[row.paper.citation].text
    return citations


def _of_loss(name: str) -> dict[str, str]:
    """Return the paper of a loss, whose name may be spelled as in papers: Smooth-AP, NCA++."""
    if importlib.util.find_spec("torch") is None:
        return {}
    from hbench.losses import loss_entry, losses

    spelled = name.lower().replace("-", "_").replace("++", "_pp")
    return {spelled: loss_entry(spelled).paper} if spelled in losses else {}
