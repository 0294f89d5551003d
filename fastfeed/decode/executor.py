"""Native threads that read samples, parse headers and fill rows of batches without the GIL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fastfeed.decode.base import DECLINED, DecodeEngine, DecodeFailure, Header, Stop
from fastfeed.decode.native import failure_from_status, need_extension
from fastfeed.decode.pillow import PillowEngine
from fastfeed.decode.pillow_warnings import Name, named
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.decode.sniff import sniff
from fastfeed.errors import FeedClosed
from fastfeed.ops.decode import Decode
from fastfeed.ops.program.program import Program
from fastfeed.runtime.addresses import ArrayRows, Grouped, SampleLocations, WholeFiles
from fastfeed.runtime.extension import extension, formats
from fastfeed.runtime.thread_pool import ParallelJob, ThreadPool

_SKIPPED = -2  # minus `Read::skipped` of native/samples.h
_DECLINED = 3  # `unsupported_format`, as Status in native/image/header.h
_UNTIMED = np.empty((0, 3), np.int64)
_NOTHING = np.zeros((1, 1, 3), np.uint8)

Names = Callable[[int], Name | None]


@dataclass(slots=True, eq=False)
class Samples:
    """Samples in memory that native threads can reach, and the contents of their headers."""

    handle: Any  # the native extension's Samples
    codes: np.ndarray  # int32 (n,): 0 where the native extension decodes it
    sizes: np.ndarray  # int64 (n, 2): height and width as displayed; 0 if unknown
    others: dict[int, Header]  # row -> its header, of images that native code does not decode
    bad: dict[int, DecodeFailure]  # row -> the fault of its header
    unread: list[int]  # rows that could not be read
    encoded: bool  # True for files, False for pixels
    # int64 (spans, 3): thread, begin and duration in nanoseconds of each read; 0 if not read
    spans: np.ndarray
    names: Names | None  # row -> as in Header; None: unknown
    read_bytes: int = 0  # from files, by native threads

    def __len__(self) -> int:
        return len(self.codes)

    def header(self, row: int) -> Header:
        """Return the header of a sample that is not bad."""
        height, width = self.sizes[row].tolist()
        kind = sniff(self.handle.view(row)) or "" if self.encoded else "array"
        return self.others.get(row) or Header(height, width, kind, name=self.name(row))

    def name(self, row: int) -> Name | None:
        """The name of a sample, as in Header."""
        return self.names(row) if self.names else None

    def first(self, count: int) -> Samples:
        """Return the first `count` samples."""
        return replace(
            self,
            handle=self.handle.part(0, count),
            codes=self.codes[:count],
            sizes=self.sizes[:count],
            others={row: header for row, header in self.others.items() if row < count},
            bad={row: bad for row, bad in self.bad.items() if row < count},
            unread=[row for row in self.unread if row < count],
        )


class Executor:
    """The threads of one feed."""

    def __init__(
        self,
        decode: Decode | None,
        threads: int,
        *,
        dtype: str = "uint8",
        only_pillow: bool = False,
        shared: Executor | None = None,
        callers_work: bool = False,
    ) -> None:
        """Threads of a feed.

        `decode`: None for pixels, of `dtype`. `only_pillow`: native code decodes nothing.
        `shared`: an executor whose threads are used. `callers_work`: the thread that calls does
        native work itself, as one of `threads`.
        """
        need_extension()
        self.native: Any = extension()
        self.threads = threads
        self.decode = decode
        self._only_pillow = only_pillow or decode is None
        # for what native code declines, or all
        self.pillow: DecodeEngine = PixelsEngine(dtype) if decode is None else PillowEngine(decode)
        self._threads: Any = (
            shared._open() if shared else self.native.Executor(threads, callers_work)
        )
        self._max_pixels = 0 if decode is None else decode.max_pixels
        self._python = shared._python if shared else ThreadPool(threads, "fastfeed-python")

    @property
    def name(self) -> str:
        """Names of the decoders, for messages."""
        if self._only_pillow:
            return self.pillow.name
        return f"native ({', '.join(formats())}), {self.pillow.name} (the rest)"

    def render(self, *arguments: Any) -> int:
        """Make rows of a batch natively; see native/bindings/bind_render.cpp."""
        return self._open().render(*arguments)

    def mix(self, *arguments: Any) -> int:
        """Mix samples natively; see there."""
        return self._open().mix(*arguments)

    def close(self) -> None:
        """End all threads; those under way end with their call."""
        self._python.close()
        self._threads = None

    def _open(self) -> Any:
        threads = self._threads
        if threads is None:
            raise FeedClosed("this feed is closed; create a new one")
        return threads

    def read(
        self,
        addresses: SampleLocations,
        max_bytes: int,
        stop: Stop,
        skip: np.ndarray | None = None,
        names: Names | None = None,
        first_bytes: int = 0,
    ) -> Samples:
        """The first of these samples, up to a limit of bytes; at least one.

        Args:
            addresses: of n samples.
            max_bytes: limit after which no more samples are read.
            stop: once it is set, no more are read either.
            skip: bool (n,), samples that are not to be read.
            names: of the rows, for messages.
            first_bytes: of each file, enough for its header; records and pixels are read whole. 0:
                all of them.
        """
        if isinstance(addresses, ArrayRows):
            ids = addresses.ids
            sizes = np.empty((len(ids), 2), np.int64)
            sizes[:] = addresses.images.shape[1:3]
            return _pixels(self.native.Samples.of_images(addresses.images, ids), sizes)
        locations = self.native.Locations(addresses.length)
        for rows, group in (
            addresses.groups if isinstance(addresses, Grouped) else ((None, addresses),)
        ):
            if isinstance(group, ArrayRows):
                locations.images(rows, group.images, group.ids)
            elif isinstance(group, WholeFiles):
                locations.files(rows, **group._asdict())
            else:
                locations.ranges(rows, **group._asdict())
        if skip is not None:
            locations.leave_out(skip)
        if first_bytes:
            locations.only_first(first_bytes)
        spans = np.empty((addresses.length, 5), np.int64)
        handle = self._open().read(locations, max_bytes, self._max_pixels, spans, stop)
        samples = self._inspected(handle, spans, stop, names)
        samples.read_bytes = int(spans[:, 3].sum())
        return samples

    def borrow(self, blobs: Sequence[Any], stop: Stop, names: Names | None = None) -> Samples:
        """Samples that Python has read: files as any buffer, or pixels; None for missing ones."""
        if self.decode is None:
            arrays = [_NOTHING if blob is None else np.ascontiguousarray(blob) for blob in blobs]
            sizes = np.array([array.shape[:2] for array in arrays], np.int64).reshape(-1, 2)
            stored = [array if array.size == 0 else array.view(np.uint8) for array in arrays]
            samples = _pixels(self.native.Samples.of_pixels(stored, sizes), sizes)
            for row, array in enumerate(arrays):
                if array.dtype != np.uint8 or array.shape[2] not in (1, 3):  # no kernel
                    samples.others[row] = Header(array.shape[0], array.shape[1], "array")
            return samples
        blobs = [b"" if blob is None else blob for blob in blobs]
        handle = self._open().borrow(blobs, self._max_pixels, stop)
        return self._inspected(handle, _UNTIMED, stop, names)

    def run_python(self, tasks: Sequence[Callable[[], None]], stop: Stop) -> None:
        """Run tasks that need Python on separate threads: reading, decoding with Pillow, functions.

        Once `stop` is set it returns early. Raises the first error of a task.
        """
        job = self.start_python(tasks, stop)
        with suppress(FeedClosed):
            job.result()

    def start_python(self, tasks: Sequence[Callable[[], None]], stop: Stop) -> ParallelJob[None]:
        """Like run_python, but returns without waiting for the end."""
        job = ParallelJob(stop, list(tasks), lambda: None)
        job.start(self._python)
        return job

    def _inspected(
        self, handle: Any, spans: np.ndarray, stop: Stop, names: Names | None
    ) -> Samples:
        n = len(handle)
        codes = np.empty(n, np.int32)
        sizes = np.empty((n, 2), np.int64)
        others = self._inspect(handle, 0, codes, sizes)
        if others and (skipped := np.flatnonzero(codes == _SKIPPED)).size:
            count = max(int(skipped[0]), 1)
            handle = handle.part(0, count)
            codes = codes[:count]
            sizes = sizes[:count]
            spans = spans[:count]
        samples = Samples(
            handle, codes, sizes, {}, {}, [], self.decode is not None, spans[:, :3], names
        )
        if others:
            samples.unread += np.flatnonzero(codes < 0).tolist()
            self._look_at_all(samples, np.flatnonzero(codes > 0).tolist(), stop)
        return samples

    def _inspect(self, handle: Any, first: int, codes: np.ndarray, sizes: np.ndarray) -> int:
        """Fill in codes and sizes of these samples; returns the number of codes other than 0."""
        others = handle.inspect(first, codes, sizes)
        if not self._only_pillow or self.decode is None:
            return others
        codes[codes == 0] = _DECLINED
        return len(codes)

    def blob(self, samples: Samples, row: int) -> np.ndarray:
        """A file's bytes or an image, as a read-only view without a copy.

        The shape is uint8 (bytes,) or (height, width, channels).
        """
        view = samples.handle.view(row)
        return view if samples.encoded else view.reshape(*samples.sizes[row], -1)

    def put(self, samples: Samples, row: int, blob: Any) -> None:
        """Add a file or pixels that Python has read, where native threads could not read them."""
        height, width = (0, 0) if samples.encoded else blob.shape[:2]
        data = blob if samples.encoded else np.ascontiguousarray(blob)
        samples.handle.put(row, data, self._max_pixels, height, width)
        one = slice(row, row + 1)
        self._inspect(samples.handle, row, samples.codes[one], samples.sizes[one])
        if samples.codes[row]:
            self._look(samples, row)

    def _look_at_all(self, samples: Samples, rows: list[int], stop: Stop) -> None:
        """Look at all rows, unless stopped."""

        def look(part: list[int]) -> None:
            for row in part:
                if not stop.is_set():
                    self._look(samples, row)

        step = -(-len(rows) // self.threads)
        if rows:
            self.run_python(
                [partial(look, rows[k : k + step]) for k in range(0, len(rows), step)], stop
            )

    def _look(self, samples: Samples, row: int) -> None:
        """Let Pillow look at a file that the native extension declines."""
        bad = failure_from_status(_DECLINED if self._only_pillow else int(samples.codes[row]))
        if bad.reason not in (*DECLINED, "bomb"):
            samples.bad[row] = bad
            return
        with named(samples.name(row)):
            # of a bomb it says which limit was met
            header = self.pillow.probe([samples.handle.bytes(row)])[0]
        if bad.reason == "bomb":
            samples.bad[row] = header if isinstance(header, DecodeFailure) else bad
        elif isinstance(header, DecodeFailure):
            samples.bad[row] = header
        else:
            samples.others[row] = header
            samples.sizes[row] = header.height, header.width


def _pixels(handle: Any, sizes: np.ndarray) -> Samples:
    codes = np.zeros(len(sizes), np.int32)
    return Samples(handle, codes, sizes, {}, {}, [], False, np.empty((0, 3), np.int64), None)


def open_executor(
    program: Program,
    decode: str,
    threads: int,
    shared: Executor | None = None,
    callers_work: bool = False,
) -> Executor:
    """Native threads that decode for a program: by native code where that can, else by Pillow.

    decode: "auto", "native" or "pillow". Native code has no kernels for more than bytes and for
    alpha. The rest as for `Executor`.
    """
    return Executor(
        program.decode,
        threads,
        dtype=program.pixels.dtype,
        only_pillow=decode == "pillow" or not program.pixels.has_kernel,
        shared=shared,
        callers_work=callers_work,
    )
