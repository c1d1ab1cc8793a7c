"""Defines how every loss is called, and checks its arguments.

    loss(embeddings, labels)                                          ranks the batch itself
    loss(embeddings, labels, ref_embeddings, ref_labels, self_index)  ranks references
    loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)      as in pytorch-metric-learning

A loss is a subclass of BatchLoss that computes its value from a LossBatch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from hbench.core.errors import ConfigError
from hbench.losses.batch_loss.checks import require_pairs, require_self_index, require_tree

MethodT = TypeVar("MethodT", bound=Callable[..., Any])
# pairs (query, positive, query, negative) or triplets (query, positive, negative)
Indices = tuple[Tensor, ...]


class LossBatch(NamedTuple):
    """Queries (B, D) with labels (B, L), and the references (N, D) with labels (N, L) that the
    queries rank.

    `self_index` int64 (B,): the reference that is the query itself, −1 for none. `pairs`: mined
    pairs or triplets, None for all pairs. `partial`: whether labels may end above the finest level,
    with −1 below their end, whose pairs of unknown level are left out (hbench.losses.partial).
    """

    embeddings: Tensor
    labels: Tensor
    ref_embeddings: Tensor
    ref_labels: Tensor
    self_index: Tensor
    pairs: Indices | None
    partial: bool = False

    def is_self(self, block: slice = slice(None)) -> Tensor:
        """Mark the references that are the query itself: bool (b, N)."""
        return (
            torch.arange(len(self.ref_labels), device=self.self_index.device)
            == self.self_index[block, None]
        )

    def listed(self, block: slice = slice(None)) -> Tensor | None:
        """Mark the references that are paired with each query of the block, bool (b, N); None if
        all are.

        Under partial labels, a query is paired with itself and with all references for which the
        level of the pair is known.
        """
        if self.partial:
            return ~unknown_pairs(self.labels[block], self.ref_labels) | self.is_self(block)
        if self.pairs is None:
            return None
        mask = torch.zeros(
            len(self.labels), len(self.ref_labels), dtype=torch.bool, device=self.labels.device
        )
        # pairs in four tensors, (query, positive, query, negative), or triplets in three
        query, positive = self.pairs[:2]
        against, negative = self.pairs[-2:] if len(self.pairs) == 4 else (query, self.pairs[2])
        mask[query, positive] = mask[against, negative] = True
        return mask[block]

    def same_class(self, block: slice = slice(None)) -> Tensor:
        """Mark the references of the same finest class as each query, bool (b, N), including the
        query itself. Two unknown classes, −1, are not the same.
        """
        fine = self.labels[block, -1, None]
        return (fine == self.ref_labels[None, :, -1]) & (fine != -1)

    def split_pairs(self, block: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Mark the positives and the negatives of each query by its finest class: two bool (b, N).
        Neither has the query itself, or references that are not `listed`.
        """
        same = self.same_class(block)
        others = ~self.is_self(block)
        listed = self.listed(block)
        positive = same & others
        negative = ~same & others
        return (positive, negative) if listed is None else (positive & listed, negative & listed)

    def to_level(self, level: int) -> LossBatch:
        """Return the batch with only the first `level` columns of its labels."""
        return self._replace(labels=self.labels[:, :level], ref_labels=self.ref_labels[:, :level])

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments with which a loss is called on this batch."""
        among_themselves = self.ref_embeddings is self.embeddings
        # pytorch-metric-learning's arguments have pairs, but no self_index (`batch_of_arguments`)
        if self.pairs is not None:
            references = () if among_themselves else (self.ref_embeddings, self.ref_labels)
            return (self.embeddings, self.labels, self.pairs, *references)
        if among_themselves:
            return (self.embeddings, self.labels)
        return (self.embeddings, self.labels, self.ref_embeddings, self.ref_labels, self.self_index)


def uncompiled(method: MethodT) -> MethodT:
    """Exclude a method of a loss from torch.compile, which cannot compile it: the method reads the
    labels with numpy, and its kernels are compiled already."""

    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        """Call the method outside of torch's compiler."""
        # `disable` loads torch's compiler, which takes a second: not called unless it runs
        if torch.compiler.is_compiling():
            return torch.compiler.disable(method)(*arguments, **options)
        return method(*arguments, **options)

    return cast("MethodT", call)


