"""Lists all losses by name, with formula and paper. Rank losses and combinations have tables of
their own, which are included.
"""

from collections.abc import Callable, Sequence

from torch import nn

from hbench.losses.baselines.decomposability import COMBINATIONS, calibration, combination_entry
from hbench.losses.baselines.pairs import MemoryPairs, contrastive, multi_similarity, triplet
from hbench.losses.baselines.proxies import (
    CompositeSoftTriplet,
    arcface,
    normalised_softmax,
    proxy_nca_pp,
)
from hbench.losses.baselines.rambo import RamboClasses, rambo_ap, rambo_recall
from hbench.losses.baselines.soft_bins import SoftBinAP, fast_ap
from hbench.losses.entry import LossEntry, entry_of
from hbench.losses.rank_losses import RANK_LOSSES, rank_entry
from hbench.losses.wrappers import PerLevel


def sum_triplet(margin: float = 0.05, semi_hard_only: bool = True) -> nn.Module:
    """Sum `triplet` over the levels (ΣTL_SH)."""
    return PerLevel(triplet(margin, semi_hard_only))


def sum_nsm(level_classes: Sequence[int], dim: int, temperature: float = 0.05) -> nn.Module:
    """Sum `nsm` over the levels, with proxies for the classes of each level (ΣNSM).
    `level_classes`: the number of classes of each level, coarse to fine.
    """
    return PerLevel([normalised_softmax(number, dim, temperature) for number in level_classes])


def sum_proxy_nca_pp(level_classes: Sequence[int], dim: int, scale: float = 3.0) -> nn.Module:
    """Sum `proxy_nca_pp` over the levels, with proxies for the classes of each level (ΣNCA++).
    `level_classes`: the number of classes of each level, coarse to fine.
    """
    return PerLevel([proxy_nca_pp(number, dim, scale) for number in level_classes])


SOFTMAX = "mean −log softmax_y(x·p̂/temperature)"
# name: function or class, formula, source
OTHERS: dict[str, tuple[Callable[..., nn.Module], str, str]] = {
    "rambo_ap": (rambo_ap, "1 − 1/|P| Σ_P rk⁺/rk, black-box ranks", "RaMBO (CVPR 2020) Eq. 22"),
    "rambo_recall": (
        rambo_recall,
        "mean_P ℓ(rk − rk⁺), black-box ranks",
        "RaMBO (CVPR 2020) Eq. 20",
    ),
    "rambo_map_classes": (
        RamboClasses,
        "(1 − c)·L_mAP + c·L_APC of a score matrix",
        "RaMBO (CVPR 2020) §4.6",
    ),
    "calibration": (
        calibration,
        "mean_q 1/|P| Σ_P [α − cos]₊ + 1/|N| Σ_N [cos − β]₊",
        "ROADMAP (NeurIPS 2021) Eq. 7",
    ),
    "cluster": (normalised_softmax, SOFTMAX, "HAPPIER (ECCV 2022) Eq. 6"),
    "nsm": (normalised_softmax, SOFTMAX, "Zhai & Wu, BMVC 2019"),
    "proxy_nca_pp": (
        proxy_nca_pp,
        "mean −log softmax_y(−‖scale·x̂ − scale·p̂‖²)",
        "Teh et al., ECCV 2020",
    ),
    "arcface": (arcface, "mean −log softmax_y(scale·cos(θ_y + margin))", "Deng et al., CVPR 2019"),
    "csl": (
        CompositeSoftTriplet,
        "Σ_l mean softplus(LSE_{z ∉ group_l}(s x·p̂_z) − s x·p̂_y + s·m_l)",
        "Sun et al., CVPR 2021",
    ),
    "triplet": (
        triplet,
        "mean [cos_n − cos_p + margin]₊ over the non-zero",
        "Schroff et al., CVPR 2015",
    ),
    "contrastive": (
        contrastive,
        "mean [m⁺ − cos_p]₊ + mean [cos_n − m⁻]₊ over the non-zero",
        "Hadsell et al., CVPR 2006",
    ),
    "multi_similarity": (
        multi_similarity,
        "mean 1/α log(1 + Σ_P e^{−α(cos−b)}) + 1/β log(1 + Σ_N e^{β(cos−b)})",
        "Wang et al., CVPR 2019",
    ),
    "xbm_pairs": (
        MemoryPairs,
        "1/B Σ_q (Σ_{P, s < 1 − 10⁻⁵} (1 − s) + Σ_{N, s > margin} s)",
        "Wang et al., CVPR 2020",
    ),
    "fast_ap": (
        fast_ap,
        "1 − Σ_bins h⁺ H⁺/H / |P|, squared distances 2 − 2 cos",
        "Cakir et al., CVPR 2019",
    ),
    "softbin_ap": (SoftBinAP, "1 − Σ_bins h⁺ H⁺/H / |P|, scores", "Revaud et al., ICCV 2019"),
    "sum_triplet": (sum_triplet, "Σ_l triplet", "HAPPIER (ECCV 2022) Table 1, ΣTL_SH"),
    "sum_nsm": (sum_nsm, "Σ_l nsm", "HAPPIER (ECCV 2022) Table 1, ΣNSM"),
    "sum_proxy_nca_pp": (
        sum_proxy_nca_pp,
        "Σ_l proxy_nca_pp",
        "HAPPIER (ECCV 2022) Table 1, ΣNCA++",
    ),
}


def catalogue() -> dict[str, LossEntry]:
    """Return {name: entry} of all losses, except for those that wrap another loss."""
    entries = {name: rank_entry(row) for name, row in RANK_LOSSES.items()}
    entries |= {name: entry_of(*row) for name, row in OTHERS.items()}
    return entries | {name: combination_entry(row, entries) for name, row in COMBINATIONS.items()}
