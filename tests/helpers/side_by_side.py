"""Small images and files of every kind, and both backends side by side."""

import importlib
import importlib.util
import io
import os
import threading

import numpy as np
import pytest
from PIL import Image

from fastfeed.decode import DecodeFailure, Header
from fastfeed.decode.executor import open_executor
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime.timeline import Timeline
from fastfeed.spec import Spec
from helpers.engines import engine_for
from helpers.opencv_ops import reference as cpu

HERE = bool(importlib.util.find_spec("nvidia")) and bool(importlib.util.find_spec("nvidia.dali"))
needs_dali = pytest.mark.skipif(
    not HERE, reason="needs NVIDIA DALI: pip install 'fastfeed[cuda13]'"
)


def picture(height: int, width: int, seed: int = 0, channels: int = 3) -> np.ndarray:
    """Soft shapes, hard edges and some noise, as in a photograph."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 12 + 2, width // 12 + 2, 3), dtype=np.uint8)
    soft = np.asarray(
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    ).astype(float)
    soft[height // 3 : height // 2, width // 3 : width // 2] *= 0.3
    noisy = soft + rng.normal(0, 6, soft.shape)
    return noisy.clip(0, 255).astype(np.uint8)[:, :, :channels]


def encoded(
    pixels: np.ndarray, format: str, mode: str = "RGB", orientation: int = 1, **options
) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(
        file, format, **({"exif": exif} if orientation > 1 else {}), **options
    )
    return file.getvalue()


def files(height: int = 48, width: int = 64) -> list[bytes]:
    """One of every kind, all (height, width) as displayed."""
    up, turned = picture(height, width), picture(width, height)
    clear = np.dstack([up, picture(height, width, 1)[:, :, :1]])
    file = io.BytesIO()
    deep = picture(height, width)[:, :, 0].astype(np.uint16) * 257
    Image.fromarray(deep).save(file, "PNG")
    return [
        *(encoded(turned if o > 4 else up, "JPEG", orientation=o, quality=90) for o in range(1, 9)),
        encoded(up, "JPEG", "L"),
        encoded(up, "JPEG", "CMYK"),
        encoded(up, "JPEG", progressive=True, subsampling=0),
        *(encoded(up, "PNG", mode) for mode in ("RGB", "L", "P", "1")),
        encoded(clear, "PNG", "RGBA"),
        encoded(clear, "PNG", "LA"),
        encoded(up, "PNG", orientation=3),
        file.getvalue(),
        encoded(up, "WEBP", lossless=True),
        encoded(clear, "WEBP", "RGBA"),
        *(encoded(up, format) for format in ("GIF", "BMP", "TIFF", "PPM")),
    ]


def arrays(spec: Spec) -> list[np.ndarray]:
    height, width = spec.size
    if height:
        return [picture(height, width, seed) for seed in range(8)]
    return [picture(60 + 17 * k, 150 - 9 * k, k) for k in range(8)]


def on_the_processor() -> dict[str, str]:
    """An environment in which a child process sees no GPU."""
    return os.environ | {"CUDA_VISIBLE_DEVICES": ""}


def compiled(backend, ops: list, encoding: Spec, batch: int = 32):
    program = fuse(ops, encoding)
    executor = open_executor(program, "pillow", 2)
    return program, backend.compile(program, executor, Timeline(), batch)


def rendered(
    backend, ops: list, encoding: Spec, blobs: list
) -> tuple[np.ndarray, list[DecodeFailure | None]]:
    """Pixels, and what is bad."""
    program, runner = compiled(backend, ops, encoding)
    headers = engine_for(program, "pillow").probe(blobs)
    assert all(isinstance(h, Header) for h in headers), headers
    sizes = np.array([(h.height, h.width) for h in headers])
    rng = np.random.default_rng(5)
    work = program.work(program.draw(lambda slot, n: rng.random((len(blobs), n))), sizes)
    out = np.full((len(blobs), *program.spec.shape), 7, program.spec.dtype)
    done = runner.render(blobs, headers, work, out, threading.Event())
    return out, done


def levels(ops: list, encoding: Spec, blobs: list) -> tuple[np.ndarray, np.ndarray]:
    """By the cpu backend and by dali: (n, height, width, channels) in levels of 255."""
    dali = importlib.import_module("fastfeed.backends.dali.backend")
    want, bad = rendered(cpu, ops, encoding, blobs)
    got, also_bad = rendered(dali, ops, encoding, blobs)
    assert bad == also_bad == [None] * len(blobs)
    assert got.dtype == want.dtype
    how = fuse(ops, encoding).convert
    both = [np.moveaxis(made, 1, 3) if how.layout == "CHW" else made for made in (want, got)]
    scale, offset = np.array(how.scale), np.array(how.offset)
    return (both[0].astype(np.float64) - offset) / scale, (
        both[1].astype(np.float64) - offset
    ) / scale
