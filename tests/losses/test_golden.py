"""Every recorded value and gradient of the papers' released code, and what hbench does about each
of its departures.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hbench.losses import build_loss
from hbench.losses.baselines.rambo import ap_loss
from hbench.losses.wrappers import CrossBatchMemory

_spec = importlib.util.spec_from_file_location(
    "golden_losses", Path(__file__).parents[1] / "golden_losses.py"
)
golden = sys.modules["golden_losses"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(golden)

ENTRIES, FAILURES, ARRAYS = golden.load()
NAMES = sorted({entry["name"] for entry in ENTRIES})
SINGLE = ("rambo", "orig", "sup_BlackBoxAP")  # recorded from float32 code
# Unlike the released code on purpose; each has a test of its own below.
APART = {"sup_Triplet_semihardTrue", "xbm_combine_SupAP", "rambo_AP_memory2"}
# numpy and torch sort equal levels differently from one processor to the next, and the released
# ideal gain follows that order.
NDCG_RTOL = 1e-9 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 2e-6


def of(name):
    return [entry for entry in ENTRIES if entry["name"] == name]


def tolerance(name):
    """Relative tolerance of the value, relative and absolute tolerance of the gradient."""
    if name.startswith(SINGLE):
        return 1e-5, 1e-5, 1e-7
    return (NDCG_RTOL if "NDCG" in name else 1e-9), 1e-6, 1e-9


@pytest.mark.parametrize("name", [name for name in NAMES if name not in APART])
def test_the_released_value_and_gradient_are_reproduced(name):
    value_rtol, rtol, atol = tolerance(name)
    checked = 0
    for entry in of(name):
        value, gradients = golden.evaluate(entry, ARRAYS)
        if entry["value"] is None:  # L8: NaN in the released code for one level
            assert np.isfinite(value)
            continue
        assert value == pytest.approx(entry["value"], rel=value_rtol, abs=1e-15)
        for leaf, recorded in entry["grads"].items():
            if recorded is None:
                continue
            theirs = ARRAYS[recorded["key"]]
            compared = untied(entry, theirs)
            ours = on_the_same_side(entry, leaf, gradients[leaf], theirs)
            np.testing.assert_allclose(ours[compared], theirs[compared], rtol=rtol, atol=atol)
            checked += 1
    assert checked


def on_the_same_side(entry, leaf, ours, theirs):
    """Our gradient, with another derivative of each query's score with itself where that makes it
    theirs.

    A query's own score of 1 lies on a kink of the highest soft bins: its derivative is one number
    just below 1, one just above, and any number between them and the flanks' at 1, and the last bit
    of the processor's matrix product says which. It adds a multiple of the query's own vector to
    the gradient, at most 2 · slope / B, for a bin's share moves AP by no more.
    """
    if "SoftBinAP" not in entry["name"] or leaf != "emb":
        return ours
    own = ARRAYS[f"{entry['case']}/emb"].astype(np.float64)
    multiple = ((theirs - ours) * own).sum(1) / (own * own).sum(1)
    most = 2 * (entry["hyper"]["nq"] - 1) / 2 / len(own)
    return ours + np.clip(multiple, -most, most)[:, None] * own


def untied(entry, gradient):
    """Where the gradient is defined: black-box ranks over one long list shuffle equal scores, and a
    symmetric batch has them.
    """
    if not entry["name"].startswith("rambo_AP") or entry["hyper"]["interclass_coef"] == 0:
        return np.ones(gradient.shape, dtype=bool)
    scores = ARRAYS[f"{entry['case']}/rambo_scores"].T
    values, counts = np.unique(scores, return_counts=True)
    return (
        ~np.isin(scores, values[counts > 1])
        if entry["hyper"]["margin"] == 0
        else np.ones(gradient.shape, dtype=bool)
    )


def test_every_recorded_name_belongs_to_a_loss():
    known = [*golden.LOSSES, *golden.LOSSES_WITH_EXTRA, "rambo"]
    assert [name for name in NAMES if name not in APART and not name.startswith(tuple(known))] == []
    assert len(ENTRIES) >= 500


@pytest.mark.parametrize(
    "name",
    [
        "happier_HAP_sop",
        "happier_HAP_sop_pop_a3",
        "happier_HAP_sop_pop_a5",
        "happier_HAP_sop_map_uniform",
    ],
)
def test_relevances_computed_from_the_counts_give_the_released_value(name):
    for entry in of(name):
        case, stored = golden.Case(ARRAYS, entry["case"]), entry["hyper"]["relevance"]
        named = (
            {"relevance": "sum_wap"}
            if stored == "map_uniform"
            else {"alpha": float(stored.removeprefix("pop_a"))}
        )
        loss = build_loss("sup_hap", released=True, **named, **golden.step(entry["hyper"]))
        references = (case.vectors("ref"), case.labels("ref_labels")) if "ref" in case else ()
        # float32 relevances can be equal where ours differ, but only levels are compared in the
        # released setting
        assert loss(case.vectors("emb"), case.labels(), *references).item() == pytest.approx(
            entry["value"], rel=1e-6
        )


def test_what_the_released_code_cannot_compute_is_computed():
    assert {failure["name"] for failure in FAILURES} == {"sup_FastAP_noref", "sup_SupRecall_sop"}
    for failure in FAILURES:
        case = golden.Case(ARRAYS, failure["case"])
        name = "fast_ap" if "FastAP" in failure["name"] else "sup_recall"
        embeddings = case.vectors("emb")
        value = build_loss(name)(embeddings, case.labels())
        value.backward()
        assert 0 < value.item() < 1
        assert torch.isfinite(embeddings.grad).all()


def test_L12_the_easiest_positive_of_semi_hard_mining_is_never_the_query_itself():
    mined = 0
    for entry in of("sup_Triplet_semihardTrue"):
        case = golden.Case(ARRAYS, entry["case"])
        own = torch.arange(len(case["emb"])) if entry["case"].startswith("ns_mem") else None
        references = (case.vectors("ref"), case.labels("ref_labels")) if "ref" in case else ()
        value = build_loss("triplet", margin=0.05)(
            case.vectors("emb"), case.labels(), *references, *([own] if own is not None else [])
        )
        # no query among the references: nothing to leave out
        if entry["case"].startswith("ns_disj"):
            assert value.item() == pytest.approx(entry["value"], rel=1e-9)
        else:
            assert entry["value"] == 0
            mined += value.item() > 0
    assert mined >= 5


def test_a_memory_averages_the_batch_and_the_references():
    for entry in of("xbm_combine_SupAP"):
        case = golden.Case(ARRAYS, entry["case"])
        loss = build_loss("sup_ap", released=True, **golden.step(entry["hyper"]))
        embeddings, references = case.vectors("emb"), case.vectors("ref").detach()
        if entry["case"].startswith("ns_mem"):
            memory = CrossBatchMemory(loss, len(references))
            memory(references[len(embeddings) :], case.labels("ref_labels")[len(embeddings) :])
            value = memory(embeddings, case.labels())
        else:
            both = loss(embeddings, case.labels(), references, case.labels("ref_labels"))
            value = (loss(embeddings, case.labels()) + both) / 2
        value.backward()
        assert value.item() == pytest.approx(entry["value"], rel=1e-9)
        np.testing.assert_allclose(
            embeddings.grad.numpy(), ARRAYS[entry["grads"]["emb"]["key"]], rtol=1e-6, atol=1e-9
        )


def test_a_memory_of_scores_agrees_up_to_the_order_of_equal_scores():
    # The recorded history repeats scores, and the released argsort orders equal scores as it
    # happens.
    for entry in of("rambo_AP_memory2"):
        case = golden.Case(ARRAYS, entry["case"])
        history = zip(
            case["rambo_recall_memory2/old_scores"][-2:],
            case["rambo_recall_memory2/old_gt"][-2:],
            strict=True,
        )
        scores, positive = zip(*history, (case["rambo_scores"], case["rambo_gt"]), strict=True)
        rows, flags = (
            torch.tensor(np.concatenate(scores, 1)).double(),
            torch.tensor(np.concatenate(positive, 1)).bool(),
        )
        best, worst = (
            ap_loss(rows + tilt * flags, flags, 4.0, smoothing=1e-5).item()
            for tilt in (1e-9, -1e-9)
        )
        assert best - 1e-6 <= entry["value"] <= worst + 1e-6
        assert worst - best < 0.02


# Departure of the released code -> the tests that hold hbench to its own choice (docs/losses.md
# says which).
DEPARTURES = {
    "L1": ["test_rank_sums.test_gradients_agree_with_finite_differences"],
    "L2": ["test_golden.test_the_released_value_and_gradient_are_reproduced"],
    "L3": ["test_rank_sums.test_suprank_losses_are_upper_bounds_of_the_metric_ties_included"],
    "L4": ["test_rank_sums.test_with_the_exact_step_each_loss_is_one_minus_the_metric"],
    "L5": [
        "test_rank_sums.test_L5_relevances_decide_what_is_less_relevant_and_levels_when_released"
    ],
    "L6": ["test_losses.test_calibration_is_equation_7"],
    "L7": ["test_losses.test_a_named_combination_is_its_two_losses"],
    "L8": ["test_golden.test_the_released_value_and_gradient_are_reproduced"],
    "L9": ["test_losses.test_a_memory_holds_the_newest_and_never_ranks_a_query_against_itself"],
    "L10": ["test_losses.test_a_parameter_that_cannot_be_is_refused"],
    "L11": ["test_golden.test_what_the_released_code_cannot_compute_is_computed"],
    "L12": [
        "test_golden.test_L12_the_easiest_positive_of_semi_hard_mining_is_never_the_query_itself"
    ],
    "L13": ["test_golden.test_what_the_released_code_cannot_compute_is_computed"],
    "L14": ["test_rank_sums.test_every_rank_loss_is_its_equation"],
    "L15": ["test_rank_sums.test_every_rank_loss_is_its_equation"],
    "L16": ["test_cpu.test_rambo_losses_are_their_equations"],
    "L17": ["test_cpu.test_rambo_losses_are_their_equations"],
    "L18": ["test_rank_sums.test_the_linear_h_rank_replaces_the_step_of_more_relevant_items"],
    "L19": ["test_losses.test_a_memory_holds_the_newest_and_never_ranks_a_query_against_itself"],
    "L20": ["test_golden.test_relevances_computed_from_the_counts_give_the_released_value"],
    "L21": ["test_rank_sums.test_suprank_losses_are_upper_bounds_of_the_metric_ties_included"],
}


def test_every_departure_is_documented_and_tested():
    assert list(DEPARTURES) == [f"L{number}" for number in range(1, 22)]
    documented = (Path(__file__).parents[2] / "docs" / "losses.md").read_text(encoding="utf-8")
    for name, tests in DEPARTURES.items():
        assert f"| {name} |" in documented
        for test in tests:
            module, function = test.split(".")
            assert f"def {function}(" in Path(__file__).with_name(f"{module}.py").read_text(
                encoding="utf-8"
            )


def moved(entry, move):
    """The arrays with an entry's vectors moved."""
    keys = [key for key in (f"{entry['case']}/emb", f"{entry['case']}/ref") if key in ARRAYS]
    return ARRAYS | {key: move(ARRAYS[key].astype(np.float64)) for key in keys}


@pytest.mark.parametrize("name", [name for name in NAMES if "SoftBinAP" in name])
@pytest.mark.parametrize("factor", [1 - 1e-12, 1 + 1e-12], ids=["below", "above"])
def test_a_recorded_gradient_on_a_kink_is_met_from_either_side(name, factor):
    """Processors may round all the queries' own scores down, or up."""
    differing = []
    for entry in of(name):
        value, gradients = golden.evaluate(entry, moved(entry, lambda x: x * factor))
        assert value == pytest.approx(entry["value"], rel=1e-9)
        theirs = ARRAYS[entry["grads"]["emb"]["key"]]
        ours = on_the_same_side(entry, "emb", gradients["emb"], theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
        differing.append(not np.allclose(gradients["emb"], theirs, 1e-6, 1e-8))
    assert any(differing)  # else this test sees no kink
