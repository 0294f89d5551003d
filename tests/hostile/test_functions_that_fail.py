"""Functions of users that raise: a bug is no bad file. Nothing is replaced without a word."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from helpers.photos import folder
from helpers.products import in_turn

import fastfeed as ff
from fastfeed.errors import SampleError, TooManyFailures
from fastfeed.faults import FaultPolicy

COUNT = 40


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ff.ImageFolder:
    return ff.ImageFolder(
        folder(
            tmp_path_factory.mktemp("f") / "photos", {"a": COUNT // 2, "b": COUNT // 2}, (24, 32)
        )
    )


def fails_on_half(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    if numbers[0] < 0.5:
        raise IndexError("a bug")
    return image


def hungry(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    raise MemoryError("64 GB")


def feed(photos: ff.ImageFolder, function, **more) -> ff.Feed:  # type: ignore[no-untyped-def]
    options = {"batch": 8, "threads": 2, "shuffle": False} | more
    return ff.Feed(photos, [ff.Resize((16, 16)), function], **options)


@pytest.mark.parametrize("side_process", [False, True])
@pytest.mark.parametrize("on_bad", ["substitute", "mask"])
def test_by_default_it_is_raised_with_its_line(
    photos: ff.ImageFolder, on_bad: str, side_process: bool
) -> None:
    with feed(photos, fails_on_half, on_bad=on_bad, side_process=side_process) as data:
        with pytest.raises(SampleError) as caught:
            list(data)
    text = str(caught.value)
    assert "raised IndexError: a bug" in text and "test_functions_that_fail.py" in text
    assert 'on_error="bad"' in text and str(photos.root) in text


def test_on_request_such_samples_are_bad_and_counted(
    photos: ff.ImageFolder, caplog: pytest.LogCaptureFixture
) -> None:
    policy = FaultPolicy("mask", max_share=1, max_run=COUNT, on_error="bad")
    with feed(photos, fails_on_half, on_bad=policy) as data:
        weights = np.concatenate([batch.weights for batch in data])
        bad = data.stats().bad
    assert (
        0 < int((weights == 0).sum()) <= len(bad) < COUNT
    )  # some of the next epoch may have been made
    assert {failure.reason for failure in bad} == {"op_failed"}
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "is bad" in lines[0] and "op_failed" in lines[0]
    assert f" of {COUNT} samples have been bad so far" in lines[-1]


def test_half_of_all_samples_is_past_the_limit(photos: ff.ImageFolder) -> None:
    with (
        feed(photos, fails_on_half, on_error="bad") as data,
        pytest.raises(TooManyFailures, match="op_failed"),
    ):
        for _ in range(3):
            list(data)


@pytest.mark.parametrize(("on_error", "side_process"), in_turn(["raise", "bad"], [False, True]))
def test_no_memory_is_always_raised(
    photos: ff.ImageFolder, on_error: str, side_process: bool
) -> None:
    policy = FaultPolicy("mask", max_share=1, on_error=on_error)
    with feed(photos, hungry, on_bad=policy, side_process=side_process) as data:
        with pytest.raises(MemoryError, match="64 GB"):
            list(data)
        assert not data.stats().bad


def test_no_memory_of_a_source_is_raised(photos: ff.ImageFolder) -> None:
    class Hungry(ff.ImageFolder):
        def read(self, ids):  # type: ignore[no-untyped-def]
            raise MemoryError("of the source")

    with ff.Feed(Hungry(photos.root), [ff.Resize((8, 8))], batch=4, threads=2) as data:
        with pytest.raises(MemoryError, match="of the source"):
            next(iter(data))
