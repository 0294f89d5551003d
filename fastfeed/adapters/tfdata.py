"""A feed as a `tf.data.Dataset`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from fastfeed.adapters.tuples import arrays
from fastfeed.errors import FeedClosed, MissingExtra
from fastfeed.feed import Feed

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingExtra.of("to_tfdata", "TensorFlow", "tf") from error

__all__ = ["dataset", "to_tfdata"]


def to_tfdata(feed: Feed) -> Any:
    """Elements are (images, labels), or with weights as a third where samples are masked or other ranks need padding.

    Iterating the dataset walks one epoch of the feed; the next iteration walks the next. Behind `.prefetch()`, and
    under a strategy of several devices, TensorFlow takes batches before the trainer does: `feed.state()` is ahead then.
    """
    return dataset(feed, feed, lambda feed: arrays(feed, feed))


def dataset(feed: Feed, owner: Any, epoch: Callable[[Any], Iterable[tuple[Any, ...]]]) -> Any:
    """A dataset over `epoch(owner)`, whose tuples are as `adapters.tuples.arrays` makes them.

    There is no `.prefetch()` at its end: the feed works ahead itself, and a buffer between it and the trainer would
    hide from the feed's statistics who waits for whom. Nor is its length asserted: an epoch that is restored in the
    middle is shorter.
    """
    spec, batch = feed.program.spec, None if feed.partial else feed.plan.batch
    signature = (tf.TensorSpec((batch, *spec.shape), spec.dtype), tf.TensorSpec((batch,), "int64"))
    if feed.weighted:
        signature += (tf.TensorSpec((batch,), "float32"),)
    held = weakref.ref(owner)  # TensorFlow never lets go of a generator function, nor of what it holds

    def walk() -> Iterable[tuple[Any, ...]]:
        owner = held()
        if owner is None:
            raise FeedClosed("the feed behind this dataset is gone; keep the feed, or the dataset as it was made")
        yield from epoch(owner)

    made = tf.data.Dataset.from_generator(walk, output_signature=signature)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF  # sharded by the plan
    made = made.with_options(options)
    setattr(made, "_fastfeed", owner)  # noqa: B010  datasets made from this one keep it as their input
    return made
