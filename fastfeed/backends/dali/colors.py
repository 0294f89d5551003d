"""Color ops as DALI graphs: arithmetic that matches the lookup tables of the cpu backend.

- Hue is arithmetic as well, because DALI's own operator rotates colors in another color space.
- Equalize: DALI's, on the negative. What it adds up is bytes up to a value, Pillow those below it;
  of the negative the one is the other. Its scale then becomes Pillow's, which divides by a whole
  number: within one level. In images as small as CIFAR's that number is 3 or 4, and one level may
  change it if such an image is equalized again: single samples differ by tens of levels then. To
  compare each pixel with each would be exact, at 5 ms an image here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.backends.dali.arithmetic import OpContext, gray, renamed, rounded, truncated
from fastfeed.backends.dali.imports import fn, math, types
from fastfeed.ops.color import (
    Brightness,
    ChannelDropout,
    ChannelShuffle,
    Contrast,
    Grayscale,
    Hue,
    Saturation,
    ToBGR,
)
from fastfeed.ops.levels import (
    LUT,
    AutoContrast,
    Equalize,
    Gamma,
    Invert,
    Posterize,
    Solarize,
    SolarizeAdd,
)


def brightness(op: Brightness, values: Any, image: Any, context: OpContext) -> Any:
    return truncated(image * values["factor"])


def contrast(op: Contrast, values: Any, image: Any, context: OpContext) -> Any:
    mean = math.floor(fn.reductions.mean(gray(image, context)) + 0.5)
    return truncated(mean + (image - mean) * values["factor"])


def saturation(op: Saturation, values: Any, image: Any, context: OpContext) -> Any:
    if context.channels == 1:
        return image
    pale = fn.cast(gray(image, context), dtype=types.FLOAT)
    return truncated(pale + (image - pale) * values["factor"])


def grayscale(op: Grayscale, values: Any, image: Any, context: OpContext) -> Any:
    if context.channels == 1:
        return image
    return fn.color_space_conversion(
        gray(image, context), image_type=types.GRAY, output_type=types.RGB
    )


def shares(op: Any, values: dict[str, Any], context: OpContext) -> dict[str, Any]:
    """Shares of red, green and blue in each channel, and what is added: float64 (n, 4, 3)."""
    channels = values["channels"]
    fill = np.where(channels < 0, getattr(op, "fill", (0, 0, 0)), 0)
    parts = [*((channels == c) * 1.0 for c in range(3)), fill]
    return {"shares": np.stack(parts, axis=1).astype(np.float64)}


def pick_channels(op: Any, values: Any, image: Any, context: OpContext) -> Any:
    if context.channels == 1:
        return image
    parts = [fn.reshape(values["shares"][k], shape=[1, 1, 3]) for k in range(4)]
    total = parts[3]
    for c in range(3):
        total = total + image[:, :, c : c + 1] * parts[c]
    return rounded(total)


def sixths(op: Hue, values: dict[str, Any], context: OpContext) -> dict[str, Any]:
    """Rotated positions of red, green and blue on the color wheel: float64 (n, 3)."""
    return {"sixths": 6 * values["shift"][:, None] + np.array([5, 3, 1])}


def hue(op: Hue, values: Any, image: Any, context: OpContext) -> Any:
    """Shift the hue, a turn of six sixths.

    The largest channel tells which pair of sixths a color is in, the other two its position there.
    """
    if context.channels == 1:
        return image
    red, green, blue = (fn.cast(image[:, :, c : c + 1], dtype=types.FLOAT) for c in range(3))
    maximum = math.max(red, math.max(green, blue))
    range_ = maximum - math.min(red, math.min(green, blue))
    unit = math.max(range_, 1.0)
    reds = fn.cast(maximum == red, dtype=types.FLOAT)
    greens = fn.cast(maximum == green, dtype=types.FLOAT) * (1.0 - reds)
    blues = 1.0 - reds - greens
    angle = (
        (reds * (green - blue) + greens * (blue - red) + blues * (red - green)) / unit
        + greens * 2.0
        + blues * 4.0
    )
    position = angle + fn.reshape(values["sixths"], shape=[1, 1, 3])
    position = position - math.floor(position / 6.0) * 6.0
    return rounded(maximum - range_ * math.clamp(math.min(position, 4.0 - position), 0.0, 1.0))


def solarize(op: Solarize, values: Any, image: Any, context: OpContext) -> Any:
    return image ^ fn.cast(255 * (image >= values["threshold"]), dtype=types.UINT8)


def solarize_add(op: SolarizeAdd, values: Any, image: Any, context: OpContext) -> Any:
    return rounded(image + values["amount"] * (image < op.threshold))


def masks(op: Posterize, values: dict[str, Any], context: OpContext) -> dict[str, Any]:
    return {"mask": 0xFF00 >> values["bits"] & 0xFF}


def posterize(op: Posterize, values: Any, image: Any, context: OpContext) -> Any:
    return image & fn.cast(values["mask"], dtype=types.UINT8)


def invert(op: Invert, values: Any, image: Any, context: OpContext) -> Any:
    return image ^ types.Constant(255, dtype=types.UINT8)


def gamma(op: Gamma, values: Any, image: Any, context: OpContext) -> Any:
    return truncated((255 + 1 - 1e-3) * (image / 255.0) ** values["gamma"])


def look_up_table(op: LUT, values: Any, image: Any, context: OpContext) -> Any:
    if not op.per_channel:
        return _looked_up(image, op.table)
    rows = op.table if len(op.table) == context.channels else op.table * context.channels
    return fn.cat(*(_looked_up(image[:, :, c : c + 1], row) for c, row in enumerate(rows)), axis=2)


def _looked_up(image: Any, table: Any) -> Any:
    return fn.lookup_table(
        image, keys=list(range(256)), values=[float(v) for v in table], dtype=types.UINT8
    )


def autocontrast(op: AutoContrast, values: Any, image: Any, context: OpContext) -> Any:
    low, high = (fn.cast(edge, dtype=types.FLOAT) for edge in _ends(image))
    flat = fn.cast(high <= low, dtype=types.FLOAT)
    wide = math.max(high - low, 1.0)
    return truncated((image - low * (1.0 - flat)) * (255.0 - 254.0 * flat) / wide)


def equalize(op: Equalize, values: Any, image: Any, context: OpContext) -> Any:
    height, width = context.size
    negative = image ^ types.Constant(255, dtype=types.UINT8)
    high = fn.reductions.max(image, axes=[0, 1], keep_dims=True)
    top = fn.reductions.sum(fn.cast(image == high, dtype=types.FLOAT), axes=[0, 1], keep_dims=True)
    rest = float(height * width) - top  # pixels that are not of the lightest value
    step = math.floor(rest / 255.0)
    unchanged = fn.cast(step < 1.0, dtype=types.FLOAT)
    spread = (255.0 - renamed("equalize")(negative)) * (rest / 255.0 / math.max(step, 1.0))
    return rounded(image * unchanged + spread * (1.0 - unchanged))


def _ends(image: Any) -> tuple[Any, Any]:
    return tuple(
        find(image, axes=[0, 1], keep_dims=True) for find in (fn.reductions.min, fn.reductions.max)
    )


_CHANNELS = (ToBGR, ChannelShuffle, ChannelDropout)
FEEDS = {Hue: sixths, Posterize: masks, **dict.fromkeys(_CHANNELS, shares)}
LOWERING = {
    Brightness: brightness,
    Contrast: contrast,
    Saturation: saturation,
    Grayscale: grayscale,
    **dict.fromkeys(_CHANNELS, pick_channels),
    Hue: hue,
    Solarize: solarize,
    SolarizeAdd: solarize_add,
    Posterize: posterize,
    Invert: invert,
    Gamma: gamma,
    LUT: look_up_table,
    AutoContrast: autocontrast,
    Equalize: equalize,
}
