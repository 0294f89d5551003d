"""A transform in several threads and processes, closed while it works, and the memory it holds."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import broken, jpeg, picture
from PIL import Image

import fastfeed as ff
from fastfeed.errors import FeedClosed
from fastfeed.feed.transform.pipeline import LazyPipeline, Pipeline

FILES = [jpeg(seed, (30 + seed, 40)) for seed in range(8)]
ITEMS = [*FILES[:5], picture(6), broken("truncated"), broken("not_image")]


def inverted(image: np.ndarray, _: np.ndarray) -> np.ndarray:
    return 255 - image


OPS = [ff.RandomResizedCrop(16), ff.RandomFlip(), ff.Function(inverted, draws=0), ff.ToFloat()]


def call(transform: ff.Transform, number: int) -> tuple[bytes, list[int]]:
    """A call of its own length, order and numbers."""
    items = (ITEMS[number % 8 :] + ITEMS[: number % 8])[: 1 + number % 8]
    batch = transform(items, ids=range(number, number + len(items)))
    return batch.images.tobytes(), list(batch.bad)


@pytest.mark.parametrize("ops", [OPS, OPS[:2]], ids=["functions", "native"])
@pytest.mark.parametrize("threads", [1, 3])
def test_eight_threads_get_what_one_gets(ops: list[Any], threads: int) -> None:
    with ff.Transform(ops, threads=threads) as transform, ThreadPoolExecutor(8) as pool:
        want = [call(transform, number) for number in range(16)]
        numbers = list(range(16)) * 3
        got = list(pool.map(lambda number: call(transform, number), numbers))
    assert got == want * 3


def test_a_result_that_is_held_stays_and_memory_that_is_not_is_used_again() -> None:
    with ff.Transform([ff.Resize((32, 32))], threads=1) as transform:
        held = [transform(FILES[:2]).images for _ in range(6)]
        copies = [images.copy() for images in held]
        transform(FILES[2:4])
        assert all(map(np.array_equal, held, copies))
        one = transform.one(FILES[0])
        assert not np.array_equal(transform.one(FILES[1]), one)
        places = {transform.one(file).ctypes.data for file in FILES * 4}
        assert len(places) <= 2
        for count in range(1, 9):
            transform(FILES[:count])
        pipeline = transform._pipeline.opened
        assert pipeline is not None and len(pipeline._pools[0]._pools) <= 3


def test_files_are_read_in_parts_that_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{i}.jpg" for i in range(8)]
    for path, file in zip(paths, FILES, strict=True):
        path.write_bytes(file)
    (tmp_path / "5.jpg").unlink()
    items = [*paths, *(picture(i) for i in range(8))]
    with ff.Transform([ff.Resize((16, 16))], threads=1) as transform:
        want = transform(items)
        pipeline = transform._pipeline.opened
        assert isinstance(pipeline, Pipeline)
        parts: list[int] = []
        load = Pipeline._load

        def counted(*arguments: Any) -> Any:
            samples = load(*arguments)
            parts.append(len(samples.ids))
            return samples

        monkeypatch.setattr(Pipeline, "_load", counted)
        monkeypatch.setattr(pipeline, "_max_bytes", 2 * max(map(len, FILES)))
        got = transform(items)
    assert len(parts) > 8 and max(parts) <= 4 and sum(parts) == 16
    assert np.array_equal(got.images, want.images)
    assert list(got.bad) == list(want.bad) == [5]


def test_an_unforeseen_error_costs_its_item(monkeypatch: pytest.MonkeyPatch) -> None:
    params = ff.Resize.params

    def fails(self: Any, u: np.ndarray, sizes: np.ndarray) -> Any:
        if (sizes == (34, 40)).all(axis=1).any():
            raise ValueError("not even its author knows why")
        return params(self, u, sizes)

    with ff.Transform([ff.Resize((16, 16))], threads=1) as transform:
        want = transform(ITEMS)
        monkeypatch.setattr(ff.Resize, "params", fails)
        got = transform(ITEMS)
    assert list(got.bad) == [4, 6, 7] and got.bad[4].reason == "internal"
    assert "ValueError: not even its author knows why" in got.bad[4].detail
    want.images[4] = 0
    assert np.array_equal(got.images, want.images)


@pytest.mark.parametrize("kind", ["file", "image"])
def test_closing_ends_calls_under_way(kind: str) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def waits(image: Any, _: Any = None) -> Any:
        begun.set()
        go_on.wait(30)
        return image

    class Slow(Image.Image):
        def load(self) -> Any:
            return waits(self)

    slow = Slow()
    slow._size, slow._mode = (8, 8), "RGB"
    ops = [ff.Resize((8, 8)), *([ff.Function(waits, draws=0)] if kind == "file" else [])]
    transform = ff.Transform(ops, threads=2)
    with ThreadPoolExecutor(2) as pool:
        result = pool.submit(transform, FILES if kind == "file" else [slow] * 3)
        assert begun.wait(30)
        closing = pool.submit(transform.close)
        with pytest.raises(FeedClosed, match="this transform is closed; create a new one"):
            result.result(30)
        go_on.set()
        closing.result(30)


def in_child(transform: ff.Transform) -> list[tuple[bytes, list[int]]]:
    """Calls in a process forked from this one, by a pipe."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if not child:
        try:
            writer.send([call(transform, number) for number in range(3)])
        finally:
            os._exit(0)
    writer.close()
    try:
        return reader.recv() if reader.poll(30) else []
    finally:
        os.waitpid(child, 0)
        reader.close()


def test_a_pipeline_that_is_closed_between_two_looks_is_none_of_them() -> None:
    looks = iter([pipeline := object(), None])

    class Closing(LazyPipeline):
        opened = property(lambda _: next(looks), lambda *_: None)

    assert Closing(ff.Transform([ff.Resize((8, 8))])._config).open() is pipeline


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    with ff.Transform(OPS, threads=2) as transform:
        unused = in_child(transform)
        want = [call(transform, number) for number in range(3)]
        assert unused == want
        assert in_child(transform) == want
        stop = threading.Event()

        def busy() -> None:
            while not stop.is_set():
                call(transform, 7)

        with ThreadPoolExecutor(2) as pool:  # forked while other threads are in calls
            under_way = [pool.submit(busy) for _ in range(2)]
            try:
                assert in_child(transform) == want
            finally:
                stop.set()
            for each in under_way:
                each.result(30)
        assert [call(transform, number) for number in range(3)] == want


def test_workers_of_loaders_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = ff.Transform(OPS)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with transform:
        assert transform._pipeline.opened is not None and transform._pipeline.opened._threads == 1
