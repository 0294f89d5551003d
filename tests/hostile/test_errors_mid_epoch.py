"""What happens in the middle of an epoch: a helper that is killed, an error of the user's code.

No batch is skipped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from helpers.feeds import equal
from helpers.helper_feeds import ended, helper
from helpers.photos import folder

import fastfeed as ff
from fastfeed.errors import FastfeedError, SampleError, SourceError

COUNT, BATCH = 48, 6
OPS = [ff.RandomResizedCrop(16), ff.RandomFlip()]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ff.ImageFolder:
    return ff.ImageFolder(
        folder(
            tmp_path_factory.mktemp("m") / "photos", {"a": COUNT // 2, "b": COUNT // 2}, (24, 32)
        )
    )


def feed(source: ff.ImageFolder, ops: list = OPS, **more) -> ff.Feed:  # type: ignore[no-untyped-def, type-arg]
    return ff.Feed(source, list(ops), **({"batch": BATCH, "threads": 2, "seed": 4} | more))


@pytest.mark.parametrize(
    ("name", "kill_after"),
    [
        ("SIGKILL", 1),
        pytest.param("SIGSEGV", 4, marks=pytest.mark.slow),
        pytest.param("SIGTERM", 1, marks=pytest.mark.slow),
        pytest.param("SIGKILL", 4, marks=pytest.mark.slow),
    ],
)
def test_a_helper_that_is_killed_costs_no_batch(
    photos: ff.ImageFolder, name: str, kill_after: int
) -> None:
    with feed(photos) as alone:
        want = [batch for _ in range(2) for batch in alone]
    got = []
    with feed(photos, side_process=True) as data:
        walk = iter(data)
        for _ in range(kill_after):
            got.append(next(walk))
        pid = helper(data)
        os.kill(pid, getattr(signal, name))
        assert ended(pid)
        with pytest.raises(
            FastfeedError,
            match=rf"died, killed by {name}.* a new iteration continues from feed.state",
        ):
            for batch in walk:
                got.append(batch)
        assert data.state()["step"] == len(got)
        got += [*data, *data]
    assert equal(got, want)


class FailsOnce:
    """A function that raises at the n-th image, once."""

    def __init__(self, at: int) -> None:
        self.calls, self.at = 0, at

    def __call__(self, image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        self.calls += 1
        if self.calls == self.at:
            raise ZeroDivisionError("once")
        return image


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_of_a_function_costs_no_batch(photos: ff.ImageFolder, prefetch: int) -> None:
    with feed(photos, [*OPS, lambda image, numbers: image]) as undisturbed:
        want = [batch for _ in range(2) for batch in undisturbed]
    got = []
    with feed(photos, [*OPS, FailsOnce(20)], prefetch=prefetch, threads=1) as data:
        with pytest.raises(SampleError) as caught:
            for batch in data:
                got.append(batch)
        assert (
            isinstance(caught.value.__cause__, ZeroDivisionError) and 0 < len(got) < COUNT // BATCH
        )
        assert (data.state()["epoch"], data.state()["step"]) == (0, len(got))
        got += [*data, *data]
    assert equal(got, want)


class Breaks(ff.ImageFolder):
    """A source whose read raises at some sample, until it is mended."""

    broken = True

    def read(self, ids: list[int]) -> list:  # type: ignore[override, type-arg]
        if self.broken and any(int(i) == 30 for i in ids):
            raise SourceError("the database is closed")
        return super().read(ids)


def test_an_error_of_a_source_costs_no_batch(photos: ff.ImageFolder, tmp_path: Path) -> None:
    source = Breaks(photos.root)
    with feed(photos) as undisturbed:
        want = list(undisturbed)
    got = []
    with feed(source) as data:
        with pytest.raises(SourceError, match="the database is closed"):
            for batch in data:
                got.append(batch)
        with pytest.raises(SourceError, match="the database is closed"):
            next(iter(data))
        Breaks.broken = False
        got += list(data)
    assert equal(got, want)


@pytest.mark.parametrize("leave", ["break", "raise"])
def test_leaving_the_loop_begins_the_next_epoch(photos: ff.ImageFolder, leave: str) -> None:
    """That was the user's decision: the state still says where it was left."""

    def use(data: ff.Feed, act: Callable[[], bool]) -> None:
        for _ in data:
            if act():
                break

    def stop() -> bool:
        if leave == "raise":
            raise KeyError("mine")
        return True

    with feed(photos) as data:
        with suppress(KeyError):
            use(data, stop)
        assert (data.state()["epoch"], data.state()["step"]) == (0, 1)
        assert next(iter(data)).epoch == 1
