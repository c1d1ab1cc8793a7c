"""What the papers' released code computed on fixed inputs, and the hbench loss and settings that
each recorded value belongs to.

HBENCH_GOLDEN may name another folder with files of the same format (losses_*.json, losses_*.npz).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hbench.losses import build_loss
from hbench.losses.baselines.blackbox import blackbox_rank
from hbench.losses.baselines.decomposability import WeightedSum
from hbench.losses.baselines.rambo import (
    Rambo,
    RamboClasses,
    ScoreMemory,
    ap_loss,
    log_log_weight,
    log_weight,
    random_margin,
    recall_loss,
    score_margin,
)
from hbench.losses.rank_scores import ndcg
from hbench.losses.rank_sums import Lists
from hbench.losses.steps import Sigmoid
from hbench.losses.wrappers import SiMix, mix_positives

FOLDER = Path(os.environ.get("HBENCH_GOLDEN", Path(__file__).parent / "golden"))
STEP = ("tau", "rho", "delta", "offset", "start", "beta", "gamma", "leak")


@dataclass
class Case:
    """One batch: vectors that take gradients, labels coarse to fine, references where the case has
    them.
    """

    arrays: Mapping[str, np.ndarray]
    name: str
    double: bool = True

    def __getitem__(self, key: str) -> np.ndarray:
        return self.arrays[f"{self.name}/{key}"]

    def __contains__(self, key: str) -> bool:
        return f"{self.name}/{key}" in self.arrays

    def vectors(self, key: str) -> Tensor:
        return torch.tensor(self[key].astype(np.float64)).requires_grad_()

    def labels(self, key: str = "labels") -> Tensor:
        return torch.tensor(self[key][:, ::-1].astype(np.int64).copy())

    def relevance(self, name: str) -> Callable[[Tensor], Tensor]:
        """The stored relevances as a relevance: a table per query and level, whatever the
        counts."""
        stored, level = self[f"rel_{name}"].astype(np.float64), self["target_level"]
        table = np.zeros((len(stored), self["labels"].shape[1] + 1))
        for query in range(len(stored)):
            table[query, level[query]] = stored[query]
        return lambda counts: torch.tensor(table)


def load() -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, np.ndarray]]:
    """Entries, failures and arrays of every golden file."""
    arrays: dict[str, np.ndarray] = {}
    for path in sorted(FOLDER.glob("losses_*.npz")):
        with np.load(path, allow_pickle=False) as stored:
            arrays |= {name: stored[name] for name in stored.files}
    documents = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(FOLDER.glob("losses_*.json"))
    ]
    return (
        [e for d in documents for e in d["entries"]],
        [f for d in documents for f in d["failures"]],
        arrays,
    )


def step(hyper: Mapping[str, Any]) -> dict[str, Any]:
    """The released step as ours: no δ is δ = 0, no offset is the equation's, which that code rounds
    to float32.
    """
    given = {name: hyper[name] for name in STEP if name in hyper}
    if given.get("delta", 0) is None:
        given |= {"delta": 0.0, "start": 0.0}
    if given.get("offset", 0) is None:
        given["offset"] = torch.sigmoid(torch.tensor(given["delta"] / given["tau"])).item() + 0.5
    if hyper.get("with_hrank"):
        given["h_rank"] = "linear"
    return given


def h_ap_loss(case: Case, hyper: Mapping[str, Any]) -> nn.Module:
    relevance = case.relevance(hyper["relevance"])
    if hyper["rho"] == -1:
        loss = build_loss("sup_hap", relevance=relevance, released=True)
        loss.steps = loss.steps._replace(less=Sigmoid(hyper["tau"]))
        return loss
    return build_loss("sup_hap", relevance=relevance, released=True, **step(hyper))


def rank_loss(name: str, *, graded: bool = False) -> Callable[[Case, Mapping[str, Any]], nn.Module]:
    def build(case: Case, hyper: Mapping[str, Any]) -> nn.Module:
        settings = step(hyper) | {"released": True}
        settings |= {"relevance": case.relevance(hyper["relevance"])} if graded else {}
        settings |= {"at": hyper["at_k"]} if "at_k" in hyper else {}
        loss = build_loss(name, **settings)
        if "ndcg" in name:
            loss.score = ndcg(released_ideal_gain)
        return loss

    return build


def released_ideal_gain(lists: Lists, table: Tensor) -> Tensor:
    """The released code's ideal gain: float32, summed in column order, equal levels ranked by an
    unstable sort.
    """
    rank = lists.levels.argsort(dim=1, descending=True).argsort(dim=1) + 1
    gains = table.gather(1, lists.levels).float() / torch.log2(1 + rank)
    return gains.sum(1).to(table)


def with_weights(loss: nn.Module, weight: np.ndarray) -> nn.Module:
    """The stored proxies, in float64."""
    loss = loss.double()
    (parameter,) = loss.parameters()
    parameter.data = torch.tensor(weight.astype(np.float64))
    return loss


def proxies(
    name: str, key: str = "proxies", factor: float = 1.0, **settings: Any
) -> Callable[[Case, Any], nn.Module]:
    return lambda case, hyper: with_weights(
        build_loss(name, classes=case[key].shape[0], dim=case[key].shape[1], **settings),
        factor * case[key],
    )


def csl(case: Case, hyper: Mapping[str, Any]) -> nn.Module:
    paths = np.zeros((case["csl_proxies"].shape[0], case["labels"].shape[1]), dtype=np.int64)
    paths[case["labels"][:, 0]] = case["labels"][:, ::-1]
    loss = build_loss("csl", paths=paths.tolist(), dim=case["csl_proxies"].shape[1])
    assert list(loss.margins) == hyper["margins"][::-1]
    return with_weights(loss, case["csl_proxies"])


def total(
    first: Callable[[Case, Any], nn.Module],
    second: Callable[[Case, Any], nn.Module],
    weights: Any = None,
) -> Any:
    def build(case: Case, hyper: Mapping[str, Any]) -> nn.Module:
        share = weights or hyper.get("weights") or [1 - hyper["lam"], hyper["lam"]]
        return WeightedSum([first(case, hyper), second(case, hyper)], share)

    return build


def fixed(case: Case, key: str) -> Callable[[Any], Tensor]:
    return lambda like: (
        torch.tensor(case.arrays[key]).flatten()
        if isinstance(like, int)
        else torch.tensor(case.arrays[key]).to(like)
    )


def mixed(name: str) -> Callable[[Case, Mapping[str, Any], Mapping[str, str]], nn.Module]:
    def build(case: Case, hyper: Mapping[str, Any], extra: Mapping[str, str]) -> nn.Module:
        loss = rank_loss(name)(case, {**hyper})
        loss.extra = mix_positives(fixed(case, extra["alpha"]))
        return loss

    return build


def simix(case: Case, hyper: Mapping[str, Any], extra: Mapping[str, str]) -> nn.Module:
    order = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2), (1, 3)]
    alphas = torch.tensor(case.arrays[extra["alphas"]]).view(-1, 6)[
        :, [order.index(p) for p in sorted(order)]
    ]
    return SiMix(build_loss("recall_at_k", released=True), lambda number: alphas.flatten())


def black_box_ap(
    case: Case, hyper: Mapping[str, Any], extra: Mapping[str, str] | None
) -> nn.Module:
    shift = (
        random_margin(hyper["margin"], fixed(case, extra["noise"])) if extra else score_margin(0.0)
    )
    return Rambo(
        lambda s, p: ap_loss(s, p, hyper["lambda_val"], smoothing=1e-5), shift, 0, keep_self=True
    )


CALIBRATION = lambda case, hyper: build_loss(  # noqa: E731
    "calibration",
    released=True,
    positive_margin=hyper.get("pos_margin", 0.9),
    negative_margin=hyper.get("neg_margin", 0.6),
)
CLUSTER = proxies("cluster")
SMOOTH_AP, SUP_AP = rank_loss("smooth_ap"), rank_loss("sup_ap")
SOP, INAT = (
    {"tau": 0.01, "rho": 100.0, "delta": 0.05, "offset": 1.44, "start": 0.5},
    {"offset": 1.0, "start": 0.0},
)


def with_step(
    loss: Callable[[Case, Any], nn.Module], settings: Mapping[str, Any]
) -> Callable[[Case, Any], nn.Module]:
    return lambda case, hyper: loss(case, {**SOP, **settings, **hyper})


# The beginning of an entry's name -> the loss on (embeddings, labels, references…); the longest
# beginning counts.
LOSSES: dict[str, Callable[..., nn.Module]] = {
    "happier_HAP": h_ap_loss,
    "sup_SupHAP": h_ap_loss,
    "sup_SmoothHAP": rank_loss("smooth_hap", graded=True),
    "happier_Cluster": CLUSTER,
    "HAPPIER": total(h_ap_loss, CLUSTER),
    "happier_CSL": csl,
    "suprank_CSL": csl,
    "sup_SmoothAP": SMOOTH_AP,
    "roadmap_SmoothAP": SMOOTH_AP,
    "orig_SmoothAP": lambda case, hyper: build_loss(
        "smooth_ap", released=True, tau=hyper["anneal"]
    ),
    "sup_SupAP": SUP_AP,
    "roadmap_SupAP": SUP_AP,
    "sup_SmoothRecall": rank_loss("smooth_recall"),
    "sup_SupRecall": rank_loss("sup_recall"),
    "sup_SmoothNDCG": rank_loss("smooth_ndcg"),
    "sup_SupNDCG": rank_loss("sup_ndcg"),
    "sup_Calibration": CALIBRATION,
    "roadmap_Calibration": CALIBRATION,
    "ROADMAP_tpami_sop": total(SUP_AP, CALIBRATION),
    "ROADMAP_neurips": total(with_step(SUP_AP, SOP), CALIBRATION),
    "ROADMAP_tpami_inat": total(with_step(SUP_AP, INAT), CALIBRATION),
    "ROADMAP_pp_sop": total(with_step(SUP_AP, SOP), CLUSTER),
    "ROD_NDCG_sop": total(with_step(rank_loss("sup_ndcg"), SOP), CLUSTER),
    "ROD_Ratk_sop": total(with_step(rank_loss("sup_recall"), SOP), CALIBRATION),
    "ROD_Ratk_pp_sop": total(with_step(rank_loss("sup_recall"), SOP), CLUSTER),
    "roadmap_total_config": total(with_step(SUP_AP, SOP), CALIBRATION),
    "sup_SoftBinAP": lambda case, hyper: build_loss("softbin_ap", bins=hyper["nq"], released=True),
    "roadmap_SoftBinAP": lambda case, hyper: build_loss(
        "softbin_ap", bins=hyper["nq"], released=True
    ),
    "sup_FastAP": lambda case, hyper: build_loss("fast_ap", bins=hyper["num_bins"]),
    "sup_ProxyNCApp": proxies("proxy_nca_pp", factor=1.7),
    "sup_ArcFace_m0.3": proxies("arcface", margin=0.3, scale=30.0),
    "pml_Triplet_noself": lambda case, hyper: build_loss(
        "triplet", margin=hyper["margin"], semi_hard_only=False
    ),
    "sup_Triplet_semihardFalse": lambda case, hyper: build_loss(
        "triplet", margin=hyper["margin"], semi_hard_only=False
    ),
    "pml_Triplet_semihard_noself": lambda case, hyper: build_loss(
        "triplet", margin=hyper["margin"]
    ),
    "sup_XBM": lambda case, hyper: build_loss("xbm_pairs", margin=hyper["margin"]),
    "roadmap_PairLoss": lambda case, hyper: build_loss("xbm_pairs", margin=hyper["margin"]),
    "orig_RecallatK": lambda case, hyper: build_loss(
        "recall_at_k", released=True, at=hyper.get("k_vals", (1, 2, 4, 8, 16))
    ),
}
LOSSES_WITH_EXTRA: dict[str, Callable[..., nn.Module]] = {
    "sup_SupAP_posmixup": mixed("sup_ap"),
    "sup_SupRecall_posmixup": mixed("sup_recall"),
    "orig_RecallatK_SiMix": simix,
    "sup_BlackBoxAP": black_box_ap,
}


def find(table: Mapping[str, Any], name: str) -> Any:
    beginnings = [key for key in table if name.startswith(key)]
    return table[max(beginnings, key=len)] if beginnings else None


def evaluate(
    entry: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[float, dict[str, np.ndarray]]:
    """Value and gradients of the hbench loss that the entry belongs to."""
    case = Case(arrays, entry["case"])
    if entry["name"].startswith("rambo"):
        return evaluate_rambo(entry, case)
    special = find(LOSSES_WITH_EXTRA, entry["name"])
    loss = (
        special(case, entry["hyper"], entry.get("extra"))
        if special
        else find(LOSSES, entry["name"])(case, entry["hyper"])
    )
    leaves = {"emb": case.vectors("emb")} | ({"ref": case.vectors("ref")} if "ref" in case else {})
    references = (leaves["ref"], case.labels("ref_labels")) if "ref" in leaves else ()
    value = loss(leaves["emb"], case.labels(), *references)
    value.backward()
    gradients = {name: leaf.grad.numpy() for name, leaf in leaves.items() if leaf.grad is not None}
    for parameter in loss.parameters():
        gradients |= {"proxies": parameter.grad.numpy(), "csl_proxies": parameter.grad.numpy()}
    return value.item(), gradients


def evaluate_rambo(entry: Mapping[str, Any], case: Case) -> tuple[float, dict[str, np.ndarray]]:
    hyper, extra = entry["hyper"], entry.get("extra") or {}
    scores, positive = (
        torch.tensor(case["rambo_scores"]).requires_grad_(),
        torch.tensor(case["rambo_gt"]).bool(),
    )
    history = zip(
        case["rambo_recall_memory2/old_scores"], case["rambo_recall_memory2/old_gt"], strict=True
    )
    past = (
        [(torch.tensor(s), torch.tensor(p).bool()) for s, p in history]
        if hyper.get("batch_memory")
        else []
    )
    lam, length = hyper["lambda_val"], scores.shape[1]
    if "ranker" in entry["name"]:
        upstream = torch.tensor(case.arrays[extra["upstream"]])
        value = (blackbox_rank(scores, lam * length) / length * upstream).sum()
    elif "recall" in entry["name"]:
        shift, memory = (
            score_margin(hyper["margin"]),
            ScoreMemory(hyper.get("batch_memory", 0), dim=0),
        )
        for old in past:
            memory(shift(*old), old[1])
        rows, flags = memory(shift(scores, positive), positive)
        weight = log_log_weight if hyper["weight"] == "loglog" else log_weight
        value = recall_loss(rows, flags, lam, weight, unit=rows.shape[0] / rows.shape[1])
    else:
        noise = iter([torch.tensor(case.arrays[key]) for key in extra.values()])
        shift = (
            random_margin(hyper["margin"], lambda like: next(noise))
            if extra
            else score_margin(hyper["margin"])
        )
        memory = hyper.get("batch_memory", 0)
        loss = RamboClasses(
            lam, memory=memory, joint=hyper["interclass_coef"], shift=shift, smoothing=1e-5
        )
        for old in past:
            loss(old[0].T, old[1].T)
        value = loss(scores.T, positive.T)
    value.backward()
    return value.item(), {"scores": scores.grad.numpy(), "scoresT": scores.grad.numpy().T}
