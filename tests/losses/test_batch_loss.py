"""How losses are called: NaN in is NaN out, nothing is ignored in silence, and
pytorch-metric-learning can call them.
"""

import re

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners

from hbench.core.errors import ConfigError, TreeError
from hbench.losses import build_loss
from tests.losses.test_losses import NAMES, WITH_REFERENCES, batch, build

CLASSES = [0, 0, 1, 1, 3, 3, 4, 4]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_not_finite_gives_a_value_that_is_not(name, bad, dtype):
    embeddings, labels = batch(CLASSES)
    embeddings = embeddings.detach().to(dtype)
    embeddings[2, 1] = bad
    assert not torch.isfinite(build(name).to(dtype)(embeddings, labels))


@pytest.mark.parametrize("name", NAMES)
def test_labels_in_the_wrong_order_are_refused_in_every_batch(name):
    embeddings, labels = batch(CLASSES)
    loss = build(name)
    loss(embeddings, labels)
    with pytest.raises(
        TreeError, match=r"(?s)column-1 labels have several parents.*coarse to fine"
    ):
        loss(embeddings, labels.flip(1))


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_the_gradients_of_a_batch_with_references_are_finite(name):
    embeddings, labels = batch(CLASSES)
    references, classes = batch(CLASSES, seed=1)
    value = build(name)(embeddings, labels, references, classes)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(embeddings.grad).all()
    assert references.grad is None or torch.isfinite(references.grad).all()


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_references_of_another_tree_or_without_labels_are_refused(name):
    embeddings, labels = batch(CLASSES)
    references, classes = batch(CLASSES, seed=1)
    loss, other_tree = build(name), torch.stack([1 - classes[:, 0], classes[:, 1]], dim=1)
    loss(embeddings, labels, references, classes)
    with pytest.raises(TreeError, match="column-1"):
        loss(embeddings, labels, references, other_tree)
    with pytest.raises(ConfigError, match="ref_embeddings without ref_labels"):
        loss(embeddings, labels, references)
    with pytest.raises(ConfigError, match="ref_labels without ref_embeddings"):
        loss(embeddings, labels, ref_labels=classes)


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_a_reference_that_is_not_finite_gives_a_value_that_is_not(name):
    embeddings, labels = batch(CLASSES)
    references, classes = batch(CLASSES, seed=1)
    references = references.detach()
    references[0, 0] = float("nan")
    assert not torch.isfinite(build(name)(embeddings, labels, references, classes))


@pytest.mark.parametrize("name", ["sup_ap", "contrastive", "multi_similarity", "rambo_ap"])
def test_labels_of_one_level_may_be_one_column(name):
    embeddings, labels = batch(CLASSES)
    fine = labels[:, -1]
    assert build(name)(embeddings, fine) == build(name)(embeddings, fine[:, None])


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_mined_pairs_are_used_or_refused(name):
    embeddings, labels = batch(CLASSES)
    first, second, other = torch.tensor([0]), torch.tensor([1]), torch.tensor([2])
    loss = build(name)
    try:
        value = loss(embeddings, labels, (first, second, first, other))
    except ConfigError as error:
        assert "takes no mined pairs" in str(error)  # noqa: PT017
    else:
        assert value != build(name)(embeddings, labels)


@pytest.mark.parametrize("name", ["contrastive", "sup_ap", "smooth_ap", "softbin_ap"])
def test_all_pairs_as_mined_pairs_change_nothing(name):
    embeddings, labels = batch(CLASSES)
    same = (labels[:, -1:] == labels[:, -1]).fill_diagonal_(False)
    differing = labels[:, -1:] != labels[:, -1]
    pairs = (*same.nonzero(as_tuple=True), *differing.nonzero(as_tuple=True))
    assert build(name)(embeddings, labels, pairs).item() == pytest.approx(
        build(name)(embeddings, labels).item()
    )


def test_pytorch_metric_learning_calls_losses_in_its_wrappers():
    embeddings, labels = batch(CLASSES)
    fine = labels[:, -1]
    ours, theirs = build_loss("sup_ap"), pml_losses.ContrastiveLoss()
    both = pml_losses.MultipleLosses([ours, theirs], weights=[0.25, 0.75])
    assert both(embeddings, fine).item() == pytest.approx(
        0.25 * ours(embeddings, fine).item() + 0.75 * theirs(embeddings, fine).item()
    )
    mined = miners.MultiSimilarityMiner()(embeddings, fine)
    assert torch.isfinite(both(embeddings, fine, mined))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_loss_is_the_loss(name, backend):
    embeddings, labels = batch(CLASSES)
    torch.compiler.reset()
    values = []
    for loss in (build(name), torch.compile(build(name), backend=backend)):
        x = embeddings.detach().clone().requires_grad_()
        torch.manual_seed(0)
        value = loss(x, labels)
        values.append((value.detach(), *torch.autograd.grad(value, x, allow_unused=True)))
    for plain, compiled in zip(*values, strict=True):
        assert plain is compiled is None or torch.equal(plain, compiled)


