"""The threads and compiled programs of a transform in one process, and the rows of a call."""

from __future__ import annotations

import importlib
import threading
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from multiprocessing.process import current_process
from typing import Any, cast

import numpy as np

from fastfeed.backends.base import BackendModule
from fastfeed.decode.base import DecodeFailure, FunctionFailed
from fastfeed.decode.executor import Executor, open_executor
from fastfeed.decode.memory_limit import limit_decoding
from fastfeed.distributed.cores import cores_for
from fastfeed.distributed.world import World
from fastfeed.errors import FeedClosed
from fastfeed.faults import Failure, ends_run, error_text
from fastfeed.feed.batch.annotations import Annotator
from fastfeed.feed.batch.loader import LoadedSamples
from fastfeed.feed.batch.pending_batch import RowArrays
from fastfeed.feed.batch.rows import Branch, RowMaker
from fastfeed.feed.batch.task_sizes import TaskSizes
from fastfeed.feed.config import BACKENDS
from fastfeed.feed.transform.config import TransformConfig
from fastfeed.feed.transform.fields import ItemFields
from fastfeed.feed.transform.items import Kind, contiguous, kind, locations, pixels, refusal
from fastfeed.ops.decode import Decode
from fastfeed.ops.program.program import Program, Work
from fastfeed.runtime.buffers import Allocate, SizedPools
from fastfeed.runtime.timeline import Timeline
from fastfeed.storage.local_file import read_file
from fastfeed.storage.reads import Unread
from fastfeed.system.processes import after_fork

CLOSED = "this transform is closed; create a new one"

_BACKENDS = {"cpu": "cpu", "cuda": "nvjpeg"}  # by device
_KEPT = 4  # batches of one size whose memory is reused
_AT_ONCE = 256  # items that a backend gets at once
_SIZES = 256  # of files whose window is kept


@dataclass(slots=True, eq=False)
class TransformCall:
    """The items of one call, their values, and the failures so far. A row is an item's place."""

    items: Sequence[Any]
    ids: np.ndarray  # int64 (n,)
    fields: ItemFields
    annotator: Annotator
    draws: list[list[np.ndarray]]  # random numbers, per branch
    stop: threading.Event
    allocate: Allocate | None = None  # memory of images; None: that of the pipeline
    out: RowArrays = field(default_factory=RowArrays)
    bad: dict[int, Failure] = field(default_factory=dict)
    number: int = 0

    def uri(self, row: int) -> str:
        """The path of an item, or its place in the list."""
        return item_uri(self.items, row)

    def failure(self, row: Any, bad: DecodeFailure, stage: str = "decode") -> Failure:
        """The failure of an item. MemoryError for a lack of memory, which is not its fault."""
        return _failure(self.uri(row), self.ids[row], bad, stage)

    def values(self, _: Any, rows: np.ndarray, names: Collection[str]) -> dict[str, np.ndarray]:
        """Labels and columns of items, for functions."""
        return self.fields.values(rows, names)


@dataclass(frozen=True, slots=True)
class _Route:
    """The compiled programs for files, or for pixels."""

    executor: Executor
    branches: list[Branch]

    def maker(self, call: TransformCall) -> RowMaker:
        """The RowMaker of one call."""
        return RowMaker(
            self.branches, call.annotator, lambda _, row, bad: call.failure(row, bad), call.values
        )


_opened: weakref.WeakSet[LazyPipeline] = weakref.WeakSet()
_inherited: list[Pipeline | None] = []  # of the process that this one was forked from


class LazyPipeline:
    """The pipeline of a transform, which the first call in a process opens."""

    def __init__(self, config: TransformConfig) -> None:
        self.opened: Pipeline | None = None
        self._config = config
        self._is_closed = False
        self._lock = threading.Lock()

    def open(self) -> Pipeline:
        """The threads of this process. FeedClosed."""
        if (opened := self.opened) is not None:  # `close` may come between two looks
            return opened
        with self._lock:
            self.check_open()
            if self.opened is None:
                _opened.add(self)
                self.opened = Pipeline(self._config)
            return self.opened

    def check_open(self) -> None:
        """FeedClosed after `close`."""
        if self._is_closed:
            raise FeedClosed(CLOSED)

    def close(self) -> None:
        """End all threads, for good."""
        self._is_closed = True
        with self._lock:
            pipeline = self.opened
            self.opened = None
        if pipeline is not None:
            pipeline.close()

    def forget(self) -> None:
        """Let a forked child open its own threads: those of the parent are not in it."""
        _inherited.append(self.opened)
        self.opened = None
        self._lock = threading.Lock()


