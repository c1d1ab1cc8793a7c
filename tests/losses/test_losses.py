"""Every named loss in anyone's training loop: arbitrary batches, references, mixed precision,
refusals, formulas.
"""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from hbench.core.errors import ConfigError, UnknownName
from hbench.losses import CrossBatchMemory, build_loss, loss_entry, losses, per_level
from hbench.losses.baselines.decomposability import decomposability_gap
from hbench.losses.entry import REQUIRED
from hbench.losses.rank_sums import shared_levels
from tests.command_line import call

CLASSES, DIM = 6, 5
PATHS = [[0, 0], [0, 1], [0, 2], [1, 3], [1, 4], [1, 5]]
NEEDED = {
    "classes": CLASSES,
    "level_classes": [2, CLASSES],
    "dim": DIM,
    "paths": PATHS,
    "loss": "sup_ap",
    "size": 8,
}
NAMES = [name for name in losses if name != "rambo_map_classes"]
WITH_REFERENCES = [name for name in NAMES if name != "xbm"]


def build(name, **settings_):
    """The loss, with what it requires; Σ losses take the classes of every level."""
    required = {
        p: NEEDED[p] for p, default in loss_entry(name).parameters.items() if default is REQUIRED
    }
    torch.manual_seed(0)
    return build_loss(name, **required, **settings_)


def batch(labels, seed=0):
    """Normalised vectors for classes of PATHS, as leaf."""
    rng = np.random.default_rng(seed)
    vectors = torch.tensor(rng.normal(size=(len(labels), DIM)), dtype=torch.float32)
    return torch.nn.functional.normalize(vectors).requires_grad_(), torch.tensor(
        [PATHS[label] for label in labels]
    ).reshape(-1, 2)


pytestmark = [pytest.mark.fast, pytest.mark.usefixtures("one_thread")]


