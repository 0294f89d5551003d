"""Masks from PNG files: numbers as they are, whatever else is refused in words."""

from __future__ import annotations

import io
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastfeed.decode.base import DecodeFailure
from fastfeed.decode.masks import mask_pixels
from fastfeed.faults import REASONS

MASK = np.random.default_rng(0).integers(0, 256, (14, 10), dtype=np.uint8)
SIZE = (14, 10)


def saved(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def palette(numbers: np.ndarray) -> Image.Image:
    image = Image.fromarray(numbers).convert("P")
    image.putdata(numbers.ravel().tolist())
    image.putpalette(np.random.default_rng(1).integers(0, 256, 768).astype(np.uint8).tobytes())
    return image


def test_numbers_come_as_they_are():
    for found in (
        MASK,
        saved(Image.fromarray(MASK)),
        saved(palette(MASK)),
        saved(palette(MASK), transparency=0),
    ):
        read = mask_pixels(found, SIZE)
        assert isinstance(read, np.ndarray) and read.dtype == np.uint8
        np.testing.assert_array_equal(read, MASK)
    few = (MASK % 3).astype(np.uint8)
    np.testing.assert_array_equal(mask_pixels(saved(palette(few), bits=2), SIZE), few)
    np.testing.assert_array_equal(mask_pixels(saved(Image.fromarray(MASK > 100)), SIZE), MASK > 100)


@pytest.mark.parametrize(
    ("found", "reason", "detail"),
    [
        (MASK.T, "corrupt", "its mask has 10x14 pixels (height x width), the image 14x10"),
        (saved(Image.fromarray(MASK.T.copy())), "corrupt", "its mask has 10x14 pixels"),
        (
            saved(Image.fromarray(MASK).convert("RGB")),
            "unsupported_format",
            "its mask has colors (RGB)",
        ),
        (
            saved(Image.fromarray(MASK).convert("LA")),
            "unsupported_format",
            "its mask has colors (LA)",
        ),
        (
            saved(Image.fromarray(MASK.astype(np.uint16))),
            "unsupported_format",
            "its mask has colors (I;16)",
        ),
        (
            saved(Image.fromarray(MASK), "JPEG"),
            "unsupported_format",
            "its mask is not a PNG but JPEG",
        ),
        (b"<html>", "not_image", "its mask is not a PNG"),
        (saved(Image.fromarray(MASK))[:60], "truncated", "its mask: "),
        (saved(Image.fromarray(MASK))[:20], "truncated", "its mask: "),
    ],
)
def test_what_is_no_mask_is_said(found: Any, reason: str, detail: str):
    bad = mask_pixels(found, SIZE)
    assert isinstance(bad, DecodeFailure) and bad.reason == reason and bad.detail.startswith(detail)


def test_a_huge_size_costs_nothing():
    file = bytearray(saved(Image.fromarray(MASK)))
    file[16:24] = (60_000).to_bytes(4, "big") * 2
    file[29:33] = zlib.crc32(file[12:29]).to_bytes(4, "big")
    assert mask_pixels(bytes(file), SIZE) == DecodeFailure(
        "corrupt", "its mask has 60000x60000 pixels (height x width), the image 14x10"
    )


def test_damage_is_a_reason_not_an_exception():
    good, rng = saved(palette(MASK)), np.random.default_rng(3)
    seen = set()
    for _ in range(300):
        broken = bytearray(good)
        for at in rng.integers(8, len(good), 3):
            broken[at] = rng.integers(256)
        found = mask_pixels(bytes(broken[: rng.integers(len(good) // 2, len(good) + 1)]), SIZE)
        if isinstance(found, DecodeFailure):
            assert found.reason in REASONS
            seen.add(found.reason)
        else:
            assert found.shape == SIZE
    assert {"corrupt", "truncated"} <= seen