def _forget_threads() -> None:
    for pipeline in _opened:
        pipeline.forget()


after_fork(_forget_threads)


class Pipeline:
    """Threads, programs and memory, for calls of several threads at the same time."""

    def __init__(self, config: TransformConfig) -> None:
        """Open the threads; those of native code start with the first call."""
        if config.memory is not None:
            limit_decoding(config.memory)
        self._config = config
        self._threads = config.threads or _default_threads()
        self._max_bytes = TaskSizes.of(1, 1, self._threads, native=True).max_bytes
        self._lock = threading.Lock()
        self._routes: dict[bool, _Route] = {}
        self.stop = threading.Event()  # set when it is closed
        self.timeline = Timeline(capacity=0)
        self._work = lru_cache(_SIZES)(partial(_work, config.program))
        self._main = self._route(not config.input_spec.encoded)
        self._pools = [
            SizedPools(part.program.shape, part.program.spec.dtype, _KEPT, part.backend.empty)
            for part in self._main.branches
        ]

    def close(self) -> None:
        """End all threads that decode and augment."""
        self.stop.set()
        for route in self._routes.values():
            route.executor.close()

    def render(self, call: TransformCall, groups: dict[Kind, np.ndarray]) -> None:
        """Make all rows of a call; those of bad items are black."""
        n = len(call.items)
        backend = self._main.branches[0].backend
        with backend.device_context():
            images = [pool.take(n, call.allocate) for pool in self._pools]
        call.out = RowArrays(images, call.annotator.empty(n))
        for name, rows in groups.items():
            self._fill(name, rows, call)
        for branch in self._main.branches:  # a GPU's have a stream each
            branch.backend.synchronize()

    def files(
        self,
        files: Sequence[Any],
        name: Kind,
        ids: np.ndarray,
        draws: list[np.ndarray],
        allocate: Allocate | None = None,
    ) -> tuple[np.ndarray, dict[int, Failure]] | None:
        """The images of files or paths by one call of native code, and failures by row.

        None where one of them cannot be made so: `render` finds out what each of them needs.
        """
        route = self._main
        (branch,) = route.branches
        n = len(files)
        if n > _AT_ONCE:  # a call of native code cannot be interrupted
            return None
        try:
            if name == "file":
                samples = route.executor.borrow(contiguous(files), self.stop)
            elif name == "path":
                samples = route.executor.read(locations(files), self._max_bytes, self.stop)
            else:
                return None
            if len(samples.codes) < n or samples.unread or samples.bad or samples.others:
                return None
            if n == 1 and not self._config.random:
                work = self._work(*samples.sizes[0].tolist())
            else:
                work = branch.program.work(draws, samples.sizes)
            images = self._pools[0].take(n, allocate)
            skip = np.zeros(n, bool)
            found = branch.backend.render_native(samples, skip, work, images, self.stop)
        except Exception as error:  # decoders and ops may raise anything
            if ends_run(error) and not self.stop.is_set():
                raise
            return None
        if self.stop.is_set():  # rows may be missing
            return None
        if not found:
            return images, {}
        bad = {k: _failure(item_uri(files, k), ids[k], found[k]) for k in sorted(found)}
        images[list(bad)] = branch.black()
        return images, bad

    def clear(self, call: TransformCall, rows: list[int]) -> None:
        """Make these rows black, without boxes and masks."""
        self._main.maker(call).clear(rows, call.out)

    def _route(self, of_pixels: bool) -> _Route:
        """The programs for pixels or for files, compiled when they are first needed."""
        route = self._routes.get(of_pixels)
        if route is None:
            with self._lock:
                route = self._routes.get(of_pixels)
                if route is None:
                    route = self._routes[of_pixels] = self._compiled(of_pixels)
        return route

    def _compiled(self, of_pixels: bool) -> _Route:
        config = self._config
        program = config.pixel_program if of_pixels else config.program
        # an engine for JPEGs takes no pixels
        name = "cpu" if of_pixels else _BACKENDS[config.device]
        module = cast(BackendModule, importlib.import_module(BACKENDS[name]))
        decode = module.engine(config.decode)
        shared = next((route.executor for route in self._routes.values()), None)
        executor = open_executor(program, decode, self._threads, shared, callers_work=True)
        branches = []
        for part in (program, *program.others):
            backend = module.compile(
                part,
                executor,
                self.timeline,
                batch=_AT_ONCE,
                gpu=World.detect().gpu,
                decode=config.decode,
            )
            branches.append(Branch(part, backend, 1, 1, TaskSizes(1, 1, 1)))
        return _Route(executor, branches)

    def _fill(self, name: Kind, rows: np.ndarray, call: TransformCall) -> None:
        """Make these rows, in parts that fit into memory.

        An unforeseen error, wherever it comes from, costs the item that raises it: all are made
        again, each alone.
        """
        while len(rows) and not self.stop.is_set():
            try:
                rows = rows[self._fill_first(name, rows[:_AT_ONCE], call) :]
            except Exception as error:  # decoders and ops may raise anything
                if ends_run(error):
                    raise
                if len(rows) > 1:
                    for k in range(len(rows)):
                        self._fill(name, rows[k : k + 1], call)
                else:
                    bad = DecodeFailure("internal", error_text(error))
                    call.bad[int(rows[0])] = call.failure(rows[0], bad)
                    self.clear(call, rows.tolist())
                return

    def _fill_first(self, name: Kind, rows: np.ndarray, call: TransformCall) -> int:
        """Make the first of these rows, as many as fit into memory; returns their number."""
        config = self._config
        is_file = name in ("file", "path")
        if name == "other" or not (config.takes_files if is_file else config.takes_pixels):
            for row in rows.tolist():
                bad = refusal(call.items[row], config.input_spec, config.takes_pixels)
                call.bad[row] = call.failure(row, bad, "read")
            self.clear(call, rows.tolist())
            return len(rows)
        route = self._route(name == "pixels")
        samples = self._load(name, route.executor, rows, call)
        rows = samples.ids
        in_place = rows[-1] - rows[0] + 1 == len(rows) and route.branches[0].backend.xp is self.xp
        part: Any = slice(rows[0], rows[-1] + 1) if in_place else rows
        if in_place:
            out = call.out[part]
        else:
            images = [self._empty(branch, len(rows)) for branch in route.branches]
            out = RowArrays(images, call.annotator.empty(len(rows)))
        of_rows = [[u[part] if u.size else u for u in numbers] for numbers in call.draws]
        route.maker(call).fill({"": samples}, of_rows, out, call)
        if not in_place:
            self._put(rows.tolist(), out, call)
        for row, bad in samples.bad.items():
            assert bad is not None
            call.bad[int(rows[row])] = bad
        return len(rows)

    @property
    def xp(self) -> Any:
        """NumPy, or the module for arrays of the GPU that results are on."""
        return self._main.branches[0].backend.xp

    def _empty(self, branch: Branch, rows: int) -> Any:
        with branch.backend.device_context():
            return branch.backend.empty((rows, *branch.program.shape), branch.program.spec.dtype)

    def _put(self, rows: list[int], separate: RowArrays, call: TransformCall) -> None:
        """Put rows that were made separately into their places."""
        arrays = zip(self._main.branches, call.out.images, separate.images, strict=True)
        for branch, out, made in arrays:
            with branch.backend.device_context():
                out[rows] = self.xp.asarray(made)
                branch.backend.synchronize()  # `made` goes
        call.out.annotations.put(rows, separate.annotations)

    def _load(
        self, name: Kind, executor: Executor, rows: np.ndarray, call: TransformCall
    ) -> LoadedSamples:
        """The first of these items, as many as fit into memory, with their sizes."""
        bad: dict[int, Failure | None] = {}
        items = [call.items[row] for row in rows.tolist()]
        uri = partial(_name, call, rows)
        if name == "path":
            samples = executor.read(locations(items), self._max_bytes, self.stop, None, uri)
            for row in samples.unread:  # by Python, with the reason
                data = _read_path(items[row])
                if isinstance(data, Unread):
                    failure = DecodeFailure(data.reason, data.detail)
                    bad[row] = call.failure(rows[row], failure, "read")
                else:
                    executor.put(samples, row, data)
        elif name == "file":
            samples = executor.borrow(contiguous(items), self.stop, uri)
        else:
            blobs = self._pixels(executor, items)
            for row, blob in enumerate(blobs):
                if isinstance(blob, DecodeFailure):
                    bad[row] = call.failure(rows[row], blob)
                    blobs[row] = None
            samples = executor.borrow(blobs, self.stop, uri)
        rows = rows[: len(samples)]
        for row, reason in samples.bad.items():
            bad.setdefault(row, call.failure(rows[row], reason))
        sizes = samples.sizes
        if bad:
            sizes = np.maximum(sizes, 1)
            sizes[list(bad)] = 1
        return LoadedSamples(rows, samples, sizes, 0.0, sizes, bad)

    def _pixels(self, executor: Executor, items: list[Any]) -> list[Any]:
        """Pixels of the first arrays and PIL images, up to the limit of bytes, or failures."""
        blobs: list[Any] = []
        size = 0
        while len(blobs) < len(items) and size < self._max_bytes:
            converted = self._converted(executor, items[len(blobs) :][: self._threads])
            size += sum(blob.nbytes for blob in converted if isinstance(blob, np.ndarray))
            blobs += converted
        return blobs

    def _converted(
        self, executor: Executor, items: list[Any]
    ) -> Sequence[np.ndarray | DecodeFailure]:
        """Pixels of each item; PIL images, which may have to be decoded, on a thread each."""
        spec = self._config.pixel_program.input_spec
        decode = self._config.program.decode
        results: list[Any] = [None] * len(items)

        def convert(k: int) -> None:
            results[k] = pixels(items[k], spec, decode or Decode())

        if len(items) == 1 or all(isinstance(item, np.ndarray) for item in items):
            for k in range(len(items)):
                convert(k)
        else:
            executor.run_python([partial(convert, k) for k in range(len(items))], self.stop)
        if self.stop.is_set():  # some may be missing
            raise FeedClosed(CLOSED)
        return results


