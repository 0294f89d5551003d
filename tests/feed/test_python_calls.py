"""Python calls per batch: they hold the interpreter's lock, which limits images/s of a process."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import fastfeed as ff


def calls_per_batch(feed: ff.Feed) -> float:
    """Calls of Python functions on all threads of a feed per batch of one epoch."""
    counts = []

    def profile(frame, event, argument):
        if event == "call":
            counts.append(frame.f_code.co_name)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        with feed:
            next(iter(feed.batches(epochs=1)))  # what is computed once
            counts.clear()
            batches = sum(1 for _ in feed)
            calls = len(counts)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls / batches


@pytest.mark.parametrize(
    ("ops", "most"),
    [
        ([ff.RandomFlip()], 240),
        ([ff.ColorJitter(0.4, 0.4, 0.4), ff.RandAugment(), ff.Normalize.imagenet()], 600),
    ],
    ids=["flip", "policies"],
)
# how often threads wait varies by a few calls per batch; one more call per sample would be 16
def test_a_batch_takes_few_python_calls(ops, most):
    source = ff.Arrays(np.zeros((1600, 8, 8, 3), np.uint8), np.zeros(1600, np.int64))
    assert calls_per_batch(ff.Feed(source, ops, batch=16, threads=1)) < most
