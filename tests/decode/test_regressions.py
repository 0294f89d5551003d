"""What reviews and the fuzzer found in the native extension, and the native extension in forked
children; see tests/fuzz/README.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers import jpegs
from helpers.jpegs import decode, decode_one, encoded, textured

from fastfeed.decode import DecodeFailure, NativeEngine, Request
from fastfeed.ops import Decode
from fastfeed.ops.program.compile import Windows

pytestmark = pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)

INPUTS = {
    path.stem: path for path in sorted((Path(__file__).parents[1] / "fuzz" / "inputs").iterdir())
}
ASKED = 8  # bytes in front of the file that tell the fuzz target what to ask for


def blob(name: str) -> bytes:
    return INPUTS[name].read_bytes()[ASKED:]


@pytest.mark.parametrize("name", INPUTS)
def test_ends_as_its_name_says(name):
    engine, want = NativeEngine(Decode()), INPUTS[name].suffix[1:]
    (header,) = engine.probe([blob(name)])
    why = header
    out = np.full((1, 16, 16, 3), 7, np.uint8)
    if not isinstance(header, DecodeFailure):
        box = np.array([[0, 0, header.height, header.width]], float)
        windows = Windows(box, np.zeros((1, 2), bool), np.full((1, 2), 16))
        (why,) = engine.decode(
            Request([blob(name)], [header], windows, "bilinear"), out, threading.Event()
        )
        assert why is None or not out.any()
    assert (why.reason if isinstance(why, DecodeFailure) else "ok") == want


@pytest.mark.parametrize("name", INPUTS)
def test_no_image_depends_on_the_one_before(name):
    # libjpeg keeps quantization and Huffman tables: a file without its own was decoded with those
    # of the last image
    box, size = (0, 0, 8, 8), (8, 8)
    alone = decode([blob(name)], [box], size)
    for quality in (5, 95):
        before = encoded(textured(16, 16), quality=quality, optimize=True)
        pixels, why = decode([before, blob(name)], [box, box], size)
        assert why == [None, *alone[1]]
        assert np.array_equal(pixels[1], alone[0][0])


def test_a_second_frame_is_corrupt():
    # the header said the second one's size: decoders that take the first would write more than
    # there is room for
    large, small = (encoded(textured(size, size)) for size in (48, 16))
    at, length = small.index(b"\xff\xc0"), 19
    scan = large.index(b"\xff\xda")
    (header,) = NativeEngine(Decode()).probe(
        [large[:scan] + small[at : at + length] + large[scan:]]
    )
    assert isinstance(header, DecodeFailure) and header.reason == "corrupt"


def test_tables_of_an_optimized_file_stay_in_that_file():
    # libjpeg keeps them: a worker's next file was written with codes that its own symbols may not
    # have
    engine = NativeEngine(Decode())
    windows = Windows(
        np.array([[0, 0, 48, 48]], float), np.zeros((1, 2), bool), np.full((1, 2), 48)
    )

    def recoded(pixels, optimize):
        files = [encoded(pixels, quality=95)]
        request = Request(files, engine.probe(files), windows, "bilinear")
        return engine.recode(request, 90, True, optimize, threading.Event())

    want = recoded(textured(48, 48), False)
    assert isinstance(recoded(np.zeros((48, 48, 3), np.uint8), True)[0], bytes)
    assert recoded(textured(48, 48), False) == want


def test_a_part_is_what_the_whole_has_there():
    # where scans are missing libjpeg guesses from neighbors, and has others at the edge of a region
    whole = decode_one(blob("first-scan-only"), (0, 0, 48, 48), (48, 48), "box")
    for top, left in ((0, 0), (8, 8), (20, 17), (33, 40)):
        part = decode_one(blob("first-scan-only"), (top, left, 8, 8), (8, 8), "box")
        assert np.array_equal(part, whole[top : top + 8, left : left + 8])


@pytest.mark.parametrize("threads", (1, 3))
def test_a_window_outside_the_image_raises_and_the_pool_continues(threads):
    pool, good = jpegs.native.Pool(threads), encoded(textured(24, 40))
    inside = (0, 0, 24, 40)
    want, _ = decode([good], [inside], (8, 8))
    for box in (
        (0, 0, 24, 80),
        (-5, 0, 4, 4),
        (0, 0, 0, 4),
        (0, 0, float("nan"), 4),
        (0, 1e300, 4, 4),
    ):
        with pytest.raises(ValueError, match="outside"):
            decode([good] * 5, [inside, inside, box, inside, inside], (8, 8), pool=pool)
        pixels, why = decode([good] * 5, [inside] * 5, (8, 8), pool=pool)
        assert why == [None] * 5
        assert (pixels == want).all()


FORK = """
import os, signal, sys, threading
import numpy as np
from fastfeed import _native
blob = open(sys.argv[1], "rb").read()
def decode(pool, n=8):
    out, codes = np.zeros((n, 16, 16, 3), np.uint8), np.zeros(n, np.int8)
    pool.decode([blob] * n, np.array([[0, 0, 64, 64.0]] * n), np.zeros((n, 2), bool), out, codes, 0, 10**6, 1.5)
    return not codes.any() and out.tobytes()
pool, over = _native.Pool(3), threading.Event()
want = decode(pool)
busy = threading.Thread(target=lambda: [decode(pool) for _ in iter(over.is_set, True)])
busy.start()
for _ in range(20):
    child = os.fork()
    if not child:
        signal.alarm(30)
        same = decode(pool) == want
        del pool
        os._exit(0 if same and want else 1)
    status = os.waitpid(child, 0)[1]
    if status:
        break
over.set()
busy.join()
sys.exit(status and 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork a process")
@pytest.mark.parametrize("progressive", (False, True))
def test_a_forked_child_uses_and_destroys_a_pool_at_work(tmp_path, progressive):
    (tmp_path / "a.jpg").write_bytes(encoded(textured(64, 64), progressive=progressive))
    args = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "a.jpg")]
    done = subprocess.run(args, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
