"""`prefetch_to_device`: copies any iterable's batches to any framework's device ahead of time."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from fastfeed.arguments import check_count, checked
from fastfeed.errors import ConfigError
from fastfeed.feed.feed import Feed
from fastfeed.feed.session import FeedSession
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.placement import Placement, Rebuild, flatten, wait_until_written
from fastfeed.runtime.thread_pool import (
    CancelToken,
    LockedIterator,
    ParallelJob,
    Prefetcher,
    ThreadPool,
)

FRAMEWORKS = {  # how a device's name or class begins -> its placement
    "jax": ("fastfeed.adapters.jax", "JaxPlacement"),
    "jaxlib": ("fastfeed.adapters.jax", "JaxPlacement"),
    "tensorflow": ("fastfeed.adapters.tfdata", "TfPlacement"),
    "tf": ("fastfeed.adapters.tfdata", "TfPlacement"),
    "torch": ("fastfeed.adapters.torch", "TorchPlacement"),
}


@checked
@runs_on_gpu("feed")
def prefetch_to_device(iterable: Iterable[Any], device: Any, depth: int = 2) -> Iterator[Any]:
    """Yield the items with their NumPy arrays on a device, some of them ahead of the one in use.

    Each `for` loop over the result iterates a Feed, a list or a DataLoader again, so the result may
    be kept outside of the epoch loop; an iterator or a generator ends once.

    A thread draws from the iterable and begins the copies, while the caller computes. Items are
    arrays, or tuples, lists, dicts and dataclasses of them; everything else in them stays as it is.
    An iterable may fill the same arrays again when it is asked for the next item. Errors come at
    their item's turn. `close()` ends the thread; so do the end of the items, an error, and dropping
    the iterator. CuPy's arrays must be finished when they are drawn, or be written on the current
    stream of the thread that draws them: CuPy does not tell which stream writes.

    Of a Feed this yields `Batch`es, one epoch per loop, their images, labels and weights on the
    device; it works ahead by its own `prefetch`.

    Args:
        iterable (Iterable[Any]): The items, or a Feed.
        device (Any): A torch.device, a jax.Device or Sharding, or a name: "torch:cuda:0",
            "jax:gpu:0", "tf:GPU:0". A name without a framework ("cuda:1", "cpu") is PyTorch's, one
            with a slash ("/GPU:0") TensorFlow's.
        depth (int): Items ahead, at least 1; of a Feed, its `prefetch` counts. Default: 2.

    Returns:
        An iterator of the items; of a Feed, and of what can be iterated again, with its length
        where it has one.

    Raises:
        ConfigError: If `depth` or `device` is none of these.
        MissingExtra: If the framework is not installed.

    Example:
        >>> items = ff.prefetch_to_device([np.zeros(3), np.ones(3)], "jax:cpu")  # doctest: +SKIP
        >>> next(items)  # doctest: +SKIP
        Array([0., 0., 0.], dtype=float32)
    """
    check_count("depth", depth, advice="it is the number of batches ahead")
    if isinstance(iterable, Feed):
        session = FeedSession.of(iterable)
        placement = _placement(device, session.prefetch + 2)
        session.place_on(placement)
        return _Loops(iterable, partial(_placed, session, placement))
    if not isinstance(iterable, Iterable):
        raise ConfigError(
            f"prefetch_to_device needs an iterable of batches, got {iterable!r}", field="iterable"
        )
    begin = partial(_Prefetched, iterable, _placement(device, depth + 2), depth)
    return begin() if isinstance(iterable, Iterator) else _Loops(iterable, begin)


def _placement(device: Any, live_batches: int) -> Placement:
    framework = type(device).__module__.split(".")[0]
    if isinstance(device, str):
        framework, _, rest = ("tf:" + device if device.startswith("/") else device).partition(":")
        if framework not in FRAMEWORKS:
            framework = "torch"
            rest = device
        default = {"torch": "cuda", "tf": "GPU:0", "tensorflow": "GPU:0"}.get(framework, "")
        device = rest or default
    elif framework not in FRAMEWORKS:
        raise ConfigError.of(
            "device",
            "a torch.device, a jax.Device, a jax Sharding, or a name such as"
            " 'torch:cuda:0', 'jax' or 'tf:GPU:0'",
            device,
        )
    module, name = FRAMEWORKS[framework]
    return getattr(importlib.import_module(module), name)(device, live_batches)


class _Loops:
    """Items that each loop iterates again; a loop continues an iteration that `next` began."""

    def __init__(self, items: Iterable[Any], begin: Callable[[], Any]) -> None:
        self._items = items
        self._begin = begin
        self._begun: Any = None  # by `next`

    def __iter__(self) -> Iterator[Any]:
        begun = self._begun
        self._begun = None
        return self._begin() if begun is None else begun

    def __next__(self) -> Any:
        if self._begun is None:
            self._begun = self._begin()
        try:
            return next(self._begun)
        except StopIteration:
            self._begun = None
            raise

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]

    def close(self) -> None:
        """End the iteration that `next` has begun."""
        if self._begun is not None:
            self._begun.close()


def _placed(session: FeedSession, placement: Placement) -> LockedIterator[Batch]:
    def place(batch: Batch) -> tuple[Any, Rebuild]:
        arrays, rebuild = flatten(batch)
        return placement.put(tuple(arrays)), rebuild

    batches = session.placed(place)
    return LockedIterator(
        (rebuild(iter(placement.take(placed))) for placed, rebuild in batches), batches.close
    )


class _Prefetched:
    """An iterator whose thread holds only the items, so that dropping it ends the thread."""

    def __init__(self, items: Iterable[Any], placement: Placement, depth: int) -> None:
        self._pool = ThreadPool(1, name="fastfeed-device")
        stop = CancelToken(self._pool)
        self._placement = placement
        self._ahead: Prefetcher[Any] = Prefetcher(
            self._pool, _jobs(iter(items), placement, stop), depth, stop
        )

    def __iter__(self) -> _Prefetched:
        return self

    def __next__(self) -> Any:
        try:
            found = next(self._ahead)
        except BaseException:  # Ctrl-C as well: the thread must not draw any more
            self.close()
            raise
        if found is None:
            self.close()
            raise StopIteration
        placed, rebuild = found
        return rebuild(iter(self._placement.take(placed)))

    def close(self) -> None:
        """End the thread. What it has drawn from the items is lost."""
        self._ahead.close()
        self._pool.close()


def _jobs(
    items: Iterator[Any], placement: Placement, stop: CancelToken
) -> Iterator[ParallelJob[tuple[Any, Rebuild] | None]]:
    ended: list[bool] = []

    def draw() -> tuple[Any, Rebuild] | None:
        if ended:
            return None
        try:
            item = next(items)
        except StopIteration:
            ended.append(True)
            return None
        except BaseException:  # whatever it raised: an iterator that has is not asked again
            ended.append(True)
            raise
        arrays, rebuild = flatten(item)
        for array in arrays:
            wait_until_written(array)
        return placement.put(tuple(arrays), borrowed=True), rebuild

    while True:
        yield ParallelJob(stop, [], draw)
