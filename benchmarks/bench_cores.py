"""What would 16 or 64 cores make of a feed? And what do small images cost?

gil     processor time of all Python threads per image: the interpreter's lock is held for no longer,
        but for the time that a thread with the lock waits for a core. Next to it what some Python
        calls take after each batch, by what they take in a loop, with warm caches
waits   N native threads whose work is a wait of 0.85 ms per image, what decoding an ImageNet-size
        file takes: threads stand for cores, so what the feed itself can serve shows on two. The
        share that it reaches of N times what one thread makes that only waits, and the time of
        Python threads. From files of 3 kB, whose reading the two real cores have to do, and from
        memory.
arrays  CIFAR-size arrays, crop with padding and flip: the feed, NumPy by hand, DALI's
external_source small   64 x 64 JPEGs, crop and flip cores   processor time per image by recipe:
images/s that one core makes
columns     time of a Python thread per image for one more column, from the source to PyTorch's
        tensors and lists: of a table in memory, and of tar shards, which are read

--parts runs some of them.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from cores_material import cifar, photographs, small_files, tiny
from rounds import finish, interleaved, parser, ratio

import fastfeed as ff
from fastfeed.adapters.batch_tuples import BatchTuples
from fastfeed.adapters.jax import JaxPlacement
from fastfeed.adapters.torch import TorchPlacement
from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.decode.executor import Executor
from fastfeed.feed.session import FeedSession
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime.addresses import ArrayRows
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.buffers import aligned
from fastfeed.runtime.extension import extension
from fastfeed.runtime.timeline import Timeline

BATCH = 256
WAIT_NS = 850_000
SECONDS = 5
THREADS = (2, 16, 64)
CROP = [ff.RandomResizedCrop(224), ff.RandomFlip()]
LISTS: dict[str, list[Any]] = {
    "crop": CROP,
    "imagenet": ff.recipes.imagenet_train(224),
    "policies": [*CROP, ff.ColorJitter(0.4, 0.4, 0.4), ff.RandAugment(), ff.Normalize.imagenet()],
}
PARTS = ("gil", "waits", "arrays", "small", "cores", "columns", "yields")
SMALL = [ff.RandomCrop(32, padding=4), ff.RandomFlip()]
MARKS_US = {"crop": 4, "imagenet": 4, "policies": 10, "arrays": 1}
COLUMN_MARKS_US = {"number": 0.5, "txt": 2}
YIELDS: dict[str, Any] = {
    "tuple": ("image", "label"),
    "dict": {"pixel_values": "image", "labels": "label"},
    "nested": ({"photo": "image", "year": "number"}, {"kind": "label"}, "weight"),
    "columns": ("image", "label", "number", "txt"),
}


def main() -> None:
    made = parser(__doc__, rounds=5)
    made.add_argument("--parts", nargs="+", default=[*PARTS])
    options = made.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastfeed-cores-") as folder:
        root = Path(folder)
        parts: dict[str, Callable[[], Any]] = {
            "gil": lambda: {
                kind: gil(kind, photographs(root), options.threads) for kind in MARKS_US
            },
            "waits": lambda: waits(tiny(root), options.rounds),
            "arrays": lambda: arrays(options.rounds, options.threads),
            "small": lambda: small(small_files(root), options.rounds, options.threads),
            "cores": lambda: cores(photographs(root), options.rounds, options.threads),
            "columns": lambda: columns(root),
            "yields": yields,
        }
        result = {name: part() for name, part in parts.items() if name in options.parts}
    finish("What would 16 or 64 cores make of a feed?", result, options.out)


def feed_of(kind: str, photos: Path, threads: int) -> ff.Feed:
    source: Any = cifar() if kind == "arrays" else ff.ImageFolder(photos, min_per_class=1)
    return ff.Feed(source, LISTS.get(kind, SMALL), batch=BATCH, seed=0, threads=threads, prefetch=4)


# -- parts


def gil(kind: str, photos: Path, threads: int) -> dict[str, float]:
    """Processor time of Python threads per image, in microseconds."""
    with feed_of(kind, photos, threads) as feed:
        batches = feed.batches(epochs=None)
        for _ in range(5):
            next(batches)
        probes = []
        images = 0
        begin = time.perf_counter()
        busy = python_seconds()
        while (took := time.perf_counter() - begin) < SECONDS:
            images += len(next(batches).ids)
            probes.append(some_calls())
        busy = python_seconds() - busy - sum(probes)
    warm = statistics.median(some_calls() for _ in range(1000))
    return {
        "images_per_second": round(images / took),
        "python_us_per_image": round(1e6 * busy / images, 2),
        "calls_after_a_batch_by_warm": round(statistics.median(probes) / warm, 1),
    }


def python_seconds() -> float:
    """Processor time of all Python threads of this process."""
    clocks = [time.pthread_getcpuclockid(thread.ident or 0) for thread in threading.enumerate()]
    return sum(map(time.clock_gettime, clocks))


def some_calls() -> float:
    """Processor seconds of a dozen Python calls that have nothing to do with a feed."""
    begin = time.thread_time()
    Fraction(3, 7) + Fraction(1, 5)
    return time.thread_time() - begin


class Waiting:
    """The native extension, but its programs wait instead of working."""

    def __getattr__(self, name: str) -> Any:
        return getattr(extension(), name)

    def Program(self, fields: dict[str, Any]) -> Any:
        """With a wait per sample."""
        return extension().Program({**fields, "wait_ns": WAIT_NS})


def waits(root: Path, rounds: int) -> dict[str, Any]:
    """Images/s by source, list and number of threads, and the share of what threads make that only
    wait.
    """
    build = Executor.__init__

    def patched(self: Executor, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **options)
        self.native = Waiting()

    sources = {
        "files": ff.ImageFolder(root, min_per_class=1),
        "memory": ff.Arrays(np.zeros((12_000, 32, 32, 3), "u1")),
    }
    found: dict[str, Any] = {}
    for name, source in sources.items():
        for kind in LISTS:
            for threads in THREADS:
                rates = []
                spent = []
                for _ in range(rounds):
                    most = threads * only_waits()
                    Executor.__init__ = patched  # type: ignore[method-assign]
                    rate, python_us = wait(source, kind, threads)
                    rates.append((rate, most))
                    spent.append(python_us)
                    Executor.__init__ = build  # type: ignore[method-assign]
                shares = [rate / most for rate, most in rates]
                found[f"{name}, {kind}, {threads} threads"] = {
                    "images_per_second": round(statistics.median(rate for rate, _ in rates)),
                    "python_us_per_image": round(statistics.median(spent), 2),
                    "share": round(statistics.median(shares), 3),
                    "spread": [round(min(shares), 3), round(max(shares), 3)],
                }
    return found


def only_waits() -> float:
    """Images/s of one thread that does nothing but wait."""
    source = np.zeros((1, 4, 4, 3), np.uint8)
    program = fuse([], ff.Arrays(source).spec)
    executor, n = Executor(None, 1), 300
    executor.native = Waiting()
    native = NativeProgram(program, executor, Timeline(capacity=0))
    samples = executor.read(ArrayRows(source, np.zeros(n, np.int64)), 1 << 40, Event())
    work, out = program.work([], np.full((n, 2), 4)), np.empty((n, 4, 4, 3), np.uint8)
    begin = time.perf_counter()
    native.run(samples, np.zeros(n, bool), work, out, Event())
    return n / (time.perf_counter() - begin)


def wait(source: Any, kind: str, threads: int) -> tuple[float, float]:
    """Images/s, and microseconds of Python threads per image."""
    with ff.Feed(source, LISTS[kind], batch=BATCH, seed=0, threads=threads, prefetch=8) as feed:
        batches = feed.batches(epochs=None)
        for _ in range(5):
            next(batches)
        begin = time.perf_counter()
        busy = python_seconds()
        images = 0
        while time.perf_counter() - begin < 1.5:
            images += len(next(batches).ids)
        took = time.perf_counter() - begin
        busy = python_seconds() - busy
        return images / took, 1e6 * busy / images


def arrays(rounds: int, threads: int) -> dict[str, Any]:
    source = cifar()
    contestants = {}
    for name, ops in (("uint8", SMALL), ("float32", [*SMALL, ff.ToFloat()])):
        feed = ff.Feed(source, ops, batch=BATCH, seed=0, threads=threads, prefetch=4)
        contestants[f"fastfeed, {name}"] = _taker(feed.batches(epochs=None))
    images = np.asarray(source.read(range(len(source))))
    contestants["NumPy by hand, uint8"] = _taker(by_hand(images))
    with contextlib.suppress(ImportError):
        contestants["DALI, uint8"] = _taker(dali(images, threads))
    rates = interleaved(rounds, contestants)
    ratios = {
        name: ratio(rates, "fastfeed, uint8", name)
        for name in rates
        if not name.startswith("fastfeed")
    }
    return {"rates": rates, "fastfeed, uint8, against": ratios}


def _taker(batches: Iterator[Any]) -> Callable[[], int]:
    def take() -> int:
        for _ in range(200):
            next(batches)
        return 200 * BATCH

    return take


def by_hand(images: np.ndarray) -> Iterator[np.ndarray]:
    """One thread: pixels of a padded copy as integers of four bytes, taken by their places.

    Views of three of these.

    Of four ways the fastest; a loop over slices makes three quarters of it, indexing by rows and
    columns a fifth.
    """
    padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 1))).view(np.uint32).ravel()
    rng, across = np.random.default_rng(0), np.arange(32)
    while True:
        ids, corner = rng.integers(0, len(images), BATCH), rng.integers(0, 9, (BATCH, 2))
        columns = np.where(rng.random((BATCH, 1)) < 0.5, across, across[::-1])
        first = ids * 1600 + corner[:, 0] * 40 + corner[:, 1]
        places = first[:, None, None] + across[:, None] * 40 + columns[:, None, :]
        yield np.take(padded, places).view(np.uint8).reshape(BATCH, 32, 32, 4)[..., :3]


def dali(images: np.ndarray, threads: int) -> Iterator[Any]:
    """A batch at a time through external_source, without a copy."""
    from nvidia.dali import fn, pipeline_def, types

    rng = np.random.default_rng(0)

    def batch() -> np.ndarray:
        return images[rng.integers(0, len(images), BATCH)]

    @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=2)
    def pipeline() -> Any:
        photos = fn.external_source(
            batch, batch=True, layout="HWC", dtype=types.UINT8, no_copy=True
        )
        corner = fn.random.uniform(range=[-4, 4], shape=2)
        cut = fn.slice(
            photos,
            fn.cast(corner, dtype=types.INT32),
            [32, 32],
            axes=[0, 1],
            out_of_bounds_policy="pad",
        )
        return fn.flip(cut, horizontal=fn.random.coin_flip())

    built = pipeline()
    built.build()
    while True:
        yield built.run()


def small(root: Path, rounds: int, threads: int) -> dict[str, Any]:
    ops = [ff.RandomResizedCrop(64), ff.RandomFlip()]
    source = ff.ImageFolder(root, min_per_class=1)
    feeds = {
        n: ff.Feed(source, ops, batch=BATCH, seed=0, threads=n, prefetch=4) for n in (1, threads)
    }
    return interleaved(
        rounds, {f"{n} threads": _taker(feed.batches(epochs=None)) for n, feed in feeds.items()}
    )


def cores(photos: Path, rounds: int, threads: int) -> dict[str, Any]:
    """Images/s of one core are what processor time per image says: threads of the feed do not wait
    for each other.
    """
    takers = {}
    for kind in LISTS:
        batches = feed_of(kind, photos, threads).batches(epochs=None)
        takers[kind] = lambda batches=batches: sum(len(next(batches).ids) for _ in range(8))
    rates = interleaved(rounds, takers)
    return {
        kind: rate | {"images_per_core": round(1e3 / rate["cpu_ms_per_image"])}
        for kind, rate in rates.items()
    }


def columns(root: Path) -> dict[str, float]:
    """Microseconds per image that one column adds, median of 200 batches."""
    texts = [f"a photograph of the thing number {i}" for i in range(2048)]
    with tarfile.open(root / "texts.tar", "w") as archive:
        for i, text in enumerate(texts):
            np.save(number := io.BytesIO(), np.float32(i))
            members = {"jpg": b"not read", "txt": text.encode(), "npy": number.getvalue()}
            for name, data in members.items():
                member = tarfile.TarInfo(f"{i:05}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    paths = [f"{i}.jpg" for i in range(len(texts))]
    data = {"image": paths, "number": np.arange(len(texts)), "txt": texts}
    spent = {
        f"table, {name}": column_us(ff.Table(data, image="image", columns=[name]), name)
        for name in COLUMN_MARKS_US
    }
    for name in ("txt", "npy"):
        shards = ff.TarShards(root / "texts.tar", label=None, columns=[name])
        spent[f"tar shards, {name}"] = column_us(shards, name)
    return {name: round(us, 2) for name, us in spent.items()}


def column_us(source: Any, name: str) -> float:
    rng, times = np.random.default_rng(0), []
    images, ones = np.zeros((BATCH, 1, 1, 3), np.uint8), np.ones(BATCH, np.float32)
    placement = TorchPlacement("cpu", 4)
    with ff.Feed(source, [ff.Resize((1, 1))], batch=BATCH) as feed:
        session = FeedSession.of(feed)
        both = [BatchTuples.of(session, ("image", name)), BatchTuples.of(session, ("image",))]
        for _ in range(200):
            ids = rng.integers(0, len(source), BATCH)
            spent = []
            for tuples in both:
                begin = time.thread_time_ns()
                columns = source.columns(ids) if len(tuples.names) > 1 else {}
                batch = Batch(images, ids, ones, ids, 0, 0, columns)
                tuples.nested(placement.take(placement.put(tuples(batch))))
                spent.append(time.thread_time_ns() - begin)
            times.append((spent[0] - spent[1]) / BATCH / 1e3)
    return statistics.median(times)


def yields() -> dict[str, float]:
    """Microseconds of a Python thread per image that handing over a batch takes, by framework and
    choice; least of 200 batches. Of tf.data without what TensorFlow does to a generator's elements.
    """
    count = 2048
    data = {
        "image": [f"{i}.jpg" for i in range(count)],
        "number": np.arange(count),
        "txt": [f"a photograph of the thing number {i}" for i in range(count)],
        "kind": [str(i % 10) for i in range(count)],
    }
    source = ff.Table(data, image="image", label="kind", columns=["number", "txt"])
    images, ones = aligned((BATCH, 32, 32, 3), "uint8"), np.ones(BATCH, np.float32)
    spent: dict[str, float] = {}
    with ff.Feed(source, [ff.Resize((32, 32))], batch=BATCH) as feed:
        ids = np.arange(BATCH)
        batch = Batch(images, source.label(ids), ones, ids, 0, 0, source.columns(ids))
        for name, structure in YIELDS.items():
            tuples = BatchTuples.of(FeedSession.of(feed), structure)
            for place in (TorchPlacement("cpu", 4), JaxPlacement(), None):
                times = []
                for _ in range(200):
                    begin = time.thread_time_ns()
                    flat = tuples(batch)
                    tuples.nested(flat if place is None else place.take(place.put(flat)))
                    times.append(time.thread_time_ns() - begin)
                framework = "tf.data" if place is None else place.name
                spent[f"{framework}, {name}"] = round(min(times) / BATCH / 1e3, 3)
    return spent


if __name__ == "__main__":
    main()
