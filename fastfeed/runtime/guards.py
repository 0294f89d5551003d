"""Errors for common misuse of a feed: in loader workers, as an array, pickled."""

from __future__ import annotations

import sys
from typing import Any, NoReturn, TypeVar

from fastfeed.errors import ConfigError
from fastfeed.printable import printable

_Class = TypeVar("_Class", bound=type)


def guarded(cls: _Class) -> _Class:
    """Class decorator for objects that yield batches: an error if used as an array or a list.

    `shape` raises as well, from a property, or from the class's own `__getattr__` if it has one.
    """
    cls.__getitem__ = _refuse_index  # type: ignore[attr-defined]
    cls.__array__ = _refuse_array  # type: ignore[attr-defined]
    cls.__reduce__ = _refuse_pickling  # type: ignore[method-assign, assignment]
    if not hasattr(cls, "__getattr__"):
        cls.shape = property(_refuse_array)  # type: ignore[attr-defined]
    return cls


def _refuse_index(self: object, index: Any) -> NoReturn:
    """Refuse indexing: a DataLoader and a Grain data set ask for samples by index."""
    raise ConfigError(
        f"{type(self).__name__} yields whole batches in its own order and has no samples by"
        f" index, got [{printable(repr(index), 80)}]; iterate it without a DataLoader or a Grain"
        " data set, which would shuffle and shard it again: for images, labels in feed.to_torch(),"
        " or in feed.to_jax()"
    )


def _refuse_array(self: object, *_: Any, **__: Any) -> NoReturn:
    """Refuse conversion: Keras takes anything convertible to an array as the images themselves."""
    raise NotAnArray(self)


def _refuse_pickling(self: object) -> NoReturn:
    raise ConfigError(
        f"{type(self).__name__} has threads and cannot be pickled or copied; pickle its source,"
        " its ops and feed.state(), create a Feed from them where it is used, and call"
        " restore(state) there"
    )


class NotAnArray(ConfigError, AttributeError):
    """An AttributeError, so that `hasattr(feed, "shape")` is False."""

    def __init__(self, data: object) -> None:
        super().__init__(
            f"{type(data).__name__} is not an array; pass feed.to_keras() to model.fit, evaluate"
            " and predict, and iterate feed.to_torch(), feed.to_jax() or feed.to_tfdata() in your"
            " own loop"
        )


def check_workers(explicit_world: bool) -> None:
    """ConfigError if each of several workers would yield every sample. Imports no framework.

    Args:
        explicit_world: The user has passed `world`, and so has split the samples.
    """
    if explicit_world:
        return
    data = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data is not None else None
    if worker is not None and worker.num_workers > 1:
        raise ConfigError(
            f"this Feed is made in worker {worker.id} of {worker.num_workers} of a torch"
            " DataLoader, and each worker would yield every sample; iterate feed.to_torch() in the"
            " training process without a DataLoader (it has its own threads), set"
            " num_workers=0, or pass Feed(..., world=World(rank=worker.id,"
            " size=worker.num_workers)) with worker = torch.utils.data.get_worker_info()"
        )
