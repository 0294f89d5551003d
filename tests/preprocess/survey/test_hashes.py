"""dHashes: copies keep them, other photographs have others, and those that say nothing are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.preprocess.surveying import saved, scene
from PIL import Image, ImageEnhance, ImageOps

from fastfeed.decode.base import DecodeFailure
from fastfeed.preprocess.planning.near_duplicates import mirror
from fastfeed.preprocess.planning.survey import ImageHasher, dhash

MAX = 300_000_000


def seen(blob: bytes) -> tuple[int, bool]:
    eye = ImageHasher(MAX)
    look = eye.inspect(blob)
    assert not isinstance(look, DecodeFailure)
    assert eye.need(blob, look) > 0
    found = eye.dhash(blob, look)
    assert len(found) == 2
    assert isinstance(found[0], int)
    return found  # type: ignore[return-value]


def apart(one: bytes, other: bytes) -> int:
    return (seen(one)[0] ^ seen(other)[0]).bit_count()


def oracle(image: Image.Image) -> int:
    """By Pillow: gray, 9x8 means, brighter than on the left."""
    cells = np.asarray(image.convert("F").resize((9, 8), Image.Resampling.BOX), np.float64)
    return sum(
        1 << (63 - i) for i, bit in enumerate((np.diff(cells, axis=1) > 0).reshape(-1)) if bit
    )


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_bits_are_those_of_their_definition(format: str) -> None:
    image = scene(3, 320, 480)
    found, plain = seen(saved(image, format))
    assert (
        found ^ oracle(image)
    ).bit_count() <= 1  # a cell or two are nearly as bright as their neighbors
    assert not plain


def test_orientation_is_applied() -> None:
    image = scene(4)
    exif = Image.Exif()
    exif[0x0112] = 6
    # stored lying, shown as `image`
    turned = saved(image.transpose(Image.Transpose.ROTATE_90), exif=exif)
    assert apart(turned, saved(image)) <= 1
    assert apart(saved(image.transpose(Image.Transpose.ROTATE_90)), saved(image)) > 10


def test_transparent_pixels_are_white() -> None:
    image = scene(5).convert("RGBA")
    alpha = np.zeros((image.height, image.width), np.uint8)
    alpha[:, 50:] = 255
    image.putalpha(Image.fromarray(alpha))
    shown = Image.new("RGB", image.size, "white")
    shown.paste(image, mask=image.getchannel("A"))
    assert apart(saved(image, "PNG"), saved(shown, "PNG")) == 0


@pytest.mark.parametrize("kind", ["black", "gray with noise", "gradient", "vignette"])
def test_what_is_too_plain_is_told(kind: str) -> None:
    row, column = np.mgrid[0:64, 0:72]
    pixels = {
        "black": np.zeros((64, 72)),
        "gray with noise": 128 + np.random.default_rng(0).normal(0, 6, (64, 72)),
        "gradient": column * 3,
        "vignette": 255 - 4 * np.hypot(row - 32, column - 36),
    }[kind]
    assert dhash(np.repeat(pixels.clip(0, 255).astype(np.uint8)[:, :, None], 3, axis=2))[1]


def real(data: Path, *folders: str) -> list[Path]:
    found = [
        path
        for name in folders
        for path in sorted((data / name).rglob("*"))
        if path.suffix.lower() in KINDS
    ]
    assert len(found) > 10
    return found


KINDS = (".jpg", ".jpeg", ".png", ".webp")


@pytest.mark.slow
def test_copies_of_real_photographs_are_near(data: Path) -> None:
    near = []
    for path in real(data, "imagenet-sample")[::3] + real(data, "flowers5")[::5]:
        image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
        smaller = image.resize(
            (image.width * 4 // 5, image.height * 4 // 5), Image.Resampling.LANCZOS
        )
        first = path.read_bytes()
        copies = image, smaller, ImageEnhance.Brightness(smaller).enhance(0.92)
        near += [apart(first, saved(copy, quality=70)) <= 4 for copy in copies]
    assert np.mean(near) >= 0.96  # 98 % of all those photographs at this distance


@pytest.mark.slow
def test_different_real_photographs_are_not(data: Path) -> None:
    looks = [
        seen(path.read_bytes())
        for path in real(data, "imagenet-sample", "flowers5", "photos-large")
    ]
    told = np.array([bits for bits, plain in looks if not plain], np.uint64)
    assert len(told) > 0.95 * len(looks)
    apart = np.bitwise_count(told[:, None] ^ told)[np.triu_indices(len(told), 1)]
    assert (apart <= 4).sum() == 0
    assert (apart <= 8).sum() <= 1


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_the_hash_of_a_mirror_image_is_the_mirror_of_the_hash(format: str) -> None:
    for seed in range(8):
        image = scene(seed, 320, 480)
        found, flipped = (seen(saved(i, format))[0] for i in (image, ImageOps.mirror(image)))
        expected = int(mirror(np.array([found], np.uint64))[0])
        assert (flipped ^ expected).bit_count() <= 1 < (flipped ^ found).bit_count()
