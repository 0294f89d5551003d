"""What the native extension decodes, and the rest through Pillow: one batch, the verdicts and
pixels of either.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections import Counter

import numpy as np
import pytest
from helpers import jpegs
from helpers.jpegs import LAYOUTS, encoded
from helpers.photos import folder, picture
from PIL import Image

import fastfeed as ff
from fastfeed.backends.cpu import backend as cpu
from fastfeed.decode import NativeEngine
from fastfeed.decode.executor import Executor, open_executor
from fastfeed.errors import ConfigError
from fastfeed.ops import Decode, Resize
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime import extension
from fastfeed.runtime.timeline import Timeline
from fastfeed.spec import ENCODED

needs_kernel = pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)
PIXELS = picture(3, (48, 64))
RGB = Image.fromarray(PIXELS)


def other(format: str, image: Image.Image = RGB, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def run(op, decode, blobs, size=(20, 30), filter="bilinear"):
    """Pixels of a feed's threads, and per blob None or its DecodeFailure."""
    program = fuse([op, Resize(size, filter=filter)], ENCODED)
    executor, never = open_executor(program, decode, 2), threading.Event()
    backend = cpu.compile(program, executor, Timeline(), len(blobs))
    samples = executor.borrow(blobs, never)
    skip = np.zeros(len(blobs), bool)
    skip[list(samples.bad)] = True
    work = program.work([np.empty((0, 0))], np.maximum(samples.sizes, 1))
    out = np.zeros((len(blobs), *size, 3), np.uint8)
    bad = samples.bad | backend.render_native(samples, skip, work, out, never)
    executor.close()
    return out, [bad.get(row) for row in range(len(blobs))]


