"""Placement of batches on a framework's devices.

The thread that finishes a batch also starts its copy to the device, while the trainer computes on
earlier batches. The trainer's own thread usually finds the copy done. At most `prefetch` + 2
batches are on the device at once: those ahead, the one being passed on, and the one in use; and
on a GPU those that queued work has yet to read.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from fastfeed.errors import DeviceMemory
from fastfeed.printable import format_size
from fastfeed.runtime.batch import Batch


class Placement(Protocol):
    """Copies arrays to where a framework computes."""

    name: str  # as print(feed) shows it: "torch cuda:0"
    accelerator: (
        bool  # a device other than the CPU: copies go over a bus, and arithmetic there is cheap
    )

    def memory(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Host memory from which copies to the device are fastest."""
        ...

    def put(self, arrays: tuple[np.ndarray, ...], borrowed: bool = False) -> Any:
        """Start a copy, on any thread. The result keeps the arrays alive until they have been read.

        Arrays of objects stay on the host, in the form that the framework has for texts.

        `borrowed`: the arrays may change after this returns, so they must have been read by then.
        """
        ...

    def take(self, placed: Any) -> tuple[Any, ...]:
        """The framework's arrays.

        Called on the thread that computes; its later work is ordered after the copy.
        """
        ...


def out_of_memory(name: str, arrays: tuple[Any, ...], batches: int, error: object) -> DeviceMemory:
    """The error for a device without room for a batch; it holds at most `batches` of them."""
    size = total_bytes(arrays)
    return DeviceMemory(
        f"{name} has no memory left for a batch of {format_size(size)}; up to {batches} of them are"
        f" there at once, {format_size(batches * size)}; lower the batch size, or prefetch by one"
        f" to save {format_size(size)}, or make room there: {_first_line(error)}"
    )


def lacks_memory(error: BaseException) -> bool:
    """True for an error of a device or decoder that ran out of memory.

    That is MemoryError, and any other whose text mentions it.
    """
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower()


def on_host(array: Any) -> np.ndarray:
    """The array, copied from a GPU if needed, for frameworks that compute on the CPU."""
    if not hasattr(array, "__cuda_array_interface__"):
        return array
    if hasattr(array, "get"):  # CuPy
        return array.get()
    if hasattr(array, "as_cpu"):  # DALI
        return np.asarray(array.as_cpu())
    return array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)  # PyTorch; JAX


def is_of_objects(array: Any) -> bool:
    """True for texts and other Python objects, which stay on the host."""
    return isinstance(array, np.ndarray) and array.dtype == object


def wait_until_written(array: Any) -> None:
    """Wait for the work that CuPy has queued on this thread's current stream.

    An array's interface names that stream: neither PyTorch nor TensorFlow waits for it. CuPy does
    not know which stream writes to an array.
    """
    stream = getattr(array, "__cuda_array_interface__", {}).get("stream")
    cupy: Any = sys.modules.get("cupy")
    if stream is not None and cupy is not None:
        cupy.cuda.runtime.streamSynchronize(stream)


def total_bytes(arrays: tuple[Any, ...]) -> int:
    """Total bytes of these arrays."""
    return sum(
        array.nbytes if hasattr(array, "nbytes") else _bytes_on_gpu(array) for array in arrays
    )


def _bytes_on_gpu(array: Any) -> int:
    """Size of a dense array without `nbytes`, such as DALI's."""
    how = array.__cuda_array_interface__
    return math.prod(how["shape"]) * np.dtype(how["typestr"]).itemsize


def _first_line(error: object) -> str:
    return str(error).strip().split("\n", 1)[0][:200]


Rebuild = Callable[[Iterator[Any]], Any]


def flatten(tree: Any) -> tuple[list[np.ndarray], Rebuild]:
    """(arrays, rebuild) of nested tuples, lists, dicts and dataclasses.

    `rebuild` puts other arrays in the places of these.

    Anything else stays as it is, arrays of Python objects too. Images, views, labels, weights, boxes and masks of a `Batch` are
    flattened; its ids and columns stay on the host.
    """
    if isinstance(tree, np.ndarray) or hasattr(tree, "__cuda_array_interface__"):
        return ([], lambda _: tree) if is_of_objects(tree) else ([tree], next)
    if isinstance(tree, Batch):
        names = ("labels", "weights", "objects", "masks")
        inner, rebuild = flatten(
            (tree.views or (tree.images,), *(getattr(tree, name) for name in names))
        )

        def placed(leaves: Iterator[Any]) -> Batch:
            images, *rest = rebuild(leaves)
            views = images if tree.views else ()
            return dataclasses.replace(
                tree, images=images[0], views=views, **dict(zip(names, rest, strict=True))
            )

        return inner, placed
    if isinstance(tree, Mapping):
        kind: Any = type(tree)
        return _flatten_all(
            list(tree.values()), lambda values: kind(zip(tree, values, strict=True))
        )
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _flatten_all(list(tree), lambda values: type(tree)(*values))
    if isinstance(tree, (tuple, list)):
        return _flatten_all(list(tree), type(tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree) if field.init]
        return _flatten_all(
            [getattr(tree, name) for name in names],
            lambda values: dataclasses.replace(tree, **dict(zip(names, values, strict=True))),
        )
    return [], lambda _: tree


def _flatten_all(
    parts: list[Any], build: Callable[[list[Any]], Any]
) -> tuple[list[np.ndarray], Rebuild]:
    flat = [flatten(part) for part in parts]
    arrays = [array for inner, _ in flat for array in inner]
    return arrays, lambda leaves: build([rebuild(leaves) for _, rebuild in flat])
