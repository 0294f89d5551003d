"""What PyTorch is asked for on machines with several GPUs: as its sources (2.13, and of 2026) say
that it has to be.
"""

from __future__ import annotations

import contextlib
import sys
import types

import numpy as np
import pytest
from helpers.needs import needs

from fastfeed.errors import DeviceMemory
from fastfeed.proof.synchronize import synchronize
from fastfeed.runtime.placement import on_host


class FakeCuda(types.SimpleNamespace):
    """Three GPUs, of which the second one has memory in use."""

    def __init__(self):
        super().__init__(asked=[], entered=[])

    def Stream(self, device):
        return object()

    @contextlib.contextmanager
    def device(self, device):
        self.entered.append(device)
        yield

    def is_initialized(self):
        return True

    def current_device(self):
        return 0

    def device_count(self):
        return 3

    def memory_reserved(self, device):
        return 1000 if device == 1 else 0

    def synchronize(self, device=None):
        self.asked.append(device)


def test_waits_for_each_device_in_use_and_touches_no_other(monkeypatch):
    """PyTorch waits for the calling thread's device alone, which need not be the trainer's."""
    cuda = FakeCuda()
    for name in ("jax._src.xla_bridge", "tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    synchronize()
    assert sorted(cuda.asked) == [0, 1]


@pytest.fixture
def placed(monkeypatch):
    """(PyTorch's placement as on the second GPU, PyTorch as it sees it)."""
    from fastfeed.adapters import torch as adapter

    made = adapter.TorchPlacement("cpu", 4)
    made.device, made._stream = "cuda:1", object()
    fake = types.SimpleNamespace(cuda=FakeCuda(), uint8=adapter.torch.uint8)
    monkeypatch.setattr(adapter, "torch", fake)
    monkeypatch.setattr(adapter, "_streams", {})
    return made, fake


@needs("torch")
def test_all_feeds_of_a_device_copy_on_one_stream(placed):
    """Memory of one stream is not used again for another: a stream for each epoch would keep memory
    for each.
    """
    from fastfeed.adapters import torch as adapter

    first = adapter._copy_stream("cuda:0")
    assert adapter._copy_stream("cuda:0") is first and adapter._copy_stream("cuda:1") is not first


@needs("torch")
def test_page_locked_memory_is_the_processors_and_of_its_own_device(placed):
    """Whatever `torch.set_default_device` says, and without a context on the first GPU."""
    placement, fake = placed

    def empty(size, **options):
        assert options == {"dtype": fake.uint8, "device": "cpu", "pin_memory": True}
        assert fake.cuda.entered == ["cuda:1"]
        return types.SimpleNamespace(numpy=lambda: np.empty(size, np.uint8))

    fake.empty = empty
    assert placement.memory((2, 3), "float32").shape == (2, 3)


@needs("torch")
def test_page_locked_memory_that_is_full_says_what_to_change(placed):
    placement, fake = placed

    def full(*_, **__):
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be ...")

    def other(*_, **__):
        raise RuntimeError("no driver")

    fake.empty = full
    expected = (
        r"no page-locked memory is left for 4\.0 MB of a batch; lower the batch size or prefetch:"
        r" CUDA error: out of"
    )
    with pytest.raises(DeviceMemory, match=expected):
        placement.memory((1000, 1000), "float32")
    fake.empty = other
    with pytest.raises(RuntimeError, match="no driver"):
        placement.memory((2,), "uint8")


class OnGpu:
    __cuda_array_interface__ = {"shape": (2,)}

    def __init__(self, **calls):
        self.__dict__.update(calls)


def test_arrays_of_any_library_come_to_the_processor():
    values = np.arange(2)
    in_torch = OnGpu(cpu=lambda: types.SimpleNamespace(numpy=lambda: values))
    assert (
        on_host(OnGpu(get=lambda: values)) is values
        and on_host(in_torch) is values
        and on_host(values) is values
    )
