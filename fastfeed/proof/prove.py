"""`ff.prove`: measures a function that trains on a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError, ProofError
from fastfeed.feed.session import FeedSession
from fastfeed.proof.measure.loaders import measure_loader
from fastfeed.proof.measure.session import ProofJob, feed_session
from fastfeed.proof.result import Proof
from fastfeed.proof.synchronize import synchronize


@checked
def prove(
    step: Callable[[Any], Any], feed: Any, *, seconds: float = 60.0, cold: bool = True
) -> Proof:
    """Measure how much of a training step is its input, and which part of the input.

    The step is called with batches of five kinds in turn, in blocks: the same batch, on the device
    already; finished batches from host memory; the same while the feed decodes in parallel; real
    batches whose files are in the page cache; and real ones whose files are not. What each kind
    costs more than the one before is a part of the step. What the step trains is meaningless
    afterwards, and the feed's position does not change.

    Args:
        step (Callable[[Any], Any]): Called with what iterating `feed` gives, one batch at a time.
            It need not wait for the device: PyTorch, JAX and TensorFlow are waited for at the ends
            of blocks. Other frameworks must be waited for in it.
        feed (Any): A Feed, or what `feed.to_torch()` or `feed.to_jax()` returned; or any other
            loader that gives batches: a torch DataLoader, a tf.data.Dataset, a generator. Of such a
            loader three kinds are measured: a batch on the device, finished batches from host
            memory, and real ones.
        seconds (float): How long to measure, at least a second. Slow steps may take longer: four
            rounds of blocks of five steps are the least. Default: 60.
        cold (bool): Measure real batches without the page cache, too: their files are dropped from
            it. A loader that is no Feed is left as it is. Default: True.

    Returns:
        The parts of a step, with 95 % intervals. `print(proof)` shows them.

    Raises:
        ConfigError: If an argument is wrong.
        ProofError: If another proof of this feed is under way, or a loader ends too early.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((64, 8, 8, 3), np.uint8)), [ff.ToFloat()], batch=8)
        >>> proof = ff.prove(lambda batch: batch.images.mean(), feed, seconds=1)
        >>> proof.input.ns == sum(part.ns for part in proof.parts.values())
        True
    """
    held = FeedSession.find(feed)
    if not isinstance(feed, Iterable):
        raise ConfigError(
            "feed must be a Feed, feed.to_torch(), feed.to_jax() or a loader, got"
            f" {type(feed).__name__}; for Keras: fastfeed prove -- python train.py",
            field="feed",
        )
    if not callable(step):
        raise ConfigError.of("step", "a function that takes a batch", step)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 1 <= seconds < 1e6:
        raise ConfigError.of("seconds", "a number >= 1", seconds)
    if not isinstance(cold, bool):
        raise ConfigError.of("cold", "True or False", cold)
    if held is None:
        return Proof.of(measure_loader(step, feed, float(seconds)))
    if held.is_proving:
        raise ProofError(
            "this feed is being proved already, by `fastfeed prove` or another ff.prove(); do one"
            " of them"
        )
    held.proof = session = feed_session(held, ProofJob(float(seconds), cold), synchronize)
    last = None  # keeps the newest result alive, so that JAX can be asked to wait for it
    try:
        for batch in feed:
            last = step(batch)
        del last
    finally:
        held.proof = None
        session.close()
    return Proof.of(session.record)
