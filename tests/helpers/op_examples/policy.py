"""Examples of policies, for the laws of every op; and what AugMix means, by Pillow and a sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from fastfeed.ops.augmix import AugMix
from fastfeed.ops.base import shade
from fastfeed.ops.color import Brightness, Contrast, Saturation
from fastfeed.ops.filters import Sharpness
from fastfeed.ops.levels import AutoContrast, Equalize, Invert, Posterize, Solarize
from fastfeed.ops.policy import AutoAugment, RandAugment, TrivialAugmentWide
from fastfeed.ops.timm_policy import TimmRandAugment
from fastfeed.ops.warp import Affine
from helpers.meaning import AFTER_EACH_OTHER, Meaning

EXAMPLES = {
    RandAugment: [RandAugment(), RandAugment(3, 14, 20, "bilinear", (120, 110, 100))],
    TimmRandAugment: [
        TimmRandAugment(),
        TimmRandAugment("rand-m9-n3-p1-mstd101-tweights", "nearest", (1, 2, 3)),
        TimmRandAugment("rand-m14-n2-mmax20-mstd0.5-t3aw"),
        TimmRandAugment("rand-m5-p0.8"),
    ],
    TrivialAugmentWide: [TrivialAugmentWide(), TrivialAugmentWide(11, "bilinear", (9, 8, 7))],
    AutoAugment: [
        AutoAugment(),
        AutoAugment("cifar10", "bilinear"),
        AutoAugment("svhn", fill=(128, 128, 128)),
    ],
    AugMix: [
        AugMix(),
        AugMix(9, 2, 2, 0.4, all_ops=False, filter="nearest", fill=(5, 6, 7)),
        AugMix(mixture_width=1),
    ],
}

RESAMPLING = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}


def moved(op: Affine, image: Image.Image, matrix: np.ndarray) -> Image.Image:
    """Laid on a larger sheet of the fill, as Pillow's bilinear filter ends half a pixel beyond the
    edge of an image.
    """
    fill: Any = op.fill if image.mode == "RGB" else shade(op.fill, 1)[0]
    sheet = ImageOps.expand(image, 2, fill)
    data = matrix[:2].copy()
    data[:, 2] += 2
    how = Image.Transform.AFFINE
    return sheet.transform(
        image.size, how, data.ravel().tolist(), RESAMPLING[op.filter], fillcolor=fill
    )


PILLOW: dict[type, Callable[[Any, Image.Image, dict[str, Any]], Image.Image]] = {
    Affine: lambda op, image, its: moved(op, image, its["matrix"]),
    Brightness: lambda _, image, its: ImageEnhance.Brightness(image).enhance(its["factor"]),
    Contrast: lambda _, image, its: ImageEnhance.Contrast(image).enhance(its["factor"]),
    Saturation: lambda _, image, its: ImageEnhance.Color(image).enhance(its["factor"]),
    Sharpness: lambda _, image, its: ImageEnhance.Sharpness(image).enhance(its["factor"]),
    Posterize: lambda _, image, its: image.point(lambda v: v & (0xFF00 >> int(its["bits"]))),
    Solarize: lambda _, image, its: ImageOps.solarize(image, float(its["threshold"])),  # pyright: ignore
    AutoContrast: lambda _, image, its: ImageOps.autocontrast(image),
    Equalize: lambda _, image, its: ImageOps.equalize(image),
    Invert: lambda _, image, its: ImageOps.invert(image),
}


def by_pillow(layers: Any, choices: Any, row: int, image: Image.Image) -> Image.Image:
    """What a sample takes of each layer, one after another."""
    for layer, one in zip(layers, choices, strict=True):
        k = int(one.choice[row])
        if k >= 0:
            op, its = layer.ops[k], {name: value[row] for name, value in one.values[k].items()}
            image = PILLOW[type(op)](op, image, its)
    return image


def mixed(op: AugMix, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """The formula: shares of the image and of each version."""
    plain = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    versions = [by_pillow(op.chain, choices, row, plain) for choices in values["chains"]]
    found = [np.asarray(one, np.float64).reshape(image.shape) for one in (plain, *versions)]
    return np.rint(np.einsum("k,khwc->hwc", values["shares"][row], np.stack(found))).astype(
        np.uint8
    )


MEANING = {
    # an op may follow another that rounded a pixel, or a corner, to the other side
    AugMix: Meaning(
        mixed, 2, 0.97, "Pillow's ops in turn, then a weighted sum: torchvision AugMix.forward"
    ),
}
ON_DALI = dict.fromkeys(
    (AutoAugment, RandAugment, TimmRandAugment, TrivialAugmentWide, AugMix), AFTER_EACH_OTHER
)
