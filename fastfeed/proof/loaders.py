"""A proof with any loader: real batches against the same few, from host memory and on the device.

A loader that is no Feed cannot be told to make batches that are thrown away, or to read its files from memory, so
there are three kinds of input instead of five, and one part: loading.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import cycle, islice, repeat
from typing import Any

from fastfeed.adapters.synchronize import synchronize, uses_gpu
from fastfeed.adapters.watched import count_samples
from fastfeed.errors import ProofError
from fastfeed.proof.design import Design, choose
from fastfeed.proof.modes import LOADER_MODES, Mode, order
from fastfeed.proof.record import Block, Record
from fastfeed.system.clocks import steady_ns

__all__ = ["measure_loader", "on_device"]

_SETTLE = 10  # steps, in which compilers and caches settle
_TIMED = 5  # more steps, which show how long one takes
_KEPT = 4  # batches that are used again
_AHEAD = 16  # batches that a loader may have made ahead, where it does not say

Step = Callable[[Any], Any]


class _Ended(Exception):
    """The loader has no more batches, and cannot begin again."""


class _Epochs:
    """The batches of a loader, epoch after epoch."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self.restarts = 0
        self.taken = 0
        self._loader = loader
        self._batches = iter(loader)
        self._is_fresh = False  # nothing was taken since it began again

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches, self)
        if batch is self:
            if self._batches is self._loader or self._is_fresh:
                raise _Ended
            self._is_fresh = True
            self._batches = iter(self._loader)
            self.restarts += 1
            return next(self)
        self._is_fresh = False
        self.taken += 1
        return batch


def measure_loader(step: Step, loader: Iterable[Any], seconds: float) -> Record:
    """Measure a step with a loader that is no Feed.

    Args:
        step: Trains on a batch.
        loader: Gives batches; where it can be iterated again, it is as often as needed.
        seconds: How long to measure.

    Raises:
        ProofError: The loader ended before two rounds were measured.
    """
    record = Record(_about(loader), seconds, modes=[mode.value for mode in LOADER_MODES])
    batches = _Epochs(loader)
    try:
        _measure(step, batches, record)
    except _Ended:
        if record.rounds < 2:
            raise ProofError(
                f"the loader ended after {batches.taken} batches, too few for a proof of {seconds:g} s, and cannot be "
                "iterated again; pass a loader that can, such as a DataLoader, or a longer one"
            ) from None
    record.steps = batches.taken
    if batches.restarts:
        record.notes.append("the loader began again during the proof, and the time that this takes counts as loading")
    return record


def _measure(step: Step, batches: _Epochs, record: Record) -> None:
    kept: list[Any] = []
    for batch in islice(batches, _SETTLE):
        kept = [*kept, batch][-_KEPT:]
        step(batch)
    begin = _now()
    for batch in islice(batches, _TIMED):
        step(batch)
    step_s = (_now() - begin) / _TIMED / 1e9
    record.feed["batch"] = count_samples(kept[-1])
    record.gpu = uses_gpu()
    resident, is_moved = on_device(kept[-1], _device())
    if record.gpu and not is_moved:
        record.notes.append("batches are not tensors that can be put on the device, so copying them counts as the step")
    design = choose(record.seconds, step_s, len(LOADER_MODES), record.feed["prefetch"])
    record.design = design
    inputs = {Mode.RESIDENT: repeat(resident), Mode.CACHED: cycle(kept), Mode.REAL: batches}
    seed = steady_ns()  # another order in each proof
    while record.rounds < design.rounds:
        modes = order(LOADER_MODES, record.rounds, seed)
        blocks = [_block(step, mode, inputs[mode], design, record.rounds) for mode in modes]
        record.blocks += blocks
        record.rounds += 1
    record.complete = True


def _block(step: Step, mode: Mode, batches: Iterator[Any], design: Design, number: int) -> Block:
    """One block of steps, timed from request to request."""
    last = None  # keeps the newest result alive, so that JAX can be asked to wait for it
    for batch in islice(batches, design.warmup):
        last = step(batch)
    begin = _now()
    cpu_ns = time.process_time_ns()
    waited_ns = 0
    for _ in range(design.steps):
        asked = steady_ns()
        batch = next(batches)
        waited_ns += steady_ns() - asked
        last = step(batch)
    end = _now()
    del last
    cpu_ns = time.process_time_ns() - cpu_ns
    wait_ns = waited_ns if mode is Mode.REAL else 0
    return Block(mode.value, number, design.steps, end - begin, cpu_ns, wait_ns, {})


def _now() -> int:
    synchronize()
    return steady_ns()


def _about(loader: Any) -> dict[str, Any]:
    """Properties of a loader; None for those that are unknown."""
    workers = getattr(loader, "num_workers", None)
    ahead = _AHEAD
    if isinstance(workers, int):  # a DataLoader
        ahead = workers * (getattr(loader, "prefetch_factor", None) or 0)
    try:
        steps = len(loader)
    except (TypeError, NotImplementedError):  # without a length, or abstract
        steps = None
    return {
        "name": "",
        "source": type(loader).__name__,
        "samples": None,
        "batch": 1,
        "steps": steps,
        "threads": workers,
        "prefetch": ahead,
        "side_process": False,
        "rank": 0,
        "world": 1,
    }


def _device() -> Any:
    """The device that PyTorch or TensorFlow computes on; None: the host, or neither of them is in use."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return f"cuda:{cuda.current_device()}"
    tf: Any = sys.modules.get("tensorflow")
    gpus = tf.config.list_logical_devices("GPU") if tf is not None and hasattr(tf, "config") else []
    return gpus[0].name if gpus else None


def on_device(batch: Any, device: Any) -> tuple[Any, bool]:
    """A batch with its tensors on a device, and whether it has any.

    Args:
        batch: Tensors of PyTorch or TensorFlow, objects with a method `to`, or arrays of JAX, which are on their
            device; in dicts, lists and tuples.
        device: As `Tensor.to` and `tf.device` take it; None leaves all where they are.
    """
    jax: Any = sys.modules.get("jax")
    if jax is not None and hasattr(jax, "Array") and isinstance(batch, jax.Array):
        return batch, True
    if device is None:
        return batch, False
    if callable(getattr(batch, "to", None)):
        return batch.to(device), True
    if isinstance(batch, Mapping):
        moved = {key: on_device(value, device) for key, value in batch.items()}
        return {key: value for key, (value, _) in moved.items()}, any(is_moved for _, is_moved in moved.values())
    if isinstance(batch, (list, tuple)):
        parts = [on_device(value, device) for value in batch]
        values = [value for value, _ in parts]
        whole = type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
        return whole, any(is_moved for _, is_moved in parts)
    tf: Any = sys.modules.get("tensorflow")
    if tf is not None and hasattr(tf, "is_tensor") and tf.is_tensor(batch):
        with tf.device(device):
            return tf.identity(batch), True
    return batch, False
