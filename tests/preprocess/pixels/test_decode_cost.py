"""What decoding is said to need against what fresh processes take, and hundreds of hostile files in
little memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers import jpegs
from helpers.pngs import png
from helpers.preprocess import rasters
from PIL import Image

from fastfeed.faults import REASONS
from fastfeed.preprocess.pixels import decode
from fastfeed.preprocess.pixels.decode import cost

pytestmark = pytest.mark.slow

MEASURE = """
import json, re, sys
from fastfeed.preprocess.pixels.decode import cost
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.image_info import image_info
def kilobytes(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
blob, size = open(sys.argv[1], "rb").read(), (int(sys.argv[2]), int(sys.argv[2]))
rasterizer, before = Rasterizer(), kilobytes("VmRSS")
found = image_info(blob)
box = (0, 0, found.height, found.width)
pixels = rasterizer.pixels(blob, found, box, size)
peak = kilobytes("VmHWM")
print(json.dumps([found.path, pixels.shape, (peak - before) * 1024, cost(found, len(blob), box, size), peak * 1024]))
"""


def picture(side: int = 3_840) -> Image.Image:
    return Image.fromarray(np.tile(jpegs.textured(480, 480), (side // 480, side // 480, 1)))


def transparent() -> bytes:
    image = picture()
    image.putalpha(200)
    return rasters.saved(image, "PNG", compress_level=1)


def interlaced() -> bytes:
    return png(np.asarray(picture(2_400)), interlaced=True)


def animated() -> bytes:
    frames = [picture(2_400), picture(2_400).transpose(Image.Transpose.ROTATE_90)]
    return rasters.saved(
        frames[0], "WEBP", lossless=False, method=0, save_all=True, append_images=frames[1:]
    )


WEBP = "native" if jpegs.native and jpegs.native.LIBWEBP else "vips"
FILES = {  # path, and the file
    "baseline": ("native", lambda: rasters.saved(picture(), "JPEG", quality=85, subsampling=2)),
    "progressive": (
        "native",
        lambda: rasters.saved(picture(), "JPEG", quality=60, subsampling=2, progressive=True),
    ),
    "progressive, shrunk by 8": (
        "native",
        lambda: rasters.saved(picture(), "JPEG", quality=60, subsampling=2, progressive=True),
    ),
    "4:4:4, shrunk by 8": (
        "native",
        lambda: rasters.saved(picture(), "JPEG", quality=60, subsampling=0, progressive=True),
    ),
    "PNG": ("native", lambda: rasters.saved(picture(), "PNG", compress_level=1)),
    "transparent PNG": ("native", transparent),
    "PNG with a transparent color": (
        "native",
        lambda: rasters.saved(picture(), "PNG", compress_level=1, transparency=(1, 2, 3)),
    ),
    "TIFF": ("native", lambda: rasters.saved(picture(), "TIFF")),
    "TIFF of one strip": (
        "native",
        lambda: rasters.saved(picture(), "TIFF", compression="tiff_lzw", tiffinfo={278: 3_840}),
    ),
    "TIFF of a palette": ("pillow", lambda: rasters.saved(picture(2_400).quantize(), "TIFF")),
    "interlaced PNG": ("pillow", interlaced),
    "WebP": (WEBP, lambda: rasters.saved(picture(), "WEBP", lossless=False, method=0)),
    "WebP, not shrunk": (
        WEBP,
        lambda: rasters.saved(picture(960), "WEBP", lossless=False, method=0),
    ),
    "lossless WebP": (
        WEBP,
        lambda: rasters.saved(picture(), "WEBP", lossless=True, method=0, quality=0),
    ),
    "animated WebP": ("pillow", animated),
}
IN_CI = ("baseline", "progressive", "PNG", "TIFF of one strip", "interlaced PNG", "WebP")


def needs(path: str) -> None:
    if path == "native" and not decode.is_built():
        pytest.skip(jpegs.NO_KERNEL)
    if path == "vips":
        pytest.importorskip("pyvips", reason="no pyvips; pip install 'fastfeed[vips]'")


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="no /proc: peaks of memory are read on Linux"
)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in IN_CI else [pytest.mark.nightly]) for name in FILES],
)
def test_the_cost_is_what_it_takes(name, tmp_path):
    path, make = FILES[name]
    needs(path)
    side = 256 if "shrunk by 8" in name else 512
    (tmp_path / "file").write_bytes(make())
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "file"), str(side)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    taken, shape, measured, said, peak = json.loads(done.stdout)
    assert taken == path and shape == [side, side, 3]
    assert measured - 6e6 <= said <= 2 * measured + 16e6, (measured, said)
    if path != "pillow" and name != "lossless WebP":
        assert peak - (tmp_path / "file").stat().st_size < 200e6


def said(blob: bytes, size: tuple[int, int] = (512, 512)) -> int:
    found = rasters.info_of(blob)
    return cost(found, len(blob), (0, 0, found.height, found.width), size)


def test_costs_follow_what_is_in_the_file():
    small = Image.fromarray(jpegs.textured(600, 800))
    progressive = {
        s: said(rasters.saved(small, "JPEG", quality=90, progressive=True, subsampling=s))
        for s in (0, 2)
    }
    if decode.is_built():
        plain = said(rasters.saved(small, "JPEG", quality=90))
        assert progressive[0] - plain > 1.9 * (progressive[2] - plain) > 2 * 600 * 800, (
            "three or one and a half samples"
        )
    inks = small.convert("CMYK")
    assert (
        said(rasters.saved(inks, "JPEG", quality=90, progressive=True))
        > said(rasters.saved(inks, "JPEG", quality=90)) + 8 * 600 * 800
    )
    assert said(rasters.saved(inks, "JPEG", quality=90), (60, 80)) < said(
        rasters.saved(inks, "JPEG", quality=90), (500, 700)
    )
    assert said(rasters.saved(small, "WEBP")) > said(rasters.saved(small, "PNG"))


PORTABLE_MAPS = (".pbm.jpg", ".pgm.jpg", ".ppm.jpg")  # images, whatever their names end in
PROGRAM = """
import json, resource, sys, time
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
import numpy as np
from fastfeed.decode import DecodeFailure
from fastfeed.preprocess.pixels import decode, image_info
from fastfeed.preprocess.pixels.decode import cost
image_info.LARGE = int(sys.argv[2])
rasterizer, slowest = decode.Rasterizer(), 0.0
for path in sorted(Path(sys.argv[1]).rglob("*")):
    if not path.is_file():
        continue
    began, blob = time.process_time(), path.read_bytes()
    found = image_info.image_info(blob)
    if not isinstance(found, DecodeFailure):
        box = (0, 0, found.height, found.width)
        assert cost(found, len(blob), box, (32, 32)) > 0
        found = rasterizer.pixels(blob, found, box, (32, 32))
    if not isinstance(found, DecodeFailure):
        assert found.shape == (32, 32, 3) and found.dtype == np.uint8 and found.flags.c_contiguous, path
    slowest = max(slowest, time.process_time() - began)
    print(json.dumps([path.name, path.parent.name, found.reason if isinstance(found, DecodeFailure) else None]))
status = Path("/proc/self/status").read_text()  # getrusage counts what the process that started this one had as well
print(json.dumps([slowest, int(status.split("VmHWM:")[1].split()[0])]))
"""


def test_every_file_ends_as_pixels_or_as_a_reason(data):
    """Through libvips, where it is installed, whatever it could be asked for."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(data / "bad-images"), "1"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *rows, (slowest_s, peak_kb) = (json.loads(line) for line in done.stdout.splitlines())
    assert len(rows) == sum(path.is_file() for path in Path(data / "bad-images").rglob("*"))
    reasons = Counter(reason for _, _, reason in rows)
    assert set(reasons) - {None} <= set(REASONS) and reasons[None] > 0.4 * len(rows)
    for name, folder, reason in rows:
        if folder == "not-images" and not name.endswith(PORTABLE_MAPS):
            assert reason in ("not_image", "empty", "unsupported_format", "corrupt"), name
    assert peak_kb < 1_000_000
    assert slowest_s < 20, "CPU seconds of one file: nothing hangs"


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_memory_that_is_not_there_is_a_reason(format, tmp_path):
    """Of one image, not the end of the job, and not its fault."""
    (tmp_path / "file").write_bytes(rasters.saved(jpegs.textured(40, 60), format))
    program = """
import resource, sys
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.image_info import image_info
blob = open(sys.argv[1], "rb").read()
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
print(Rasterizer().pixels(blob, image_info(blob), (0, 0, 40, 60), (30_000, 30_000)).reason)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["oom"], (done.stdout, done.stderr)