# torch's compiler looks at its own tensors
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_a_step_with_a_loss_is_compiled_around_it():
    torch.compiler.reset()
    embeddings, labels = batch(CLASSES)
    torch.manual_seed(0)
    net, loss = torch.nn.Linear(embeddings.shape[1], 4), build_loss("sup_ap")

    def step(x, classes):
        return 2 * loss(torch.nn.functional.normalize(net(x)), classes)

    expected = step(embeddings.detach(), labels)
    torch.testing.assert_close(torch.compile(step)(embeddings.detach(), labels), expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_second_derivative_is_right_or_refused(name):
    """Gradients that are computed with the value know nothing of how they change: torch refuses to
    differentiate them.
    """
    embeddings, labels = batch(CLASSES)
    loss = build(name).double()

    def slope(at):
        x = at.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(x, labels), x, create_graph=True, allow_unused=True)
        return x, gradient

    x, gradient = slope(embeddings.detach().double())
    if gradient is None or not gradient.requires_grad:
        return  # constant, or no graph of it: nothing that could be wrong
    along = torch.linspace(-1, 1, x.numel(), dtype=torch.float64).view_as(x)
    try:
        (second,) = torch.autograd.grad((gradient * along).sum(), x, allow_unused=True)
    except (RuntimeError, ConfigError) as refusal:
        if not re.search("once_differentiable|no second derivative", str(refusal)):
            raise
        return
    step = 1e-6
    ends = [slope(x.detach() + sign * step * along)[1].detach() for sign in (1, -1)]
    found = torch.zeros(()) if second is None else (second * along).sum()
    expected = ((ends[0] - ends[1]) / (2 * step) * along).sum()
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_the_names_that_pytorch_metric_learning_gives_its_arguments_are_taken(name):
    embeddings, labels = batch(CLASSES)
    others, their_labels = batch(CLASSES, seed=1)
    positional = build(name)(embeddings, labels, None, others, their_labels)
    named = build(name)(
        embeddings, labels, indices_tuple=None, ref_emb=others, ref_labels=their_labels
    )
    assert torch.equal(positional, named)
    with pytest.raises(ConfigError, match="words of two libraries"):
        build(name)(embeddings, labels, others, their_labels, ref_emb=others)


def test_pairs_by_place_go_with_references_by_name():
    """As pytorch-metric-learning's own losses are called, too."""
    embeddings, labels = batch(CLASSES)
    others, their_labels = batch(CLASSES, seed=1)
    pairs = (
        *torch.where(labels[:, None, -1] == their_labels[None, :, -1]),
        *torch.where(labels[:, None, -1] != their_labels[None, :, -1]),
    )
    loss = build("contrastive")
    by_name = loss(embeddings, labels, indices_tuple=pairs, ref_emb=others, ref_labels=their_labels)
    mixed = loss(embeddings, labels, pairs, ref_emb=others, ref_labels=their_labels)
    assert torch.equal(by_name, mixed)


@pytest.mark.parametrize(
    ("self_index", "said"),
    [
        (torch.arange(7), "does not fit the queries"),
        (torch.arange(8.0), "does not fit the queries"),
        (torch.arange(8) + 1, "references that do not exist"),
        (torch.full((8,), -5), "references that do not exist"),
        (torch.arange(8).flip(0), "another item than the query"),
    ],
)
def test_a_self_index_that_is_none_is_refused(self_index, said):
    embeddings, labels = batch(CLASSES)
    with pytest.raises(ConfigError, match=said):
        build("sup_hap")(embeddings, labels, embeddings.detach(), labels, self_index)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (([0], [1], [0], [8]), "name items that do not exist"),
        (([0], [1], [-1]), "name items that do not exist"),
        (([0, 1], [1], [0], [2]), "not indices of pairs"),
    ],
)
def test_mined_pairs_of_another_batch_are_refused(pairs, said):
    embeddings, labels = batch(CLASSES)
    with pytest.raises(ConfigError, match=said):
        build("triplet")(embeddings, labels, tuple(map(torch.tensor, pairs)))


@pytest.mark.parametrize("name", ["triplet", "nsm", "sup_hap"])
def test_labels_without_a_level_are_refused(name):
    embeddings, labels = batch(CLASSES)
    with pytest.raises(ConfigError, match="1 level or more"):
        build(name)(embeddings, labels[:, :0])


def test_a_memory_stands_in_multiple_losses_and_refuses_references():
    embeddings, labels = batch(CLASSES)
    loss = build("xbm")
    assert pml_losses.MultipleLosses([loss])(embeddings, labels) == build("xbm")(embeddings, labels)
    with pytest.raises(ConfigError, match="references of its own"):
        loss(embeddings, labels, embeddings, labels)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda x, labels: (x, labels[:, 1:]), ConfigError),
        (lambda x, labels: (x[:, 1:], labels), ConfigError),
        (lambda x, labels: (x, labels.flip(1)), TreeError),
        (lambda x, labels: (x, torch.stack([1 - labels[:, 0], labels[:, 1]], 1)), TreeError),
    ],
    ids=["level", "dimension", "order", "tree"],
)
def test_a_memory_keeps_nothing_of_a_batch_that_is_refused(spoil, error):
    embeddings, labels = batch(CLASSES)
    loss = build("xbm")
    loss(embeddings, labels)
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    with pytest.raises(error):
        loss(*spoil(embeddings.detach(), labels))
    assert all(torch.equal(value, before[name]) for name, value in loss.state_dict().items())


def test_embeddings_are_no_scores_of_classes():
    with pytest.raises(ConfigError, match="rambo_ap"):
        build_loss("rambo_map_classes")(*batch(CLASSES))
