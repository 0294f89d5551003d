"""Pillow, as its documentation has it, on images of its own."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps

RAMP = np.arange(256)


def enhanced(kind: Any) -> Any:
    return lambda image, op, v: kind(image).enhance(v["factor"])


def gamma(image: Any, op: Any, v: dict[str, Any]) -> Any:
    return image.point(list((255 * (RAMP / 255) ** v["gamma"]).astype(int)) * 3)


def jpeg(image: Any, op: Any, v: dict[str, Any]) -> Any:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=int(v["quality"]))
    read = Image.open(file)
    read.load()
    return read


def erase(image: Any, op: Any, v: dict[str, Any]) -> Any:
    if op.fill == "noise":
        return None
    fill = tuple(v["color"].tolist()) if op.fill == "color" else op.fill
    top, left, height, width = v["box"]
    image = image.copy()
    ImageDraw.Draw(image).rectangle((left, top, left + width - 1, top + height - 1), fill)
    return image


def warp(image: Any, op: Any, v: dict[str, Any]) -> Any:
    if op.border != "constant":
        return None
    m = v["matrix"] / v["matrix"][2, 2]
    size = tuple(v["size"][::-1].tolist()) if "size" in v else image.size
    affine = np.array_equal(m[2], [0, 0, 1])
    how, data = (
        (Image.Transform.AFFINE, m.ravel()[:6])
        if affine
        else (Image.Transform.PERSPECTIVE, m.ravel()[:8])
    )
    return image.transform(size, how, tuple(data), Image.Resampling.BILINEAR, fillcolor=op.fill)


OPS = {
    "Brightness": enhanced(ImageEnhance.Brightness),
    "Contrast": enhanced(ImageEnhance.Contrast),
    "Saturation": enhanced(ImageEnhance.Color),
    "Sharpness": enhanced(ImageEnhance.Sharpness),
    "Grayscale": lambda image, op, v: image.convert("L").convert("RGB"),
    "Solarize": lambda image, op, v: ImageOps.solarize(image, int(v["threshold"])),
    "Posterize": lambda image, op, v: ImageOps.posterize(image, int(v["bits"])),
    "Equalize": lambda image, op, v: ImageOps.equalize(image),
    "AutoContrast": lambda image, op, v: ImageOps.autocontrast(image),
    "Invert": lambda image, op, v: ImageOps.invert(image),
    "Gamma": gamma,
    "LUT": lambda image, op, v: image.point(list(op.table) * 3),
    "MedianBlur": lambda image, op, v: image.filter(ImageFilter.MedianFilter(v["kernel"])),
    "GaussianBlur": lambda image, op, v: image.filter(ImageFilter.GaussianBlur(v["sigma"])),
    "JPEGCompression": jpeg,
    "RandomErasing": erase,
    "CutOut": erase,
    "Rotate": warp,
    "Affine": warp,
    "Perspective": warp,
    "RandomFlip": lambda image, op, v: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
}
