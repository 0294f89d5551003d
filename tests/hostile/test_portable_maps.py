"""Netpbm's formats: plain and raw, bits, gray and color, every maximum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.engines import by_pillow

import fastfeed as ff
from fastfeed.decode import DecodeFailure
from fastfeed.decode.sniff import sniff
from fastfeed.preprocess.pixels.image_info import ImageInfo, image_info

HEIGHT, WIDTH = 7, 13
RNG = np.random.default_rng(0)
KINDS = {"P1": 1, "P2": 1, "P3": 3, "P4": 1, "P5": 1, "P6": 3}  # samples of a pixel


def made(kind: str, most: int = 255, comment: bytes = b"") -> tuple[bytes, np.ndarray]:
    """A file, and its pixels in [0, 1]: (height, width, 1 or 3)."""
    bits = kind in ("P1", "P4")
    most = 1 if bits else most
    samples = RNG.integers(0, most + 1, (HEIGHT, WIDTH, KINDS[kind]))
    head = (
        kind.encode()
        + b"\n"
        + comment
        + b"%d %d\n" % (WIDTH, HEIGHT)
        + (b"" if bits else b"%d\n" % most)
    )
    if kind in ("P1", "P2", "P3"):
        body = (
            b"\n".join(
                b" ".join(b"%d" % value for value in row) for row in samples.reshape(HEIGHT, -1)
            )
            + b"\n"
        )
    elif bits:
        body = np.packbits(samples[..., 0].astype(np.uint8), axis=1).tobytes()
    else:
        body = samples.astype(">u2" if most > 255 else np.uint8).tobytes()
    return head + body, (1 - samples if bits else samples) / most  # a set bit is black


@pytest.mark.parametrize("most", [1, 15, 100, 255, 1000, 65535])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_and_maximum(kind: str, most: int) -> None:
    blob, want = made(kind, most, b"# made by hand\n")
    got = by_pillow(blob)
    assert not isinstance(got, DecodeFailure), got
    assert np.abs(got - 255 * want).max() < 1
    info = image_info(blob)
    assert isinstance(info, ImageInfo) and (info.format, info.height, info.width) == (
        "PPM",
        HEIGHT,
        WIDTH,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_a_file_is_truncated(kind: str) -> None:
    blob, _ = made(kind)
    bad = by_pillow(blob[: len(blob) // 2])
    assert isinstance(bad, DecodeFailure) and bad.reason == "truncated"


@pytest.mark.parametrize(
    ("blob", "name"),
    [
        (b"P7\nWIDTH 1\n", "PAM"),
        (b"PF\n1 1\n-1.0\n", "PFM"),
        (b"P5 is a text", None),
        (b"P", None),
        (b"P8\n1 1\n", None),
    ],
)
def test_what_is_no_portable_map(blob: bytes, name: str | None) -> None:
    assert sniff(blob) == name
    bad = by_pillow(blob)
    assert isinstance(bad, DecodeFailure) and bad.reason == (
        "unsupported_format" if name else "not_image"
    )


def test_a_folder_of_them_is_listed_and_read(tmp_path: Path) -> None:
    for kind, extension in zip(KINDS, ("pbm", "pgm", "ppm", "pnm", "PGM", "pnm"), strict=True):
        (tmp_path / f"{kind}.{extension}").write_bytes(made(kind)[0])
    source = ff.ImageFolder(tmp_path, labeled=False)
    assert len(source) == len(KINDS)
    with ff.Feed(source, [ff.Resize((8, 8))], batch=len(KINDS), on_bad="raise") as data:
        assert next(iter(data)).images.shape == (len(KINDS), 8, 8, 3)
