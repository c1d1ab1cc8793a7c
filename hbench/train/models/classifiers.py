"""Removes the classifier of a torchvision net, so that the net returns features."""

from collections import OrderedDict

from torch import nn

from hbench.core.errors import ConfigError


def without_classifier(net: nn.Module, pools: bool) -> nn.Module:
    """Remove the last linear layers of a torchvision net. The pooling of a ResNet is removed as
    well unless `pools`. Raises ConfigError for a net without such layers.
    """
    fc = getattr(net, "fc", None)
    # a ResNet applies its parts one after another, so they can become a sequence
    if isinstance(fc, nn.Linear) and hasattr(net, "layer4"):
        # keep the names of the parts, so that torchvision's files of weights still fit
        children = dict(net.named_children())
        del children["fc"]
        if pools:
            children["flat"] = nn.Flatten()
        else:
            del children["avgpool"]
        return nn.Sequential(OrderedDict(children))

    for head in ("fc", "classifier", "heads", "head"):  # the names that torchvision's nets use
        last = getattr(net, head, None)
        parts = list(last) if isinstance(last, nn.Sequential) else [last]
        linear = next((at for at, part in enumerate(parts) if isinstance(part, nn.Linear)), None)
        if linear is not None:  # layers before it, such as a norm or a pooling, are kept
            setattr(net, head, last[:linear] if isinstance(last, nn.Sequential) else nn.Identity())
            return net

    raise ConfigError(
        "this torchvision model has no classifier to remove",
        fix="use the same net of timm: timm:NAME",
    )
