"""Examples of the color ops, and Pillow's or torchvision's word on what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from fastfeed.ops import (
    LUT,
    AutoContrast,
    Brightness,
    ChannelDropout,
    ChannelShuffle,
    ColorJitter,
    Contrast,
    Equalize,
    Gamma,
    Grayscale,
    Hue,
    Invert,
    Posterize,
    RandomGrayscale,
    Saturation,
    Solarize,
    SolarizeAdd,
    ToBGR,
)
from helpers.meaning import ROUNDED, SAME, Meaning, Within

Oracle = Callable[[Any, dict[str, Any], int, np.ndarray], np.ndarray]


def enhanced(kind: Any) -> Oracle:
    """One of Pillow's ImageEnhance."""
    return lambda op, values, row, image: np.asarray(
        kind(Image.fromarray(image)).enhance(float(values["factor"][row]))
    )


def operated(change: Callable[..., Image.Image], value: str = "") -> Oracle:
    """One of Pillow's ImageOps, with the value of that name."""

    def oracle(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
        given = [values[value][row].item()] if value else []
        return np.asarray(change(Image.fromarray(image), *given))

    return oracle


def gray(op: Grayscale, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(image).convert("L").convert("RGB"))


def picked(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    fill = getattr(op, "fill", (0, 0, 0))
    planes = [
        np.full(image.shape[:2], fill[c], np.uint8) if k < 0 else image[:, :, k]
        for c, k in enumerate(values["channels"][row])
    ]
    return np.stack(planes, axis=2)


def added(op: SolarizeAdd, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """timm's `solarize_add`, on a PIL image."""
    add = int(values["amount"][row])
    table = [min(255, i + add) if i < op.threshold else i for i in range(256)]
    return np.asarray(Image.fromarray(image).point(table * 3))


def gamma(op: Gamma, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """torchvision's adjust_gamma of a PIL image."""
    power = values["gamma"][row]
    return np.array([int(255.999 * pow(level / 255.0, power)) for level in range(256)], np.uint8)[
        image
    ]


def turned(op: Hue, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """torchvision's adjust_hue of a tensor: _rgb_to_hsv, a shift of the hue, _hsv_to_rgb."""
    rgb = image / 255.0
    most, least = rgb.max(axis=2), rgb.min(axis=2)
    range_ = np.where(most == least, 1.0, most - least)
    r, g, b = ((most - rgb[:, :, c]) / range_ for c in range(3))
    red, green = most == rgb[:, :, 0], most == rgb[:, :, 1]
    sixths = np.where(red, b - g, np.where(green, 2 + r - b, 4 + g - r))
    hue = (sixths / 6 + values["shift"][row]) % 1.0
    share = np.where(most == 0, 0.0, (most - least) / np.where(most == 0, 1.0, most))
    part, rest = np.floor(hue * 6).astype(int) % 6, hue * 6 - np.floor(hue * 6)
    p, q, t = most * (1 - share), most * (1 - share * rest), most * (1 - share * (1 - rest))
    every = [(most, t, p), (q, most, p), (p, most, t), (p, q, most), (t, p, most), (most, p, q)]
    found = np.choose(part[:, :, None], [np.stack(one, axis=2) for one in every])
    return (found * 255.999).astype(np.uint8)


def looked_up(op: LUT, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    rows = np.broadcast_to(np.array(op.table), (3, 256))
    return np.stack([rows[c][image[:, :, c]] for c in range(3)], axis=2).astype(np.uint8)


EXAMPLES = {
    Brightness: [Brightness(0.4), Brightness((0.2, 1.9)), Brightness([1.3, 1.3])],
    Contrast: [Contrast(0.4), Contrast((0.0, 2.0))],
    Saturation: [Saturation(0.4), Saturation(np.array([0.0, 2.0]))],
    Hue: [Hue(0.1), Hue((-0.5, 0.5)), Hue((0.25, 0.25))],
    Gamma: [Gamma(2.2), Gamma((0.4, 1.6))],
    Solarize: [Solarize(), Solarize((0, 256)), Solarize(99.5)],
    SolarizeAdd: [SolarizeAdd(40), SolarizeAdd((0, 255), 100)],
    Posterize: [Posterize(4), Posterize((1, 8))],
    Grayscale: [Grayscale(), Grayscale()],
    ToBGR: [ToBGR(), ToBGR()],
    ChannelShuffle: [ChannelShuffle(), ChannelShuffle()],
    ChannelDropout: [ChannelDropout(), ChannelDropout((1, 2), (9, 200, 77))],
    RandomGrayscale: [RandomGrayscale(), RandomGrayscale(0.6)],
    Equalize: [Equalize(), Equalize()],
    AutoContrast: [AutoContrast(), AutoContrast()],
    Invert: [Invert(), Invert()],
    LUT: [LUT([level // 2 for level in range(256)]), LUT(np.arange(768).reshape(3, 256) % 251)],
    ColorJitter: [
        ColorJitter(0.4, 0.4, 0.4, 0.1),
        ColorJitter(contrast=(0.5, 0.9), hue=[-0.1, 0.3]),
        ColorJitter(),
    ],
}
MEANING = {
    Brightness: Meaning(enhanced(ImageEnhance.Brightness), source="Pillow ImageEnhance.Brightness"),
    Contrast: Meaning(enhanced(ImageEnhance.Contrast), source="Pillow ImageEnhance.Contrast"),
    Saturation: Meaning(enhanced(ImageEnhance.Color), source="Pillow ImageEnhance.Color"),
    Hue: Meaning(turned, source="torchvision adjust_hue"),
    Gamma: Meaning(gamma, 0, source="torchvision adjust_gamma"),
    Solarize: Meaning(
        operated(ImageOps.solarize, "threshold"), 0, source="Pillow ImageOps.solarize"
    ),
    Posterize: Meaning(operated(ImageOps.posterize, "bits"), 0, source="Pillow ImageOps.posterize"),
    Grayscale: Meaning(gray, source="Pillow convert('L')"),
    **dict.fromkeys(
        (ToBGR, ChannelShuffle, ChannelDropout), Meaning(picked, 0, source="definition")
    ),
    SolarizeAdd: Meaning(added, 0, source="timm solarize_add"),
    Equalize: Meaning(operated(ImageOps.equalize), 0, source="Pillow ImageOps.equalize"),
    AutoContrast: Meaning(operated(ImageOps.autocontrast), source="Pillow ImageOps.autocontrast"),
    Invert: Meaning(operated(ImageOps.invert), 0, source="Pillow ImageOps.invert"),
    LUT: Meaning(looked_up, 0, source="formula"),
}
ON_DALI = {
    Brightness: ROUNDED,
    Contrast: ROUNDED,
    Saturation: Within(1, 1, 0.25),  # the cpu kernel rounds its weights to 1 / 1024
    Hue: ROUNDED,
    Gamma: ROUNDED,
    Solarize: SAME,
    Posterize: SAME,
    Grayscale: ROUNDED,
    ToBGR: SAME,
    ChannelShuffle: SAME,
    ChannelDropout: SAME,
    RandomGrayscale: ROUNDED,
    SolarizeAdd: SAME,
    Equalize: Within(2, 2, 0.6),
    AutoContrast: ROUNDED,
    Invert: SAME,
    LUT: SAME,
    ColorJitter: Within(8, 8, 0.3),
}
