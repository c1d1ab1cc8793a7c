"""Builds torchvision's Faster R-CNN with a different loss of the classifier."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import ResNet50_Weights, ResNet101_Weights
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN, resnet_fpn_backbone
from torchvision.models.detection.roi_heads import RoIHeads, fastrcnn_loss
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.ops import FrozenBatchNorm2d as Frozen
from torchvision.ops import MultiScaleRoIAlign

from hbench.losses.baselines.rambo import RamboClasses
from hbench.train.models.backbone import PRETRAINED
from hbench.train.models.libraries import timm_backbone
from hbench.train.models.weights import with_fetched_weights
from hbench_detection.recipe import DetectionRecipe

WEIGHTS = {"resnet50": ResNet50_Weights.IMAGENET1K_V1, "resnet101": ResNet101_Weights.IMAGENET1K_V1}
RESNEXT = "resnext101_32x4d.gluon_in1k"
LAYERS = ("conv1", "layer1", "layer2", "layer3", "layer4")
TRAINED = ("layer2", "layer3", "layer4")  # in a pretrained net, torchvision's default
# logits (n, 1 + C) of regions, their classes (n,) with 0 for the background -> scalar loss
ClassLoss = Callable[[Tensor, Tensor], Tensor]


class RankedHeads(RoIHeads):  # type: ignore[misc]
    """The heads of torchvision's Faster R-CNN, with `class_loss` as the loss of the classifier."""

    class_loss: ClassLoss

    def forward(
        self, features: Any, proposals: Any, image_shapes: Any, targets: Any = None
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        """Run torchvision's box head; during training, replace its class loss.

        The arguments are torchvision's: feature maps, proposed boxes and the sizes of the images.
        `targets` are the objects, during training only.
        """
        if not self.training:
            found: tuple[list[dict[str, Tensor]], dict[str, Tensor]] = super().forward(
                features, proposals, image_shapes
            )
            return found
        # a sample of the proposed boxes, each with the class (0: background) and the offsets of the
        # object that it matches; lists of a tensor for each image
        proposals, _, classes, offsets = self.select_training_samples(proposals, targets)
        shared = self.box_head(self.box_roi_pool(features, proposals, image_shapes))
        logits, boxes = self.box_predictor(shared)
        _cross_entropy, regression = fastrcnn_loss(logits, boxes, classes, offsets)
        return [], {
            # in place of the cross-entropy, the loss of the logits (n, 1 + C) of all sampled boxes
            "loss_classifier": self.class_loss(logits, torch.cat(classes)),
            "loss_box_reg": regression,
        }


class ClassifierRankLoss(nn.Module):
    """RaMBO's AP losses, applied to the log-probabilities log p(c | region), by which the
    detections of a class are ranked at test time.

    The background is not ranked as a class of its own ([R] §4.6, §5.2).
    """

    def __init__(self, loss: nn.Module) -> None:
        """`loss` takes scores and targets, each (detections, classes)."""
        super().__init__()
        self.loss = loss

    def forward(self, logits: Tensor, classes: Tensor) -> Tensor:
        """Compute the loss of logits (n, 1 + C) of regions with classes (n,); class 0 is the
        background."""
        scores = logits.float().log_softmax(dim=1)[:, 1:]  # (n, C)
        targets = classes[:, None] == torch.arange(1, logits.shape[1], device=logits.device)
        loss: Tensor = self.loss(scores, targets)
        return loss


def detector_of(recipe: DetectionRecipe) -> FasterRCNN:
    """Build the detector of a recipe. Raises DataError where the weights of its backbone cannot be
    downloaded."""
    outputs = len(recipe.classes) + 1  # with the background
    settings = {
        "min_size": recipe.shorter,
        "max_size": recipe.longer,
        "box_score_thresh": recipe.least_score,
    }
    build = BUILDERS.get(recipe.backbone, _resnet)  # for a ResNet of torchvision
    model = build(recipe, outputs, settings)
    chosen = recipe.classification
    if chosen.loss == "rambo":
        parameters = chosen.model_dump(exclude={"loss"})
        # torchvision has made the parts of the heads; only their forward pass is replaced
        model.roi_heads.__class__ = RankedHeads
        model.roi_heads.class_loss = ClassifierRankLoss(RamboClasses(**parameters))
    return model


def resnext_body() -> ResNet:
    """Build ResNeXt-101 32×4d without its classifier and with frozen batch norms. torchvision can
    build this net but has no weights for it; the parameters have timm's names."""
    body = ResNet(Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=4, norm_layer=Frozen)
    body.fc = nn.Identity()
    return body


def _resnext(recipe: DetectionRecipe, outputs: int, settings: dict[str, Any]) -> FasterRCNN:
    """Build a detector on ResNeXt-101 32×4d, with timm's weights if the recipe asks for pretrained
    ones.

    `outputs` is the number of classes including the background; `settings` are further arguments of
    FasterRCNN.
    """
    body = resnext_body()
    pretrained = recipe.weights == "imagenet"
    if pretrained:
        # pooling has no weights, so either way of it gives these
        body.load_state_dict(timm_backbone(RESNEXT, PRETRAINED, pools=True).net.state_dict())

    # Prefixes of the names of the layers that are trained: all LAYERS of a net with random weights.
    # Of a pretrained net, the first two (conv1, layer1) stay frozen.
    trained = TRAINED if pretrained else LAYERS
    for name, parameter in body.named_parameters():
        parameter.requires_grad_(name.startswith(trained))
    # the layers whose outputs the feature pyramid uses, with the names that it gives them, and
    # their widths; 256 is the width of its own maps, as in torchvision's detectors
    layers = {f"layer{depth}": str(depth - 1) for depth in (1, 2, 3, 4)}
    backbone = BackboneWithFPN(body, layers, [256, 512, 1024, 2048], 256)
    return FasterRCNN(backbone, outputs, **settings)


def _resnet(recipe: DetectionRecipe, outputs: int, settings: dict[str, Any]) -> FasterRCNN:
    """Build torchvision's detector on a ResNet. The first two layers of a pretrained ResNet stay
    frozen; one with random weights is trained whole.

    `outputs` is the number of classes including the background; `settings` are further arguments of
    FasterRCNN.
    """
    weights = WEIGHTS[recipe.backbone] if recipe.weights == "imagenet" else None
    # where torchvision looks for weights that a user has downloaded, for the error message
    where = str(Path(torch.hub.get_dir()) / "checkpoints")
    backbone = with_fetched_weights(
        lambda: resnet_fpn_backbone(
            backbone_name=recipe.backbone,
            weights=weights,
            trainable_layers=len(TRAINED) if weights else len(LAYERS),
        ),
        recipe.backbone,
        where,
    )
    return FasterRCNN(backbone, outputs, **settings)


def _small(_recipe: DetectionRecipe, outputs: int, settings: dict[str, Any]) -> FasterRCNN:
    """Build a detector with a few convolutions for 64-pixel images. It is meant for trying a recipe
    and for tests, not for results.

    `outputs` is the number of classes including the background; `settings` are further arguments of
    FasterRCNN.
    """
    widths = (3, 16, 32, 48)
    layers = [
        layer
        for before, after in pairwise(widths)
        for layer in (
            nn.Conv2d(before, after, 3, stride=2, padding=1),
            nn.GroupNorm(4, after),
            nn.ReLU(),
        )
    ]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = widths[-1]  # type: ignore[assignment]

    return FasterRCNN(
        backbone,
        rpn_anchor_generator=AnchorGenerator(sizes=((16, 24),), aspect_ratios=((0.5, 1.0, 2.0),)),
        box_roi_pool=MultiScaleRoIAlign(featmap_names=["0"], output_size=5, sampling_ratio=2),
        # of 5 × 5 places of every box, as the pooling above has
        box_head=nn.Sequential(nn.Flatten(), nn.Linear(widths[-1] * 25, 64), nn.ReLU()),
        box_predictor=_Predictor(64, outputs),
        # numbers of proposals, sampled boxes and detections, far below torchvision's defaults
        rpn_pre_nms_top_n_train=200,
        rpn_post_nms_top_n_train=60,
        rpn_pre_nms_top_n_test=200,
        rpn_post_nms_top_n_test=40,
        box_batch_size_per_image=48,
        box_detections_per_img=20,
        **settings,
    )


class _Predictor(nn.Module):
    """Predicts logits (n, 1 + C) and box offsets (n, 4 (1 + C)) of regions from their features (n,
    width)."""

    def __init__(self, width: int, outputs: int) -> None:
        """`outputs` is the number of classes including the background; each output has its own
        box."""
        super().__init__()
        self.logits = nn.Linear(width, outputs)
        self.offsets = nn.Linear(width, 4 * outputs)

    def forward(self, shared: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits and the offsets of n regions from their features (n, width)."""
        return self.logits(shared), self.offsets(shared)


# backbone -> a function from the recipe, the number of classes with the background, and arguments
# of FasterRCNN to the detector; other backbones are torchvision's and built by `_resnet`
BUILDERS: dict[str, Callable[[DetectionRecipe, int, dict[str, Any]], FasterRCNN]] = {
    "small": _small,
    "resnext101_32x4d": _resnext,
}
