"""Users' functions in a feed: whose memory images are in, what fails and for how long, how much
they may draw.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.photos import picture

from fastfeed.errors import ConfigError, SampleError, TooManyFailures
from fastfeed.faults import FaultPolicy
from fastfeed.feed.feed import Feed
from fastfeed.ops import Brightness, FiveCrop, Function, Invert, Sequential, TenCrop
from fastfeed.sources import Arrays

N = 16
IMAGES = np.stack([picture(seed, (20, 24)) for seed in range(N)])
SOURCE = Arrays(IMAGES, np.arange(N) % 3)
MINE = picture(99, (20, 24))


def mirrored(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    return image[:, ::-1]


def mine(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    return MINE


def constant(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.uint8(7), image.shape)  # read-only, and one byte


def fails_at_times(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    if numbers[0] < 0.3:
        raise ValueError(f"{numbers[0]:.1f} is too little")
    return image


def floats(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    return image / 255


def epoch(ops, number=0, **more):
    with Feed(SOURCE, ops, batch=4, shuffle=False, threads=2, **more) as feed:
        batches = list(feed.batches(number))
        return (
            np.concatenate([b.images for b in batches]),
            np.concatenate([b.ids for b in batches]),
            feed.stats().bad,
        )


@pytest.mark.parametrize(
    ("function", "want"),
    [
        (mirrored, IMAGES[:, :, ::-1]),
        (mine, np.stack([MINE] * N)),
        (constant, np.full_like(IMAGES, 7)),
    ],
)
@pytest.mark.parametrize(
    "behind", [[], [Invert()], [Brightness((1, 1)), Sequential([Invert(), Invert()]), Invert()]]
)
def test_what_functions_return_stays_theirs(function, want, behind):
    before = MINE.copy()
    images, _, bad = epoch([function, *behind])
    assert not bad
    np.testing.assert_array_equal(images, 255 - want if behind else want)
    np.testing.assert_array_equal(MINE, before)


def test_a_failure_holds_for_its_epoch_alone():
    """It came from the epoch's random numbers: an epoch is what it is after a restart, too."""
    with Feed(SOURCE, [fails_at_times], batch=4, shuffle=False, on_error="bad") as feed:
        first, second = (
            [batch.ids.tolist() for batch in feed.batches(number)] for number in (0, 1)
        )
        bad = feed.stats().bad
    assert first != second
    assert {failure.reason for failure in bad} == {"op_failed"}
    assert "Function(fails_at_times) raised ValueError: 0." in bad[0].detail
    assert epoch([fails_at_times], 1, on_error="bad")[1].reshape(-1, 4).tolist() == second


def test_a_repaired_function_gets_its_samples_back(tmp_path):
    path = tmp_path / "bad.jsonl"
    assert set(epoch([fails_at_times], quarantine=path, on_error="bad")[1].tolist()) != set(
        range(N)
    )
    assert len(path.read_text().splitlines()) > 1
    assert epoch([mirrored], quarantine=path)[1].tolist() == list(range(N))


def test_a_view_that_fails_replaces_the_sample():
    masked = FaultPolicy("mask", max_share=1, on_error="bad")
    images, ids, bad = epoch([FiveCrop(12), Function(fails_at_times, draws=1)], on_bad=masked)
    failed = [failure.id for failure in bad]
    assert 0 < len(failed) < N and ids.tolist() == list(range(N))
    assert (
        not images[failed].any()
        and images[[id for id in range(N) if id not in failed]].any(axis=(2, 3, 4)).all()
    )


def test_no_memory_ends_a_run_whatever_the_policy():
    def hungry(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        raise MemoryError("64 GB")

    for on_error in ("raise", "bad"):
        with (
            Feed(SOURCE, [hungry], batch=4, on_error=on_error) as feed,
            pytest.raises(MemoryError, match="64 GB"),
        ):
            next(iter(feed))


def test_what_is_no_image_is_said():
    with (
        Feed(SOURCE, [floats], batch=4, on_bad="raise") as feed,
        pytest.raises(Exception) as refused,
    ):
        next(iter(feed))
    assert (
        "Function(floats) must return uint8[20, 24, 3], as it got, returned float64[20, 24, 3]"
        in str(refused.value)
    )


@pytest.mark.parametrize(
    ("ops", "text"),
    [
        (
            [TenCrop(8), Function(mirrored, draws=20_000)],
            "Function may draw 131072 random numbers per sample, got 20000",
        ),
        (
            [Sequential([Function(mirrored, draws=50_000)] * 3)],
            "Sequential may draw 131072 random numbers per sample",
        ),
    ],
)
def test_no_op_reads_on_in_the_numbers_of_the_next(ops, text):
    with pytest.raises(ConfigError, match=text):
        Feed(SOURCE, ops, batch=4)
    Feed(SOURCE, ops[1:] or [Sequential([Function(mirrored, draws=50_000)] * 2)], batch=4).close()


def test_a_failure_names_the_line_and_whom_to_look_at():
    def broken(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return np.full(image.shape, "x").astype(np.uint8)

    line = broken.__code__.co_firstlineno + 1
    with (
        Feed(SOURCE, [broken], batch=4, on_bad="raise") as feed,
        pytest.raises(SampleError) as error,
    ):
        next(iter(feed))
    assert isinstance(error.value.__cause__, ValueError), "with the traceback of the user's own"
    assert 'fix the function, or pass Feed(on_error="bad") to count such samples as bad' in str(
        error.value
    )
    assert f" (test_feed_functions.py, line {line})" in str(error.value)
    with (
        Feed(SOURCE, [broken], batch=4, on_error="bad") as feed,
        pytest.raises(TooManyFailures, match="check your fun"),
    ):
        list(feed)
    with (
        Feed(SOURCE, [Function(divmod)], batch=4, on_bad="raise") as feed,
        pytest.raises(SampleError) as error,
    ):
        next(iter(feed))
    assert "raised" in str(error.value) and " line " not in str(error.value)
