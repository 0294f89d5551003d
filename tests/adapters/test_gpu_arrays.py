"""What placements do with batches of a GPU, by stand-ins that behave as CuPy's arrays and CUDA's
streams do.
"""

import contextlib
import types

import numpy as np
import pytest
from helpers.gpu_arrays import GpuArray
from helpers.needs import needs

from fastfeed.adapters.prefetch_to_device import _placement
from fastfeed.errors import ConfigError, DeviceMemory
from fastfeed.runtime.placement import on_host, out_of_memory


@pytest.mark.parametrize(
    "module",
    [
        pytest.param("torch", marks=needs("torch")),
        pytest.param("jax", marks=needs("jax")),
        pytest.param("tf", marks=needs("tensorflow")),
    ],
)
@pytest.mark.parametrize("borrowed", [False, True])
def test_a_gpus_batch_reaches_a_framework_on_the_processor(module, borrowed):
    """decode="gpu" with a framework that computes on the processor: one copy, no riddle from
    inside.
    """
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    placement = _placement(f"{module}:cpu", 4)
    images, labels = placement.take(placement.put((GpuArray(values), np.arange(2)), borrowed))
    assert np.array_equal(np.asarray(images), values) and np.asarray(labels).tolist() == [0, 1]


def test_every_librarys_array_comes_to_the_host():
    """CuPy's has get(), DALI's as_cpu() and no size, PyTorch's cpu(), JAX's becomes NumPy's by
    itself.
    """

    class Anyone:
        __cuda_array_interface__ = {"shape": (500, 1000), "typestr": "<f4"}

    class OfDali(Anyone):
        def as_cpu(self):
            return np.arange(4)

    class OfTorch(Anyone):
        def cpu(self):
            return types.SimpleNamespace(numpy=lambda: np.arange(4))

    class OfJax(Anyone):
        def __array__(self, *_, **__):
            return np.arange(4)

    for array in (GpuArray(np.arange(4)), OfDali(), OfTorch(), OfJax()):
        assert on_host(array).tolist() == [0, 1, 2, 3]
    assert "a batch of 2.0 MB" in str(out_of_memory("jax cpu", (OfDali(),), 4, MemoryError()))


@needs("torch")
@pytest.mark.parametrize(
    "text",
    ["CUDA error: out of memory\nCUDA kernel errors might be asynchronous", "CUDA out of memory."],
)
def test_every_way_in_which_pytorch_says_that_a_gpu_is_full(monkeypatch, text):
    """An allocation of its own is OutOfMemoryError; pinned memory, a context, a kernel are a plain
    RuntimeError.
    """
    import torch

    from fastfeed.adapters.torch import TorchPlacement

    placement = TorchPlacement("cpu", 4)

    def full(*_, **__):
        raise RuntimeError(text)

    monkeypatch.setattr(torch.Tensor, "to", full)
    with pytest.raises(
        DeviceMemory,
        match=r"torch cpu has no memory left for a batch of 16 bytes; up to 4 .*out of memory",
    ):
        placement.put((np.zeros(4, np.float32),))
    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(
        DeviceMemory,
        match=r"'cpu' has no memory left for a first tensor; make room there: .*out of memory",
    ):
        TorchPlacement("cpu", 4)


@needs("torch")
def test_other_errors_of_pytorch_stay_what_they_are(monkeypatch):
    import torch

    from fastfeed.adapters.torch import TorchPlacement

    placement = TorchPlacement("cpu", 4)

    def broken(*_, **__):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.Tensor, "to", broken)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        placement.put((np.zeros(4, np.float32),))
    monkeypatch.setattr(torch, "empty", broken)
    with pytest.raises(ConfigError, match="device must be one that this PyTorch computes on"):
        TorchPlacement("cpu", 4)


class Event:
    """Complete when its stream says so, not when it is recorded."""

    def __init__(self) -> None:
        self.complete, self.waited_for = False, 0

    def record(self, stream) -> None:
        stream.events.append(self)

    def query(self) -> bool:
        return self.complete

    def synchronize(self) -> None:
        self.waited_for += 1
        self.complete = True


class Stream:
    def __init__(self) -> None:
        self.events, self.waits = [], []

    def wait_event(self, event) -> None:
        self.waits.append(event)


