"""What the tests of the feed share."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from fastfeed.feed.feed import Feed
from fastfeed.ops import Normalize, RandomFlip, RandomResizedCrop
from fastfeed.runtime.batch import Batch
from fastfeed.sources import Arrays

OPS = [RandomResizedCrop(16), RandomFlip(), Normalize.imagenet()]
# image i is all i
NUMBERS = np.broadcast_to(np.arange(50, dtype=np.uint8)[:, None, None, None], (50, 8, 8, 3))


def feed(source: Any, ops: Any = OPS, **more: Any) -> Feed:
    return Feed(source, ops, **({"threads": 2} | more))


def numbers(**more: Any) -> Feed:
    return feed(Arrays(NUMBERS, np.arange(50)), [], **({"batch": 10} | more))


def equal(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        (a.epoch, a.step) == (b.epoch, b.step)
        and all(
            np.array_equal(getattr(a, name), getattr(b, name))
            for name in ("images", "labels", "weights", "ids")
        )
        for a, b in zip(one, other, strict=True)
    )


def joined(ranks: list[list[Batch]]) -> list[tuple[Any, ...]]:
    """The global batches of several ranks."""
    return [
        tuple(
            np.concatenate([getattr(b, name) for b in step]).tobytes()
            for name in ("ids", "images", "labels")
        )
        for step in zip(*ranks, strict=True)
    ]


def ours() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("fastfeed")]
