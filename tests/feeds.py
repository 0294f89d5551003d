"""What the tests of the feed share."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from photos import BROKEN, broken, folder

from fastfeed.batch import Batch
from fastfeed.feed import Feed
from fastfeed.ops import Normalize, RandomFlip, RandomResizedCrop
from fastfeed.sources import Arrays, ImageFolder

OPS = [RandomResizedCrop(16), RandomFlip(), Normalize.imagenet()]
NUMBERS = np.broadcast_to(np.arange(50, dtype=np.uint8)[:, None, None, None], (50, 8, 8, 3))  # image i is all i


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ImageFolder:
    return ImageFolder(folder(tmp_path_factory.mktemp("photos"), {"a": 11, "b": 9, "c": 10}))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[ImageFolder, dict[int, str]]:
    """80 files, 5 % of them broken: the source, and id -> reason."""
    root = folder(tmp_path_factory.mktemp("damaged"), {"a": 40, "b": 40})
    source = ImageFolder(root)
    bad = dict(zip((0, 17, 41, 79), BROKEN, strict=True))
    for id, reason in bad.items():
        source.path(id).write_bytes(broken(reason))
    return source, bad


def feed(source: Any, ops: Any = OPS, **more: Any) -> Feed:
    return Feed(source, ops, **({"threads": 2} | more))


def numbers(**more: Any) -> Feed:
    return feed(Arrays(NUMBERS, np.arange(50)), [], **({"batch": 10} | more))


def equal(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        (a.epoch, a.step) == (b.epoch, b.step)
        and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("images", "labels", "weights", "ids"))
        for a, b in zip(one, other, strict=True)
    )


def joined(ranks: list[list[Batch]]) -> list[tuple[Any, ...]]:
    """The global batches of several ranks."""
    return [
        tuple(np.concatenate([getattr(b, name) for b in step]).tobytes() for name in ("ids", "images", "labels"))
        for step in zip(*ranks, strict=True)
    ]


def ours() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("fastfeed")]
