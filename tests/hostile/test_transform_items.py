"""Items of strangers: whatever one of them is, it costs its row, and the others are what they were."""

from __future__ import annotations

import array
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import jpeg, picture
from PIL import Image

import fastfeed as ff
from fastfeed.decode.base import DecodeFailure
from fastfeed.decode.executor import Executor
from fastfeed.errors import ConfigError

GOOD = jpeg(1)
PICTURE = picture(2)
OPS = [ff.Resize((16, 16))]


class Raises:
    """An object whose every look raises."""

    def __fspath__(self) -> str:
        raise ZeroDivisionError("of a path")


class Lazy(Image.Image):
    """An image whose pixels cannot be loaded."""

    def load(self) -> Any:
        raise OSError("image file is truncated (5 bytes not processed)")


def lazy() -> Image.Image:
    image = Lazy()
    image._size, image._mode = (8, 8), "RGB"
    return image


def closed() -> Image.Image:
    image = Image.open(io.BytesIO(GOOD))
    image.close()
    return image


def huge_png() -> bytes:
    """A file that claims 4,000 x 4,000 pixels."""
    file = io.BytesIO()
    Image.new("1", (4_000, 4_000)).save(file, "PNG")
    return file.getvalue()


ITEMS: dict[str, tuple[Any, str]] = {
    "none": (None, "not_image"),
    "number": (7, "not_image"),
    "list": ([1, 2], "not_image"),
    "generator": ((x for x in [1]), "not_image"),
    "a list of files": ([GOOD], "not_image"),
    "a file that is open": (io.BytesIO(GOOD), "not_image"),
    "floats": (np.zeros((4, 4, 3)), "not_image"),
    "flags": (np.zeros((4, 4), bool), "not_image"),
    "signed bytes": (np.zeros((4, 4, 3), np.int8), "not_image"),
    "channels first": (np.zeros((3, 8, 8), np.uint8), "not_image"),
    "two channels": (np.zeros((8, 8, 2), np.uint8), "not_image"),
    "a scalar": (np.uint8(3), "not_image"),
    "no dimensions": (np.array(3, np.uint8), "not_image"),
    "no pixels": (np.zeros((0, 4, 3), np.uint8), "empty"),
    "objects": (np.array([GOOD], object), "not_image"),
    "no bytes": (b"", "empty"),
    "an array of no bytes": (np.empty(0, np.uint8), "empty"),
    "text": (b"\x1b[31m<html>", "not_image"),
    "half a file": (GOOD[: len(GOOD) // 2], "truncated"),
    "zeros": (bytes(5000), "not_image"),
    "numbers as a buffer": (memoryview(array.array("d", [1.0] * 4)), "not_image"),
    "every second byte": (memoryview(GOOD)[::2], "not_image"),
    "many pixels": (huge_png(), "bomb"),
    "no path": ("", "not_found"),
    "no file": ("no/such.jpg", "not_found"),
    "a zero byte": ("a\0b.jpg", "not_found"),
    "half a surrogate": ("\ud800.jpg", "not_found"),
    "an address": ("https://example.com/a.jpg", "not_found"),
    "a folder": (".", "not_image"),
    "a device": ("/dev/zero", "not_image"),
    "a long path": ("a" * 10_000, "not_found"),
    "a path that raises": (Raises(), "internal"),
    "pixels that raise": (lazy(), "truncated"),
    "a closed image": (closed(), "corrupt"),
    "an image without pixels": (Image.new("RGB", (0, 5)), "empty"),
    "an image of many pixels": (Image.open(io.BytesIO(huge_png())), "bomb"),
    "deep colors": (Image.fromarray(np.zeros((4, 4), np.float32)), "unsupported_format"),
}


@pytest.fixture
def transform() -> Iterator[ff.Transform]:
    with ff.Transform([ff.Decode(max_pixels=10_000_000), *OPS], threads=2) as made:
        yield made


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_costs_its_row(name: str, transform: ff.Transform) -> None:
    item, reason = ITEMS[name]
    batch = transform([GOOD, item, PICTURE])
    assert list(batch.bad) == [1], batch.bad
    text = str(batch.bad[1])
    assert batch.bad[1].reason == reason, text
    assert text.isprintable() and len(text) < 1500
    assert batch.weights.tolist() == [1, 0, 1] and not batch.images[1].any()
    want = transform([GOOD, PICTURE]).images
    assert np.array_equal(batch.images[[0, 2]], want)


def test_all_of_them_in_one_call(transform: ff.Transform) -> None:
    items = [item for pair in ITEMS.values() for item in (pair[0], GOOD)]
    batch = transform(items, ids=range(1000, 1000 + len(items)))
    reasons = [failure.reason for failure in batch.bad.values()]
    assert list(batch.bad) == list(range(0, len(items), 2))
    assert reasons == [reason for _, reason in ITEMS.values()]
    assert [failure.id for failure in batch.bad.values()] == list(range(1000, batch.ids[-1], 2))
    assert (batch.images[1::2] == transform.one(GOOD)).all()


def test_items_of_another_shape_than_stated_are_bad() -> None:
    spec = ff.Spec((8, 8, 1), "uint8", "HWC")
    with ff.Transform([ff.ToFloat()], input_spec=spec, threads=1) as transform:
        gray = np.full((8, 8), 255, np.uint8)
        items = [gray, Image.fromarray(gray), gray[:4], np.dstack([gray] * 3), GOOD, "a.jpg"]
        batch = transform(items)
    assert list(batch.bad) == [2, 3, 4, 5] and (batch.images[:2] == 1).all()
    assert "it has shape (4, 8, 1), expected HWC uint8[8, 8, 1]" in str(batch.bad[2])
    assert "it must be an array or a PIL image, HWC uint8[8, 8, 1], got bytes" in str(batch.bad[4])


def test_a_pipe_is_not_waited_for(tmp_path: Path, transform: ff.Transform) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs mkfifo")
    os.mkfifo(tmp_path / "a.jpg")
    batch = transform([GOOD, tmp_path / "a.jpg"])
    assert batch.bad[1].reason == "not_image" and list(batch.bad) == [1]


def test_a_lack_of_memory_is_no_items_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Executor, samples: Any, row: int) -> None:
        samples.bad[row] = DecodeFailure("oom", "the system has no more memory")

    monkeypatch.setattr(Executor, "_look", full)
    with ff.Transform(OPS, threads=1) as transform:
        with pytest.raises(MemoryError, match=r"decoding items\[1\]: .*lower Transform\(memory"):
            transform([GOOD, b"GIF89a"])
    with pytest.raises(ConfigError, match="memory must be bytes, an integer >= 1048576"):
        ff.Transform(OPS, memory=5)


def test_a_file_that_changes_its_bytes_meanwhile_costs_itself(transform: ff.Transform) -> None:
    """A bytearray that another thread overwrites: any pixels or a failure, never a crash."""
    item, stop = bytearray(GOOD), threading.Event()

    def scribble() -> None:
        rng = np.random.default_rng(0)
        while not stop.is_set():
            item[int(rng.integers(len(item)))] = int(rng.integers(256))

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        want = transform.one(GOOD)
        for _ in range(50):
            batch = transform([GOOD, item])
            assert np.array_equal(batch.images[0], want) and set(batch.bad) <= {1}
    finally:
        stop.set()
        thread.join()


def test_a_million_ids_and_duplicates(transform: ff.Transform) -> None:
    with ff.Transform([ff.RandomResizedCrop(8)], threads=1) as random:
        batch = random([GOOD, GOOD, GOOD], ids=[5, 5, 2**63 - 1])
        assert np.array_equal(batch.images[0], batch.images[1]) and batch.ids[2] == 2**63 - 1
        ids = np.full(1_000_000, 2**63, np.uint64)
        with pytest.raises(ConfigError, match="ids must be one per item, got 1000000 for 1 items"):
            random([GOOD], ids=ids)
        for wrong in (["5"], [None], [[5]], 5, "5", [2**65], {5}):
            with pytest.raises(ConfigError, match="ids must be") as raised:
                random([GOOD], ids=wrong)
            assert len(str(raised.value)) < 400
