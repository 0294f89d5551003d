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
    Brightness,
    ChannelShuffle,
    ColorJitter,
    Contrast,
    GaussianBlur,
    Grayscale,
    Hue,
    IoUCrop,
    Maybe,
    MultiCrop,
    Normalize,
    OneOf,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomGrayscale,
    RandomResize,
    RandomResizedCrop,
    Resize,
    Saturation,
    Sequential,
    Solarize,
    ToFloat,
    View,
    ZoomOut,
)
from fastfeed.ops.base import check_p, check_size
from fastfeed.ops.evaluation import evaluation
from fastfeed.ops.function import as_op

__all__ = [
    "byol_train",
    "cifar_train",
    "clip_train",
    "deit3_train",
    "dinov2_train",
    "face_train",
    "imagenet_eval",
    "imagenet_train",
    "mae_train",
    "mask2former_train",
    "reid_train",
    "sdxl_train",
    "simclr_train",
    "ssd_train",
    "stock_photo_train",
]

_TO_ONE = Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))  # from -1 to 1
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
    crop = RandomResizedCrop(_side("imagenet_train", size))
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
    colors = _policy_ops("stock_photo_train", policy) or [ColorJitter(0.2, 0.2, 0.2)]
    return [crop, RandomFlip(), *colors, _TO_ONE]


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
    side = _side("deit3_train", size)
    crops: list[Any] = [RandomResizedCrop(side, filter="bicubic")]
    if whole:
        crops = [Resize(side, filter="bicubic"), RandomCrop(side, padding=4, mode="reflect")]
    one = OneOf([Grayscale(), Solarize(128), GaussianBlur(sigma=(0.1, 2.0))])
    colors = ColorJitter(jitter, jitter, jitter)
    return [*crops, RandomFlip(), one, *([colors] if jitter else []), Normalize.imagenet()]


@checked
def mae_train(size: int = 224) -> list[Any]:
    """Pretrain a masked autoencoder: a crop of a fifth or more, mirrored or not.

    He et al., "Masked Autoencoders Are Scalable Vision Learners" (2021); facebookresearch/mae,
    main_pretrain.py.

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 224.

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If `size` is out of range.

    Example:
        >>> ff.recipes.mae_train()[0].scale
        (0.2, 1.0)
    """
    crop = RandomResizedCrop(_side("mae_train", size), (0.2, 1.0), filter="bicubic")
    return [crop, RandomFlip(), Normalize.imagenet()]


@checked
def simclr_train(size: int = 224, *, strength: float = 1.0) -> list[Any]:
    """Pretrain by SimCLR: two views of each image, as (n, 2, height, width, 3).

    Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations" (2020);
    google-research/simclr, data_util.py, but contrast is around the mean gray, as Pillow's.

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 224.
        strength (float): Factor of the color jitter, in [0, 2.5]; 0.5 for CIFAR. Default: 1.0.

    Returns:
        A list of ops, which ends with float32 HWC in 0..1.

    Raises:
        ConfigError: If a value is out of range.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((2, 40, 40, 3), np.uint8)), ff.recipes.simclr_train(32), batch=2)
        >>> next(iter(feed)).images.shape
        (2, 2, 32, 32, 3)
    """
    side = _side("simclr_train", size)
    colors = (0.8 * strength, 0.8 * strength, 0.8 * strength, 0.2 * strength)
    blur = Maybe(GaussianBlur(_tenth(side), (0.1, 2.0)), 0.5)
    return [MultiCrop((_view(side, colors, [blur], count=2),)), ToFloat()]


