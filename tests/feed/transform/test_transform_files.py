"""Files alone take a short way through a transform: the same batch as the long one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import broken, jpeg

import fastfeed as ff
from fastfeed.decode.executor import Executor
from fastfeed.errors import FeedClosed

FIXED = [ff.Resize(24), ff.CenterCrop(16), ff.Normalize.imagenet()]
RANDOM = [ff.RandomResizedCrop(16), ff.RandomFlip(), ff.ToLayout("CHW")]
FILES = [jpeg(seed, (30 + seed, 40)) for seed in range(5)]


def long_way(transform: ff.Transform, items: list[Any], **more: Any) -> ff.Batch:
    """A batch with a column, which Python has to look after."""
    return transform(items, fields={"number": list(range(len(items)))}, **more)


def assert_equal(one: ff.Batch, other: ff.Batch) -> None:
    for name in ("images", "labels", "weights", "ids"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.dtype == theirs.dtype and mine.tobytes() == theirs.tobytes(), name
    assert one.bad == other.bad


@pytest.mark.parametrize("ops", [FIXED, RANDOM], ids=["fixed", "random"])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("bad", [None, "truncated", "empty", "not_image"])
def test_files_alone_make_the_same_batch(ops: list[Any], count: int, bad: str | None) -> None:
    items = FILES[:count] if bad is None else [*FILES[: count - 1], broken(bad)]
    with ff.Transform(ops, threads=1) as transform:
        ids = {"ids": range(7, 7 + count)} if transform.random else {}
        short, long = transform(items, **ids), long_way(transform, items, **ids)
        assert_equal(short, long)
        assert list(short.bad) == ([] if bad is None else [count - 1])


def test_many_files_are_made_in_parts_between_which_python_can_be_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []
    borrow = Executor.borrow

    def counted(self: Executor, blobs: Any, *rest: Any) -> Any:
        counts.append(len(blobs))
        return borrow(self, blobs, *rest)

    with ff.Transform(FIXED, threads=1) as transform:
        wanted = transform(FILES).images
        monkeypatch.setattr(Executor, "borrow", counted)
        images = transform(FILES * 103).images
    assert counts == [256, 256, 3]
    np.testing.assert_array_equal(images, np.concatenate([wanted] * 103))


def test_labels_of_files_alone_are_those_of_the_program() -> None:
    with ff.Transform([*FIXED, ff.OneHot()], classes=3) as transform:
        assert_equal(transform(FILES), long_way(transform, FILES))


def test_windows_are_kept_by_size_and_mixed_up_with_no_other() -> None:
    sizes = [(20, 30), (30, 20), (20, 30), (21, 30)]
    files = [jpeg(seed, size) for seed, size in enumerate(sizes)]
    with ff.Transform(FIXED) as transform:
        ones = [transform.one(file).copy() for file in files * 2]
        wanted = transform(files).images
    np.testing.assert_array_equal(np.stack(ones), np.concatenate([wanted, wanted]))


def test_an_unforeseen_error_costs_its_item(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError("of a decoder")

    with ff.Transform(FIXED) as transform:
        wanted = transform(FILES)
        monkeypatch.setattr(transform._pipeline.opened, "_work", fails)
        assert transform.one(FILES[0]).tobytes() == wanted.images[0].tobytes()


def test_entering_opens_the_threads() -> None:
    transform = ff.Transform(FIXED)
    assert transform._pipeline.opened is None
    with transform as same:
        assert same is transform and transform._pipeline.opened is not None
    with pytest.raises(FeedClosed), transform:
        pass


def python_calls(call: Callable[[], Any]) -> int:
    """Calls that the interpreter makes, of Python and of C."""
    call()  # opens threads, and keeps what depends on the program
    count = 0

    def note(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", ["files", "paths"])
def test_no_item_of_a_batch_is_a_call_of_python(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(FILES[0])
    item = {"files": FILES[0], "paths": str(path)}[kind]
    with ff.Transform(RANDOM, threads=1) as transform:
        one, many = (python_calls(lambda n=n: transform([item] * n, ids=range(n))) for n in (1, 32))
    assert one == many < 160
