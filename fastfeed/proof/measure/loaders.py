"""A proof with any loader: real batches against the same few, from host memory and on the device.

A loader that is no Feed cannot make batches on demand that are thrown away, or read its files from
memory, so there are three kinds of input instead of five, and two parts: copy and loading.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle, repeat
from typing import Any

from fastfeed.adapters.watch.loader import count_samples
from fastfeed.proof.measure.block_sizes import choose
from fastfeed.proof.measure.modes import LOADER_MODES, Mode
from fastfeed.proof.measure.record import ProofRecord
from fastfeed.proof.measure.session import SETTLE, Agree, Ended, OnChange, Schedule, Session
from fastfeed.proof.synchronize import synchronize
from fastfeed.system.clocks import steady_ns

_KEPT = 4  # batches that are used again
_AHEAD = 16  # batches that a loader may have made ahead, where it does not say

Step = Callable[[Any], Any]
Begin = Callable[[], Iterator[Any]]
Place = Callable[[Any], tuple[Any, bool]]  # a batch on the device, and whether it can be put there


def measure_loader(step: Step, loader: Iterable[Any], seconds: float) -> ProofRecord:
    """Measure a step with a loader that is no Feed.

    Args:
        step: Trains on a batch.
        loader: Gives batches; where it can be iterated again, it is as often as needed.
        seconds: How long to measure.

    Raises:
        ProofError: The loader ended before two rounds were measured.
    """
    session = loader_session(loader, lambda: iter(loader), seconds)
    last = None  # keeps the newest result alive, so that JAX can be asked to wait for it
    for batch in session.iterate():
        last = step(batch)
    del last
    return session.record


def loader_session(
    loader: Any,
    begin: Begin,
    seconds: float,
    *,
    under_way: Iterator[Any] | None = None,
    modes: Sequence[Mode] = LOADER_MODES,
    place: Place | None = None,
    on_change: OnChange = lambda record: None,
    agree: Agree = lambda schedule: schedule,
) -> Session:
    """The proof of one loader.

    Args:
        loader: Gives batches.
        begin: Starts an epoch of the loader.
        seconds: How long to measure.
        under_way: An epoch that has started already; None: start one.
        modes: Kinds of input, with RESIDENT and REAL.
        place: Makes the resident batch; None: `on_device`, for the device in use.
        on_change: Called with the record when a round has ended.
        agree: Called with the schedule; returns the one to follow.
    """
    record = ProofRecord(_about(loader), seconds, modes=[mode.value for mode in modes])
    inputs = _LoaderInputs(record, begin, under_way, tuple(modes), place)
    return Session(inputs, record, on_change, agree)


class _LoaderInputs:
    """The inputs of one loader: its batches, epoch after epoch, and the last of its first ones."""

    settling = SETTLE

    def __init__(
        self,
        record: ProofRecord,
        begin: Begin,
        under_way: Iterator[Any] | None,
        modes: tuple[Mode, ...],
        place: Place | None,
    ) -> None:
        self._record = record
        self._begin = begin
        self._batches = begin() if under_way is None else under_way
        self._modes = modes
        self._place = place or (lambda batch: on_device(batch, _device()))
        self._restarts = 0
        self._taken = 0
        self._waited_ns = 0
        self._is_fresh = False  # nothing was taken since it began again
        self._saved_batches: list[Any] = []
        self._inputs: dict[Mode, Iterator[Any]] = {}

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        asked = steady_ns()
        batch = next(self._batches, self)
        while batch is self:
            if self._is_fresh:
                raise Ended(
                    f"the loader ended after {self._taken} batches, too few for a proof of"
                    f" {self._record.seconds:g} s, and cannot be iterated again; pass a loader that"
                    " can, such as a DataLoader, or a longer one"
                )
            self._is_fresh = True
            self._batches = self._begin()
            batch = next(self._batches, self)
        self._restarts += self._is_fresh
        self._is_fresh = False
        self._taken += 1
        self._waited_ns += steady_ns() - asked
        return batch

    def clock(self) -> int:
        synchronize()
        return steady_ns()

    def counters(self) -> tuple[int, dict[str, int]]:
        return self._waited_ns, {}

    def warm_up(self, raw: bool) -> Iterator[Any]:
        for batch in self:
            self._saved_batches = [*self._saved_batches, batch][-_KEPT:]
            yield batch

    def schedule(self, step_s: float, agree: Agree) -> Schedule:
        record = self._record
        largest = max(
            map(count_samples, self._saved_batches)
        )  # the last batch of an epoch may be smaller
        kept = [batch for batch in self._saved_batches if count_samples(batch) == largest]
        record.feed["batch"] = largest
        resident, is_moved = self._place(kept[-1])
        if record.gpu and not is_moved:
            record.notes.append(
                "batches are not tensors that can be put on the device, so copying them counts as"
                " the step"
            )
        self._inputs = {Mode.RESIDENT: repeat(resident), Mode.CACHED: cycle(kept), Mode.REAL: self}
        sizes = choose(record.seconds, step_s, len(self._modes), record.feed["prefetch"])
        # another order in each proof
        return agree(Schedule(sizes, self._modes, "", steady_ns()))

    def begin_round(self, block: int) -> None:
        pass

    def open(self, mode: Mode, place: Any, raw: bool) -> Iterator[Any]:
        return self._inputs[mode]

    def end(self) -> None:
        pass

    def close(self) -> None:
        if self._restarts:
            self._restarts = 0
            self._record.notes.append(
                "the loader began again during the proof, and the time that this takes counts as"
                " loading"
            )

    def too_short(self, longest: int, least: int) -> str:
        return (
            f"the trainer takes {longest} batches in a row from its loader, and a"
            f" proof needs {least}; make its epochs longer, or validate less often"
        )


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
    """Device of PyTorch or TensorFlow; None: the host, or neither is in use."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return f"cuda:{cuda.current_device()}"
    tf: Any = sys.modules.get("tensorflow")
    gpus = tf.config.list_logical_devices("GPU") if tf is not None and hasattr(tf, "config") else []
    return gpus[0].name if gpus else None


def on_device(batch: Any, device: Any) -> tuple[Any, bool]:
    """A batch with its tensors on a device, and whether it has any.

    Args:
        batch: Tensors of PyTorch or TensorFlow, objects with a method `to`, or arrays of JAX, which
            are on their device; in dicts, lists and tuples.
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
        return {key: value for key, (value, _) in moved.items()}, any(
            is_moved for _, is_moved in moved.values()
        )
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
