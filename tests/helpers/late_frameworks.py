"""PyTorch, JAX and TensorFlow on a `LateGpu`: what placements call of them, with each one's
streams.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any

import numpy as np

from helpers.late_gpu import DeviceArray, Event, LateGpu, Library, Memory, Stream


class Tensor:
    """PyTorch's."""

    def __init__(self, array: DeviceArray) -> None:
        self.array = array

    def fill_(self, value: float) -> None:
        target = self.array.values
        self.array.library.current.enqueue(lambda: target.fill(value))

    def clone(self) -> Tensor:
        return Tensor(self.array.library.computed(np.copy, self.array))

    def record_stream(self, stream: Stream) -> None:
        self.array.memory.users.append(stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """PyTorch names no stream."""
        how = self.array.__cuda_array_interface__
        return {key: value for key, value in how.items() if key != "stream"} | {"version": 2}

    def tolist(self) -> Any:
        """As PyTorch's, after what the current stream has to do."""
        return self.array.get().tolist()


class _Pinned:
    """Host memory that a copy reads when its turn comes. Freed, it is the next tensor's at once."""

    def __init__(self, library: Library, values: np.ndarray) -> None:
        self._library, self._shape, self._dtype = library, values.shape, values.dtype
        self._memory = Memory.recycled_at_once(library.gpu.bytes(values.nbytes))
        np.copyto(self._memory.raw.view(values.dtype).reshape(values.shape), values)

    def is_pinned(self) -> bool:
        return True

    def to(self, _device: Any, non_blocking: bool) -> Tensor:
        made = self._library.empty(self._shape, self._dtype)
        raw = self._memory.raw.view(self._dtype).reshape(self._shape)
        self._library.write(made.values, lambda: raw)
        if not non_blocking:
            self._library.current.synchronize()
        return Tensor(made)


def late_torch(gpu: LateGpu, monkeypatch: Any) -> tuple[Any, Library]:
    """(a placement of PyTorch on that GPU, PyTorch there)."""
    from fastfeed.adapters import torch as adapter

    library, real = Library(gpu), adapter.torch

    def as_tensor(array: Any, device: Any) -> Tensor:
        """PyTorch reads the interface's address, and not its stream."""
        return array if isinstance(array, Tensor) else Tensor(library.view(array))

    cuda = types.SimpleNamespace(
        device=contextlib.nullcontext,
        stream=library.on,
        Event=Event,
        ExternalStream=gpu.stream,
        current_stream=lambda _: library.current,
    )
    placement = adapter.TorchPlacement("cpu", 4)
    fake = types.SimpleNamespace(
        cuda=cuda, as_tensor=as_tensor, OutOfMemoryError=real.OutOfMemoryError
    )
    monkeypatch.setattr(adapter, "torch", fake)
    monkeypatch.setattr(adapter, "_host", lambda array: _Pinned(library, array))
    placement.accelerator, placement._stream = True, Stream(gpu)
    return placement, library


class _Computed:
    """JAX's array: later computations of JAX's are ordered after it."""

    def __init__(self, array: DeviceArray) -> None:
        self.array = array

    def block_until_ready(self) -> _Computed:
        self.array.library.current.synchronize()
        return self

    def tolist(self) -> Any:
        return self.array.get().tolist()


def late_jax(gpu: LateGpu, monkeypatch: Any) -> tuple[Any, Library]:
    """(a placement of JAX on that GPU, JAX there)."""
    from fastfeed.adapters import jax as adapter

    library, own, real = Library(gpu), Stream(gpu), adapter.jax
    library.enter(own)
    jax: Any = types.SimpleNamespace(Device=real.Device, sharding=real.sharding)
    placement = adapter.JaxPlacement()

    def from_dlpack(array: Any) -> _Computed:
        return _Computed(library.view(array.__dlpack__(stream=own.ptr)))

    def copied(one: _Computed, copy: bool) -> _Computed:
        with library.on(own):
            return _Computed(library.computed(np.copy, one.array)) if copy else one

    def block_until_ready(placed: Any) -> Any:
        own.synchronize()
        return placed

    jax.dlpack = types.SimpleNamespace(from_dlpack=from_dlpack)
    jax.device_put, jax.block_until_ready = (lambda array, where: array), block_until_ready
    monkeypatch.setattr(adapter, "jax", jax)
    monkeypatch.setattr(adapter, "jnp", types.SimpleNamespace(array=copied))
    placement.accelerator = True
    return placement, library


def late_tensorflow(gpu: LateGpu, monkeypatch: Any) -> tuple[Any, Library]:
    """(a placement of TensorFlow on that GPU, TensorFlow there).

    Its stream is in step with no other.
    """
    from fastfeed.adapters import tfdata as adapter

    library, own, real = Library(gpu), Stream(gpu), adapter.tf
    library.enter(own)
    placement = adapter.TfPlacement()

    def deep_copy(x: DeviceArray) -> _Computed:
        with library.on(own):
            return _Computed(library.computed(np.copy, x))

    fake: Any = types.SimpleNamespace(device=lambda _: contextlib.nullcontext(), errors=real.errors)
    fake.raw_ops = types.SimpleNamespace(DeepCopy=deep_copy)
    dlpack = types.SimpleNamespace(from_dlpack=library.view)
    testing = types.SimpleNamespace(sync_devices=own.synchronize)  # the compute stream alone
    fake.experimental = types.SimpleNamespace(dlpack=dlpack)
    fake.test = types.SimpleNamespace(experimental=testing)
    monkeypatch.setattr(adapter, "tf", fake)
    placement.accelerator = True
    return placement, library
