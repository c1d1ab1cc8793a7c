"""Fetches the weights of nets, and loads files of weights, including those of libraries with other
names for the keys.
"""

import hashlib
import logging
import urllib.error
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hbench.core.errors import ConfigError, DataError, examples
from hbench.core.text import first_line
from hbench.core.untrusted import load_tensors, parse_toml, read_text

LOG = logging.getLogger(__name__)
# keys under which checkpoints store weights: Lightning, timm, torchvision's references, MoCo, DINO
INSIDE = ("state_dict", "model", "model_state_dict", "state_dict_ema", "model_ema", "net")
# prefixes that DistributedDataParallel, torch.compile and Lightning add to each name
WRAPPERS = ("module.", "_orig_mod.", "model.")
PATIENCE = 5  # seconds to wait for a response of the hub


def with_fetched_weights(create: Callable[[], Any], name: str, where: str) -> Any:
    """Call `create`, which downloads weights or has them in a cache, and return its result. Raises
    DataError if they cannot be fetched. `name`: of the net, for the message. `where`: the place for
    weights that a user downloads by hand, for the message.
    """
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return create()
    except (
        urllib.error.URLError,
        ConnectionError,
        TimeoutError,
        LocalEntryNotFoundError,
        HfHubHTTPError,
    ) as error:
        first = first_line(error)
    except (OSError, RuntimeError) as error:
        if not _is_network(error):  # hubs raise these errors for other reasons, too
            raise
        first = first_line(error)
    raise DataError(
        f"the weights of {name} cannot be fetched",
        expected=f"network, or the weights in {where}",
        found=first,
        fix="put the file there, or choose the weights `random`",
    )


def refuse_without_hub(repository: str, name: str) -> None:
    """Raise DataError if a repository of the Hugging Face hub, OWNER/NAME, is not in the cache and
    the hub does not respond within 5 seconds; huggingface_hub would try for a minute. `name`: of
    the net, for the message. If HF_HUB_OFFLINE is set, nothing is checked, since huggingface_hub
    then raises its own error at once."""
    import huggingface_hub
    import requests

    cache = Path(huggingface_hub.constants.HF_HUB_CACHE)
    folder = cache / huggingface_hub.file_download.repo_folder_name(
        repo_id=repository, repo_type="model"
    )
    # the cache keeps files as snapshots/COMMIT/FILE
    if any(folder.glob("snapshots/*/*")) or huggingface_hub.constants.HF_HUB_OFFLINE:
        return
    hub = huggingface_hub.constants.ENDPOINT
    try:
        requests.head(hub, timeout=PATIENCE)
    except requests.RequestException as error:
        raise DataError(
            f"the weights of {name} cannot be fetched",
            expected=f"the files of {repository} in {folder}, or {hub} to answer",
            found=first_line(error),
            fix=f"where there is a network: hf download {repository}, then copy that folder here; "
            "or name a file of weights",
        ) from None


def load_weights(net: nn.Module, path: Path, key_map: Path | None = None) -> None:
    """Load a file of weights (.safetensors, or .pth of plain tensors) into a net. Raises DataError
    if it does not fit.

    `key_map`: a TOML file of lines `"old" = "new"`: the beginning of keys in the file of weights,
    and what replaces it in the net. Or the map is `order = true`, which pairs the keys of the file
    with those of the net in order. The two of a pair must have the same kind (weight, bias,
    running_mean …) and shape; surplus keys are logged.
    """
    from pickle import UnpicklingError

    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        expected = "pretrained, random, or a .safetensors or .pth file"
        raise DataError(f"there is no file of weights {path}", expected=expected)
    try:
        held = load_file(path) if path.suffix == ".safetensors" else load_tensors(path)
        # files may have the weights under a key such as "state_dict", or with a prefix
        weights = _weights_in(held, net, path, has_map=key_map is not None)
        _refuse_not_finite(weights, path)
        renamed = _rename_weights(weights, net, key_map)
        _refuse_other_shapes(renamed, net, path)
        missing = net.load_state_dict(renamed, strict=False).missing_keys
    except (
        SafetensorError,
        UnpicklingError,
        RuntimeError,
        AttributeError,
        TypeError,
        ValueError,
        OSError,
    ) as error:
        raise DataError(f"{path} cannot be loaded", found=first_line(error)) from None
    if missing:
        raise DataError(
            f"{path} lacks weights of the net",
            expected=f"{', '.join(missing[:5])} …, {len(net.state_dict())} keys",
            found=f"{', '.join(list(weights)[:5])} …, {len(weights)} keys; {len(missing)} of the "
            "net's are missing",
            fix='rename the keys by --key-map FILE.toml: "old beginning" = "new beginning", or '
            "order = true",
        )


def _weights_in(held: Any, net: nn.Module, path: Path, *, has_map: bool) -> Mapping[str, Tensor]:
    """Find the weights in the content of a file (`held`): the content itself, or the value of a key
    such as Lightning's `state_dict` or timm's `model`.

    The prefix of a wrapper, such as "module.", is removed on three conditions: all names begin with
    it, none of the names is in the net, and without the prefix some are. With a key map (`has_map`)
    the prefix is kept, since the map refers to the names in the file.
    """
    if not isinstance(held, Mapping):
        raise TypeError(f"it holds a {type(held).__name__}, not weights by name")
    weights = held
    # a content with tensors is itself the weights, even if it has one of the keys INSIDE
    inside = [name for name in INSIDE if isinstance(held.get(name), Mapping)]
    if inside and not any(isinstance(value, Tensor) for value in held.values()):
        weights = held[inside[0]]
        LOG.warning('the weights of %s are those in ["%s"]', path, inside[0])
    own = set(net.state_dict())
    if has_map:
        return weights
    for prefix in WRAPPERS:
        bare = {name.removeprefix(prefix): value for name, value in weights.items()}
        has_prefix = all(name.startswith(prefix) for name in weights)
        if has_prefix and own & bare.keys() and not own & weights.keys():
            LOG.warning("the names of the weights are taken without %s", prefix)
            return bare
    return weights