@checked
def byol_train(size: int = 224) -> list[Any]:
    """Pretrain by BYOL: two views of each image, which are blurred and solarized unequally.

    Grill et al., "Bootstrap Your Own Latent" (2020), table 6; deepmind-research,
    byol/utils/augmentations.py, where brightness is added. `batch.views` holds both, (n, 1, height,
    width, 3) each.

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 224.

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If `size` is out of range.

    Example:
        >>> [len(view.ops) for view in ff.recipes.byol_train()[0].views]
        [4, 5]
    """
    side = _side("byol_train", size)
    blur, colors = GaussianBlur(_tenth(side), (0.1, 2.0)), (0.4, 0.4, 0.2, 0.1)
    second = _view(side, colors, [Maybe(blur, 0.1), Maybe(Solarize(128), 0.2)])
    return [MultiCrop((_view(side, colors, [blur]), second)), Normalize.imagenet()]


@checked
def dinov2_train(
    size: int = 224,
    *,
    local_size: int = 96,
    local_count: int = 8,
    blur: tuple[float, float, float] = (0.0, 0.9, 0.5),
) -> list[Any]:
    """Pretrain by DINOv2: two large views and several small ones of each image.

    Oquab et al., "DINOv2" (2023); facebookresearch/dinov2, data/augmentations.py and
    configs/ssl_default_config.yaml. `batch.views` holds the first and second large view, (n, 1,
    size, size, 3), and the small ones, (n, local_count, local_size, local_size, 3).

    Args:
        size (int): Height and width of large views, in [1, 65535] pixels. Default: 224.
        local_size (int): That of small views. Default: 96.
        local_count (int): Small views per image, in [1, 64]. Default: 8.
        blur (tuple[float, float, float]): Probability that the first, the second and the small
            views are blurred. The default is that of the published code, whose `p` is the share
            that is left as it is; DINO's paper has (1.0, 0.1, 0.5). Default: (0.0, 0.9, 0.5).

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If a value is out of range.

    Example:
        >>> [(view.size, view.count) for view in ff.recipes.dinov2_train()[0].views]
        [(224, 1), (224, 1), (96, 8)]
    """
    side, small = _side("dinov2_train", size), _side("dinov2_train", local_size)
    if not isinstance(blur, tuple) or len(blur) != 3:
        raise ConfigError.of("dinov2_train blur", "three probabilities", blur)
    first, second, local = (Maybe(GaussianBlur(9, (0.1, 2.0)), p) for p in blur)
    colors, large = (0.4, 0.4, 0.2, 0.1), (0.32, 1.0)
    views = (
        _view(side, colors, [first], large),
        _view(side, colors, [second, Maybe(Solarize(128), 0.2)], large),
        _view(small, colors, [local], (0.05, 0.32), local_count),
    )
    return [MultiCrop(views), Normalize.imagenet()]


@checked
def clip_train(size: int = 224) -> list[Any]:
    """Train on images and captions as CLIP: nearly the whole image, not mirrored.

    Radford et al., "Learning Transferable Visual Models From Natural Language Supervision" (2021);
    mlfoundations/open_clip, transform.py and constants.py.

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 224.

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If `size` is out of range.

    Example:
        >>> ff.recipes.clip_train()[0].scale
        (0.9, 1.0)
    """
    crop = RandomResizedCrop(_side("clip_train", size), (0.9, 1.0), filter="bicubic")
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    return [crop, Normalize(mean, std)]


@checked
def mask2former_train(
    size: int = 1024, *, scale: tuple[float, float] = (0.1, 2.0), flip: bool = True
) -> list[Any]:
    """Train instance or panoptic segmentation with large-scale jitter, as Mask2Former on COCO.

    Cheng et al., "Masked-attention Mask Transformer for Universal Image Segmentation" (2022);
    facebookresearch/Mask2Former, coco_instance_new_baseline_dataset_mapper.py, with detectron2's
    `ResizeScale` and `FixedSizeCrop`. Boxes, keypoints and masks follow; the border is no object's.

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 1024.
        scale (tuple[float, float]): Lowest and highest factor of `size`, into which the image fits.
            Default: (0.1, 2.0).
        flip (bool): Mirror half of the images. Default: True.

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If a value is out of range.

    Example:
        >>> [type(op).__name__ for op in ff.recipes.mask2former_train()]
        ['RandomFlip', 'RandomResize', 'RandomCrop', 'Normalize']
    """
    side = _side("mask2former_train", size)
    cut = RandomCrop(side, fill=(128, 128, 128), pad_if_needed="corner")
    flips = [RandomFlip()] if flip else []
    return [*flips, RandomResize(side, scale=scale), cut, Normalize.imagenet()]


