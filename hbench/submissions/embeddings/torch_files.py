"""The entries of a torch file by name: tensors, and lists of ids.

torch is imported inside the functions that need it, so that other files can be read without it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hbench.submissions.embeddings.parts import ArrayPart, list_part


def by_name(content: Any) -> dict[str, Any]:
    """The entries of a torch file by name, from any of the objects that people save.

    These are a dictionary, or a dictionary in a dictionary; a list of pairs of an id and a vector;
    a list of dictionaries of one item each; a tuple, whose entries are numbered. Any other object,
    such as a single tensor, becomes the entry "embeddings".
    """
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
    """Whether any of these tensors is sparse."""
    return any(str(part.layout) != "torch.strided" for part in held.values())


def held_part(name: str, held: Any) -> ArrayPart:
    """Describe one entry of a torch file, so that vectors and ids can be found. An entry that is
    neither a tensor nor a list gets the kind "?", which fits neither vectors nor ids."""
    if hasattr(held, "is_floating_point"):  # a tensor
        kind = "f" if held.is_floating_point() else "i"
        return ArrayPart(
            name=name, shape=tuple(held.shape), kind=kind, values=lambda: held.tolist()
        )
    if isinstance(held, list | tuple):
        return list_part(name, held)
    return ArrayPart(name=name, shape=(), kind="?")


def numpy_of(tensor: Any) -> NDArray[Any]:
    """A tensor as a NumPy array, without a copy if the tensor is contiguous. bfloat16 numbers are
    returned as their bits in uint16."""
    import torch

    whole = tensor.detach().contiguous()
    if whole.dtype == torch.bfloat16:  # NumPy has no such type
        whole = whole.view(torch.uint16)
    return np.asarray(whole.numpy())


def _stacked_items(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Turn a list of dictionaries, one for each item, into one dictionary of the values of all
    items. Tensors of equal shape are stacked into one tensor; other values become a list."""
    import torch

    held: dict[str, Any] = {}
    for name in items[0]:
        values: list[Any] = [item.get(name) for item in items]
        are_tensors = all(isinstance(value, torch.Tensor) for value in values)
        if not are_tensors or len({value.shape for value in values}) > 1:
            held[str(name)] = values
            continue
        stacked = torch.stack(values)
        # each item may be a batch of one, (1, D)
        held[str(name)] = stacked.squeeze(1) if stacked.ndim == 3 else stacked
    return held
