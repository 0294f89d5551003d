"""Other loaders, watched as a feed is: how long a loop waits for them, exactly."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from fastfeed.arguments import checked
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.live.meter import Meter
from fastfeed.live.status import LiveStatus, SlowCounts
from fastfeed.printable import log
from fastfeed.system.clocks import steady_ns
from fastfeed.version import __version__

T = TypeVar("T")


@checked
def watched(data: Iterable[T], name: str = "", world: World | None = None) -> Watched[T]:
    """Iterate a loader that `fastfeed watch`, `ff.Watch` and `ff.StepWatch` monitor.

    For a `DataLoader`, a Grain loader, a generator, a `tf.data.Dataset`, a `PyDataset`. What is
    yielded is handed on as it is. For Keras there is `to_keras`:
    `model.fit(ff.watched(data).to_keras())`.

    Args:
        data (Iterable): Anything that is iterated. Each iteration counts as an epoch.
        name (str): Shown by `fastfeed watch`. Default: "".
        world (World | None): This rank; None: what the launcher's environment says. Default: None.

    Returns:
        What to iterate instead.

    Raises:
        ConfigError: `data` cannot be iterated.

    Example:
        >>> loader = ff.watched([np.zeros((8, 3)), np.zeros((8, 3))], name="train")
        >>> watch = ff.StepWatch(loader, every=1)
        >>> for batch in loader:
        ...     log = watch.step()
        >>> sorted(log)
        ['feed_rate', 'feed_wait']
    """
    if (
        not hasattr(data, "__iter__")
        and hasattr(data, "__getitem__")
        and not hasattr(data, "__len__")
    ):
        raise ConfigError(
            f"watched() needs an iterable, got a {type(data).__name__}, which has items by index"
            " and no length; pass a generator of its items",
            field="data",
        )
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise ConfigError(
            f"watched() needs a loader to iterate, got {type(data).__name__}", field="data"
        )
    return Watched(data, name, World.detect() if world is None else world)


class Watched(Generic[T]):
    """A loader whose iteration is watched; made by `ff.watched`.

    Args:
        data (Iterable): The loader.
        name (str): Shown by `fastfeed watch`.
        world (World): This rank.

    Example:
        >>> loader = ff.watched([1, 2, 3])
        >>> len(loader), list(loader)
        (3, [1, 2, 3])
    """

    def __init__(self, data: Iterable[T], name: str, world: World) -> None:
        self._data = data
        self._meter = Meter()
        self._epoch = 0
        steps = _length(data) if hasattr(data, "__len__") else None
        source = type(data).__name__
        self.live = _live_status(self._meter, world, source, name=name[:200], steps=steps)

    def __iter__(self) -> Iterator[T]:
        return self.walk(self._data if hasattr(self._data, "__iter__") else _items(self._data))

    def walk(self, data: Iterable[Any]) -> Iterator[Any]:
        """Iterate other data, such as converted batches, and count it as this loader's.

        Args:
            data (Iterable): Batches.

        Returns:
            The same batches, one epoch.

        Example:
            >>> loader = ff.watched([1, 2, 3])
            >>> list(loader.walk(batch * 2 for batch in [1, 2, 3]))
            [2, 4, 6]
        """
        meter = self._meter
        live = self.live
        clock = steady_ns
        batches = iter(data)
        epoch = self._epoch
        step = 0
        self._epoch += 1
        meter.pause()
        while True:
            requested = clock()
            meter.record_request(requested, 0)
            live.requested(requested, 0)
            try:
                batch = next(batches)
            except StopIteration:
                live.paused(clock())
                return
            except BaseException as error:
                live.paused(clock(), failed=isinstance(error, Exception))
                raise
            now = clock()
            step = step + 1
            meter.record_delivery(requested, now, count_samples(batch))
            live.delivered(now, (epoch, step))
            yield batch

    def pause(self) -> None:
        """Pause counting until the next batch, for example while validating.

        Example:
            >>> loader = ff.watched([1, 2])
            >>> batches = iter(loader)
            >>> first = next(batches)
            >>> loader.pause()  # save a checkpoint
            >>> next(batches)
            2
        """
        _pause(self, steady_ns())

    def to_keras(self) -> Any:
        """The data for Keras's `fit`, `evaluate` and `predict`, watched on any backend.

        TensorFlow would otherwise read a `tf.data` pipeline inside of its graph, and run ahead of a
        generator in a separate thread: nothing that wraps the data sees the trainer wait there.
        This takes batches eagerly, one at a time, from what Keras itself makes of the data; it
        needs TensorFlow's default strategy and one step per execution, and does not watch
        otherwise, which it logs.

        Returns:
            A Keras `DataAdapter`.

        Raises:
            ConfigError: Keras does not take such data.
            MissingExtra: Keras is not installed.

        Example:
            >>> batches = ((np.zeros((4, 2), "float32"), np.zeros(4)) for _ in range(8))
            >>> data = ff.watched(batches).to_keras()  # model.fit(data, steps_per_epoch=6, callbacks=[ff.Watch(data)])
        """
        return _keras_adapter(self, self._data)

    def __len__(self) -> int:
        return len(self._data)  # type: ignore[arg-type]

    def close(self) -> None:
        """Remove the live page; garbage collection does this as well.

        Example:
            >>> loader = ff.watched([1, 2])
            >>> loader.close()
        """
        self.live.close()


class StepsOnly:
    """A trainer whose data is not watched: its steps are timed, its waits are unknown."""

    def __init__(self, source: str) -> None:
        """Open the live page; `source` names the data, as `fastfeed watch` shows it."""
        self._meter = Meter()
        self.live = _live_status(self._meter, World.detect(), source, name="", steps_only=True)

    def stepped(self, now_ns: int) -> None:
        """A step, or several, has ended."""
        self._meter.record_request(now_ns, 0)
        self._meter.record_delivery(now_ns, now_ns, 0)
        self.live.delivered(now_ns, (0, self._meter.batches))

    def pause(self, now_ns: int) -> None:
        """Count no steps until the next begin."""
        _pause(self, now_ns)


def _live_status(meter: Meter, world: World, source: str, **more: Any) -> LiveStatus:
    identity = {
        "version": __version__,
        "source": source[:200],
        "prefetch": None,  # how many batches are ready is not known
        "rank": world.rank,
        "world": world.size,
        "local_rank": world.local_rank,
    }
    return LiveStatus(meter, identity | more, SlowCounts)


def _pause(counted: Watched[Any] | StepsOnly, now_ns: int) -> None:
    counted._meter.record_request(now_ns, 0)
    counted.live.paused(now_ns)


def _items(data: Any) -> Iterator[Any]:
    """Iterate data that has items by index."""
    for index in range(len(data)):
        yield data[index]


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except TypeError:  # a loader over an iterable has the method and no length
        return None


def count_samples(batch: Any) -> int:
    """Length of the first array, or list of texts, in a batch; 1 without these."""
    for _ in range(8):  # nested so deep at most
        shape = getattr(batch, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else 1
        if isinstance(batch, Mapping):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, (tuple, list)) and batch:
            if isinstance(batch[0], str):
                return len(batch)
            batch = batch[0]
        else:
            break
    return 1


def _keras_adapter(watched: Watched[Any], data: Any) -> Any:
    """A `DataAdapter` that times the iteration of Keras's own, on the thread that trains."""
    try:
        adapters: Any = importlib.import_module("keras.src.trainers.data_adapters")
        base: Any = importlib.import_module(
            "keras.src.trainers.data_adapters.data_adapter"
        ).DataAdapter
    except ImportError as error:
        raise MissingExtra.of("to_keras", "Keras 3", "keras") from error
    try:
        inner = adapters.get_data_adapter(data)
    except (ValueError, TypeError) as error:  # "Unrecognized data type"
        raise ConfigError(
            f"Keras does not take a {type(data).__name__}: {error}; pass a tf.data.Dataset, a"
            " PyDataset, a generator",
            field="data",
        ) from error

    # not at the top: it loads the feed
    is_keras_peeking = importlib.import_module("fastfeed.adapters.keras.epochs").is_keras_peeking

    class Reiterable:
        """Iterable any number of times."""

        def __init__(self, loader: Any) -> None:
            self._loader = loader

        def __iter__(self) -> Iterator[Any]:
            return iter(self._loader) if is_keras_peeking() else watched.walk(self._loader)

    class WatchedAdapter(base):
        """Data that ff.watched() watches, inside Keras."""

        _fastfeed = watched

        get_numpy_iterator = inner.get_numpy_iterator
        num_batches = property(lambda _: inner.num_batches)
        batch_size = property(lambda _: inner.batch_size)
        has_partial_batch = property(lambda _: inner.has_partial_batch)
        partial_batch_size = property(lambda _: inner.partial_batch_size)

        def get_jax_iterator(self) -> Any:
            return iter(Reiterable(inner.get_jax_iterator()))

        def get_torch_dataloader(self) -> Any:
            return Reiterable(inner.get_torch_dataloader())

        def get_tf_dataset(self) -> Any:
            caller = sys._getframe(1).f_locals  # what `fit` asks for
            dataset = inner.get_tf_dataset()
            steps = caller.get("kwargs", {}).get("steps_per_execution", 0)
            tensorflow: Any = importlib.import_module("fastfeed.adapters.keras.tensorflow")
            strategy = caller.get("distribute_strategy")
            if steps == 1 and (strategy is None or not tensorflow.is_chosen(strategy)):
                return tensorflow.WatchedDataset(watched, dataset)
            log.warning(
                "this data is read in TensorFlow's graph here, so how long training waits for it is"
                " not known"
            )
            return dataset

        def on_epoch_begin(self) -> None:
            inner.on_epoch_begin()  # of a Keras that calls it: older adapters have none

        def on_epoch_end(self) -> None:
            # a generator continues in the next epoch; what comes between is not training
            watched.pause()
            inner.on_epoch_end()

    return WatchedAdapter()
