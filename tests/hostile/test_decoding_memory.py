"""Large images in a feed whose memory is bounded."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from conftest import environment
from helpers.jpegs import NO_KERNEL
from helpers.needs import needs
from helpers.pngs import png
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.runtime.extension import is_built

PEAK = """
import re, sys
from pathlib import Path
import fastfeed as ff

def peak():  # kB. getrusage would give that of the process which this one was forked from, where that is larger
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

source = ff.ImageFolder(sys.argv[1], labeled=False)
with ff.Feed(source, [ff.Resize((32, 32))], batch=4, threads=4, memory=int(sys.argv[2])) as feed:
    before = peak()
    assert sum(len(batch.ids) for batch in feed) == 8 and not feed.stats().bad
    print(peak() - before)
"""
PIXELS = 36 * 4  # MB of an image of 36 MP while Pillow decodes it


def large(folder, interlaced: bool) -> None:
    """Eight PNGs of 36 MP; those that are interlaced are Pillow's to decode."""
    tile = np.random.default_rng(0).integers(0, 256, (250, 250, 3), dtype=np.uint8)
    blob = png(np.tile(tile, (24, 24, 1)), interlaced=interlaced, level=1)
    for i in range(8):
        (folder / f"{i}.png").write_bytes(blob)


def peak(folder, memory: int) -> float:
    command = [sys.executable, "-c", PEAK, str(folder), str(memory)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=120, check=True
    )
    return int(done.stdout) / 1e3  # MB


@pytest.mark.slow
def test_a_bound_on_decoding_is_kept(tmp_path):
    """Four threads: one at a time where there is room for one, four where there is for four."""
    large(tmp_path, interlaced=True)
    one, four = peak(tmp_path, 100 << 20), peak(tmp_path, 2 << 30)
    assert one + PIXELS < four
    assert one < 4 * PIXELS, (
        "the image twice, the files, and what an interpreter takes; not all eight images"
    )


@pytest.mark.slow
@pytest.mark.skipif(not is_built(), reason=NO_KERNEL)
def test_pngs_of_any_size_take_a_few_megabytes(tmp_path):
    """Four threads at once, and less than one of the images."""
    large(tmp_path, interlaced=False)
    assert peak(tmp_path, 2 << 30) < PIXELS


def test_the_bound_is_shown_and_checked(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    source = ff.ImageFolder(tmp_path, labeled=False)
    with ff.Feed(source, [ff.Resize((8, 8))], batch=1, memory=512 << 20) as feed:
        assert (
            "decoding holds at most 537 MB at once (an image that needs more is decoded alone)"
            in str(feed)
        )
    for wrong in (0, 4.0, "4GB", True):
        with pytest.raises(
            ConfigError, match=f"memory must be bytes, an integer >= 1048576.*got {wrong!r}"
        ):
            ff.Feed(source, [ff.Resize((8, 8))], batch=1, memory=wrong)


@pytest.mark.parametrize(
    "decode", ["auto", "pillow", pytest.param("native", marks=needs("fastfeed._native"))]
)
@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_a_bomb_names_the_limit_it_met(tmp_path, decode, format):
    content = io.BytesIO()
    Image.new("RGB", (400, 300)).save(content, format)
    for i in range(6):
        (tmp_path / f"{i}.img").with_suffix(".jpg").write_bytes(content.getvalue())
    Image.new("RGB", (40, 30)).save(tmp_path / "small.jpg")
    source = ff.ImageFolder(tmp_path, labeled=False)
    ops = [ff.Decode(max_pixels=100_000), ff.Resize((8, 8))]
    with ff.Feed(
        source, ops, batch=7, on_bad=ff.FaultPolicy("mask", max_share=1), decode=decode
    ) as feed:
        next(iter(feed.batches()))
        bad = {failure.reason: failure.detail for failure in feed.stats().bad}
    assert bad == {"bomb": "400x300 pixels, the limit is 100000: Decode(max_pixels=...)"}


FORKED = """
import os, threading, time, sys
from fastfeed.decode.memory_limit import DECODING

held = threading.Event()
def hold():
    with DECODING.reserve(DECODING.bytes):
        held.set()
        time.sleep(60)
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    with DECODING.reserve(1000):
        os._exit(7)
end = time.monotonic() + 20
while time.monotonic() < end:
    pid, status = os.waitpid(child, os.WNOHANG)
    if pid:
        os._exit(os.waitstatus_to_exitcode(status))
    time.sleep(0.05)
os.kill(child, 9)
os._exit(1)
"""


def test_a_forked_process_has_a_limit_of_its_own():
    """What a thread of the parent holds is never given back there."""
    assert subprocess.run([sys.executable, "-c", FORKED], timeout=60).returncode == 7
