"""Recipes of classifiers: whole images, or crops, and color changes."""

from __future__ import annotations

from typing import Any

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.ops import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    Normalize,
    OneOf,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    Solarize,
)
from fastfeed.ops.base import check_p, check_size
from fastfeed.ops.evaluation import evaluation
from fastfeed.ops.function import as_op
from fastfeed.recipes.shared import TO_ONE, check_side

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
    changes = _policy_ops("imagenet_train", policy)
    changes += [RandomErasing(erase, fill=_MEAN)] if erase else []
    crop = RandomResizedCrop(check_side("imagenet_train", size))
    return [crop, RandomFlip(), *changes, Normalize.imagenet()]


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
    return evaluation([RandomResizedCrop(check_side("imagenet_eval", size)), Normalize.imagenet()])


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
    crop = RandomResizedCrop(check_side("stock_photo_train", size), scale=(0.35, 1.0))
    colors = _policy_ops("stock_photo_train", policy) or [ColorJitter(0.2, 0.2, 0.2)]
    return [crop, RandomFlip(), *colors, TO_ONE]


@checked
def deit3_train(size: int = 224, *, jitter: float = 0.3, whole: bool = False) -> list[Any]:
    """Train a vision transformer by DeiT III's 3-Augment: gray, solarized or blurred.

    Touvron et al., "DeiT III" (2022); facebookresearch/deit, augment.py. The blur is Gaussian with
    a sigma from 0.1 to 2, without a limit of its width as in Pillow.

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 224.
        jitter (float): Brightness, contrast and saturation of `ColorJitter`. Default: 0.3.
        whole (bool): The simple random crop (`--src`) in place of the random resized one: scale the
            short side, pad by 4 pixels, crop. Default: False.

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If a value is out of range.

    Example:
        >>> [type(op).__name__ for op in ff.recipes.deit3_train(224)]
        ['RandomResizedCrop', 'RandomFlip', 'OneOf', 'ColorJitter', 'Normalize']
    """
    side = check_side("deit3_train", size)
    crops: list[Any] = [RandomResizedCrop(side, filter="bicubic")]
    if whole:
        crops = [Resize(side, filter="bicubic"), RandomCrop(side, padding=4, mode="reflect")]
    one = OneOf([Grayscale(), Solarize(128), GaussianBlur(sigma=(0.1, 2.0))])
    colors = ColorJitter(jitter, jitter, jitter)
    return [*crops, RandomFlip(), one, *([colors] if jitter else []), Normalize.imagenet()]


@checked
def face_train(size: int = 112) -> list[Any]:
    """Train face recognition on aligned faces, which are mirrored and nothing else.

    Deng et al., "ArcFace" (2018); deepinsight/insightface, recognition/arcface_torch/dataset.py.

    Args:
        size (int): Height and width, in [1, 65535] pixels; aligned faces of that size are not
            scaled. Default: 112.

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If `size` is out of range.

    Example:
        >>> [type(op).__name__ for op in ff.recipes.face_train()]
        ['Resize', 'RandomFlip', 'Normalize']
    """
    side = check_side("face_train", size)
    return [Resize((side, side)), RandomFlip(), TO_ONE]


@checked
def reid_train(size: tuple[int, int] = (256, 128)) -> list[Any]:
    """Train re-identification of persons: shifted by up to ten pixels, mirrored, partly hidden.

    Luo et al., "Bag of Tricks and A Strong Baseline for Deep Person Re-identification" (2019);
    michuanhaohao/reid-strong-baseline, data/transforms. The hidden rectangle has the color that its
    code gives it, 0.485, 0.456, 0.406 after `Normalize`, and mostly stands upright, as there.

    Args:
        size (tuple[int, int]): (height, width), in [1, 65535] pixels. Default: (256, 128).

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If `size` is out of range.

    Example:
        >>> [type(op).__name__ for op in ff.recipes.reid_train()]
        ['Resize', 'RandomFlip', 'RandomCrop', 'RandomErasing', 'Normalize']
    """
    size = check_size("reid_train", size)
    hide = RandomErasing(0.5, (0.02, 0.4), (0.3, 1 / 0.3), fill=(152, 142, 127), log_ratio=False)
    moves = [Resize(size), RandomFlip(), RandomCrop(size, padding=10)]
    return [*moves, hide, Normalize.imagenet()]


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