def _refuse_other_shapes(weights: Mapping[str, Tensor], net: nn.Module, path: Path) -> None:
    """Raise DataError if weights have the name of one of the net's weights, but another shape. The
    message names a few; torch's would name all. Values that are no tensors are left to torch.
    `path`: the file of the weights, for the message."""
    own = net.state_dict()
    differing = [
        f"{name} {tuple(value.shape)} for {tuple(own[name].shape)}"
        for name, value in weights.items()
        if isinstance(value, Tensor) and name in own and value.shape != own[name].shape
    ]
    if differing:
        raise DataError(
            f"{path} holds weights of another net",
            expected="the shapes of the net's own weights",
            found=f"{len(differing)} of another shape: {examples(differing)}",
            fix="make the net as the one whose weights these are, such as of its width",
        )


def _refuse_not_finite(weights: Mapping[str, Tensor], path: Path) -> None:
    """Raise DataError for weights that are NaN, infinite or complex. A file may hold other values
    than tensors, too, which are not checked here. `path`: the file, for the message."""
    for name, values in weights.items():
        if isinstance(values, Tensor) and (
            values.is_complex() or not bool(values.isfinite().all())
        ):
            raise DataError(
                f"{path} holds weights that are no finite numbers",
                found=f"{name} as {values.dtype}",
            )


def _rename_weights(
    weights: Mapping[str, Tensor], net: nn.Module, key_map: Path | None
) -> dict[str, Tensor]:
    """Rename weights to the names in the net by the TOML file `key_map`, if there is one. The map
    has prefixes and their replacements, and the longest prefix of a name is replaced. Or the map is
    `order = true`, which pairs the names of file and net in order. Raises ConfigError for a map
    that does not fit."""
    if key_map is None:
        return dict(weights)

    try:
        renames = parse_toml(read_text(key_map))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key_map} cannot be read", expected="a key map, in TOML", found=str(error)
        ) from None

    if renames == {"order": True}:
        return _rename_in_order(
            {key: value for key, value in weights.items() if isinstance(value, Tensor)},
            net.state_dict(),
        )
    if not all(isinstance(new, str) for new in renames.values()):
        raise ConfigError(
            f"{key_map} is not a key map",
            expected='"old beginning" = "new beginning", or order = true',
        )

    sources: dict[str, str] = {}  # name in the net -> name in the file
    for key in weights:
        # the longest prefix in the map; "" if there is none, and the name is kept
        old = max(filter(key.startswith, renames), key=len, default="")
        new = renames.get(old, "") + key[len(old) :]
        if new in sources:
            raise ConfigError(
                f"{key_map} gives two weights of the file the same name",
                expected="one weight of the file for each of the net",
                found=f"{sources[new]} and {key} for {new}",
                fix="give the beginning of the superfluous keys another name",
            )
        sources[new] = key

    return {new: weights[key] for new, key in sources.items()}


def _rename_in_order(
    weights: Mapping[str, Tensor], targets: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Rename the weights to the names of the net's own weights (`targets`), pairing them in order.
    Surplus weights are left out with a warning. Raises ConfigError if the kinds (the last word of a
    name, such as "bias") or the shapes of a pair differ, or if there are too few weights.
    """
    pairs = list(zip(weights, targets, strict=False))
    differing = [
        f"{old} {tuple(weights[old].shape)} for {new} {tuple(targets[new].shape)}"
        for old, new in pairs
        if weights[old].shape != targets[new].shape or old.split(".")[-1] != new.split(".")[-1]
    ]
    if differing or len(weights) < len(targets):
        raise ConfigError(
            "the weights cannot be paired in order",
            expected=f"the kinds and shapes of the net's {len(targets)} keys",
            found=f"{len(weights)} keys; {', '.join(differing[:3]) or 'too few'}",
            fix="list the names in the key map",
        )

    if left_out := list(weights)[len(pairs) :]:
        LOG.warning("%d weights were paired in order; left out: %s", len(pairs), examples(left_out))
    return {new: weights[old] for old, new in pairs}


def _is_network(error: BaseException | None) -> bool:
    """Whether an error, or its cause, comes from the network or a hub. It is recognised by words in
    its text, since hubs wrap such errors in OSError and RuntimeError. The last three are in texts
    of transformers, when it gets no file from its hub.
    """
    words = (
        "connect",
        "resolve",
        "offline",
        "network",
        "max retries",
        "timed out",
        "cached files",
        "can't load",
        "valid model",
    )
    while error is not None:
        if any(word in str(error).lower() for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False


def weights_digest(net: nn.Module) -> str:
    """Compute the sha256, as hex digits, of a net's weights and buffers: their names, types, shapes
    and bytes. They are sorted by name, so that the order of building does not matter."""
    digest = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        if not isinstance(value, Tensor):  # a module may keep other values as well
            continue
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        # viewed as bytes, since numpy has no bfloat16
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
