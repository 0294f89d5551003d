"""Recipes of detectors and of segmentation: ops that move boxes and masks."""

from __future__ import annotations

from typing import Any

from fastfeed.arguments import checked
from fastfeed.ops import (
    Brightness,
    ChannelShuffle,
    Contrast,
    Hue,
    IoUCrop,
    Maybe,
    Mosaic,
    Normalize,
    OneOf,
    RandomCrop,
    RandomFlip,
    RandomResize,
    Resize,
    Saturation,
    Sequential,
    ToFloat,
    ZoomOut,
)
from fastfeed.recipes.shared import check_side


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
    side = check_side("mask2former_train", size)
    cut = RandomCrop(side, fill=(128, 128, 128), pad_if_needed="corner")
    flips = [RandomFlip()] if flip else []
    return [*flips, RandomResize(side, scale=scale), cut, Normalize.imagenet()]


@checked
def ssd_train(size: int = 300) -> list[Any]:
    """Train SSD on a source with boxes: zoomed out, cropped around objects, colors distorted.

    Liu et al., "SSD: Single Shot MultiBox Detector" (2016); torchvision's references/detection,
    presets.py, with the resize and the values of its model. Colors are distorted last, canvas and
    all, since that takes images of one size; there they are distorted first. Pass
    `Objects(min_visible=...)` for which objects a crop keeps: there, those whose center is inside.

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
    side = check_side("ssd_train", size)
    moves: list[Any] = [ZoomOut(fill=(123, 117, 104)), IoUCrop(), RandomFlip()]
    moves += [Resize((side, side), filter="linear")]
    contrast, *colors = (Maybe(op, 0.5) for op in (Contrast(0.5), Saturation(0.5), Hue(0.05)))
    either = OneOf([Sequential([contrast, *colors]), Sequential([*colors, contrast])])
    values = Normalize((0.48235, 0.45882, 0.40784), (1 / 255, 1 / 255, 1 / 255))
    return [*moves, Maybe(Brightness(0.125), 0.5), either, Maybe(ChannelShuffle(), 0.5), values]


@checked
def yolo_train(size: int = 640, *, off_epoch: int | None = None) -> list[Any]:
    """Train YOLO on a source with boxes: letterboxed, four images in one, colors jittered.

    Bochkovskiy et al., "YOLOv4" (2020); ultralytics, data/augment.py and cfg/default.yaml. Each
    image is mirrored and colored by itself; there, the four together are. What else differs is in
    docs/augmentations.md.

    Args:
        size (int): Height and width, in [1, 65535] pixels. Default: 640.
        off_epoch (int | None): The first epoch without mosaics: the number of epochs - 10, as
            `close_mosaic=10`. None: they never end. Default: None.

    Returns:
        A list of ops, which ends with float32 HWC in [0, 1].

    Raises:
        ConfigError: If a value is out of range.

    Example:
        >>> ff.recipes.yolo_train(off_epoch=90)[-1]
        Mosaic(p=1.0, center=(0.25, 0.75), per='sample', off_epoch=90)
    """
    side = check_side("yolo_train", size)
    letterbox = Resize((side, side), fit="pad", filter="linear", fill=(114, 114, 114))
    colors = [Hue(0.015), Saturation(0.7), Brightness(0.4)]
    mosaic = Mosaic(1.0, (0.25, 0.75), off_epoch=off_epoch)
    return [letterbox, RandomFlip(), *colors, ToFloat(), mosaic]
