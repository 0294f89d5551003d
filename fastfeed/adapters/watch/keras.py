"""A Keras callback that puts the feed's waiting into `logs`.

Works on all backends, and does not slow them down.
"""

from __future__ import annotations

from typing import Any

from fastfeed.adapters.keras.checks import fitted_feed
from fastfeed.adapters.versions import framework
from fastfeed.adapters.watch.loader import StepsOnly
from fastfeed.adapters.watch.steps import StepWatch
from fastfeed.adapters.watch.tracker import as_tracker
from fastfeed.arguments import checked


@checked
def Watch(feed: Any = None, warn: float | None = 0.2, every: int = 50, tracker: Any = None) -> Any:
    """A Keras callback: `model.fit(feed.to_keras(), callbacks=[ff.Watch()])`.

    Adds `feed_wait` (share of the time spent waiting for batches, 0 to 1) and `feed_rate`
    (images/s) of the last `every` steps, or of an epoch that is shorter, to `logs`, so that the
    progress bar, History, CSVLogger, TensorBoard, W&B and MLflow have them.

    The feed itself measures. A callback that times the gaps between batches cannot: on TensorFlow
    and JAX, Keras takes the batch inside of its training function, so there are no gaps. For
    unwatched data, a plain `tf.data` pipeline or PyDataset, the wait is unknown: nothing is added
    to `logs`, and `fastfeed watch` has the time of a step, and what NVML says of the GPU, as an
    estimate.

    Args:
        feed (Any): A Feed, what `to_keras` made of one, `ff.watched(data)`, or what its `to_keras`
            made; None: what `fit` is given. Default: None.
        warn (float | None): Warn (GPUStarved) once per run, if more than this share of a minute was
            spent waiting; None: never. Default: 0.2.
        every (int): Steps between new values; there is one at the end of a shorter epoch. Default:
            50.
        tracker (Any): As for `StepWatch`. Keras callbacks of trackers have the values of
            `logs` without it. Default: None.

    Returns:
        A `keras.callbacks.Callback`. It allows Keras to continue while callbacks run
        (`async_safe`).

    Raises:
        MissingExtra: Keras is not installed.
        ConfigError: `feed` cannot be watched, or another argument is not allowed.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((8, 4, 4, 3), np.uint8)), [], batch=2)
        >>> callback = ff.Watch()  # model.fit(feed.to_keras(), callbacks=[callback])
    """
    keras = framework("keras", "Watch")

    class FeedWatch(keras.callbacks.Callback):
        """The Keras callback that `fastfeed.Watch` returns."""

        async_safe = True  # or Keras would wait for this callback after each batch

        def __init__(self) -> None:
            super().__init__()
            data = StepsOnly("data that is not watched") if feed is None else feed
            self._tracker = as_tracker(tracker)
            self._watch = StepWatch(data, warn, every, tracker=self._tracker)
            self._batch = -1
            self._fitted: Any = None  # that was found, and is watched

        def on_train_begin(self, logs: Any = None) -> None:
            fitted = fitted_feed() if feed is None else None
            if fitted is not None and fitted is not self._fitted:
                self._watch = StepWatch(fitted, warn, every, tracker=self._tracker)
                self._fitted = fitted

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._batch = -1
            self._watch.begin()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            steps = max(1, batch - self._batch)
            self._batch = max(batch, self._batch)
            values = self._watch.step(steps)
            if logs is not None:
                logs.update(values)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            values = self._watch.end()
            if logs is not None:
                logs.update(values)

    return FeedWatch()
