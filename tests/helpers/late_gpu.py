"""A GPU whose work is done as late as CUDA allows: only once someone waits for its stream, or for
an event in it.

Bytes that are read without such a wait are the old ones, and memory that is given back while queued
work still reads it holds other bytes by then. It is NumPy underneath; `late_cupy`, `late_dali` and
`late_frameworks` are libraries on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_LOCK = threading.RLock()
# bytes of memory that no one has written to, and of memory that others have
_FRESH, _GONE = (
    0xA5,
    0xEE,
)


class Stream:
    """A queue of work.

    A blocking one is in step with the default stream, as CUDA's are unless said otherwise.
    """

    def __init__(self, gpu: LateGpu, non_blocking: bool = True) -> None:
        self._gpu, self._blocking = gpu, not non_blocking
        self._work: deque[Callable[[], None]] = deque()
        self._done = self._queued = 0
        self.ptr = gpu.register(self)

    def enqueue(self, work: Callable[[], None]) -> None:
        """Work may hold bytes, but no array: a kernel that is queued keeps no memory alive."""
        with _LOCK:
            for other in self._gpu.in_step_with(self):
                self._append(other.record().synchronize)
            self._append(work)

    def _append(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        self._queued += 1

    def record(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.stream, event.after = self, self._queued
        return event

    def wait_event(self, event: Event) -> None:
        """The device waits, not this thread."""
        if event.stream is not None:
            self.enqueue(Event(event.stream, event.after).synchronize)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record())

    def synchronize(self) -> None:
        self.run_until(self._queued)

    def run_until(self, count: int) -> None:
        with _LOCK:
            while self._done < count and self._work:
                self._done += 1
                self._work.popleft()()

    def reached(self, count: int) -> bool:
        return self._done >= count


class Event:
    """A place in a stream."""

    def __init__(self, stream: Stream | None = None, after: int = 0) -> None:
        self.stream, self.after = stream, after

    def record(self, stream: Stream) -> None:
        stream.record(self)

    def query(self) -> bool:
        return self.stream is None or self.stream.reached(self.after)

    def synchronize(self) -> None:
        if self.stream is not None:
            self.stream.run_until(self.after)


class LateGpu:
    """Streams, and all bytes that were ever allocated."""

    def __init__(self) -> None:
        self._streams: dict[int, Stream] = {}
        self._bytes: list[
            np.ndarray
        ] = []  # addresses stay valid: what reads freed memory shall see it, not crash
        self.default = Stream(self, non_blocking=False)

    def register(self, stream: Stream) -> int:
        self._streams[len(self._streams) + 1] = stream  # 1 is the default stream's, as in CUDA
        return len(self._streams)

    def stream(self, ptr: int) -> Stream:
        return self._streams[ptr]

    def in_step_with(self, stream: Stream) -> list[Stream]:
        if not stream._blocking:
            return []
        blocking = [
            other for other in self._streams.values() if other._blocking and other is not stream
        ]
        return blocking if stream is self.default else [self.default]

    def bytes(self, count: int) -> np.ndarray:
        self._bytes.append(np.full(count, _FRESH, np.uint8))
        return self._bytes[-1]


class Memory:
    """Bytes that go back to their library when no array refers to them any more."""

    def __init__(
        self, raw: np.ndarray, give_back: Callable[[np.ndarray, list[Stream]], None]
    ) -> None:
        self.raw, self._give_back = raw, give_back
        self.users: list[Stream] = []  # that the library was told of, apart from its own

    def __del__(self) -> None:
        self._give_back(self.raw, self.users)

    @classmethod
    def recycled_at_once(cls, raw: np.ndarray) -> Memory:
        """Its next owner may write to it at any time."""
        return cls(raw, lambda raw, _: raw.fill(_GONE))


class Library:
    """A framework on that GPU: a current stream per thread, and a pool of memory.

    Memory that has gone back is handed out again for work on the stream it was allocated on, in its
    order.
    """

    def __init__(self, gpu: LateGpu) -> None:
        self.gpu, self._local = gpu, threading.local()
        self._free: dict[tuple[int, int], list[np.ndarray]] = {}

    @property
    def current(self) -> Stream:
        return (getattr(self._local, "stack", None) or [self.gpu.default])[-1]

    def enter(self, stream: Stream) -> None:
        """It is this thread's current one until `leave`."""
        self._local.__dict__.setdefault("stack", []).append(stream)

    def leave(self) -> None:
        self._local.stack.pop()

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[Stream]:
        self.enter(stream)
        try:
            yield stream
        finally:
            self.leave()

    def empty(self, shape: Any, dtype: Any) -> DeviceArray:
        shape, stream = (shape,) if isinstance(shape, int) else tuple(shape), self.current
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        free = self._free.setdefault((stream.ptr, count), [])
        with _LOCK:
            raw = free.pop() if free else self.gpu.bytes(count)
        weak = weakref.ref(self)

        def give_back(raw: np.ndarray, users: list[Stream]) -> None:
            if weak() is None:
                return
            for user in users:
                stream.wait_stream(user)
            stream.enqueue(lambda: raw.fill(_GONE))
            free.append(raw)

        return DeviceArray(self, raw.view(dtype).reshape(shape), Memory(raw, give_back))

    def computed(self, function: Callable[..., np.ndarray], *operands: Any) -> DeviceArray:
        """A new array, that the current stream will fill."""
        raws = [one.values if isinstance(one, DeviceArray) else np.array(one) for one in operands]
        made = np.asarray(function(*(np.zeros_like(raw) for raw in raws)))
        result = self.empty(made.shape, made.dtype)
        self.write(result.values, lambda: function(*raws))
        return result

    def write(self, target: np.ndarray, source: Callable[[], Any]) -> None:
        self.current.enqueue(lambda: np.copyto(target, source(), casting="unsafe"))

    def view(self, other: Any) -> DeviceArray:
        """Another library's array, by the CUDA array interface, which names its stream or not."""
        how = other.__cuda_array_interface__
        dtype, shape, strides = np.dtype(how["typestr"]), how["shape"], how.get("strides")
        steps = strides or np.empty(shape, dtype).strides
        count = dtype.itemsize + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
        raw: Any = (ctypes.c_uint8 * count).from_address(how["data"][0])
        return DeviceArray(self, np.ndarray(shape, dtype, raw, 0, strides), other)


