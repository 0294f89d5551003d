"""timm's `create_loader` on a feed: its arguments, the same crops, no workers.

    from fastfeed.timm import create_loader  # in place of: from timm.data import create_loader

timm is not imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from fastfeed.arguments import checked
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.feed import Feed
from fastfeed.ops import (
    CenterCrop,
    ColorJitter,
    CutMix,
    GaussianBlur,
    LabelSmoothing,
    Maybe,
    MixUp,
    Normalize,
    OneHot,
    RandAugment,
    RandomChoice,
    RandomErasing,
    RandomFlip,
    RandomGrayscale,
    RandomResizedCrop,
    Resize,
    ToFloat,
    ToLayout,
)
from fastfeed.sampling import Repeated
from fastfeed.sources import Files
from fastfeed.sources.base import Source

__all__ = ["create_loader"]

Pair = tuple[float, float]
Triple = tuple[float, float, float]

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


@checked
def create_loader(
    dataset: Any,
    input_size: int | Sequence[int],
    batch_size: int,
    is_training: bool = False,
    no_aug: bool = False,
    re_prob: float = 0.0,
    re_mode: Literal["const", "rand", "pixel"] = "const",
    re_count: int = 1,
    re_split: bool = False,
    train_crop_mode: str | None = None,
    scale: Pair | None = None,
    ratio: Pair | None = None,
    hflip: float = 0.5,
    vflip: float = 0.0,
    color_jitter: float | Sequence[float] | None = 0.4,
    color_jitter_prob: float | None = None,
    grayscale_prob: float = 0.0,
    gaussian_blur_prob: float = 0.0,
    auto_augment: str | None = None,
    num_aug_repeats: int = 0,
    num_aug_splits: int = 0,
    interpolation: str = "bilinear",
    mean: Sequence[float] = _IMAGENET_MEAN,
    std: Sequence[float] = _IMAGENET_STD,
    num_workers: int = 1,
    distributed: bool = False,
    crop_pct: float | None = None,
    crop_mode: str | None = None,
    crop_border_pixels: int | None = None,
    collate_fn: Callable[..., Any] | None = None,
    pin_memory: bool = False,
    fp16: bool = False,
    img_dtype: Any = None,
    device: Any = None,
    use_prefetcher: bool = True,
    use_multi_epochs_loader: bool = False,
    persistent_workers: bool = True,
    worker_seeding: str = "all",
    tf_preprocessing: bool = False,
    seed: int = 0,
) -> Any:
    """The batches that timm's `create_loader` makes, from a feed.

    Args:
        dataset (Any): A source, or a data set of image files as timm's `create_dataset("", root)`
            and torchvision's `ImageFolder` make it, whose labels are kept.
        input_size (int | Sequence[int]): Height and width: one number, (height, width) or
            (3, height, width), pixels.
        batch_size (int): Samples per rank and step.
        is_training (bool): Shuffled, augmented and without an incomplete last batch; otherwise
            every sample once, in order. Default: False.
        no_aug (bool): Train on resized center crops. Default: False.
        re_prob (float): Probability of random erasing. Default: 0.0.
        re_mode (str): Erased pixels are the mean ("const"), one random color ("rand"), or random
            each ("pixel"). Default: "const".
        re_count (int): Only 1. Default: 1.
        re_split (bool): Only False. Default: False.
        train_crop_mode (str | None): None or "rrc". Default: None.
        scale (tuple[float, float] | None): Areas of random crops. Default: None, (0.08, 1).
        ratio (tuple[float, float] | None): Aspect ratios of random crops. Default: None, (3/4, 4/3).
        hflip (float): Probability of a horizontal flip. Default: 0.5.
        vflip (float): Probability of a vertical flip. Default: 0.0.
        color_jitter (float | Sequence[float] | None): Brightness, contrast and saturation, and hue
            if four. Not with `auto_augment`, unless that has "3a" in it. Default: 0.4.
        color_jitter_prob (float | None): Probability of the jitter. Default: None, always.
        grayscale_prob (float): Probability of a gray image. Default: 0.0.
        gaussian_blur_prob (float): Probability of a blur of 23 pixels. Default: 0.0.
        auto_augment (str | None): timm's RandAugment, such as "rand-m9-mstd0.5-inc1". Default: None.
        num_aug_repeats (int): Each sample so often in a row, in epochs of the same length. Default: 0.
        num_aug_splits (int): Only 0. Default: 0.
        interpolation (str): Filter of resizing; "random" draws "bilinear" or "bicubic" for each
            image. Default: "bilinear".
        mean (Sequence[float]): Per channel, in [0, 1]. Default: (0.485, 0.456, 0.406).
        std (Sequence[float]): Per channel. Default: (0.229, 0.224, 0.225).
        num_workers (int): Without effect, as a feed has threads. Default: 1.
        distributed (bool): Each rank reads its part, not all. Default: False.
        crop_pct (float | None): Part of a resized image that a center crop keeps. Default: None,
            0.875.
        crop_mode (str | None): "center", "squash" or "border". Default: None, "center".
        crop_border_pixels (int | None): Only None. Default: None.
        collate_fn (Callable | None): timm's `FastCollateMixup`, or None. The labels are then shares
            of classes, float32 (n, classes). Default: None.
        pin_memory (bool): Without effect. Default: False.
        fp16 (bool): Images are float16. Default: False.
        img_dtype (torch.dtype | None): Of images. Default: None, float32.
        device (torch.device | str | None): Default: None, this rank's GPU.
        use_prefetcher (bool): Batches arrive on `device`; otherwise they stay on the CPU, in
            float32. Default: True.
        use_multi_epochs_loader (bool): Without effect. Default: False.
        persistent_workers (bool): Without effect. Default: True.
        worker_seeding (str): Without effect. Default: "all".
        tf_preprocessing (bool): Only False. Default: False.
        seed (int): Of order and augmentation. Default: 0.

    Returns:
        What `Feed.to_torch` returns: pairs of images, (n, 3, height, width), and labels.

    Raises:
        ConfigError: If an argument is not available here, with what to write instead.
        MissingExtra: If PyTorch is not installed.

    Example:
        >>> source = ff.Arrays(np.zeros((4, 40, 40, 3), np.uint8), np.arange(4))
        >>> loader = ff.timm.create_loader(source, (3, 32, 32), 2, device="cpu")  # doctest: +SKIP
        >>> [images.shape for images, _ in loader]  # doctest: +SKIP
        [torch.Size([2, 3, 32, 32]), torch.Size([2, 3, 32, 32])]
    """
    del num_workers, pin_memory, use_multi_epochs_loader, persistent_workers, worker_seeding
    _only("re_count", re_count, 1, "erase several times by an ff.RandomErasing each in a Feed")
    _only("re_split", re_split, False, "leave it out")
    _only("num_aug_splits", num_aug_splits, 0, "make views of a sample by ff.View in a Feed")
    _only("train_crop_mode", train_crop_mode or "rrc", "rrc", 'pass "rrc"')
    _only("crop_border_pixels", crop_border_pixels or None, None, "trim the files beforehand")
    _only("tf_preprocessing", tf_preprocessing, False, "leave it out")
    size = _size(input_size)
    random = interpolation == "random"
    if is_training and no_aug:
        ops = _center(size, min(size), "bilinear" if random else interpolation)
    elif is_training:
        ops = [
            RandomResizedCrop(
                size,
                scale or (0.08, 1.0),
                ratio or (3 / 4, 4 / 3),
                ("bilinear", "bicubic") if random else interpolation,
            ),
            RandomFlip(hflip),
            *[RandomFlip(vflip, "vertical")] * (vflip > 0),
            *_policy(auto_augment),
            *_colors(color_jitter, color_jitter_prob, auto_augment),
            *[RandomGrayscale(grayscale_prob)] * (grayscale_prob > 0),
            *[Maybe(GaussianBlur(23), gaussian_blur_prob)] * (gaussian_blur_prob > 0),
            *_erasing(re_prob, re_mode, _bytes(mean)),
        ]
    else:
        ops = _evaluation(size, crop_pct or 0.875, crop_mode or "center", interpolation, mean)
    dtype = "float16" if fp16 else str(img_dtype or "float32").removeprefix("torch.")
    ops += [Normalize(_triple("mean", mean), _triple("std", std))]
    ops += [ToFloat(dtype)] * (use_prefetcher and dtype != "float32")  # type: ignore[arg-type]
    ops += [ToLayout("CHW"), *_mixing(collate_fn)]
    source = _source(dataset)
    order: Any = is_training
    if num_aug_repeats and is_training:
        order = Repeated(num_aug_repeats, together=True, length=len(source))
    feed = Feed(
        source,
        ops,
        batch=batch_size,
        seed=seed,
        world=None if distributed else World(),
        shuffle=order,
        tail="drop" if is_training else "pad",
    )
    return feed.to_torch(device if use_prefetcher else "cpu")


def _only(name: str, value: Any, allowed: Any, advice: str) -> None:
    if value != allowed:
        raise ConfigError.of(f"create_loader {name}", f"{allowed!r} here", value, advice)


def _size(input_size: int | Sequence[int]) -> tuple[int, int]:
    """Parse `input_size` into (height, width)."""
    sides = [input_size] * 2 if isinstance(input_size, int) else list(input_size)
    if len(sides) == 3 and sides[0] == 3:
        sides = sides[1:]
    if len(sides) != 2:
        raise ConfigError.of(
            "create_loader input_size",
            "(3, height, width), (height, width) or one number",
            input_size,
            "images have three channels",
        )
    return int(sides[0]), int(sides[1])


def _triple(name: str, values: Sequence[float]) -> Triple:
    numbers = tuple(map(float, values))
    if len(numbers) != 3:
        raise ConfigError.of(f"create_loader {name}", "three numbers", values)
    return numbers[0], numbers[1], numbers[2]


def _bytes(mean: Sequence[float]) -> tuple[int, int, int]:
    """The mean as a color, what a zero is after Normalize."""
    red, green, blue = (min(255, round(255 * value)) for value in _triple("mean", mean))
    return red, green, blue


def _center(size: tuple[int, int], side: int, filter: str) -> list[Any]:
    """Resize the short side, and cut out the center."""
    return [Resize(side, filter=filter), CenterCrop(size)]


def _evaluation(
    size: tuple[int, int], share: float, mode: str, filter: str, mean: Sequence[float]
) -> list[Any]:
    """The resize and crop of `transforms_imagenet_eval`."""
    larger = math.floor(size[0] / share), math.floor(size[1] / share)
    if mode == "squash":
        return [Resize(larger, filter=filter), CenterCrop(size)]
    if mode == "border":
        return [Resize(larger, filter=filter, fit="pad", fill=_bytes(mean)), CenterCrop(size)]
    if mode != "center":
        raise ConfigError.of("create_loader crop_mode", '"center", "squash" or "border"', mode)
    if larger[0] != larger[1]:
        raise ConfigError(
            f"create_loader with crop_mode={mode!r} needs a square input_size, got {size}; pass"
            ' crop_mode="squash" or "border"',
            field="crop_mode",
        )
    return _center(size, larger[0], filter)


def _policy(text: str | None) -> list[Any]:
    if not text:
        return []
    if not text.startswith("rand"):
        raise ConfigError.of(
            "create_loader auto_augment",
            'a policy like "rand-m9-mstd0.5-inc1"',
            text,
            "put ff.AutoAugment() or ff.AugMix() into a Feed",
        )
    return [RandAugment.from_timm(text)]


def _colors(
    jitter: float | Sequence[float] | None, p: float | None, auto_augment: str | None
) -> list[Any]:
    if jitter is None or (auto_augment and "3a" not in auto_augment):
        return []
    amounts = [jitter] * 3 if isinstance(jitter, (int, float)) else jitter
    op = ColorJitter(*amounts)
    return [op if p is None else Maybe(op, p)]


def _erasing(p: float, mode: str, mean: tuple[int, int, int]) -> list[Any]:
    if p == 0:
        return []
    fills: dict[str, Any] = {"const": mean, "rand": "color", "pixel": "noise"}
    if mode not in fills:
        raise ConfigError.of("create_loader re_mode", '"const", "rand" or "pixel"', mode)
    return [RandomErasing(p, (0.02, 1 / 3), (0.3, 1 / 0.3), fills[mode])]


def _mixing(collate_fn: Any) -> list[Any]:
    """The ops of timm's `FastCollateMixup`."""
    if collate_fn is None:
        return []
    if not hasattr(collate_fn, "mixup_alpha"):
        raise ConfigError.of(
            "create_loader collate_fn",
            "timm's FastCollateMixup or None",
            collate_fn,
            "make fields of batches by ff.Map in a Feed",
        )
    mix = collate_fn
    _only("collate_fn.cutmix_minmax", mix.cutmix_minmax, None, "pass cutmix_alpha")
    per: Any = "batch" if mix.mode == "batch" else "sample"
    kinds = (MixUp, mix.mixup_alpha), (CutMix, mix.cutmix_alpha)
    mixes = [kind(alpha, mix.mix_prob) for kind, alpha in kinds if alpha > 0]
    weights = (1 - mix.switch_prob, mix.switch_prob) if len(mixes) == 2 else None
    one_hot = OneHot(mix.num_classes)
    if mix.label_smoothing:
        one_hot = LabelSmoothing(mix.label_smoothing, mix.num_classes)
    return [RandomChoice(mixes, weights, per), one_hot]


def _source(dataset: Any) -> Source:
    """The source of a data set of image files; sources stay as they are."""
    if hasattr(dataset, "fingerprint"):
        return dataset
    samples = getattr(getattr(dataset, "reader", dataset), "samples", None)
    if not isinstance(samples, list) or not all(isinstance(path, str) for path, *_ in samples):
        raise ConfigError(
            "create_loader needs a data set of image files, or a source of fastfeed, got"
            f" {type(dataset).__name__}; pass ff.TarShards(...), ff.TFRecords(...),"
            " ff.HuggingFace(...) or the like, or ff.Mapped(dataset)",
            field="dataset",
        )
    if getattr(dataset, "target_transform", None) is not None:
        raise ConfigError(
            "create_loader takes labels from the data set's list, and not through its"
            " target_transform; pass ff.Files(paths, labels) with the labels that it makes",
            field="dataset",
        )
    return Files([path for path, *_ in samples], [label for _, label, *_ in samples])
