"""Bytes that no block used: before a restart marker blocks are lost, before other markers nothing
is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import jpegs
from helpers.engines import by_pillow, routed
from helpers.jpegs import NEVER, NO_KERNEL, decode, encoded, shown, textured
from helpers.preprocess import icc
from helpers.preprocess.rasters import info_of, preprocessed
from PIL import Image

import fastfeed as ff
from fastfeed.decode import DecodeFailure

pytestmark = pytest.mark.skipif(jpegs.native is None, reason=NO_KERNEL)

WAYS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": 0},
    "4:2:0": {"subsampling": 2},
    "gray": {"gray": True},
    "optimized": {"subsampling": 2, "optimize": True},
    "progressive": {"progressive": True},
}
EXTRA = b"\x12\x34\x56\x78"
SIZE = (64, 96)
PIXELS = textured(*SIZE)


def made(way: str) -> bytes:
    options = dict(WAYS[way])
    pixels = PIXELS[..., 0] if options.pop("gray", False) else PIXELS
    return encoded(pixels, quality=85, restart_marker_blocks=4, **options)


def verdict(blob: bytes) -> Any:
    out, (why,) = decode([blob], [(0, 0, *SIZE)], SIZE, enlarge=NEVER)
    return out[0] if why is None else why


def markers(blob: bytes) -> list[int]:
    """Where restart markers stand."""
    scan = blob.index(b"\xff\xda")
    return [
        at for at in range(scan, len(blob) - 1) if blob[at] == 0xFF and 0xD0 <= blob[at + 1] <= 0xD7
    ]


@pytest.mark.parametrize("way", WAYS)
def test_bytes_before_a_restart_marker_are_damage(way: str) -> None:
    blob = made(way)
    assert np.array_equal(verdict(blob), shown(blob))
    stands = markers(blob)
    for at in (stands[0], stands[len(stands) // 2], stands[-1]):
        for length in (1, 4, 40):  # less, or more, than libjpeg has read ahead
            got = verdict(blob[:at] + EXTRA[:1] * length + blob[at:])
            assert isinstance(got, str) and got == "corrupt", (length, stands.index(at))


@pytest.mark.parametrize("way", WAYS)
def test_pillow_shows_no_damage_either(way: str) -> None:
    """With `decode="pillow"`; libjpeg only warns, and Pillow does not hand it on."""
    blob = made(way)
    stands = markers(blob)
    assert np.array_equal(by_pillow(blob), shown(blob))
    for bad in (
        by_pillow(blob[: stands[1]] + EXTRA + blob[stands[1] :]),
        by_pillow(blob[: stands[1] - 8] + blob[stands[1] :]),
    ):
        assert isinstance(bad, DecodeFailure) and bad.reason == "corrupt"


@pytest.mark.parametrize("way", WAYS)
def test_bytes_before_other_markers_are_harmless(way: str) -> None:
    blob = made(way)
    for at in (blob.index(b"\xff\xdb"), blob.index(b"\xff\xda"), len(blob) - 2):
        padded = blob[:at] + EXTRA + blob[at:]
        assert np.array_equal(verdict(padded), shown(blob)), blob[at : at + 2]
    stands = markers(blob)[0]
    filled = blob[:stands] + b"\xff\xff" + blob[stands:]
    assert np.array_equal(verdict(filled), shown(blob)), (
        "fill bytes may stand before any marker (ITU T.81, B.1.1.2)"
    )


@pytest.mark.parametrize("way", WAYS)
def test_no_turned_bit_moves_blocks_unnoticed(way: str) -> None:
    """Where a bit makes codes longer, the rest of the interval is read wrong: some of its data
    remain.
    """
    good, rng = made(way), np.random.default_rng(5)
    stands, refused = markers(good), 0
    for _ in range(60):
        k = int(rng.integers(len(stands) - 1))
        at = int(rng.integers(stands[k] + 2, stands[k + 1]))
        blob = bytearray(good)
        blob[at] ^= 1 << int(rng.integers(8))
        if 0xFF in blob[at - 1 : at + 1] or good[at] == 0xFF:
            continue  # another marker, or one less
        got = verdict(bytes(blob))
        refused += isinstance(got, str)
        assert isinstance(got, str) or np.array_equal(got, shown(bytes(blob)))
    assert refused > 5


INKS = {"CMYK": 0, "YCCK": 2}  # Adobe's transform


def inks(kind: str, **options: Any) -> bytes:
    image = Image.fromarray(np.dstack([PIXELS, PIXELS[..., 0]]), "CMYK")
    blob = encoded(image, restart_marker_blocks=4, **options)
    at = blob.index(b"Adobe") + 11
    return blob[:at] + bytes([INKS[kind]]) + blob[at + 1 :]


@pytest.mark.parametrize("kind", INKS)
@pytest.mark.parametrize("way", [{}, {"progressive": True}, {"subsampling": 2}], ids=str)
@pytest.mark.parametrize("read", [routed, by_pillow, preprocessed])
def test_four_inks_are_checked_before_pillow_decodes_them(
    kind: str, way: dict[str, Any], read: Any
) -> None:
    blob = inks(kind, **way)
    stands = markers(blob)
    want = read(blob)
    assert isinstance(want, np.ndarray) and want.shape == (*SIZE, 3)
    padded = blob[:-2] + EXTRA + blob[-2:]
    assert np.array_equal(read(padded), want), "bytes before the end are harmless"
    for at in (stands[0], stands[-1]):
        bad = read(blob[:at] + EXTRA + blob[at:])
        assert isinstance(bad, DecodeFailure) and (bad.reason, bad.detail) == (
            "corrupt",
            "damaged pixel data",
        )
    half = read(blob[: len(blob) // 2])
    assert isinstance(half, DecodeFailure) and half.reason == "truncated"


def test_profiles_of_linear_light_are_checked_before_pillow_decodes_them() -> None:
    blob = encoded(PIXELS, restart_marker_blocks=4, icc_profile=icc.rgb_profile("linear"))
    info_of(blob, path="pillow", linear=True)
    at = markers(blob)[2]
    bad = preprocessed(blob[:at] + EXTRA + blob[at:])
    assert isinstance(preprocessed(blob), np.ndarray)
    assert isinstance(bad, DecodeFailure) and bad.reason == "corrupt"


def test_a_feed_replaces_such_a_file(tmp_path: Path) -> None:
    for i in range(8):
        blob = encoded(textured(*SIZE, i), restart_marker_blocks=4)
        at = markers(blob)[2]
        (tmp_path / f"{i}.jpg").write_bytes(blob[:at] + EXTRA + blob[at:] if i == 3 else blob)
    source = ff.ImageFolder(tmp_path, labeled=False)
    with ff.Feed(source, [ff.Resize((32, 32))], batch=8, on_bad="mask", shuffle=False) as data:
        weights = next(iter(data)).weights
        (failure,) = data.stats().bad
    assert (
        failure.reason == "corrupt"
        and failure.uri.endswith("3.jpg")
        and weights.tolist().count(0) == 1
    )
