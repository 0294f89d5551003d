"""The native extension as a callee: where it writes, what it refuses, and that no bytes whatsoever
hurt it.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
import threading

import numpy as np
import pytest
from helpers import jpegs
from helpers.jpegs import LAYOUTS, decode, decode_one, encoded, textured
from PIL import Image

from fastfeed.decode import DecodeFailure, Header, NativeEngine, Request
from fastfeed.ops import Decode
from fastfeed.ops.program.compile import Windows

pytestmark = pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)

GOOD = encoded(textured(24, 40))
WHOLE = (0, 0, 24, 40)
BASELINE, PROGRESSIVE = encoded(textured(96, 80)), encoded(textured(96, 80), progressive=True)
DAMAGE = {"truncated", "corrupt", "unsupported_format", "bomb", "not_image"}


def frame(blob: bytes, **fields: int) -> bytes:
    """The file with other words in its frame header."""
    out = bytearray(blob)
    at = next(i for i in range(2, len(out)) if out[i] == 0xFF and out[i + 1] in (0xC0, 0xC2))
    places = {
        "marker": (at + 1, 1),
        "precision": (at + 4, 1),
        "height": (at + 5, 2),
        "width": (at + 7, 2),
    }
    for name, value in ({"components": 3} | fields).items():
        first, n = places.get(name, (at + 9, 1))
        out[first : first + n] = value.to_bytes(n, "big")
    return bytes(out)


def test_writes_its_own_slots_and_nothing_else():
    blobs = [LAYOUTS["4:2:0"](30, 50, i) for i in range(4)]
    blobs[2] = blobs[2][:200]
    flips = [(False, False), (True, False), (False, True), (True, True)]
    boxes = [(1, 2, 20, 30)] * 4
    want, why = decode(blobs, boxes, (11, 13), flips=flips)
    assert why == [None, None, "truncated", None]
    for orientation in (1, 6):
        if orientation == 6:
            blobs = [jpegs.with_orientation(textured(50, 60, i), 6, True) for i in range(4)]
            want, _ = decode(blobs, boxes, (11, 13), flips=flips)
        for every in (1, 2):  # adjacent slots, and every other one
            whole = np.full((4 * every, 11 + 4, 13 + 6, 3), 99, np.uint8)
            out = whole[::every, 2:-2, 3:-3]
            decode(blobs, boxes, (11, 13), flips=flips, out=out)
            assert np.array_equal(out, want)
            out[:] = 99
            assert (whole == 99).all(), "bytes around the slots were written"


def mapped(blob: bytes) -> mmap.mmap:
    held = mmap.mmap(-1, len(blob))
    held[:] = blob
    return held


@pytest.mark.parametrize(
    "hold", [bytearray, memoryview, lambda blob: np.frombuffer(blob, np.uint8), mapped]
)
def test_takes_files_where_they_lie(hold):
    blobs = [GOOD, BASELINE[:300], PROGRESSIVE]
    want, why = decode(blobs, [WHOLE] * 3, (8, 8))
    got, again = decode([hold(blob) for blob in blobs], [WHOLE] * 3, (8, 8))
    assert again == why == [None, "truncated", None]
    assert np.array_equal(got, want)


GIVEN = {
    "blobs": [GOOD],
    "boxes": np.array([WHOLE], float),
    "flips": np.zeros((1, 2), bool),
    "out": np.zeros((1, 8, 8, 3), np.uint8),
    "codes": np.zeros(1, np.int8),
    "filter": 0,
    "max_pixels": 10**9,
    "enlarge": 1.5,
}
READ_ONLY = np.zeros((1, 8, 8, 3), np.uint8)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("blobs", [GOOD, GOOD], ValueError),
        ("blobs", [], ValueError),
        ("blobs", ["text"], TypeError),
        ("blobs", [None], TypeError),
        ("blobs", GOOD, TypeError),
        ("boxes", np.zeros((2, 4)), ValueError),
        ("boxes", np.zeros((1, 3)), TypeError),
        ("boxes", np.zeros((1, 4), np.float32), TypeError),
        ("boxes", np.zeros(4), TypeError),
        ("boxes", np.full((1, 4), np.nan), ValueError),
        ("boxes", np.array([[0, 0, np.inf, 4]]), ValueError),
        ("boxes", np.array([[0.0, 0, 0, 4]]), ValueError),
        ("boxes", np.array([[0.0, 0, 4, -4]]), ValueError),
        ("boxes", np.array([[0.0, 1e12, 4, 4]]), ValueError),
        ("flips", np.zeros((2, 2), bool), ValueError),
        ("flips", np.zeros((1, 2), np.uint8), TypeError),
        ("out", np.zeros((1, 8, 8, 3), np.float32), TypeError),
        ("out", np.zeros((1, 8, 8), np.uint8), TypeError),
        ("out", np.zeros((1, 8, 8, 4), np.uint8), ValueError),
        ("out", np.zeros((1, 8, 8, 2), np.uint8), ValueError),
        ("out", np.zeros((2, 8, 8, 3), np.uint8), ValueError),
        ("out", np.zeros((1, 0, 8, 3), np.uint8), ValueError),
        ("out", np.zeros((1, 3, 8, 8), np.uint8).transpose(0, 2, 3, 1), ValueError),
        ("out", np.zeros((1, 8, 8, 3), np.uint8)[:, :, ::-1], ValueError),
        ("out", READ_ONLY, TypeError),
        ("codes", np.zeros(2, np.int8), ValueError),
        ("codes", np.zeros(1, np.int64), TypeError),
        ("filter", 6, ValueError),
        ("filter", -1, ValueError),
    ],
)
def test_wrong_arguments_raise(name, value, error):
    pool = jpegs.native.Pool(1)
    pool.decode(**GIVEN)
    assert GIVEN["codes"].tolist() == [0]
    with pytest.raises(error):
        pool.decode(**(GIVEN | {name: value}))


@pytest.mark.parametrize("size", [(1, 1), (16, 16), (96, 80)])
@pytest.mark.parametrize("blob", [BASELINE, PROGRESSIVE], ids=["baseline", "progressive"])
def test_a_file_cut_anywhere_is_bad(blob, size):
    """Also where the cut lies below the window and its pixels are all there."""
    end = blob.rindex(b"\xff\xd9") + 2
    assert end == len(blob)
    for box in ((0, 0, 96, 80), (0, 0, 5, 5), (90, 70, 6, 10)):
        want = decode_one(blob, box, size)
        assert not isinstance(want, str)
        assert np.array_equal(decode_one(blob + b"\0garbage" * 9, box, size), want), (
            "what follows the image is nothing"
        )
        for cut in {0, 1, 2, 3, 4, *range(5, end, end // 60), end - 2, end - 1}:
            why = decode_one(blob[:cut], box, size)
            assert why in ("truncated", "corrupt", "not_image"), f"cut at {cut} of {end}: {why}"
            assert cut < 4 or why != "not_image"


@pytest.mark.parametrize("layout", ["4:2:0", "4:1:1", "gray", "progressive", "restarts"])
def test_flipped_bytes_end_as_pixels_or_as_a_reason(layout):
    good, rng = LAYOUTS[layout](60, 70, 0), np.random.default_rng(1)
    ends = set()
    for i in range(400):
        blob = bytearray(good)
        for at in rng.integers(2 if i % 2 else 160, len(blob), 1 + i % 3):
            blob[at] = rng.integers(256)
        why = decode_one(
            bytes(blob),
            (3.5, 2, 50, 60),
            (9, 40 if i % 5 else 3),
            jpegs.FILTERS[i % 4],
            max_pixels=10**7,
        )
        ends.add(why if isinstance(why, str) else None)
    assert ends <= DAMAGE | {None}
    assert {None, "corrupt"} <= ends


CMYK = Image.fromarray(textured(24, 40)).convert("CMYK")
REFUSED = {
    "empty": (b"", "not_image"),
    "text": (b"<html>", "not_image"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(99), "unsupported_format"),
    "only the start": (b"\xff\xd8\xff", "not_image"),
    "no frame": (b"\xff\xd8\xff\xd9", "truncated"),
    "cmyk": (encoded(CMYK), "unsupported_format"),
    "12 bits": (frame(GOOD, marker=0xC1, precision=12), "unsupported_format"),
    "lossless": (frame(GOOD, marker=0xC3), "unsupported_format"),
    "arithmetic": (frame(GOOD, marker=0xC9), "unsupported_format"),
    "arithmetic progressive": (frame(PROGRESSIVE, marker=0xCA), "unsupported_format"),
    "hierarchical": (frame(GOOD, marker=0xC5), "unsupported_format"),
    "two components": (frame(GOOD, components=2), "unsupported_format"),
    "no height": (frame(GOOD, height=0), "corrupt"),
    "no width": (frame(GOOD, width=0), "corrupt"),
    "bomb by size": (frame(GOOD, height=65_000, width=65_000), "bomb"),
    "bomb by density": (frame(GOOD, height=10_000, width=10_000), "bomb"),
    "no end": (GOOD[:-2], "truncated"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    blob, reason = REFUSED[name]
    neighbors = [GOOD, blob, GOOD]
    out, why = decode(neighbors, [WHOLE] * 3, (9, 9))
    assert why == [None, reason, None]
    assert not out[1].any()
    assert np.array_equal(out[0], out[2]) and out[0].any()


def test_the_limit_of_pixels_counts():
    assert decode_one(GOOD, WHOLE, (4, 4), max_pixels=24 * 40 - 1) == "bomb"
    assert not isinstance(decode_one(GOOD, WHOLE, (4, 4), max_pixels=24 * 40), str)


def test_the_engine_stops_between_calls():
    engine, stop = NativeEngine(Decode()), threading.Event()
    headers = engine.probe([GOOD] * 3)
    assert headers == [Header(24, 40, "JPEG")] * 3
    windows = Windows(np.array([WHOLE] * 3, float), np.zeros((3, 2), bool), np.full((3, 2), 8))
    out = np.full((3, 8, 8, 3), 7, np.uint8)
    stop.set()
    engine.decode(Request([GOOD] * 3, headers, windows, "box"), out, stop)
    assert (out == 7).all()

    class Second:  # set from the second look on
        looks = 0

        def is_set(self) -> bool:
            self.looks += 1
            return self.looks > 1

    large = [Header(4000, 4000, "JPEG")] * 3  # as if each were a call of its own
    engine.decode(Request([GOOD] * 3, large, windows, "box"), out, Second())
    assert (out[0] != 7).any() and (out[1:] == 7).all()


def test_the_engine_says_why():
    engine = NativeEngine(Decode())
    blobs = [GOOD, GOOD[:-9], b"", GOOD[:40]]
    headers = engine.probe(blobs)
    assert [h.reason if isinstance(h, DecodeFailure) else None for h in headers] == [
        None,
        None,
        "not_image",
        "truncated",
    ]
    out = np.full((2, 8, 8, 3), 7, np.uint8)
    windows = Windows(np.array([WHOLE] * 2, float), np.zeros((2, 2), bool), np.full((2, 2), 8))
    done = engine.decode(
        Request(blobs[:2], headers[:2], windows, "bilinear"), out, threading.Event()
    )
    assert done == [None, DecodeFailure("truncated", "the file ends before the image does")]


SUB_INTERPRETER = """
try:
    import _interpreters as interpreters  # Python 3.13
except ImportError:
    import _xxsubinterpreters as interpreters
number = interpreters.create()
try:
    failed = interpreters.run_string(number, "import fastfeed._native")  # returned since 3.13, raised before
except Exception as error:
    failed = error
print(failed)
"""


def test_a_sub_interpreter_is_refused():
    done = subprocess.run(
        [sys.executable, "-c", SUB_INTERPRETER], capture_output=True, text=True, timeout=60
    )
    assert "sub-interpreter" in done.stdout.replace("subinterpreter", "sub-interpreter"), (
        done.stdout + done.stderr
    )
