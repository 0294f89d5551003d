"""Files into smaller JPEGs: what is in them, that they do not depend on chance or company, and what
is refused.
"""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers import jpegs, pngs
from helpers.jpegs import LAYOUTS, encoded, resized, shown, textured, with_orientation
from PIL import Image

from fastfeed.decode import DecodeFailure, Recoder
from fastfeed.errors import ConfigError
from fastfeed.ops import (
    CenterCrop,
    Decode,
    Invert,
    Normalize,
    RandomFlip,
    Resize,
    ToFloat,
    ToLayout,
)
from fastfeed.runtime.extension import is_built

ENGINES = [
    "pillow",
    pytest.param("native", marks=pytest.mark.skipif(not is_built(), reason=jpegs.NO_KERNEL)),
]
SMALL = Resize(48, filter="lanczos")


def opened(file) -> Image.Image:
    assert isinstance(file, bytes), file
    return Image.open(io.BytesIO(file))


def resident() -> int:
    import resource  # Windows has none

    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("engine", ENGINES)
def test_short_side_and_shape(engine):
    recode = Recoder([SMALL], threads=2, decode=engine)
    blobs = [encoded(textured(h, w)) for h, w in ((96, 200), (200, 96), (100, 100), (20, 30))]
    images = [opened(file) for file in recode(blobs)]
    assert [image.size for image in images] == [(100, 48), (48, 100), (48, 48), (72, 48)]
    assert {image.mode for image in images} == {"RGB"} and recode([]) == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("subsampling", ["4:2:0", "4:4:4"])
