"""A proof with any loader: real batches against the same few, from host memory and on the device.

A loader that is no Feed cannot make batches on demand that are thrown away, or read its files from
memory, so there are three kinds of input instead of five, and two parts: copy and loading.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice, repeat
from typing import Any

from fastfeed.adapters.watch.loader import count_samples
from fastfeed.errors import ProofError
from fastfeed.proof.measure.block_sizes import BlockSizes, choose, least_block, shortened
from fastfeed.proof.measure.modes import LOADER_MODES, Mode, order
from fastfeed.proof.measure.record import Block, Record
from fastfeed.proof.measure.session import Agree, Schedule
from fastfeed.proof.synchronize import synchronize, uses_gpu
from fastfeed.system.clocks import steady_ns

_SETTLE = 10  # steps, in which compilers and caches settle
_TIMED = 5  # more steps, which show how long one takes
_KEPT = 4  # batches that are used again
_AHEAD = 16  # batches that a loader may have made ahead, where it does not say

Step = Callable[[Any], Any]
Begin = Callable[[], Iterator[Any]]
Place = Callable[[Any], tuple[Any, bool]]  # a batch on the device, and whether it can be put there


class _Ended(Exception):
    """The loader has ended and cannot be iterated again."""


class _Epochs:
    """Batches of a loader, epoch after epoch; `batches` may be an epoch under way."""

    def __init__(self, begin: Begin, batches: Iterator[Any] | None = None) -> None:
        self.restarts = 0
        self.taken = 0
        self._begin = begin
        self._batches = begin() if batches is None else batches
        self._is_fresh = False  # nothing was taken since it began again

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches, self)
        if batch is self:
            if self._is_fresh:
                raise _Ended
            self._is_fresh = True
            self._batches = self._begin()
            return next(self)
        self.restarts += self._is_fresh
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
    session = LoaderSession(loader, lambda: iter(loader), seconds)
    last = None  # keeps the newest result alive, so that JAX can be asked to wait for it
    for batch in session.iterate():
        last = step(batch)
    del last
    return session.record


class LoaderSession:
    """The proof of one loader.

    Its iterator does not end before the proof does, and a new iteration continues it.
    """

    def __init__(
        self,
        loader: Any,
        begin: Begin,
        seconds: float,
        *,
        under_way: Iterator[Any] | None = None,
        modes: Sequence[Mode] = LOADER_MODES,
        place: Place | None = None,
        on_change: Callable[[Record], None] = lambda record: None,
        agree: Agree = lambda schedule: schedule,
    ) -> None:
        """Begin the proof.

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
        self.record = Record(_about(loader), seconds, modes=[mode.value for mode in modes])
        self.done = False
        self._epochs = _Epochs(begin, under_way)
        self._modes = tuple(modes)
        self._place = place or (lambda batch: on_device(batch, _device()))
        self._on_change = on_change
        self._agree = agree
        self._given = self._batches()
        self._asked = 0  # requests since the trainer began an epoch, or did something else
        self._longest = 0
        self._is_cut = False

    def iterate(self) -> Generator[Any, None, None]:
        """Batches until the proof is done."""
        self.cut()
        while not self.done:
            try:
                batch = next(self._given)
            except StopIteration:
                return
            except _Ended:
                self._end_early()
                return
            self._asked += 1
            self.record.steps += 1
            yield batch

    def cut(self) -> None:
        """The trainer does something else between two steps: the block under way does not count."""
        self._longest = max(self._longest, self._asked)
        self._asked = 0
        self._is_cut = True

    def _end_early(self) -> None:
        record = self.record
        if record.rounds < 2:
            raise ProofError(
                f"the loader ended after {self._epochs.taken} batches, too few for a proof of"
                f" {record.seconds:g} s, and cannot be iterated again; pass a loader that can, such"
                " as a DataLoader, or a longer one"
            ) from None
        self._finish()

    def _batches(self) -> Generator[Any, None, None]:
        record = self.record
        kept: list[Any] = []
        for batch in islice(self._epochs, _SETTLE):
            kept = [*kept, batch][-_KEPT:]
            yield batch
        begin = _now()
        yield from islice(self._epochs, _TIMED)
        step_s = (_now() - begin) / _TIMED / 1e9
        largest = max(map(count_samples, kept))  # the last batch of an epoch may be smaller
        kept = [batch for batch in kept if count_samples(batch) == largest]
        record.feed["batch"] = largest
        record.gpu = uses_gpu()
        resident, is_moved = self._place(kept[-1])
        if record.gpu and not is_moved:
            record.notes.append(
                "batches are not tensors that can be put on the device, so copying them counts as"
                " the step"
            )
        sizes = choose(record.seconds, step_s, len(self._modes), record.feed["prefetch"])
        # another order in each proof
        schedule = self._agree(Schedule(sizes, self._modes, "", steady_ns()))
        record.sizes = schedule.sizes
        inputs = {
            Mode.RESIDENT: repeat(resident),
            Mode.CACHED: cycle(kept),
            Mode.REAL: self._epochs,
        }
        while record.rounds < record.sizes.rounds:
            blocks = []
            for mode in order(self._modes, record.rounds, schedule.seed):
                blocks.append((yield from self._whole_block(mode, inputs[mode])))
            record.blocks += blocks
            record.rounds += 1
            self._on_change(record)
        record.complete = True
        self._finish()

    def _finish(self) -> None:
        self.done = True
        if self._epochs.restarts:
            self.record.notes.append(
                "the loader began again during the proof, and the time that this takes counts as"
                " loading"
            )
        self._on_change(self.record)

    def _whole_block(self, mode: Mode, batches: Iterator[Any]) -> Generator[Any, None, Block]:
        """A block that the trainer has not interrupted, shorter if its epochs are."""
        while True:
            block = yield from self._block(mode, batches)
            if block is not None:
                return block
            sizes = self._known_sizes()
            if self._longest > sizes.block:
                continue
            shorter = shortened(sizes, self._longest - 1)
            if shorter is None:
                least = least_block(self.record.feed["prefetch"]) + 1
                raise ProofError(
                    f"the trainer takes {self._longest} batches in a row from its loader, and a"
                    f" proof needs {least}; make its epochs longer, or validate less often"
                )
            self.record.sizes = shorter

    def _block(self, mode: Mode, batches: Iterator[Any]) -> Generator[Any, None, Block | None]:
        """One block of steps, timed from request to request; None if it was interrupted."""
        sizes = self._known_sizes()
        self._is_cut = False
        for batch in islice(batches, sizes.warmup):
            yield batch
            if self._is_cut:
                return None
        begin = _now()
        cpu_ns = time.process_time_ns()
        waited_ns = 0
        for _ in range(sizes.steps):
            asked = steady_ns()
            batch = next(batches)
            waited_ns += steady_ns() - asked
            yield batch
            if self._is_cut:
                return None
        end = _now()
        cpu_ns = time.process_time_ns() - cpu_ns
        wait_ns = waited_ns if mode is Mode.REAL else 0
        return Block(mode.value, self.record.rounds, sizes.steps, end - begin, cpu_ns, wait_ns, {})

    def _known_sizes(self) -> BlockSizes:
        assert self.record.sizes is not None
        return self.record.sizes


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