class BatchLoss(nn.Module):
    """A loss of a batch: `compute(batch)` -> scalar. For embeddings that are not finite, the loss
    is not finite, either.

    Labels that do not form a tree, such as columns in the wrong order, raise an error. `spelling`:
    name and parameters, for the repr. `called`: the name that the loss or the combination that it
    is part of was built by, for errors. `takes_pairs`: whether the loss can use mined pairs.
    `takes_partial`: whether it can leave out pairs of unknown level, by `LossBatch.listed`. It does
    so in a batch with a label of −1, and in every batch if it is `partial` (hbench.losses.partial).
    """

    spelling = ""
    called = ""
    takes_pairs = True
    takes_partial = False
    partial = False
    labels_checked = False

    def compute(self, batch: LossBatch) -> Tensor:
        """The loss of a batch, a scalar; each subclass defines it."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return self.spelling

    @uncompiled
    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_embeddings: Tensor | Indices | None = None,
        ref_labels: Tensor | None = None,
        self_index: Tensor | None = None,
        *,
        indices_tuple: Indices | None = None,
        ref_emb: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch: embeddings (B, D), labels (B, L) or (B,), and what the queries rank,
        by default the batch itself.

        The three arguments after `labels` follow either of two orders (`batch_of_arguments`).
        hbench: references (N, D), labels of references, and `self_index` (B,), the reference that
        is the query itself, −1 for none. pytorch-metric-learning: mined pairs (`indices_tuple`),
        references (`ref_emb`), and labels of references."""
        if indices_tuple is None and ref_emb is not None and not isinstance(ref_embeddings, Tensor):
            # pairs were passed by position, as the third argument, and references by keyword
            indices_tuple, ref_embeddings = ref_embeddings, None
        if indices_tuple is None and ref_emb is None:
            batch = batch_of_arguments(embeddings, labels, ref_embeddings, ref_labels, self_index)
        elif ref_embeddings is None and self_index is None:  # the other library's keywords
            batch = batch_of_arguments(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        else:
            raise ConfigError(
                "the loss was called in the words of two libraries",
                expected="ref_embeddings and self_index, or indices_tuple and ref_emb",
            )
        if batch.pairs is not None and not self.takes_pairs:
            raise ConfigError(
                f"{name_of(self)} takes no mined pairs: it compares more than pairs of the batch",
                found="an indices_tuple",
                fix="call it without pairs, or use a miner with a loss of pairs or a rank loss",
            )
        # On a GPU only the first batch is checked, since the check waits for the device; labels in
        # the wrong order are noticed in nearly every batch.
        if batch.labels.device.type == "cpu" or not self.labels_checked:
            require_tree(batch.labels, batch.ref_labels)
            require_self_index(batch.self_index, batch.labels, batch.ref_labels)
            if batch.pairs is not None:
                require_pairs(batch.pairs, len(batch.labels), len(batch.ref_labels))
            # such a loss looks at the finest classes of the batch alone, each of which it needs
            if not self.takes_partial and bool((batch.labels[:, -1:] < 0).any()):
                raise needs_every_label(self)
            self.labels_checked = True
        value = self.compute(batch._replace(partial=self._leaves_out(batch)))
        # Comparisons with NaN are false, so a loss could be finite although its gradient is not.
        # Zero times the sum of the vectors is 0, or NaN if a vector is not finite. It is added to
        # the loss, since testing the vectors would make the host wait for the device.
        inputs = [batch.embeddings]
        if batch.ref_embeddings is not batch.embeddings:
            inputs.append(batch.ref_embeddings)
        for vectors in inputs:
            value = value + vectors.detach().sum(dtype=torch.float32).mul(0)
        return value

    def _leaves_out(self, batch: LossBatch) -> bool:
        """Whether the loss leaves pairs of unknown level out of this batch: if it is `partial`, or
        if a label is −1. Raises ConfigError for mined pairs then."""
        if not self.takes_partial:
            return False
        # asked in every batch, although a GPU waits for the answer: with −1 as a class the loss
        # would be a wrong number
        own = batch.ref_labels is batch.labels  # the batch ranks itself
        tables = [batch.labels] if own else [batch.labels, batch.ref_labels]
        if not self.partial and not any(bool((table < 0).any()) for table in tables):
            return False
        if batch.pairs is not None:
            raise ConfigError(
                "a loss of partial labels chooses its pairs itself",
                expected="labels of every level, or no mined pairs",
                found="mined pairs, which may join unknown classes, −1",
                fix="call it without mined pairs",
            )
        return True


def name_of(loss: nn.Module) -> str:
    """The name of a loss in errors: the one it was built by, or else that of its class."""
    return getattr(loss, "called", "") or type(loss).__name__


def needs_every_label(loss: nn.Module) -> ConfigError:
    """Make the error of a loss that cannot leave out pairs of unknown level."""
    return ConfigError(
        f"{name_of(loss)} needs every label down to the finest level",
        expected="a loss of pairs or of ranks",
        found="labels that end early, with −1 in the last column",
        fix="leave out their items (--policy drop, or in your own loop the rows with −1), or "
        "choose another loss",
    )


def require_positive(**values: float) -> None:
    """Raise ConfigError for a setting that is not above 0."""
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(f"{name} is not positive", expected=f"{name} > 0", found=f"{value:g}")


def unknown_pairs(labels: Tensor, ref_labels: Tensor) -> Tensor:
    """Mark the pairs of unknown level, bool (B, N), of labels (B, L) and (N, L), coarse to fine:
    the labels of the pair agree until one of them ends (−1), and could agree below, too.
    """
    # bool (B, N) each; `agree`: whether the labels agree in all columns so far
    agree = torch.ones(len(labels), len(ref_labels), dtype=torch.bool, device=labels.device)
    unknown = torch.zeros_like(agree)
    for column in range(labels.shape[1]):
        of_query = labels[:, column, None]
        of_item = ref_labels[None, :, column]
        ends = (of_query < 0) | (of_item < 0)
        unknown |= agree & ends
        agree &= (of_query == of_item) & ~ends
    return unknown


def batch_of_arguments(
    embeddings: Tensor,
    labels: Tensor,
    third: Tensor | Indices | None,
    fourth: Tensor | None,
    fifth: Tensor | None,
) -> LossBatch:
    """Make a batch from a loss's arguments; raises ConfigError if they do not match.

    After embeddings (B, D) and labels (B, L), the `third`, `fourth` and `fifth` argument are: in
    hbench's order, references (N, D), their labels (N, L) and self_index (B,); in
    pytorch-metric-learning's order, mined pairs, references and their labels. Without references,
    the queries rank the batch itself.
    """
    # the type of the third argument tells which order it is: a tensor is references
    pairs, refs, ref_labels, self_index = _pairs_or_references(third, fourth, fifth)
    wide = wide_labels(labels, embeddings, "labels", "embeddings")
    if refs is None and ref_labels is None:
        # query i is reference i
        everyone = torch.arange(len(wide), device=wide.device)
        return LossBatch(embeddings, wide, embeddings, wide, everyone, pairs)
    if refs is None or ref_labels is None:
        present, absent = (
            ("ref_embeddings", "ref_labels")
            if ref_labels is None
            else ("ref_labels", "ref_embeddings")
        )
        raise ConfigError(
            f"the loss got {present} without {absent}",
            expected="both, or neither",
            fix=f"pass {absent}",
        )

    wide_refs = wide_labels(ref_labels, refs, "ref_labels", "ref_embeddings")
    if wide_refs.shape[1] != wide.shape[1] or refs.shape[1:] != embeddings.shape[1:]:
        raise ConfigError(
            "the shapes of references and batch do not fit",
            expected=f"dimension {embeddings.shape[-1]}, {wide.shape[1]} levels",
            found=f"dimension {refs.shape[-1]}, {wide_refs.shape[1]} levels",
        )

    # without a self_index, no query is among the references
    if self_index is None:
        self_index = torch.full((len(wide),), -1, device=wide.device)
    elif (
        not isinstance(self_index, Tensor)
        or self_index.shape != (len(wide),)
        or self_index.dtype not in INTEGERS
    ):
        kind = getattr(self_index, "dtype", type(self_index).__name__)
        raise ConfigError(
            "self_index does not fit the queries",
            expected=f"integers ({len(wide)},), the place of each query among the references",
            found=f"{kind} {tuple(getattr(self_index, 'shape', ()))}",
        )
    return LossBatch(embeddings, wide, refs, wide_refs, self_index.long(), pairs)


def _pairs_or_references(
    third: Any, fourth: Any, fifth: Any
) -> tuple[Indices | None, Any, Any, Any]:
    """Sort the arguments of a loss that follow embeddings and labels. Returns pairs, references,
    labels of the references and self_index; None for each that is not given.

    There are two orders. hbench's is (references, labels of the references, self_index), and
    pytorch-metric-learning's is (mined pairs or triplets, references, labels of the references).
    Mined pairs are four tensors of indices, triplets three.
    """
    if isinstance(third, tuple | list) and len(third) in {3, 4}:
        return tuple(third), fourth, fifth, None
    if isinstance(third, tuple | list):
        found = f"{len(third)} of them"
        raise ConfigError(
            "the third argument is not mined pairs",
            expected="3 or 4 tensors of indices",
            found=found,
        )
    # (None, references, labels) is pytorch-metric-learning's order without pairs. In hbench's
    # order, the fourth argument would be labels, which are integers.
    if third is None and isinstance(fourth, Tensor) and fourth.is_floating_point():
        return None, fourth, fifth, None
    return None, third, fourth, fifth


def wide_labels(labels: Tensor, vectors: Tensor, what: str, of: str) -> Tensor:
    """Check labels, and return them as int64 (B, L); labels of one level may be given as (B,).
    `vectors`: of the same items. Errors name the labels `what`, and the vectors `of`."""
    for name, given in ((of, vectors), (what, labels)):
        if not isinstance(given, Tensor):
            raise ConfigError(
                f"the {name} are no tensor", expected="a torch.Tensor", found=type(given).__name__
            )
        if given.layout is not torch.strided or given.is_nested or given.is_meta:
            raise ConfigError(
                f"the {name} are no dense tensor",
                expected="a tensor with values",
                found=f"{given.layout} on {given.device}, nested: {given.is_nested}",
            )
    if vectors.ndim != 2 or vectors.dtype not in FLOATS:
        raise ConfigError(
            f"the {of} are no vectors",
            expected="floats (B, D)",
            found=f"{vectors.dtype} of shape {tuple(vectors.shape)}",
        )

    wide = labels[:, None] if labels.ndim == 1 else labels
    if wide.ndim != 2 or len(wide) != len(vectors) or not wide.shape[1]:
        raise ConfigError(
            f"the {what} do not fit the {of}",
            expected=f"{what} ({len(vectors)}, L), coarse to fine, of 1 level or more",
            found=f"{what} {tuple(labels.shape)}",
        )
    if wide.is_floating_point() or wide.is_complex():
        raise ConfigError(f"the {what} are not classes", expected="integers", found=str(wide.dtype))

    return wide.long()  # kernels and masks expect int64


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def full_precision(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Convert tensors to float64 if one of them has it, else to float32, since half precision loses
    the order of close scores.
    """
    double = any(tensor.dtype == torch.float64 for tensor in tensors)
    return tuple(tensor.to(torch.float64 if double else torch.float32) for tensor in tensors)