@pytest.mark.parametrize("quality", [1, 50, 90, 100])
def test_the_file_says_what_was_asked_for(engine, quality, subsampling):
    """Tables and sampling are those Pillow writes for the same words; nothing else is in the
    file.
    """
    (file,) = Recoder([SMALL], quality=quality, subsampling=subsampling, decode=engine)(
        [encoded(textured(96, 120))]
    )
    image = opened(file)
    image.load()
    want = opened(encoded(textured(48, 60), quality=quality, subsampling=subsampling))
    want.load()
    assert image.quantization == want.quantization and image.layer == want.layer
    assert (
        "exif" not in image.info
        and "progressive" not in image.info
        and "icc_profile" not in image.info
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_optimized_files_are_smaller_and_hold_the_same(engine):
    blob = encoded(textured(96, 120), quality=95)
    (plain,), (small,) = (
        Recoder([SMALL], decode=engine)([blob]),
        Recoder([SMALL], optimize=True, decode=engine)([blob]),
    )
    assert len(small) < len(plain) and np.array_equal(shown(small), shown(plain))


@pytest.mark.parametrize("engine", ENGINES)
def test_pixels_are_those_of_the_filter_then_of_the_encoder(engine):
    """At quality 100 without subsampling what the encoder does is small: the resize must be
    seen.
    """
    blob = encoded(textured(90, 120), quality=95, subsampling=0)
    (file,) = Recoder(
        [Resize((60, 70), filter="lanczos")], quality=100, subsampling="4:4:4", decode=engine
    )([blob])
    want = resized(shown(blob), (0, 0, 90, 120), (60, 70), "lanczos")
    off = np.abs(shown(file) - want)
    assert off.max() <= 6 and off.mean() <= 1


@pytest.mark.skipif(not is_built(), reason=jpegs.NO_KERNEL)
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("subsampling", ["4:2:0", "4:4:4"])
def test_kernel_and_pillow_write_the_same_bytes_for_the_same_pixels(subsampling, optimize):
    """Of a PNG at its own size both get exactly its pixels."""
    blob, ops = png(textured(37, 51)), [Resize((37, 51), filter="lanczos")]
    ours, theirs = (
        Recoder(ops, quality=83, subsampling=subsampling, optimize=optimize, decode=decode)([blob])
        for decode in ("native", "pillow")
    )
    assert ours == theirs


@pytest.mark.parametrize("engine", ENGINES)
def test_pictures_come_out_upright_and_cropped(engine):
    for orientation in range(1, 9):
        blob = with_orientation(textured(80, 120), orientation, True)
        upright = shown(blob)
        (file,) = Recoder([CenterCrop(40)], quality=100, subsampling="4:4:4", decode=engine)([blob])
        h, w = upright.shape[:2]
        want = upright[(h - 40) // 2 : (h + 40) // 2, (w - 40) // 2 : (w + 40) // 2]
        assert np.abs(shown(file).astype(int) - want).max() <= 5, orientation


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_bytes_for_any_threads_and_batches(engine):
    blobs = [
        LAYOUTS[name](90 + 7 * i, 70 + 9 * i, i) for i, name in enumerate([*LAYOUTS, *LAYOUTS])
    ]
    blobs[3] = blobs[3][:-200]
    blobs[4] = png(textured(60, 80))
    want = Recoder([SMALL], threads=1, decode=engine)(blobs)
    assert [i for i, file in enumerate(want) if isinstance(file, DecodeFailure)] == [3]
    for threads in (1, 4):
        recode = Recoder([SMALL], threads=threads, decode=engine)
        assert recode(blobs) == want
        assert [recode([blob])[0] for blob in blobs] == want
        assert recode(blobs[::-1]) == want[::-1]


@pytest.mark.parametrize("engine", ENGINES)
def test_calls_side_by_side(engine):
    blobs = [encoded(textured(60 + i, 90, i)) for i in range(12)]
    recode, found = Recoder([SMALL], threads=2, decode=engine), []
    want = recode(blobs)
    threads = [threading.Thread(target=lambda: found.append(recode(blobs))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want] * 4


@pytest.mark.parametrize("engine", ENGINES)
def test_noise_at_full_quality_is_larger_than_its_pixels(engine):
    """The space for a file is a guess; this one needs more than a byte per pixel several times
    over.
    """
    pixels = np.random.default_rng(0).integers(0, 256, (200, 300, 3)).astype(np.uint8)
    blobs = [encoded(pixels, quality=100, subsampling=0), encoded(textured(64, 64))]
    large, small = Recoder([Resize((400, 600))], quality=100, subsampling="4:4:4", decode=engine)(
        blobs
    )
    assert opened(large).size == opened(small).size == (600, 400) and len(large) > 240_000 * 1.5


@pytest.mark.parametrize("engine", ENGINES)
def test_each_bad_file_has_its_reason(engine):
    good = encoded(textured(64, 64))
    blobs = [
        b"",
        b"GIF8",
        good[:-300],
        good[:40],
        png(textured(9, 9))[:60],
        good,
        b"\xff\xd8" + bytes(500),
    ]
    reasons = [
        file.reason if isinstance(file, DecodeFailure) else None
        for file in Recoder([SMALL], decode=engine)(blobs)
    ]
    assert reasons[0] == "empty" and reasons[5] is None and None not in reasons[:5] + reasons[6:]
    assert set(reasons) <= {
        None,
        "empty",
        "not_image",
        "truncated",
        "corrupt",
        "unsupported_format",
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_what_becomes_too_long_for_a_jpeg(engine):
    long, fine = Recoder([Resize(700)], decode=engine)(
        [encoded(textured(2, 400)), encoded(textured(8, 9))]
    )
    assert (
        isinstance(long, DecodeFailure)
        and long.reason == "bomb"
        and "140000x700" in long.detail
        and isinstance(fine, bytes)
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_results_are_limited_in_pixels_too(engine):
    """A line of pixels with a short side of 300 is a large picture in a tiny file."""
    recode = Recoder([Decode(max_pixels=100_000), Resize(300)], decode=engine)
    line, fine = recode([encoded(textured(1, 100)), encoded(textured(30, 31))])
    assert (
        isinstance(line, DecodeFailure)
        and line.reason == "bomb"
        and "30000x300" in line.detail
        and isinstance(fine, bytes)
    )


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.skipif(not is_built(), reason=jpegs.NO_KERNEL)
def test_memory_for_a_large_result_is_given_back():
    recode = Recoder([Resize(2000)], threads=1, decode="native")
    small = encoded(textured(40, 60))
    assert opened(recode([small])[0]).size == (3000, 2000)
    before = resident()
    assert opened(recode([encoded(textured(10, 100))])[0]).size == (
        20_000,
        2000,
    )  # 120 MB of pixels
    assert resident() - before < 40e6


@pytest.mark.skipif(not is_built(), reason=jpegs.NO_KERNEL)
def test_what_the_kernel_declines_goes_through_pillow():
    pixels = textured(60, 90)
    cmyk = encoded(Image.fromarray(pixels).convert("CMYK"))
    clear = pngs.png(pixels, key=(1, 2, 3), interlaced=True)
    files = Recoder([SMALL])([cmyk, clear, encoded(pixels)])
    assert files[:2] == Recoder([SMALL], decode="pillow")([cmyk, clear])
    assert [opened(file).size for file in files] == [(72, 48)] * 3


@pytest.mark.skipif(not is_built(), reason=jpegs.NO_KERNEL)
def test_pngs_are_recoded_by_the_kernel():
    pixels = textured(60, 90)
    (got,), (want,) = (
        Recoder([SMALL], decode=decode)([png(pixels)]) for decode in ("auto", "pillow")
    )
    assert got != want
    assert np.abs(np.asarray(opened(got)).astype(int) - np.asarray(opened(want))).mean() < 2


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stop_is_obeyed(engine):
    stop = threading.Event()
    stop.set()
    files = Recoder([SMALL], decode=engine)([encoded(textured(64, 64))] * 3, stop)
    assert len(files) == 3 and all(isinstance(file, DecodeFailure) for file in files)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"quality": 0}, "quality must be an integer in"),
        ({"quality": True}, "quality must be an integer in"),
        ({"quality": 90.0}, "quality must be an integer in"),
        ({"subsampling": "4:1:1"}, "subsampling must be one of 4:2:0, 4:4:4"),
        ({"threads": 0}, "threads must be an integer >= 1"),
        ({"decode": "gpu"}, "decode must be auto, native or pillow"),
        ({"ops": [RandomFlip()]}, "is random"),
        (
            {"ops": [Resize((64, 64)), Invert()]},
            "got Invert",
        ),
        ({"ops": [Resize(9), ToFloat()]}, "ops must be geometry"),
        ({"ops": [Resize(9), Normalize((0.5,) * 3, (0.5,) * 3)]}, "ops must be geometry"),
        ({"ops": [Resize(9), ToLayout("CHW")]}, "ops must be geometry"),
        ({"ops": Resize(9)}, "must be a list of ops"),
    ],
)
def test_what_it_does_not_take(given, words):
    with pytest.raises(ConfigError, match=words):
        Recoder(**({"ops": [SMALL]} | given))


def test_it_says_what_it_does():
    assert (
        repr(Recoder([SMALL], threads=3, decode="pillow"))
        == "Recoder(JPEG, quality 90, 4:2:0, Pillow, 3 threads)"
    )