class DeviceArray:
    """As CuPy's: nothing becomes NumPy's by itself.

    `values` is what lies there now, whatever is still queued.
    """

    def __init__(self, library: Library, values: np.ndarray, memory: Any, base: Any = None) -> None:
        self.library, self.values, self.memory, self.base = library, values, memory, base
        self.shape, self.dtype, self.ndim, self.nbytes = (
            values.shape,
            values.dtype,
            values.ndim,
            values.nbytes,
        )
        contiguous = values.flags.c_contiguous
        self.flags = types.SimpleNamespace(
            c_contiguous=contiguous, f_contiguous=False, owndata=base is None
        )

    def _part(self, values: np.ndarray) -> DeviceArray:
        return DeviceArray(
            self.library, values, self.memory, self if self.base is None else self.base
        )

    def __len__(self) -> int:
        return len(self.values)

    def view(self) -> DeviceArray:
        return self._part(self.values)

    def reshape(self, *shape: int) -> DeviceArray:
        return self._part(self.values.reshape(*shape))

    def transpose(self, *axes: int) -> DeviceArray:
        return self._part(self.values.transpose(*axes))

    def __getitem__(self, key: Any) -> DeviceArray:
        if isinstance(key, (list, np.ndarray, DeviceArray)):
            return self.library.computed(lambda values, rows: values[rows], self, key)
        return self._part(self.values[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("non-scalar numpy.ndarray cannot be used for fill")  # as CuPy
        target, source = self.values, value.values if isinstance(value, DeviceArray) else value
        where = key.values if isinstance(key, DeviceArray) else key
        self.library.current.enqueue(lambda: target.__setitem__(where, source))

    device = contextlib.nullcontext()  # there is one

    def copy(self) -> DeviceArray:
        return self.library.computed(np.copy, self)

    def astype(self, dtype: Any) -> DeviceArray:
        return self.library.computed(lambda values: values.astype(dtype), self)

    def __add__(self, other: Any) -> DeviceArray:
        return self.library.computed(np.add, self, other)

    def __mul__(self, other: Any) -> DeviceArray:
        return self.library.computed(np.multiply, self, other)

    def __rsub__(self, other: Any) -> DeviceArray:
        return self.library.computed(lambda values: other - values, self)

    def get(self) -> np.ndarray:
        """A copy on the host, after what the current stream has to do."""
        copied, values, stream = np.empty(self.shape, self.dtype), self.values, self.library.current
        stream.enqueue(lambda: np.copyto(copied, values))
        stream.synchronize()
        return copied

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self.values.flags.c_contiguous else self.values.strides
        data = (self.values.__array_interface__["data"][0], False)
        how = {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": data,
            "strides": strides,
            "version": 3,
        }
        return how | {"stream": self.library.current.ptr}

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> DeviceArray:
        """Stands in for a capsule.

        The consumer's stream, the default one unless it is named, waits for ours.
        """
        self.library.gpu.stream(stream or 1).wait_stream(self.library.current)
        return self

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)