class Tensor:
    """Of the device; knows which streams use it, on which GPU its memory lies, and on which PyTorch
    believes it.
    """

    def __init__(self, lies=0, believed=0) -> None:
        self.streams, self.lies, self.believed = [], lies, believed

    def clone(self):
        return Tensor(self.lies, self.believed)

    def record_stream(self, stream) -> None:
        self.streams.append(stream)


class Host:
    """Pinned memory that a copy reads."""

    def is_pinned(self) -> bool:
        return True

    def to(self, device, non_blocking):
        assert non_blocking
        return Tensor()


@pytest.fixture
def slow_gpu(monkeypatch):
    """(placement on a GPU whose copies end late, the stream that computes)."""
    pytest.importorskip("torch", reason="needs PyTorch: make test TORCH=torch==2.13.0")
    from fastfeed.adapters import torch as adapter

    computes, current = Stream(), []
    cuda = types.SimpleNamespace(
        device=lambda device: contextlib.nullcontext(current.append(device.index)),
        stream=lambda _: contextlib.nullcontext(),
        Event=Event,
        current_stream=lambda _: computes,
    )
    real = adapter.torch

    def as_tensor(array, device):
        """A device with a number is believed; without one it is that of the pointer, copied to the
        current one.
        """
        number = real.device(device).index
        return (
            Tensor(array.device_id, number)
            if number is not None
            else Tensor(current[-1], current[-1])
        )

    fake = types.SimpleNamespace(
        cuda=cuda, as_tensor=as_tensor, OutOfMemoryError=real.OutOfMemoryError
    )
    placement = adapter.TorchPlacement("cpu", 4)
    monkeypatch.setattr(adapter, "torch", fake)
    monkeypatch.setattr(adapter, "_host", lambda _: Host())
    placement._stream = Stream()
    return placement, computes


@needs("torch")
def test_host_memory_is_held_until_its_copy_is_complete(slow_gpu):
    placement, _ = slow_gpu
    for _ in range(3):
        placement.put((np.zeros(4),))
    assert len(placement._copies) == 3 and not any(
        event.waited_for for event in placement._stream.events
    )
    for event in placement._stream.events[:2]:
        event.complete = True
    placement.put((np.zeros(4),))
    assert [event.complete for event, _ in placement._copies] == [False, False]


@needs("torch")
def test_memory_that_is_used_again_is_read_before_put_returns(slow_gpu):
    """Its owner knows nothing of our stream, so a later event would come too late."""
    placement, _ = slow_gpu
    placement.put((GpuArray(np.zeros(4)),))
    placement.put((np.zeros(4),), borrowed=True)
    assert [event.waited_for for event in placement._stream.events] == [1, 1]


@needs("torch")
def test_the_stream_that_computes_waits_and_keeps_the_memory(slow_gpu):
    """Without the first it would read too early, without the second PyTorch would hand the memory
    out too early.
    """
    placement, computes = slow_gpu
    placed = placement.put((np.zeros(4), np.zeros(2)))
    tensors = placement.take(placed)
    assert computes.waits == placement._stream.events and all(
        t.streams == [computes] for t in tensors
    )


@needs("torch")
def test_a_batch_of_one_gpu_for_pytorch_on_another_is_copied_there(slow_gpu):
    """With a number PyTorch 2.11 takes memory of the interface for that GPU's, wherever it lies."""
    import torch

    placement, _ = slow_gpu
    placement.device = torch.device("cuda", 1)
    tensors, _ = placement.put((GpuArray(np.zeros(4), device=0),))
    assert [(tensor.lies, tensor.believed) for tensor in tensors] == [(1, 1)]


@needs("torch")
def test_a_gpu_that_was_full_once_holds_nothing_of_that_batch(slow_gpu, monkeypatch):
    placement, _ = slow_gpu
    real = Host.to
    refusals = [RuntimeError("CUDA error: out of memory")]

    def once(self, device, non_blocking):
        if refusals:
            raise refusals.pop()
        return real(self, device, non_blocking)

    monkeypatch.setattr(Host, "to", once)
    with pytest.raises(DeviceMemory):
        placement.put((np.zeros(4),))
    assert not placement._copies and not placement._stream.events
    placement.put((np.zeros(4),))
    assert len(placement._copies) == 1
