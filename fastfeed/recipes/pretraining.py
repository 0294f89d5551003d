"""Recipes of models that learn from images, pairs of views or captions."""

from __future__ import annotations

from typing import Any

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.ops import (
    ColorJitter,
    GaussianBlur,
    Maybe,
    MultiCrop,
    Normalize,
    RandomCrop,
    RandomFlip,
    RandomGrayscale,
    RandomResizedCrop,
    Resize,
    Solarize,
    ToFloat,
    View,
)
from fastfeed.recipes.shared import TO_ONE, check_side


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
    crop = RandomResizedCrop(check_side("mae_train", size), (0.2, 1.0), filter="bicubic")
    return [crop, RandomFlip(), Normalize.imagenet()]


@checked
def simclr_train(size: int = 224, *, strength: float = 1.0) -> list[Any]:
    """Pretrain by SimCLR: two views of each image, as (n, 2, height, width, 3).

    Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations" (2020);
    google-research/simclr, data_util.py, in the ops of its ports to PyTorch: TensorFlow's contrast
    is around the mean of each channel, its saturation that of HSV, its bicubic filter is not
    antialiased and its ratios are uniform; the blur there has one sigma per batch, and black around
    the image.

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
    side = check_side("simclr_train", size)
    colors = (0.8 * strength, 0.8 * strength, 0.8 * strength, 0.2 * strength)
    blur = Maybe(GaussianBlur(_tenth(side), (0.1, 2.0)), 0.5)
    return [MultiCrop((_view(side, colors, [blur], count=2),)), ToFloat()]


@checked
def byol_train(size: int = 224) -> list[Any]:
    """Pretrain by BYOL: two views of each image, which are blurred and solarized unequally.

    Grill et al., "Bootstrap Your Own Latent" (2020), table 6; deepmind-research,
    byol/utils/augmentations.py, in the ops of its ports to PyTorch: brightness is added there,
    contrast and saturation are TensorFlow's as in SimCLR, and there is black around a blurred
    image. `batch.views` holds both, (n, 1, height, width, 3) each.

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
    side = check_side("byol_train", size)
    blur = GaussianBlur(_tenth(side), (0.1, 2.0))
    colors = (0.4, 0.4, 0.2, 0.1)
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
    side = check_side("dinov2_train", size)
    small = check_side("dinov2_train", local_size)
    if not isinstance(blur, tuple) or len(blur) != 3:
        raise ConfigError.of("dinov2_train blur", "three probabilities", blur)
    first, second, local = (Maybe(GaussianBlur(9, (0.1, 2.0)), p) for p in blur)
    colors = (0.4, 0.4, 0.2, 0.1)
    large = (0.32, 1.0)
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
    crop = RandomResizedCrop(check_side("clip_train", size), (0.9, 1.0), filter="bicubic")
    mean = (0.48145466, 0.4578275, 0.40821073)
    std = (0.26862954, 0.26130258, 0.27577711)
    return [crop, Normalize(mean, std)]


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
        ['Resize', 'RandomFlip', 'RandomCrop', 'Normalize']
    """
    side = check_side("sdxl_train", size)
    flips = [RandomFlip()] if flip else []
    return [Resize(side, filter="lanczos"), *flips, RandomCrop(side), TO_ONE]


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
