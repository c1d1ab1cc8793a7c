"""Removes the classifier of a net of torchvision, so that it gives features."""

from collections import OrderedDict

from torch import nn

from hbench.core.errors import ConfigError


def without_classifier(net: nn.Module, pools: bool) -> nn.Module:
    """Remove the last linear layers of a torchvision net, and, from a ResNet, its pooling unless
    that is kept (`pools`). Raises ConfigError for a net without such layers.
    """
    fc = getattr(net, "fc", None)
    if isinstance(fc, nn.Linear) and hasattr(net, "layer4"):  # a ResNet: its parts are in a row
        # their names stay, so that torchvision's own files fit
        children = dict(net.named_children())
        del children["fc"]
        children |= {"flat": nn.Flatten()} if pools else {}
        if not pools:
            del children["avgpool"]
        return nn.Sequential(OrderedDict(children))

    for head in ("fc", "classifier", "heads", "head"):  # as torchvision's families call it
        last = getattr(net, head, None)
        parts = list(last) if isinstance(last, nn.Sequential) else [last]
        linear = next((at for at, part in enumerate(parts) if isinstance(part, nn.Linear)), None)
        if linear is not None:  # what comes before it, such as a norm or a pooling, stays
            setattr(net, head, last[:linear] if isinstance(last, nn.Sequential) else nn.Identity())
            return net

    raise ConfigError(
        "this torchvision model has no classifier to remove",
        fix="use the same net of timm: timm:NAME",
    )