@checked
def sdxl_train(size: int = 1024, *, flip: bool = False) -> list[Any]:
    """Train Stable Diffusion XL: the short side scaled, a random square, values in -1..1.

    huggingface/diffusers, examples/text_to_image/train_text_to_image_sdxl.py. The sizes and corners
    that condition the model come with `Feed(..., to_original=True)`.

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 1024.
        flip (bool): Mirror half of the images (`--random_flip`). Default: False.

    Returns:
        A list of ops, which ends with float32 HWC.

    Raises:
        ConfigError: If a value is out of range.

    Example:
        >>> [type(op).__name__ for op in ff.recipes.sdxl_train(flip=True)]
        ['Resize', 'RandomCrop', 'RandomFlip', 'Normalize']
    """
    side = _side("sdxl_train", size)
    crops = [Resize(side, filter="lanczos"), RandomCrop(side)]
    return [*crops, *([RandomFlip()] if flip else []), _TO_ONE]


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
    side = _side("face_train", size)
    return [Resize((side, side)), RandomFlip(), _TO_ONE]


@checked
def reid_train(size: tuple[int, int] = (256, 128)) -> list[Any]:
    """Train re-identification of persons: shifted by up to ten pixels, mirrored, partly hidden.

    Luo et al., "Bag of Tricks and A Strong Baseline for Deep Person Re-identification" (2019);
    michuanhaohao/reid-strong-baseline, data/transforms. The hidden rectangle has the color that its
    code gives it, 0.485, 0.456, 0.406 after `Normalize`.

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
    hide = RandomErasing(0.5, (0.02, 0.4), (0.3, 1 / 0.3), fill=(152, 142, 127))
    moves = [Resize(size), RandomFlip(), RandomCrop(size, padding=10)]
    return [*moves, hide, Normalize.imagenet()]


@checked
def ssd_train(size: int = 300) -> list[Any]:
    """Train SSD on a source with boxes: zoomed out, cropped around objects, colors distorted.

    Liu et al., "SSD: Single Shot MultiBox Detector" (2016); torchvision's references/detection,
    presets.py. Colors are distorted last, since that takes images of one size.

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 300.

    Returns:
        A list of ops, which ends with float32 HWC, as SSD300_VGG16's weights expect it.

    Raises:
        ConfigError: If `size` is out of range.

    Example:
        >>> ff.recipes.ssd_train()[0]
        ZoomOut(p=0.5, scale=(1.0, 4.0), fill=(123, 117, 104))
    """
    side = _side("ssd_train", size)
    moves = [ZoomOut(fill=(123, 117, 104)), IoUCrop(), RandomFlip(), Resize((side, side))]
    contrast, *colors = (Maybe(op, 0.5) for op in (Contrast(0.5), Saturation(0.5), Hue(0.05)))
    either = OneOf([Sequential([contrast, *colors]), Sequential([*colors, contrast])])
    values = Normalize((0.48235, 0.45882, 0.40784), (1 / 255, 1 / 255, 1 / 255))
    return [*moves, Maybe(Brightness(0.125), 0.5), either, Maybe(ChannelShuffle(), 0.5), values]


def _view(
    side: int,
    colors: tuple[float, float, float, float],
    ops: list[Any],
    scale: tuple[float, float] = (0.08, 1.0),
    count: int = 1,
) -> View:
    """Views of self-supervised learning: mirrored, jittered and gray, then `ops`."""
    changes = [RandomFlip(), Maybe(ColorJitter(*colors), 0.8), RandomGrayscale(0.2), *ops]
    return View(side, count, scale, ops=changes, filter="bicubic")


def _tenth(side: int) -> int:
    return side // 10 // 2 * 2 + 1  # of the image, as wide as SimCLR's blur


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
