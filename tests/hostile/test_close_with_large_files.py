"""close() while native threads are at files of 64 megapixels, or wait for memory to be free for
one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import jpegs
from helpers.jpegs import textured
from PIL import Image

import fastfeed as ff
from fastfeed.errors import FeedClosed
from fastfeed.runtime.extension import formats

pytestmark = [pytest.mark.slow, pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)]
THREADS = 8
KINDS = {
    "JPEG": ("jpg", {"quality": 90}),
    "JPEG, progressive": ("jpg", {"quality": 90, "progressive": True}),
    "PNG": ("png", {"compress_level": 1}),
    "WebP": ("webp", {"quality": 80, "method": 0}),
    "TIFF": ("tif", {"compression": "tiff_lzw"}),
}


def photographs(folder: Path, kind: str) -> Path:
    """One file under many names."""
    extension, options = KINDS[kind]
    picture = Image.fromarray(np.tile(textured(1000, 1000), (8, 8, 1)))
    (folder / "a").mkdir(parents=True)
    first = folder / "a" / f"0.{extension}"
    picture.save(first, **options)
    for k in range(1, 2 * THREADS):
        os.link(first, folder / "a" / f"{k}.{extension}")
    return folder


def spent_in_closing(wait: Callable[[], None], close: Callable[[], None]) -> float:
    """Seconds of all threads together, once half a second of them was spent for what `wait` waits
    for in a thread.
    """
    waiter = threading.Thread(target=wait)
    began = time.process_time()
    waiter.start()
    while time.process_time() < began + 0.5:
        time.sleep(0.01)
    closing = time.process_time()
    close()
    spent = time.process_time() - closing
    waiter.join()
    return spent


@pytest.mark.parametrize("kind", KINDS)
def test_close_ends_what_is_under_way(kind, tmp_path):
    """By processor time, which does not depend on what else the machine does: decoding one file
    takes a second.
    """
    if kind == "WebP" and "WebP" not in formats():
        pytest.skip("a kernel without libwebp")
    source = ff.ImageFolder(photographs(tmp_path / "photos", kind))
    feed = ff.Feed(
        source,
        [ff.CenterCrop(7_000), ff.Resize((64, 64))],
        batch=THREADS,
        threads=THREADS,
        shuffle=False,
    )
    waited = threading.Event()

    def train() -> None:
        with pytest.raises(FeedClosed, match="while waiting for a batch"):
            next(iter(feed))
        waited.set()

    spent = spent_in_closing(train, feed.close)
    assert waited.is_set(), "it was closed before the first batch was ready"
    assert spent < 1, "seconds of all threads together"


def test_a_stop_ends_the_wait_for_memory(tmp_path):
    """Progressive files keep their coefficients: with little memory one after the other is
    decoded.
    """
    source = ff.ImageFolder(photographs(tmp_path / "photos", "JPEG, progressive"))
    jpegs.native.limit_held_bytes(1)
    try:
        with ff.Feed(
            source, [ff.CenterCrop(7_000), ff.Resize((64, 64))], batch=THREADS, threads=THREADS
        ) as feed:
            batches = iter(feed)

            def wait() -> None:
                with pytest.raises(FeedClosed):
                    next(batches)

            assert spent_in_closing(wait, batches.close) < 1
    finally:
        jpegs.native.limit_held_bytes(1 << 30)
