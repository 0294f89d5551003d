"""Where batches go: the seam between a feed and a framework's devices.

Copying to a device is the last thing done to a batch, by the thread that finished it, while the trainer computes on
batches before it. The trainer's own thread then only waits for a copy that has long been made. At most `prefetch` + 2
batches are on the device at once: those ahead, the one that is handed over, and the one in use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from fastfeed.errors import DeviceMemory
from fastfeed.runtime.batch import Batch

__all__ = ["Placement", "flatten", "full", "size_of"]


class Placement(Protocol):
    """Puts arrays where a framework computes."""

    name: str  # as print(feed) shows it: "torch cuda:0"
    accelerator: bool  # not the processor: copies go over a bus, and arithmetic there is cheap

    def memory(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Host memory that copies from it are fastest from."""
        ...

    def put(self, arrays: tuple[np.ndarray, ...], borrowed: bool = False) -> Any:
        """Begin to copy, on any thread. What is returned holds the arrays for as long as they are read.

        `borrowed`: they may change once this returns, so that nothing of them may be needed any more.
        """
        ...

    def take(self, placed: Any) -> tuple[Any, ...]:
        """The framework's arrays, on the thread that computes: what is begun there from now on comes after the copy."""
        ...


def full(name: str, arrays: tuple[Any, ...], held: int, why: object) -> DeviceMemory:
    """The error for a device that has no room for a batch."""
    one = size_of(arrays)
    return DeviceMemory(
        f"{name} has no memory left for a batch of {one / 1e6:.1f} MB; up to {held} of them are there at once, "
        f"{held * one / 1e6:.1f} MB; lower the batch size, or prefetch by one to save {one / 1e6:.1f} MB, "
        f"or make room there: {_first_line(why)}"
    )


def size_of(arrays: tuple[Any, ...]) -> int:
    """Bytes of these arrays."""
    return sum(array.nbytes for array in arrays)


def _first_line(why: object) -> str:
    return str(why).strip().split("\n", 1)[0][:200]


Rebuild = Callable[[Iterator[Any]], Any]


def flatten(tree: Any) -> tuple[list[np.ndarray], Rebuild]:
    """The NumPy arrays in nested tuples, lists, dicts and dataclasses, and how to put others in their place.

    Anything else stays as it is. Of a `Batch` images, views, labels, weights, boxes and masks count; ids and columns
    stay on the host.
    """
    if isinstance(tree, np.ndarray) or hasattr(tree, "__cuda_array_interface__"):
        return [tree], next
    if isinstance(tree, Batch):
        names = ("labels", "weights", "objects", "masks")
        inner, rebuild = flatten((tree.views or (tree.images,), *(getattr(tree, name) for name in names)))

        def placed(leaves: Iterator[Any]) -> Batch:
            images, *rest = rebuild(leaves)
            views = images if tree.views else ()
            return dataclasses.replace(tree, images=images[0], views=views, **dict(zip(names, rest, strict=True)))

        return inner, placed
    if isinstance(tree, Mapping):
        return _several(list(tree.values()), lambda values: type(tree)(zip(tree, values, strict=True)))  # type: ignore[call-arg]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _several(list(tree), lambda values: type(tree)(*values))
    if isinstance(tree, (tuple, list)):
        return _several(list(tree), type(tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree) if field.init]
        return _several(
            [getattr(tree, name) for name in names],
            lambda values: dataclasses.replace(tree, **dict(zip(names, values, strict=True))),
        )
    return [], lambda _: tree


def _several(parts: list[Any], build: Callable[[list[Any]], Any]) -> tuple[list[np.ndarray], Rebuild]:
    flat = [flatten(part) for part in parts]
    arrays = [array for inner, _ in flat for array in inner]
    return arrays, lambda leaves: build([rebuild(leaves) for _, rebuild in flat])
