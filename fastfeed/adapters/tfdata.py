"""A feed as a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fastfeed.errors import MissingExtra
from fastfeed.feed import Feed

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingExtra.of("to_tfdata", "TensorFlow", "tf") from error

__all__ = ["arrays", "dataset", "to_tfdata"]


def to_tfdata(feed: Feed) -> Any:
    """Elements are (images, labels), or (images, labels, weights) where the feed pads or masks.

    Iterating the dataset walks one epoch of the feed; the next iteration walks the next. Its length is known.
    """
    return dataset(feed, lambda: arrays(feed, feed))


def dataset(feed: Feed, epoch: Callable[[], Iterable[tuple[Any, ...]]]) -> Any:
    """A dataset over `epoch()`, whose tuples are as `arrays` makes them.

    There is no `.prefetch()` at its end: the feed works ahead itself, and a buffer between it and the trainer would
    hide from the feed's statistics who waits for whom.
    """
    spec, batch = feed.program.spec, feed.plan.batch
    signature = (tf.TensorSpec((batch, *spec.shape), spec.dtype), tf.TensorSpec((batch,), "int64"))
    if feed.weighted:
        signature += (tf.TensorSpec((batch,), "float32"),)
    made = tf.data.Dataset.from_generator(epoch, output_signature=signature)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF  # sharded by the plan
    return made.apply(tf.data.experimental.assert_cardinality(len(feed))).with_options(options)


def arrays(feed: Feed, batches: Iterable[Any]) -> Iterable[tuple[Any, ...]]:
    """(images, labels) of each batch, with weights where they may differ from one."""
    for batch in batches:
        yield (batch.images, batch.labels, batch.weights) if feed.weighted else (batch.images, batch.labels)