CLEAR = RGB.convert("RGBA")
CLEAR.putalpha(RGB.getchannel("G"))
CMYK = encoded(RGB.convert("CMYK"), quality=97)
JPEG = encoded(PIXELS, quality=95)
FRAME = JPEG.index(b"\xff\xc0")
FORMATS = extension.formats()
NOT_THE_KERNELS = {
    "AVIF": other("AVIF"),
    "BMP": other("BMP"),
    "TIFF of a palette": other("TIFF", RGB.quantize()),
    "GIF": other("GIF"),
    "PPM": other("PPM"),
    "JPEG 2000": other("JPEG2000"),
    "CMYK JPEG": CMYK,
}
THE_KERNELS = {name: make(48, 64, 7) for name, make in LAYOUTS.items()}
THE_KERNELS |= {"PNG with alpha": other("PNG", CLEAR)}
THE_KERNELS |= {
    "PNG": other("PNG"),
    "PNG gray": other("PNG", RGB.convert("L")),
    "TIFF": other("TIFF"),
}
(THE_KERNELS if "WebP" in FORMATS else NOT_THE_KERNELS)["WebP"] = other("WEBP", quality=80)
THE_KERNELS |= {
    f"orientation {n}": jpegs.with_orientation(PIXELS, n, n % 2 == 0) for n in range(1, 9)
}
BAD = {  # name -> (bytes, Pillow's reason, the router's)
    "empty": (b"", "empty", "empty"),
    "text": (b"<html>", "not_image", "not_image"),
    "zeros": (bytes(1000), "not_image", "not_image"),
    "half a JPEG": (JPEG[: len(JPEG) // 2], "truncated", "truncated"),
    "40 bytes of a JPEG": (JPEG[:40], "truncated", "truncated"),
    "half a progressive JPEG": (THE_KERNELS["progressive"][:900], "truncated", "truncated"),
    "half a CMYK JPEG": (CMYK[: len(CMYK) // 2], "truncated", "truncated"),
    "half a PNG": (THE_KERNELS["PNG"][:900], "truncated", "truncated"),
    "Photoshop": (b"8BPS" + bytes(64), "unsupported_format", "unsupported_format"),
    "huge": (JPEG[: FRAME + 5] + b"\xff\xf0\xff\xf0" + JPEG[FRAME + 9 :], "bomb", "bomb"),
    "no width": (JPEG[: FRAME + 7] + b"\0\0" + JPEG[FRAME + 9 :], "corrupt", "corrupt"),
    "no end marker": (JPEG[:-2], "truncated", "truncated"),
}


@needs_kernel
def test_one_batch_of_all_kinds():
    """What native code declines has Pillow's very pixels, wherever in the batch it stands."""
    blobs = {**NOT_THE_KERNELS, **THE_KERNELS, **{name: blob for name, (blob, _, _) in BAD.items()}}
    order = np.random.default_rng(0).permutation(len(blobs))
    names, blobs = [list(blobs)[i] for i in order], [list(blobs.values())[i] for i in order]
    op = Decode(matte=(10, 20, 30))
    for filter in jpegs.FILTERS:
        got, why = run(op, "auto", blobs, filter=filter)
        want, reasons = run(op, "pillow", blobs, filter=filter)
        for i, name in enumerate(names):
            reason, expected = (bad and bad.reason for bad in (why[i], reasons[i]))
            if name in BAD:
                assert (expected, reason) == BAD[name][1:], name
                continue
            assert (reason, expected) == (None, None), name
            limit = 0 if name in NOT_THE_KERNELS else 1
            assert np.abs(got[i].astype(int) - want[i]).max() <= limit, (name, filter)


@needs_kernel
def test_headers_say_who_decodes():
    blobs = [JPEG, THE_KERNELS["PNG"], THE_KERNELS["TIFF"], NOT_THE_KERNELS["AVIF"], CMYK]
    executor = open_executor(fuse([Resize((8, 8))], ENCODED), "auto", 1)
    samples = executor.borrow(blobs, threading.Event())
    assert not samples.bad and sorted(samples.others) == [3, 4]
    assert samples.sizes.tolist() == [[48, 64]] * 5
    assert executor.name == f"native ({', '.join(FORMATS)}), pillow (the rest)"
    executor.close()
    assert FORMATS in (("JPEG", "PNG", "WebP", "TIFF"), ("JPEG", "PNG", "TIFF"))


def test_asking_for_the_kernel_where_it_is_not_built(monkeypatch):
    monkeypatch.setattr("fastfeed.decode.native.is_built", lambda: False)
    text = r"decoding needs the native extension, .*g\+\+ libjpeg-dev .*, then fastfeed again"
    program = fuse([Resize((8, 8))], ENCODED)
    for opened in (
        lambda: NativeEngine(Decode()),
        lambda: Executor(Decode(), 1),
        lambda: open_executor(program, "native", 1),
        lambda: open_executor(program, "pillow", 1),
    ):
        with pytest.raises(ConfigError, match=text) as raised:
            opened()
        assert raised.value.field == "decode"


@needs_kernel
def test_feeds_with_either_engine_agree(tmp_path):
    source = ff.ImageFolder(folder(tmp_path, {"a": 12, "b": 12}, (90, 120)))
    ops, seen, lines = [ff.RandomResizedCrop(32), ff.RandomFlip()], {}, {}
    for decode in ("auto", "native", "pillow"):
        with ff.Feed(source, ops, batch=8, seed=3, threads=2, decode=decode) as feed:
            lines[decode] = str(feed)
            seen[decode] = list(feed.batches(epoch=0))
    assert f"native ({', '.join(FORMATS)}), pillow (the rest)" in lines["auto"]
    assert "native (" not in lines["pillow"]
    assert len(seen["auto"]) == 3
    for auto, native, pillow in zip(seen["auto"], seen["native"], seen["pillow"], strict=True):
        assert np.array_equal(auto.images, native.images)
        assert np.array_equal(auto.ids, pillow.ids) and np.array_equal(auto.labels, pillow.labels)
        assert np.abs(auto.images.astype(int) - pillow.images.astype(int)).mean() < 2


PROGRAM = """
import json, resource, sys, threading
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
import numpy as np
from helpers.engines import Routed
from fastfeed.decode import DecodeFailure, PillowEngine, Request
from fastfeed.ops import Decode
from fastfeed.ops.program.compile import Windows
op = Decode()
for path in sorted(Path(sys.argv[1]).iterdir()):
    blob, row = path.read_bytes(), [path.name]
    for engine in (Routed(op), PillowEngine(op)):
        (header,) = engine.probe([blob])
        out, why = np.full((1, 16, 16, 3), 7, np.uint8), header
        if not isinstance(header, DecodeFailure):
            box = np.array([[0, 0, header.height, header.width]], float)
            windows = Windows(box, np.zeros((1, 2), bool), np.full((1, 2), 16))
            (why,) = engine.decode(Request([blob], [header], windows, "bilinear"), out, threading.Event())
            assert why is None or not out.any(), path
        row.append((why and why.reason, out.astype(int).tolist() if why is None else None))
    print(json.dumps(row))
"""


# Progressive, most scans missing: Pillow lets libjpeg guess (block smoothing) what they would say,
# the native extension does not
FEW_SCANS = ("wuffs__data_peacock.progressive.scan000.jpeg",)


@needs_kernel
@pytest.mark.skipif(sys.platform == "win32", reason="memory is limited by setrlimit")
def test_malformed_files(data):
    """Every one ends, the same way through either engine but for the cases below."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(data / "bad-images" / "jpeg")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == len(list((data / "bad-images" / "jpeg").iterdir()))
    verdicts = Counter((mine, theirs) for _, (mine, _), (theirs, _) in rows)
    print()
    for (mine, theirs), count in sorted(verdicts.items(), key=str):
        print(f"{count:4}  router: {mine or 'pixels':20} pillow: {theirs or 'pixels'}")
    lost, gained = [], []
    for name, (mine, ours), (theirs, pixels) in rows:
        if mine is None and theirs is None:
            off = np.abs(np.array(ours) - np.array(pixels)).max()
            assert off <= 8 or name in FEW_SCANS, f"{name}: {off} levels"
        elif theirs is None:
            lost.append(name)
        elif mine is None:
            gained.append(name)
    print("pixels through Pillow alone:", *lost, sep="\n    ")
    print("pixels through the native extension alone:", *gained, sep="\n    ")
    # Pillow shows what libjpeg repaired: bad Huffman codes, segments that end early, restarts out
    # of step. The native extension does not take a repaired picture for a good one
    assert len(lost) <= 15 and all(not name.startswith(("mei", "exifs")) for name in lost)
    # an empty JFIF segment: Pillow 12 stumbles over the density that it lacks
    assert set(gained) <= {"12m__jpeg_jfif-bogus-empty-jfif-segment.jpg"}