BATCHES = {
    "unequal classes": [0, 0, 0, 0, 0, 1, 1, 3, 4, 4],
    "singletons": [0, 1, 2, 3, 4, 5],
    "one class": [2, 2, 2],
    "one item": [4],
    "two branches of one": [0, 3],
    "repeated items": [1, 1, 1, 5],
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("classes", BATCHES.values(), ids=BATCHES)
def test_any_batch_gives_a_finite_value_and_gradient_and_one_without_positives_zero(name, classes):
    embeddings, labels = batch(classes)
    if classes == BATCHES["repeated items"]:
        embeddings = embeddings.detach()[[0, 0, 0, 3]].requires_grad_()
    value = build(name)(embeddings, labels)
    assert value.ndim == 0
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(embeddings.grad).all()
    ranks = name.startswith(("sup_", "smooth_", "rambo", "recall", "softbin", "fast"))
    if classes == BATCHES["two branches of one"] and ranks:
        assert value.item() == 0
        assert (embeddings.grad == 0).all()


@pytest.mark.parametrize("name", [name for name in WITH_REFERENCES if not name.startswith("fast")])
def test_the_batch_as_its_own_references_is_the_batch(name):
    embeddings, labels = batch([0, 0, 1, 1, 2, 3, 3])
    other = embeddings.detach().clone().requires_grad_()
    loss = build(name)
    alone, given_refs = (
        loss(embeddings, labels),
        loss(other, labels, other, labels, torch.arange(len(labels))),
    )
    (alone * 2).backward()
    (given_refs * 2).backward()
    assert alone.item() == pytest.approx(given_refs.item(), rel=1e-5)
    torch.testing.assert_close(embeddings.grad, other.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_computed_in_float32(name):
    embeddings, labels = batch([0, 0, 1, 1, 2, 3, 3])
    half = embeddings.detach().to(torch.bfloat16).requires_grad_()
    exact = build(name)(half.detach().float(), labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = build(name)(half, labels)
    value.backward()
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(exact.item(), rel=1e-5)
    assert half.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("name", NAMES)
def test_float64_stays_float64(name):
    embeddings, labels = batch([0, 0, 1, 1, 2, 3, 3])
    assert build(name)(embeddings.double(), labels).dtype == torch.float64


@pytest.mark.parametrize("name", WITH_REFERENCES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_references_may_have_another_precision(name, dtype):
    embeddings, labels = batch([0, 0, 1, 1, 2, 3, 3])
    references, classes = batch([0, 1, 1, 2, 3], seed=1)
    references = references.detach().to(dtype)
    value = build(name)(embeddings, labels, references, classes)
    exact = build(name)(embeddings.double(), labels, references.double(), classes)
    assert value.item() == pytest.approx(exact.item(), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("sup_ap", {"taus": 1}, "did you mean 'tau'"),
        ("sup_ap", {"tau": "wide"}, "not a number"),
        ("sup_ap", {"tau": -1.0}, "tau > 0"),
        ("sup_ap", {"released": 1}, "true or false"),
        ("sup_hap", {"h_rank": "soft"}, "exact or linear"),
        ("sup_hap", {"h_rank": "linear", "gamma": -0.1}, "not a lower bound"),
        ("cluster", {"dim": 4}, "needs classes"),
        ("cluster", {"classes": 0, "dim": 4}, "classes > 0"),
        ("happier", {"classes": 4, "dim": 4, "lam": 2.0}, "lam in 0 … 1"),
        ("rambo_recall", {"weight": "square"}, "log or loglog"),
        ("csl", {"paths": [[0, 0, 0, 0]], "dim": 4}, "no default margins for 4 levels"),
        ("csl", {"paths": PATHS, "dim": 4, "margins": [0.1]}, "2 margins"),
        ("softbin_ap", {"bins": 1}, "bins ≥ 2"),
        ("xbm", {"loss": "sup_ap", "size": 0}, "size ≥ 1"),
        ("per_level", {"loss": "nsm"}, "level_classes"),
        ("sup_recall", {"at": (0,)}, "whole numbers ≥ 1"),
        ("recall_at_k", {"at": ()}, "whole numbers ≥ 1"),
        ("fast_ap", {"bins": 0}, "bins ≥ 1.*\n.*bins 0"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused(name, params, message):
    with pytest.raises(ConfigError, match=message):
        build_loss(name, **params)


def test_unknown_names_and_labels_that_do_not_fit_are_refused():
    with pytest.raises(UnknownName, match="did you mean 'sup_hap'"):
        build_loss("suphap")
    embeddings, labels = batch([0, 1, 2])
    with pytest.raises(ConfigError, match="do not fit the embeddings"):
        build_loss("sup_ap")(embeddings, labels[:2])
    with pytest.raises(ConfigError, match="are not classes"):
        build_loss("sup_ap")(embeddings, labels.float())
    assert build_loss("cluster", classes=3, dim=DIM)(embeddings, labels.int()).isfinite()
    with pytest.raises(ConfigError, match="no proxy"):
        build_loss("cluster", classes=2, dim=DIM)(embeddings, labels)
    with pytest.raises(ConfigError, match="levels of the labels"):
        build_loss("sum_nsm", level_classes=[3], dim=DIM)(embeddings, labels)


@pytest.mark.parametrize(
    ("name", "rank", "other", "lam", "settings_"),
    [
        ("happier", "sup_hap", "cluster", 0.1, {}),
        ("happier_f", "sup_hap", "cluster", 0.1, {"alpha": 5.0}),
        ("roadmap", "sup_ap", "calibration", 0.5, {}),
        ("rod_ndcg", "sup_ndcg", "cluster", 0.1, {}),
        ("rod_recall", "sup_recall", "calibration", 0.5, {}),
    ],
)
def test_a_named_combination_is_its_two_losses(name, rank, other, lam, settings_):
    embeddings, labels = batch([0, 0, 1, 1, 2, 3, 3])
    total, first, second = build(name), build(rank, **settings_), build(other)
    expected = (1 - lam) * first(embeddings, labels) + lam * second(embeddings, labels)
    assert total(embeddings, labels).item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_loss_per_level_sees_that_level_as_the_finest():
    embeddings, labels = batch([0, 0, 1, 1, 2, 3, 3])
    loss = build_loss("sup_ap")
    assert per_level(loss)(embeddings, labels).item() == pytest.approx(
        loss(embeddings, labels[:, :1]).item() + loss(embeddings, labels).item()
    )
    torch.manual_seed(0)
    named = build_loss("per_level", loss="nsm", level_classes=[2, CLASSES], params={"dim": DIM})
    assert named(embeddings, labels).item() == pytest.approx(
        build("sum_nsm")(embeddings, labels).item()
    )


@pytest.mark.parametrize("name", ["rambo_ap", "rambo_recall"])
def test_a_memory_of_scores_survives_a_checkpoint_to_the_bit(name, tmp_path):
    batches = [batch([0, 0, 1, 1, 2, 3, 3], seed=seed) for seed in range(5)]
    whole, before, after = (build_loss(name, memory=2) for _ in range(3))
    expected = [whole(*each) for each in batches]
    for each in batches[:3]:
        before(*each)
    torch.save(before.state_dict(), tmp_path / "loss.pt")
    after.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    assert [after(*each).item() for each in batches[3:]] == [value.item() for value in expected[3:]]
    assert build_loss(name, memory=2)(*batches[4]).item() != expected[4].item()


def test_calibration_is_equation_7():
    embeddings, labels = batch([0, 0, 1, 1, 1, 4])
    scores = (embeddings @ embeddings.T).tolist()
    expected = 0.0
    for q, of_q in enumerate(labels[:, -1].tolist()):
        positive = [
            max(0, 0.9 - scores[q][j]) for j in range(6) if j != q and labels[j, -1] == of_q
        ]
        negative = [max(0, scores[q][j] - 0.6) for j in range(6) if labels[j, -1] != of_q]
        expected += sum(positive) / max(1, len(positive)) + sum(negative) / max(1, len(negative))
    assert build_loss("calibration")(embeddings, labels).item() == pytest.approx(
        expected / 6, rel=1e-5
    )


def test_multi_similarity_is_its_formula():
    embeddings, labels = batch([0, 0, 1, 1, 1, 4])
    scores, fine = (embeddings @ embeddings.T).tolist(), labels[:, -1].tolist()
    expected = 0.0
    for q in range(6):
        pull = sum(
            math.exp(-2 * (scores[q][j] - 0.5)) for j in range(6) if j != q and fine[j] == fine[q]
        )
        push = sum(math.exp(50 * (scores[q][j] - 0.5)) for j in range(6) if fine[j] != fine[q])
        expected += math.log1p(pull) / 2 + math.log1p(push) / 50
    assert build_loss("multi_similarity")(embeddings, labels).item() == pytest.approx(
        expected / 6, rel=1e-5
    )


def test_fast_ap_is_pytorch_metric_learnings():
    from pytorch_metric_learning.losses import FastAPLoss

    embeddings, labels = batch([0, 0, 1, 1, 1, 2, 3, 3, 4, 5])
    assert build_loss("fast_ap")(embeddings, labels).item() == pytest.approx(
        FastAPLoss()(embeddings, labels[:, -1]).item(), rel=1e-5
    )


def test_csl_sums_a_soft_triplet_of_proxies_over_the_levels():
    embeddings, labels = batch([0, 2, 4])
    loss = build("csl")
    proxies = torch.nn.functional.normalize(loss.weight).tolist()
    expected = 0.0
    for level, margin in ((1, 0.45), (2, 0.25)):  # the coarse margin is the larger
        for x, path in zip(embeddings.tolist(), labels.tolist(), strict=True):
            score = [32 * sum(a * b for a, b in zip(x, p, strict=True)) for p in proxies]
            other = [
                math.exp(s)
                for s, known in zip(score, PATHS, strict=True)
                if known[:level] != path[:level]
            ]
            expected += (
                math.log1p(math.exp(math.log(sum(other)) - score[PATHS.index(path)] + 32 * margin))
                / 3
            )
    assert loss(embeddings, labels).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [3, 4, 10])
def test_a_memory_holds_the_newest_and_never_ranks_a_query_against_itself(size):
    recorded = []

    class Spy(torch.nn.Module):
        def forward(self, embeddings, labels, refs=None, ref_labels=None, self_index=None):
            if refs is not None:
                for query, index in enumerate(self_index.tolist()):
                    assert index == -1 or torch.equal(refs[index], embeddings[query])
                recorded.append({tuple(row) for row in refs.tolist()})
            return embeddings.sum()

    memory, seen = CrossBatchMemory(Spy(), size), []
    # L19: a batch that does not fit goes over the oldest, not over the newest
    for seed in range(5):
        embeddings, labels = batch([0, 1, 2, 3], seed)
        seen += map(tuple, embeddings.tolist())
        memory(embeddings, labels)
        assert recorded[-1] == set(seen[-size:])


def test_a_memory_waits_for_its_warm_up_and_survives_a_checkpoint():
    embeddings, labels = batch([0, 0, 1, 1, 2, 3])
    memory, alone = (
        build_loss("xbm", loss="sup_ap", size=12, warm_up=1),
        build_loss("sup_ap")(embeddings, labels),
    )
    assert memory(embeddings, labels).item() == alone.item()
    of_one_level = build_loss("xbm", loss="sup_ap", size=12, warm_up=1)(
        embeddings, torch.tensor([0, 0, 1, 1, 2, 3])
    )
    assert of_one_level.item() == alone.item()
    fresh = build_loss("xbm", loss="sup_ap", size=12, warm_up=1)
    fresh.load_state_dict(memory.state_dict())
    following, following_labels = batch([0, 1, 2, 3], seed=9)
    assert memory(following, following_labels).item() == fresh(following, following_labels).item()


def ap_of(scores, levels):
    ranked = levels[np.argsort(-scores, kind="stable")] > 0
    return float((np.cumsum(ranked)[ranked] / (np.flatnonzero(ranked) + 1)).mean())


def test_the_gap_of_two_perfect_batches_one_after_the_other():
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    levels = np.array([1, 0, 0, 1, 0, 0])
    gap = decomposability_gap(ap_of, scores, levels, [np.arange(3), np.arange(3, 6)])
    assert gap == pytest.approx(1 - (1 + 2 / 4) / 2)


def test_losses_are_listed_with_formula_paper_and_defaults():
    listed = json.loads(call("losses", "--json").stdout)
    assert [entry["name"] for entry in listed] == list(losses)
    assert all(entry["formula"] and entry["paper"] for entry in listed)
    assert "sup_hap" in call("losses").stdout
    one = call("losses", "sup_ap").stdout
    assert "tau" in one
    assert "0.01" in one
    with pytest.raises(UnknownName, match="did you mean 'sup_ap'"):
        call("losses", "sup_app")


@pytest.mark.parametrize("name", ["sup_hap", "smooth_ndcg"])
def test_the_number_of_threads_does_not_change_a_bit(name):
    embeddings, labels = batch(list(range(6)) * 20)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        leaf = embeddings.detach().clone().requires_grad_()
        scores = (leaf @ leaf.T).detach().requires_grad_()
        values, _ = build_loss(name).per_list(
            scores, shared_levels(labels, labels), labels.shape[1]
        )
        values.sum().backward()
        results.append((values.detach(), scores.grad))
    for other in results[1:]:
        assert torch.equal(results[0][0], other[0])
        assert torch.equal(results[0][1], other[1])


def test_several_threads_of_python_may_compute_at_once():
    embeddings, labels = batch(list(range(6)) * 10)
    expected = build_loss("sup_hap")(embeddings, labels).item()
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda _: build_loss("sup_hap")(embeddings.detach(), labels).item(), range(4))
        )
    assert found == [expected] * 4


def test_what_is_not_finite_is_kept_out_of_a_memory():
    torch.manual_seed(0)
    batches = [torch.nn.functional.normalize(torch.randn(6, 4), dim=1) for _ in range(3)]
    labels = torch.tensor([0, 0, 1, 1, 2, 2])[:, None]
    bad = batches[1].clone()
    bad[2] = torch.nan
    spoilt, clean = (CrossBatchMemory(build_loss("sup_ap"), 30) for _ in range(2))
    for batch in (batches[0], bad):
        spoilt(batch, labels)
    clean(batches[0], labels)
    kept = [0, 1, 3, 4, 5]
    clean._enqueue(bad[kept], labels[kept])
    assert torch.isfinite(spoilt.embeddings).all()
    assert int(spoilt.stored) == 11
    assert torch.equal(spoilt(batches[2], labels), clean(batches[2], labels))


def test_scores_that_are_not_finite_are_kept_out_of_a_memory():
    torch.manual_seed(0)
    good, bad = torch.randn(6, 4), torch.full((6, 4), torch.nan)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])[:, None]
    spoilt, clean = (build_loss("rambo_recall", memory=3) for _ in range(2))
    clean(good, labels), spoilt(good, labels)
    assert torch.isnan(spoilt(bad, labels))
    assert torch.equal(spoilt(good, labels), clean(good, labels))
