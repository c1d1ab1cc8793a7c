"""What a torch file holds, by name, and each entry as an array: tensors, and lists of ids.

torch is imported where a tensor is at hand: who reads other files needs none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.submissions.embeddings.parts import ArrayPart, list_part


def by_name(content: Any) -> dict[str, Any]:
    """What a torch file holds, by name: a dictionary, also as the only entry of another; a list of
    pairs of an id and a vector, or of dictionaries of one item each; a tuple, by place; or anything
    else, such as a tensor alone, as "embeddings"."""
    if isinstance(content, dict):
        only_one = next(iter(content.values())) if len(content) == 1 else None
        named = only_one if isinstance(only_one, dict) else content
        return {str(name): part for name, part in named.items()}
    if (
        isinstance(content, list)
        and content
        and all(isinstance(each, tuple) and len(each) == 2 for each in content)
    ):
        return {str(name): part for name, part in content}
    if isinstance(content, list) and content and all(isinstance(each, dict) for each in content):
        return _stacked_items(content)
    if isinstance(content, tuple):
        return {f"entry {place}": part for place, part in enumerate(content, 1)}

    return {"embeddings": content}


def are_sparse(held: Mapping[str, Any]) -> bool:
    """Whether any of these tensors is kept as its non-zero entries alone, and no plain table."""
    return any(str(part.layout) != "torch.strided" for part in held.values())


def held_part(name: str, held: Any) -> ArrayPart:
    """One entry of a torch file as a part, whose shape and kind tell whether it holds vectors or
    ids: a tensor, or a list of texts or whole numbers; anything else can be neither ("?")."""
    if hasattr(held, "is_floating_point"):
        kind = "f" if held.is_floating_point() else "i"
        return ArrayPart(name, tuple(held.shape), kind, lambda: held.tolist())
    if isinstance(held, list | tuple):
        return list_part(name, held)
    return ArrayPart(name, (), "?")


def numpy_of(tensor: Any) -> NDArray[Any]:
    """A tensor's numbers as an array in the same memory; bfloat16 as uint16, its bits."""
    import torch

    whole = tensor.detach().contiguous()
    if whole.dtype == torch.bfloat16:  # which numpy lacks: its bits
        whole = whole.view(torch.uint16)
    return np.asarray(whole.numpy())


def _stacked_items(items: list[dict[str, Any]]) -> dict[str, Any]:
    """One entry for each key of dictionaries that are one item each; tensors of a shape become
    one."""
    import torch

    held: dict[str, Any] = {}
    for name in items[0]:
        values: list[Any] = [item.get(name) for item in items]
        are_tensors = all(isinstance(value, torch.Tensor) for value in values)
        if not are_tensors or len({value.shape for value in values}) > 1:
            held[str(name)] = values
            continue
        stacked = torch.stack(values)
        # items that were kept as batches of one, (1, D)
        held[str(name)] = stacked.squeeze(1) if stacked.ndim == 3 else stacked
    return held
