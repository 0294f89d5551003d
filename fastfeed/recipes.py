"""Proven lists of ops: print one, edit it, pass it on.

    ops = fastfeed.recipes.imagenet_train(224)
    ops.insert(2, fastfeed.RandAugment())
    feed = fastfeed.Feed(source, ops, batch=256)

They end with float32 HWC, as Keras and JAX take it; add `ToLayout("CHW")` for PyTorch. A `policy`
is any op that changes pixels, or several of them in a `Sequential`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.ops import (
    ColorJitter,
    Normalize,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomResizedCrop,
)
from fastfeed.ops.base import check_p, check_size
from fastfeed.ops.evaluation import evaluation
from fastfeed.ops.function import as_op

__all__ = ["cifar_train", "imagenet_eval", "imagenet_train", "stock_photo_train"]

_MEAN = (124, 116, 104)  # ImageNet's mean in bytes: what a zero is after Normalize.imagenet()


@checked
def imagenet_train(size: int = 224, *, policy: Any = None, erase: float = 0.0) -> list[Any]:
    """Train an ImageNet classifier: a random crop, mirrored or not.

    torchvision's `references/classification` (presets.py, ClassificationPresetTrain). The recipe of
    its newer weights is policy=TrivialAugmentWide(), erase=0.1; that of its MobileNetV3
    policy=AutoAugment(), erase=0.2.

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 224.
        policy (Op | Callable | None): What is done to the crop's pixels, such as `RandAugment()`;
            several as one `Sequential`. Default: None, nothing.
        erase (float): Probability that a random rectangle is hidden, in [0, 1]. Default: 0.0.

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If a value is out of range, or `policy` does not change pixels.

    Example:
        >>> [type(op).__name__ for op in ff.recipes.imagenet_train(224)]
        ['RandomResizedCrop', 'RandomFlip', 'Normalize']
    """
    check_p("imagenet_train erase", erase)
    erasing = [RandomErasing(erase, fill=_MEAN)] if erase else []
    crop = RandomResizedCrop(_side("imagenet_train", size))
    return [
        crop,
        RandomFlip(),
        *_policy_ops("imagenet_train", policy),
        *erasing,
        Normalize.imagenet(),
    ]


@checked
def imagenet_eval(size: int = 224) -> list[Any]:
    """Evaluate an ImageNet classifier: the middle of the image, with the usual margin of 1/8.

    224 is cut from a short side of 256, 299 from 342: torchvision's `references/classification`
    (presets.py, ClassificationPresetEval).

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 224.

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If `size` is out of range.

    Example:
        >>> for op in ff.recipes.imagenet_eval(224):
        ...     print(op)
        Resize(size=256, filter='bilinear')
        CenterCrop(size=224)
        Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    """
    return evaluation([RandomResizedCrop(_side("imagenet_eval", size)), Normalize.imagenet()])


@checked
def cifar_train(*, policy: Any = None) -> list[Any]:
    """Train on CIFAR-10 or CIFAR-100: shifted by up to four pixels, randomly flipped.

    He et al., "Deep Residual Learning for Image Recognition" (2015), section 4.2. Mean and
    deviation are CIFAR-10's.

    Args:
        policy (Op | Callable | None): What is done to the crop's pixels, such as
            `AutoAugment("cifar10")`. Default: None, nothing.

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If `policy` does not change pixels.

    Example:
        >>> [type(op).__name__ for op in ff.recipes.cifar_train()]
        ['RandomCrop', 'RandomFlip', 'Normalize']
    """
    normalize = Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    return [RandomCrop(32, padding=4), RandomFlip(), *_policy_ops("cifar_train", policy), normalize]


@checked
def stock_photo_train(size: int = 299, *, policy: Any = None) -> list[Any]:
    """Fine-tune on large photographs with gentle crops and colors, never upside down.

    A crop keeps a third of the photograph or more, so that the landmark stays visible; hues are
    kept because they distinguish stone from brick. Values are in [-1, 1], as Inception's and
    Xception's weights expect them.

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 299.
        policy (Op | Callable | None): What is done to the crop's pixels. Default: None, a jitter of
            brightness, contrast and saturation by 0.2.

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If `size` is out of range, or `policy` does not change pixels.

    Example:
        >>> [type(op).__name__ for op in ff.recipes.stock_photo_train(299)]
        ['RandomResizedCrop', 'RandomFlip', 'ColorJitter', 'Normalize']
    """
    crop = RandomResizedCrop(_side("stock_photo_train", size), scale=(0.35, 1.0))
    colors = _policy_ops("stock_photo_train", policy) or [
        ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2)
    ]
    return [crop, RandomFlip(), *colors, Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))]


def _side(name: str, size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
        raise ConfigError.of(f"{name} size", "an int, the side of a square in pixels", size)
    return check_size(name, size)[0]


def _policy_ops(name: str, policy: Any) -> list[Any]:
    op = as_op(policy)
    if op is not None and (isinstance(op, type) or getattr(op, "kind", None) != "change"):
        what = (
            f"the class {op.__name__}; write {op.__name__}()" if isinstance(op, type) else repr(op)
        )
        more = "; write several as one: Sequential([...])" if isinstance(op, (list, tuple)) else ""
        raise ConfigError(
            f"{name} policy must be an op that changes pixels, such as RandAugment(), got"
            f" {what}{more}",
            field="policy",
        )
    return [] if op is None else [op]
