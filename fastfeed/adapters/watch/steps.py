"""Input wait of a training loop: numbers for its log, and one warning per run.

Imports no framework.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

from fastfeed.adapters.watch.loader import StepsOnly, Watched
from fastfeed.adapters.watch.tracker import as_tracker
from fastfeed.arguments import check_count, checked
from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.feed.session import FeedSession
from fastfeed.live.page import Page
from fastfeed.live.rates import PageReading, Rates, rates
from fastfeed.live.remedies import remedy
from fastfeed.live.states import State
from fastfeed.live.status import LiveStatus
from fastfeed.printable import warn
from fastfeed.system.clocks import steady_ns

_STARVED_S = 60.0  # a run is warned of when it has been starved for so long


class GPUStarved(RuntimeWarning):
    """The trainer has waited for its input for a minute, more than `warn` of the time.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("error", ff.GPUStarved)  # end a run that starves
    """


@checked
class StepWatch:
    """Call `step()` after each training step; it returns `feed_wait` and `feed_rate` for your log.

    `feed_wait` is the share of the time since the last value that the loop spent inside next(), 0
    to 1, and `feed_rate` the images (of other loaders: samples) that it got per second. Both are
    exact, whatever the framework does in between, and both are of the last `every` steps or more.
    With `begin()` before and `end()` after each epoch, as the callbacks call them, an epoch of
    fewer steps gets separate values.

    Args:
        data (Any): A Feed, what `feed.to_torch()` or `feed.to_jax()` returned, or
            `ff.watched(loader)`.
        warn (float | None): Warn (GPUStarved) once per run, if more than this share of a minute was
            spent waiting; None: never. Default: 0.2.
        every (int): Steps between new values. Default: 50.
        clock (Callable): Nanoseconds that never go back. Default: time.perf_counter_ns.
        tracker (Any): A run that gets every new value of both, and `feed_bad`, the bad samples of a
            feed so far, at the number of batches since epoch 0, which a resumed feed continues: a
            `Tracker`, or what it takes. Default: None.

    Raises:
        ConfigError: `data` cannot be watched, or another argument is not allowed.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((8, 4, 4, 3), np.uint8)), [], batch=2)
        >>> watch = ff.StepWatch(feed, every=2)
        >>> for batch in feed:  # or feed.to_torch(), feed.to_jax(), ff.watched(loader)
        ...     log = {"loss": 0.5} | watch.step()
        >>> sorted(log)
        ['feed_rate', 'feed_wait', 'loss']
    """

    def __init__(
        self,
        data: Any,
        warn: float | None = 0.2,
        every: int = 50,
        clock: Callable[[], int] = steady_ns,
        tracker: Any = None,
    ) -> None:
        if warn is not None and (
            isinstance(warn, bool) or not isinstance(warn, (int, float)) or not 0 < warn <= 1
        ):
            raise ConfigError.of("warn", "a share of the time in (0, 1], or None", warn)
        check_count("every", every)
        self._steps_only = data if isinstance(data, StepsOnly) else None
        self._status = _status(data)
        self._warn = warn
        self._interval = every
        self._clock = clock
        self._lock = threading.Lock()  # Keras calls from several threads
        self._begun: PageReading | None = None  # where the current interval begins
        self._steps = 0
        self._timed_ns = 0
        self._epoch_has_value = False
        self._starved_since: PageReading | None = None
        self._warned = False
        self._log: dict[str, float] = {}
        self._tracker = as_tracker(tracker)

    def step(self, steps: int = 1) -> dict[str, float]:
        """Count training steps that have ended.

        Args:
            steps (int): How many since the last call. Default: 1.

        Returns:
            The newest `feed_wait` and `feed_rate`; empty before there are any.

        Example:
            >>> ff.StepWatch(ff.watched([1, 2, 3])).step()
            {}
        """
        if self._lock.acquire(blocking=False):
            try:
                self._count(steps)
                if self._steps >= self._interval:
                    self._measure()
            finally:
                self._lock.release()
        return self._log

    @property
    def values(self) -> dict[str, float]:
        """The newest values; empty before there are any."""
        return self._log

    def begin(self) -> None:
        """Begin or continue training; time since the last step, as for validation, does not count.

        Example:
            >>> watch = ff.StepWatch(ff.watched([1, 2, 3]))
            >>> watch.begin()
        """
        with self._lock:
            self._timed_ns = 0
            self._epoch_has_value = False

    def end(self) -> dict[str, float]:
        """Say that an epoch's training has ended.

        An epoch of fewer than `every` steps gets its values here.

        Returns:
            The newest `feed_wait` and `feed_rate`; empty before there are any.

        Example:
            >>> ff.StepWatch(ff.watched([1, 2, 3])).end()
            {}
        """
        with self._lock:
            self._timed_ns = 0
            if self._steps_only is not None:
                self._steps_only.pause(self._clock())
            elif self._steps and not self._epoch_has_value:
                self._measure()
        return self._log

    def _count(self, steps: int) -> None:
        now = self._clock()
        if self._timed_ns:
            self._status.timed_steps(steps, now - self._timed_ns)
        self._timed_ns = now
        if self._steps_only is not None:
            self._steps_only.stepped(now)
            return
        self._steps += steps
        if self._begun is None:
            self._begun = PageReading(self._status.page(), now)
            self._steps = 0

    def _measure(self) -> None:
        """Make values of the steps since the last ones."""
        reading = PageReading(self._status.page(), self._clock())
        window = rates(self._begun, reading) if self._begun is not None else None
        if window is not None and window.wait is not None:
            self._log = {
                "feed_wait": round(window.wait, 4),
                "feed_rate": round(window.delivered or 0.0, 1),
            }
            self._epoch_has_value = True
            if self._tracker is not None:
                self._tracker.log(self._log | _bad(reading.page), _batches(reading.page))
            self._judge(reading, window.wait)
        self._begun = reading
        self._steps = 0

    def _judge(self, reading: PageReading, wait: float) -> None:
        if self._warn is None or self._warned or wait < self._warn:
            self._starved_since = None
            return
        since = self._starved_since = self._starved_since or self._begun
        if since is None:
            return
        # not while it validated
        trained_ns = reading.wait - since.wait + reading.consumer - since.consumer
        if trained_ns >= _STARVED_S * 1e9:
            self._warned = True
            warn(self._text(rates(since, reading)), GPUStarved, stacklevel=4)

    def _text(self, window: Rates) -> str:
        threads = self._status.page().identity.get("threads") or 0
        text = remedy(State.SEVERE, window, threads)
        found = (
            f"training has waited for its input {window.wait or 0:.0%} of the last"
            f" {window.seconds:.0f} s: it gets {window.delivered or 0:,.0f} images/s and could use"
            f" {window.need or 0:,.0f}"
        )
        return f"{found}; {text}" if text else f"{found}; see `fastfeed watch`"

    def to_lightning(self) -> Any:
        """Make a callback for Lightning's Trainer, which logs both values.

        Returns:
            A `lightning.Callback`: `Trainer(callbacks=[...])`.

        Raises:
            MissingExtra: Lightning is not installed.

        Example:
            >>> callback = ff.StepWatch(ff.watched([1, 2, 3])).to_lightning()  # doctest: +SKIP
        """
        watch = self
        for name in ("lightning.pytorch", "pytorch_lightning"):
            try:
                lightning: Any = importlib.import_module(name)
                break
            except ImportError:
                continue
        else:
            raise MissingExtra("to_lightning needs Lightning: pip install lightning")

        class LightningFeedWatch(lightning.Callback):
            """Logs feed_wait and feed_rate through Lightning."""

            def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
                watch.begin()

            def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
                self._log(pl_module, watch.step())

            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                self._log(pl_module, watch.end())

            def _log(self, pl_module: Any, values: dict[str, float]) -> None:
                if values:
                    pl_module.log_dict(values, prog_bar=True)

        return LightningFeedWatch()

    def to_transformers(self) -> Any:
        """Make a callback for Hugging Face's Trainer, which adds both values to what it logs.

        Returns:
            A `transformers.TrainerCallback`: `Trainer(..., callbacks=[...])`.

        Raises:
            MissingExtra: Transformers is not installed.

        Example:
            >>> callback = ff.StepWatch(ff.watched([1, 2, 3])).to_transformers()  # doctest: +SKIP
        """
        watch = self
        try:
            transformers: Any = importlib.import_module("transformers")
        except ImportError as error:
            raise MissingExtra(
                "to_transformers needs Transformers: pip install transformers"
            ) from error

        class TransformersFeedWatch(transformers.TrainerCallback):
            """Adds feed_wait and feed_rate to the logs of training."""

            def on_epoch_begin(self, *_: Any, **__: Any) -> None:
                watch.begin()

            def on_epoch_end(self, *_: Any, **__: Any) -> None:
                watch.end()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                watch.step()

            def on_log(
                self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any
            ) -> None:
                if logs is not None and "loss" in logs:
                    logs.update(watch.values)
                    # a copy that the Trainer has made of logs
                    state.log_history[-1].update(watch.values)

        return TransformersFeedWatch()


def _status(data: Any) -> LiveStatus:
    """Return the live status of a feed, or of an object made from one."""
    for held in (data, getattr(data, "_fastfeed", None), FeedSession.find(data)):
        if isinstance(held, (FeedSession, Watched, StepsOnly)):
            return held.live
    raise ConfigError(
        "data must be a Feed, feed.to_torch(), feed.to_jax() or ff.watched(loader), got"
        f" {type(data).__name__}; wrap the loader: ff.watched(loader)",
        field="data",
    )


def _bad(page: Page) -> dict[str, float]:
    """The bad samples of a feed; those of other loaders are not known."""
    return {"feed_bad": page.counters["bad"]} if "samples" in page.identity else {}


def _batches(page: Page) -> int:
    """Batches since epoch 0, also of a resumed feed; those taken of a loader without a length."""
    steps = page.identity["steps"]
    counters = page.counters
    return counters["batches"] if steps is None else counters["epoch"] * steps + counters["step"]
