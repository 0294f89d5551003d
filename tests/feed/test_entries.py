"""What sources of users give: bytes and pixels of any kind, and what is neither."""

from __future__ import annotations

import io
import mmap
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from helpers.photos import jpeg
from PIL import Image

import fastfeed as ff
from fastfeed.faults import FaultPolicy
from fastfeed.feed.batch.loader import checked, entry_bytes
from fastfeed.feed.session import FeedSession
from fastfeed.sources.base import sample_locations
from fastfeed.spec import ENCODED, Spec

JPEG = jpeg(1)
PIXELS = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)


class Given:
    """A user's source of 8 samples, all as `good` but for sample 3."""

    classes, fingerprint = (), "given"

    def __init__(
        self, spec: Spec, good: Any, odd: Any = None, read: Callable[[], None] = lambda: None
    ) -> None:
        self.spec, self._good, self._odd, self._read = (
            spec,
            good,
            good if odd is None else odd,
            read,
        )

    def __len__(self) -> int:
        return 8

    def uri(self, i: int) -> str:
        return f"given[{i}]"

    def read(self, ids):
        self._read()
        return [self._odd if i == 3 else self._good for i in ids]

    def label(self, ids):
        return np.zeros(len(ids), np.int64)


def outcome(
    source: Any, decode: str, ops: Any = None, **options: Any
) -> tuple[np.ndarray, list[Any]]:
    """Images by id, and what is wrong with the samples."""
    images = np.zeros((len(source), 8, 8, 3), np.uint8)
    options = {"batch": 4, "threads": 2, "on_bad": FaultPolicy("mask", max_share=1)} | options
    with ff.Feed(source, ops or [ff.Resize((8, 8))], decode=decode, **options) as feed:
        for batch in feed.batches(0):
            images[batch.ids] = batch.images
        return images, [(f.id, f.stage, f.reason, f.detail) for f in feed.stats().bad]


def _mapped() -> mmap.mmap:
    with tempfile.TemporaryFile() as file:
        file.write(JPEG)
        file.flush()
        return mmap.mmap(file.fileno(), 0)


FILES = {
    "bytearray": bytearray(JPEG),
    "memoryview": memoryview(JPEG),
    "every second byte": memoryview(bytes(np.repeat(np.frombuffer(JPEG, np.uint8), 2)))[::2],
    "array": np.frombuffer(JPEG, np.uint8),
    "mmap": _mapped(),
}
NO_FILES = {
    "a list": list(JPEG),
    "text": "photo.jpg",
    "a number": 7,
    "a stream": io.BytesIO(JPEG),
    "objects": np.array([object()] * 4),
}
NO_PIXELS = {
    "float32": PIXELS.astype(np.float32),
    "int64": PIXELS.astype(np.int64),
    "channels first": PIXELS.transpose(2, 0, 1),
    "gray": PIXELS[..., 0],
    "four channels": np.zeros((8, 8, 4), np.uint8),
    "another size": np.zeros((4, 4, 3), np.uint8),
    "no pixels": np.zeros((0, 8, 3), np.uint8),
    "objects": PIXELS.astype(object),
    "a list": PIXELS.tolist(),
    "bytes": PIXELS.tobytes(),
}


@pytest.mark.parametrize("decode", ["auto", "pillow"])
@pytest.mark.parametrize("entry", FILES.values(), ids=FILES)
def test_files_in_any_buffer(decode, entry):
    images, bad = outcome(Given(ENCODED, JPEG, entry), decode)
    assert not bad
    assert np.array_equal(images[3], images[0])


@pytest.mark.parametrize("decode", ["auto", "pillow"])
@pytest.mark.parametrize("entry", NO_FILES.values(), ids=NO_FILES)
def test_what_is_no_file_is_a_bad_sample(decode, entry):
    images, bad = outcome(Given(ENCODED, JPEG, entry), decode)
    assert [(id, stage, reason) for id, stage, reason, _ in bad] == [(3, "read", "corrupt")]
    assert "Given.read gave" in bad[0][3]
    assert "expected bytes" in bad[0][3]
    assert not images[3].any()
    assert images[0].any()


@pytest.mark.parametrize("decode", ["auto", "pillow"])
@pytest.mark.parametrize("entry", NO_PIXELS.values(), ids=NO_PIXELS)
def test_pixels_that_are_not_as_the_spec_says_are_a_bad_sample(decode, entry):
    images, bad = outcome(
        Given(Spec((8, 8, 3), "uint8", "HWC"), PIXELS, entry), decode, [ff.RandomFlip(0)]
    )
    assert [(id, stage, reason) for id, stage, reason, _ in bad] == [(3, "read", "corrupt")]
    assert "expected HWC uint8[8, 8, 3]" in bad[0][3]
    assert np.array_equal(images[0], PIXELS)


