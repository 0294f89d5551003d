"""torchvision's v2: its functions with the same values, and its policies with draws of their own.

All take images of Pillow's as well as uint8 CHW tensors. Where a function is slow with what it
computes from its arguments (perspective), that is part of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

torch.set_num_threads(1)
BILINEAR = InterpolationMode.BILINEAR


@cache
def transform(kind: Any, *arguments: Any, **named: Any) -> Any:
    return kind(*arguments, **named)


def jitter(image: Any, op: Any, v: dict[str, Any]) -> Any:
    return transform(v2.ColorJitter, op.brightness, op.contrast, op.saturation, op.hue)(image)


def erase(image: Any, op: Any, v: dict[str, Any]) -> Any:
    if not isinstance(image, torch.Tensor):
        return None  # on tensors alone
    top, left, height, width = (int(one) for one in v["box"])
    if op.fill == "noise":
        fill = torch.randint(0, 256, (3, height, width), dtype=torch.uint8)
    elif op.fill == "color":
        fill = torch.from_numpy(v["color"])[:, None, None]
    else:
        fill = torch.tensor(op.fill, dtype=torch.uint8)[:, None, None]
    return F.erase(image, top, left, height, width, fill)


def blur(image: Any, op: Any, v: dict[str, Any]) -> Any:
    return F.gaussian_blur(image, [op.taps, op.taps], [v["sigma"], v["sigma"]])


def noise(image: Any, op: Any, v: dict[str, Any]) -> Any:
    return (
        F.gaussian_noise(image, 0.0, v["sigma"] / 255) if isinstance(image, torch.Tensor) else None
    )


def jpeg(image: Any, op: Any, v: dict[str, Any]) -> Any:
    return F.jpeg(image, int(v["quality"]))


def rotate(image: Any, op: Any, v: dict[str, Any]) -> Any:
    m = v["matrix"]
    if op.border != "constant":
        return None
    return F.rotate(
        image,
        float(np.degrees(np.arctan2(m[1, 0], m[0, 0]))),
        BILINEAR,
        expand=op.expand,
        fill=list(op.fill),
    )


def affine(image: Any, op: Any, v: dict[str, Any]) -> Any:
    """Turned, moved, scaled and sheared as much as the op does at most: how much costs nothing."""
    share = [12, 8]
    return F.affine(image, op.degrees, share, 1.1, [10.0, 0.0], BILINEAR, fill=list(op.fill))


def perspective(image: Any, op: Any, v: dict[str, Any]) -> Any:
    if op.border != "constant":
        return None
    width, height = F.get_size(image)[::-1]
    corners = np.array([[0, 0, 1], [width, 0, 1], [width, height, 1], [0, height, 1]], float).T
    there = v["matrix"] @ corners
    source = (there[:2] / there[2]).T.round().astype(int).tolist()
    target = [[0, 0], [width, 0], [width, height], [0, height]]
    return F.perspective(image, source, target, BILINEAR, fill=list(op.fill))


def standardized(image: Any, op: Any, v: dict[str, Any]) -> Any:
    if not isinstance(image, torch.Tensor):
        return None
    values = F.to_dtype(image, torch.float32, scale=True)
    return (values - values.mean()) / values.std(correction=0).clamp(min=values.numel() ** -0.5)


OPS = {
    "ElasticTransform": lambda image, op, v: transform(v2.ElasticTransform)(image),
    "Standardize": standardized,
    "Brightness": lambda image, op, v: F.adjust_brightness(image, v["factor"]),
    "Contrast": lambda image, op, v: F.adjust_contrast(image, v["factor"]),
    "Saturation": lambda image, op, v: F.adjust_saturation(image, v["factor"]),
    "Hue": lambda image, op, v: F.adjust_hue(image, v["shift"]),
    "ColorJitter": jitter,
    "Grayscale": lambda image, op, v: F.rgb_to_grayscale(image, 3),
    "ChannelShuffle": lambda image, op, v: transform(v2.RandomChannelPermutation)(image),
    "Solarize": lambda image, op, v: F.solarize(image, v["threshold"]),
    "Posterize": lambda image, op, v: F.posterize(image, int(v["bits"])),
    "Equalize": lambda image, op, v: F.equalize(image),
    "AutoContrast": lambda image, op, v: F.autocontrast(image),
    "Invert": lambda image, op, v: F.invert(image),
    "Gamma": lambda image, op, v: F.adjust_gamma(image, v["gamma"]),
    "Sharpness": lambda image, op, v: F.adjust_sharpness(image, v["factor"]),
    "GaussianBlur": blur,
    "GaussianNoise": noise,
    "JPEGCompression": jpeg,
    "RandomErasing": erase,
    "CutOut": erase,
    "Rotate": rotate,
    "Affine": affine,
    "Perspective": perspective,
    "RandomFlip": lambda image, op, v: F.horizontal_flip(image),
    "RandAugment": lambda image, op, v: transform(v2.RandAugment)(image),
    "TrivialAugmentWide": lambda image, op, v: transform(v2.TrivialAugmentWide)(image),
    "AutoAugment": lambda image, op, v: transform(v2.AutoAugment)(image),
    "AugMix": lambda image, op, v: transform(v2.AugMix)(image),
}
