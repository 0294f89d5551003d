"""HEIC images into shards: headers, colors, EXIF columns, and what decoding needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import heics
from helpers.heics import heic, picture
from helpers.jpegs import resized, textured
from helpers.preprocess import icc
from helpers.preprocess.rasters import TURNED, decoded, info_of
from preprocess.pixels.test_decode_cost import MEASURE

from fastfeed.decode import DecodeFailure
from fastfeed.decode.formats.heic import installed
from fastfeed.preprocess import Limits, Recipe, run
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.image_info import image_info
from fastfeed.preprocess.pixels.transform import exif_columns

pytestmark = pytest.mark.skipif(
    installed() is None, reason="no pi-heif; pip install 'fastfeed[heic]'"
)
PIXELS = textured(40, 64)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_upright_once(orientation):
    blob = heic([picture(PIXELS)], more=heics.turns(orientation), metadata=heics.exif(orientation))
    shown = TURNED[orientation](PIXELS)
    info_of(
        blob,
        format="HEIC",
        orientation=1,
        height=shown.shape[0],
        width=shown.shape[1],
        mode="RGB",
        path="pillow",
        icc="sRGB",
    )
    assert np.array_equal(decoded(blob), shown)
    box = (3.5, 2.25, 30.0, 33.5)
    off = np.abs(decoded(blob, box, (17, 23)) - resized(shown, box, (17, 23), "lanczos"))
    assert off.max() <= 1.6


@pytest.mark.parametrize(("depth", "mode"), [(8, "RGB"), (10, "RGB;16"), (12, "RGB;16")])
def test_colors_keep_their_upper_bits(depth, mode):
    samples = np.random.default_rng(depth).integers(0, 1 << depth, (40, 64, 3))
    blob = heic([picture(samples, depth)])
    info_of(blob, mode=mode)
    assert np.array_equal(decoded(blob), samples >> (depth - 8))


@pytest.mark.parametrize(("depth", "mode"), [(8, "L"), (10, "I;16"), (12, "I;16")])
def test_gray_keeps_its_upper_bits(depth, mode):
    samples = np.random.default_rng(depth).integers(0, 1 << depth, (40, 64))
    blob = heic([picture(samples, depth)])
    info_of(blob, mode=mode)
    assert np.array_equal(decoded(blob), np.repeat((samples >> (depth - 8))[..., None], 3, axis=2))


def test_transparency_shows_the_matte():
    alpha = np.zeros((40, 64), np.uint8)
    alpha[:, 32:] = 255
    blob = heic([picture(PIXELS)], alpha=picture(alpha))
    info_of(blob, mode="RGBA", alpha=True)
    pixels = decoded(blob, matte=(9, 200, 90))
    assert (pixels[:, :32] == (9, 200, 90)).all() and np.array_equal(pixels[:, 32:], PIXELS[:, 32:])


def test_wide_colors_become_srgb():
    colors = (
        np.random.default_rng(0)
        .integers(20, 236, (2, 4, 3), dtype=np.uint8)
        .repeat(16, 0)
        .repeat(16, 1)
    )
    blob = heic([picture(colors)], more=[heics.icc(icc.rgb_profile("Display P3"))])
    info_of(blob, icc="Display P3")
    want = icc.srgb_of("Display P3", colors.astype(float))
    assert np.abs(want - colors).max() > 20, "the profile matters"
    assert np.abs(decoded(blob) - want).max() <= 2


def test_what_is_refused():
    def reason(blob: bytes, **limits) -> str:
        info = image_info(blob, **limits)
        if isinstance(info, DecodeFailure):
            return info.reason
        pixels = Rasterizer().pixels(blob, info, (0, 0, info.height, info.width), (8, 8))
        return pixels.reason if isinstance(pixels, DecodeFailure) else "pixels"

    blob = heic([picture(PIXELS)])
    assert reason(blob) == "pixels"
    assert reason(blob, max_pixels=2_000) == "bomb"
    assert reason(blob[: len(blob) // 2]) == "truncated"
    other = picture(PIXELS)
    other.properties[1] = heics.ispe(60, 60)
    assert reason(heic([other])) == "corrupt"


def test_exif_columns():
    tags = b"MM\0*\0\0\0\x08\0\1" + b"\x01\x10\0\2\0\0\0\4Pi8\0" + bytes(4)  # the model
    blob = heic([picture(PIXELS)], metadata=b"\0\0\0\6Exif\0\0" + tags)
    assert exif_columns(blob, "HEIC", ["camera", "time"]) == {
        "exif_camera": "Pi8",
        "exif_time": None,
    }


def test_a_job(tmp_path: Path):
    source = tmp_path / "photos"
    source.mkdir()
    for k in range(3):
        (source / f"{k}.heic").write_bytes(heic([picture(textured(40, 64, k))]))
    (source / "short.heic").write_bytes(heic([picture(PIXELS)])[:-1])
    report = run(source, tmp_path / "shards", Recipe(limits=Limits(formats=("heic",))))
    assert report.tally.samples == 3 and [bad.reason for bad in report.bad] == ["truncated"]
    manifest = json.loads((tmp_path / "shards" / "__job" / "manifest.json").read_text("utf-8"))
    assert manifest["made_with"]["heic"] == installed()


FILES = {
    "4:2:0": lambda tile: picture(tile, chroma=1),
    "4:4:4": lambda tile: picture(tile),
    "of 10 bits": lambda tile: picture(tile.astype(np.uint16) << 2, 10),
    "gray": lambda tile: picture(tile[..., 0]),
    "gray of 10 bits": lambda tile: picture(tile[..., 0].astype(np.uint16) << 2, 10),
}


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="no /proc: peaks of memory are read on Linux"
)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("4:2:0", "of 10 bits") else [pytest.mark.nightly])
        for name in FILES
    ],
)
def test_the_cost_is_what_it_takes(name, tmp_path):
    """Of a grid of 100 tiles, as phones write them."""
    tile = FILES[name](textured(480, 480))
    (tmp_path / "file").write_bytes(heic([tile] * 100, grid=(10, 10, 4_800, 4_800)))
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "file"), "512"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    path, shape, measured, said, _ = json.loads(done.stdout)
    assert path == "pillow" and shape == [512, 512, 3]
    assert measured - 12e6 <= said <= 2 * measured + 16e6, (measured, said)
