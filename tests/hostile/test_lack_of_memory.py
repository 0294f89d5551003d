"""A lack of memory while images are decoded is never a sample's fault; a file that asks for too
much is one.
"""

from __future__ import annotations

import gc
import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from helpers import jpegs
from helpers.jpegs import decode_one, encoded, textured
from PIL import Image

import fastfeed as ff
from fastfeed.decode import DecodeFailure, PillowEngine, Recoder, Request, masks, pillow
from fastfeed.decode.formats.jpeg import check_jpeg
from fastfeed.decode.masks import mask_pixels
from fastfeed.decode.memory_limit import Oversized, with_memory
from fastfeed.ops.program.compile import Windows

SMALL = encoded(textured(40, 60))
if sys.platform == "linux":
    import resource


def progressive(side: int) -> bytes:
    """A file that claims to be a square of this side, within all limits, and takes 3 bytes per
    pixel to decode.
    """
    blob = bytearray(encoded(textured(48, 64), progressive=True))
    at = blob.index(b"\xff\xc2")
    blob[at + 5 : at + 9] = side.to_bytes(2, "big") * 2
    return bytes(blob) + bytes(side * side // 4000)


def gif(side: int) -> bytes:
    """The same for Pillow."""
    head = b"GIF89a" + side.to_bytes(2, "little") * 2 + b"\x80\0\0" + bytes(3) + b"\xff" * 3
    frame = b"," + bytes(4) + side.to_bytes(2, "little") * 2 + b"\0\x02\x02\x4c\x01\0"
    return head + frame + b";" + bytes(side * side // 4000)


def small_gif() -> bytes:
    file = io.BytesIO()
    Image.fromarray(textured(40, 60)).save(file, "GIF")
    return file.getvalue()


HUNGRY = {"native": progressive(16_000), "pillow": gif(16_000)}


@contextmanager
def little_memory() -> Iterator[None]:
    """The process may take 100 MB more than it has."""
    gc.collect()
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(
        resource.RLIMIT_AS, (pages * resource.getpagesize() + (100 << 20), before[1])
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Lack:
    """Raises an error so many times, then returns 7."""

    def __init__(self, times: float, error: Exception | None = None) -> None:
        self.left, self.calls = times, 0
        self.error = error or MemoryError()

    def __call__(self, *_: object) -> int:
        self.calls += 1
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return 7


def test_a_lack_that_passes() -> None:
    call = Lack(1)
    assert with_memory(call, lambda: 1000) == 7
    assert call.calls == 2


def test_a_call_that_asks_for_more_than_its_need() -> None:
    with pytest.raises(Oversized):
        with_memory(Lack(9), lambda: 1000)


def test_a_need_that_the_system_cannot_meet() -> None:
    call = Lack(9)
    with pytest.raises(MemoryError):
        with_memory(call, lambda: 1 << 60)
    assert call.calls == 1


@pytest.mark.parametrize(
    ("times", "need", "reason"), [(1, 1000, None), (9, 1000, "bomb"), (9, 1 << 60, "oom")]
)
def test_pillow_tells_them_apart(
    times: int, need: int, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lack, plain = Lack(times), pillow.plain
    monkeypatch.setattr(pillow, "plain", lambda *args: (lack(), plain(*args))[1])
    monkeypatch.setattr(pillow, "_needed", lambda *_: need)
    engine = PillowEngine(ff.Decode())
    windows = Windows(np.array([[0, 0, 40, 60]], float), np.zeros((1, 2), bool), np.full((1, 2), 8))
    request = Request([SMALL], engine.probe([SMALL]), windows, "bilinear")  # type: ignore[arg-type]
    (bad,) = engine.decode(request, np.empty((1, 8, 8, 3), np.uint8), threading.Event())
    assert (bad and bad.reason) == reason


WORDS = [
    OSError("out of memory when reading image file"),  # Pillow's, for error -9 of a decoder
    RuntimeError("Pixel allocation failed: Out of memory"),  # its AVIF plugin's
]


@pytest.mark.parametrize("error", WORDS)
def test_a_decoder_that_reports_it_in_words(error: Exception) -> None:
    assert with_memory(Lack(1, error), lambda: 1000) == 7
    with pytest.raises(Oversized):
        with_memory(Lack(9, error), lambda: 1000)
    assert pillow.failure_from_error(error, SMALL, "AVIF").reason == "oom"


@pytest.mark.parametrize("error", [MemoryError(), *WORDS])
def test_a_mask_is_not_bad_for_it(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    Image.new("L", (60, 40)).save(file, "PNG")
    monkeypatch.setattr(masks, "png_intact", Lack(1, error))
    with pytest.raises(MemoryError):
        mask_pixels(file.getvalue(), (40, 60))


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="limits a process's address space")
KERNEL = pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)


@LINUX
@KERNEL
def test_the_kernel_says_so() -> None:
    with little_memory():
        assert decode_one(HUNGRY["native"], (0, 0, 16_000, 16_000), (8, 8)) == "oom"
        assert not isinstance(decode_one(SMALL, (0, 0, 40, 60), (8, 8)), str)


@LINUX
@KERNEL
def test_a_check_for_damage_says_so() -> None:
    with little_memory(), pytest.raises(MemoryError):
        check_jpeg(HUNGRY["native"])


@LINUX
@pytest.mark.parametrize("decoder", ["pillow", pytest.param("native", marks=KERNEL)])
def test_a_feed_ends(decoder: str, tmp_path: Path) -> None:
    for number, blob in enumerate([SMALL, small_gif(), HUNGRY[decoder], SMALL]):
        (tmp_path / f"{number}.jpg").write_bytes(blob)
    source = ff.ImageFolder(tmp_path, labeled=False)
    with ff.Feed(source, [ff.CenterCrop(8)], batch=2, shuffle=False, threads=1, prefetch=0) as feed:
        batches = iter(feed)
        assert len(next(batches)) == 2  # all threads run
        with little_memory():
            with pytest.raises(
                MemoryError,
                match=r"decoding sample 2, .*2\.jpg: .*no sample is listed as bad for it",
            ):
                next(batches)
        assert feed.stats().bad == ()


@LINUX
@pytest.mark.parametrize("decoder", ["pillow", pytest.param("native", marks=KERNEL)])
def test_a_recoder_says_so(decoder: str) -> None:
    recode = Recoder([ff.CenterCrop(32)], threads=1)
    with little_memory():
        found, fine = recode([HUNGRY[decoder], SMALL])
    assert isinstance(found, DecodeFailure) and found.reason == "oom"
    assert isinstance(fine, bytes)