@pytest.mark.parametrize("pixels", [np.asfortranarray(PIXELS), np.repeat(PIXELS, 2, axis=0)[::2]])
def test_pixels_may_lie_in_memory_in_any_order(pixels):
    images, bad = outcome(
        Given(Spec((8, 8, 3), "uint8", "HWC"), PIXELS, pixels), "auto", [ff.RandomFlip(0)]
    )
    assert not bad
    assert np.array_equal(images[3], PIXELS)


def test_sizes_count_whatever_holds_the_bytes():
    source = Given(ENCODED, JPEG)
    assert {entry_bytes(checked(source, 0, entry)) for entry in FILES.values()} == {len(JPEG)}
    assert entry_bytes(PIXELS) == PIXELS.nbytes


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("where", ["read", "function"])
def test_code_of_users_runs_on_as_many_threads_as_asked_for(threads, where):
    lock, running, most = threading.Lock(), [0], [0]

    def work(*_: Any) -> Any:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1

    def function(image, numbers):
        work()
        return image

    source = Given(ENCODED, JPEG, read=work if where == "read" else lambda: None)
    ops = [ff.Resize((8, 8)), ff.Function(function)] if where == "function" else None
    outcome(source, "auto", ops, threads=threads, batch=8, prefetch=3)
    assert most[0] <= threads
    assert most[0] > 1 or threads == 1


def test_stop_iteration_does_not_end_an_epoch():
    def stops() -> None:
        raise StopIteration

    _, bad = outcome(Given(ENCODED, JPEG, read=stops), "auto")
    assert len(bad) == 8 and {reason for _, _, reason, _ in bad} == {"internal"}
    assert "StopIteration" in bad[0][3]


def test_closing_waits_for_no_more_calls_of_a_function():
    calls, begun = [], threading.Event()

    def slow(image, numbers):
        begun.set()
        calls.append(time.monotonic())
        time.sleep(0.05)
        return image

    feed = ff.Feed(Given(ENCODED, JPEG), [ff.Resize((8, 8)), ff.Function(slow)], batch=8, threads=1)
    batches = feed.batches()

    def take() -> None:
        with suppress(ff.errors.FeedClosed):
            next(batches)

    taker = threading.Thread(target=take)
    taker.start()
    assert begun.wait(30)
    asked = time.monotonic()
    feed.close()
    closed = time.monotonic()
    taker.join(30)
    assert sum(call > asked for call in calls) <= 2, "of eight samples"
    assert all(call <= closed for call in calls)


class Wrapped:
    """Hands over all but labels."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __len__(self) -> int:
        return len(self._inner)

    def label(self, ids):
        return np.ones(len(ids), np.int64)


class Slotted:
    __slots__ = ("_inner", "classes", "fingerprint", "spec")

    def __init__(self, inner: Any) -> None:
        self._inner, self.spec, self.classes, self.fingerprint = inner, inner.spec, (), "slotted"

    def __len__(self) -> int:
        return 8

    def addresses(self, ids: Any) -> list[str]:
        """A method of the user's own, which means something else."""
        return ["Main Street 1"] * len(ids)

    def uri(self, i: int) -> str:
        return str(i)

    def read(self, ids):
        return self._inner.read(ids)

    def label(self, ids):
        return np.zeros(len(ids), np.int64)


class Renamed(ff.Arrays):
    def uri(self, i: int) -> str:
        return "mine"


@pytest.mark.parametrize("kind", [Wrapped, Slotted])
def test_sources_that_only_look_like_ours_are_read_by_their_own_read(kind):
    source = kind(Given(ENCODED, JPEG) if kind is Slotted else ff.Arrays(np.stack([PIXELS] * 8)))
    assert sample_locations(source, np.arange(2)) is None
    images, bad = outcome(source, "auto", None if kind is Slotted else [ff.RandomFlip(0)])
    assert not bad
    assert images.any(axis=(1, 2, 3)).all()


def test_a_subclass_with_its_own_uri_is_read_by_its_read():
    assert sample_locations(ff.Arrays(np.stack([PIXELS] * 8)), np.arange(2)) is not None
    assert sample_locations(Renamed(np.stack([PIXELS] * 8)), np.arange(2)) is None


def test_what_runs_in_python_is_in_the_timeline():
    def slow(image, numbers):
        time.sleep(0.002)
        return image

    png = io.BytesIO()
    Image.fromarray(PIXELS).save(png, "PNG")
    source = Given(ENCODED, png.getvalue(), read=lambda: time.sleep(0.002))
    with ff.Feed(source, [ff.Resize((8, 8)), ff.Function(slow)], batch=8, threads=2) as feed:
        next(iter(feed))
        totals = FeedSession.of(feed).timeline.totals()
    assert totals["augment"][1] >= 8 * 2_000_000
    assert totals["read"][1] >= 2_000_000
    assert totals["decode"][1] > 0