def _failure(uri: str, id: Any, bad: DecodeFailure, stage: str = "decode") -> Failure:
    if bad.reason == "oom":
        raise MemoryError(
            f"decoding {uri}: {bad.detail}; lower Transform(memory=...) or threads, or leave"
            " large images out with Decode(max_pixels=...)"
        )
    stage = "augment" if isinstance(bad, FunctionFailed) else stage
    return Failure(int(id), uri, stage, bad.reason, bad.detail)


def _work(program: Program, height: int, width: int) -> Work:
    """Parameters for one file of this size, where nothing is drawn."""
    draws = program.draw(lambda slot, k: np.empty((1, 0)))
    return program.work(draws, np.array([[height, width]]))


def item_uri(items: Sequence[Any], row: int) -> str:
    """The path of an item, or its place in the list."""
    item = items[row]
    return str(item) if kind(item) == "path" else f"items[{row}]"


def _name(call: TransformCall, rows: np.ndarray, row: int) -> Any:
    """The name of a sample of some rows, as in `Header`."""
    return partial(call.uri, int(rows[row]))


def _read_path(path: Any) -> bytes | Unread:
    if "://" in str(path):
        return Unread("not_found", "a local path is needed, got an address; pass the file's bytes")
    return read_file(path)


def _default_threads() -> int:
    """Cores of this process; one in a worker of a loader, next to others."""
    return 1 if current_process().daemon else cores_for(World.detect())
