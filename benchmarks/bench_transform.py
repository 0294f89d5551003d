"""What does a Transform cost over the native code that it calls, and what does it make of loaders
and servers?

call     one JPEG of 0.2 megapixels to 224 x 224, one thread: `one`, a call with a list of one, and
         the native code alone
batch    the same for batches of 64, and of 64 small JPEGs on one thread, where the time that
         Python takes can be told from noise
torch    a DataLoader of two workers with a Transform as collate_fn, next to decoding by
         torchvision, OpenCV and torchcodec in its dataset
spdl, grain, tfdata   these loaders with a Transform, and with their own decoding
server   examples/serving/fastapi_app.py: latency of one client, the first request, what it can
         serve, latencies at half of that, and memory after 1,000 photographs of 12 megapixels

--parts runs some of them. Loaders that are not installed are left out, and named.
"""

from __future__ import annotations

import io
import random
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module, metadata
from threading import Event
from typing import Any

import numpy as np
from PIL import Image
from rounds import DATA, finish, interleaved, parser, ratio

import fastfeed as ff
from fastfeed.backends.cpu.native_ops import layer_values
from fastfeed.decode.pillow import PillowEngine
from fastfeed.sampling.rng import uniform

PARTS = ("call", "batch", "torch", "spdl", "grain", "tfdata", "server")
PACKAGES = [
    "torch",
    "torchvision",
    "torchcodec",
    "spdl",
    "grain",
    "tensorflow",
    "fastapi",
    "uvicorn",
]
FOLDER = DATA / "imagenet-sample"
LISTS = {
    "evaluation": ff.recipes.imagenet_eval(224),
    "random crop": [ff.RandomResizedCrop(224), ff.RandomFlip()],
}
SMALL = {
    "evaluation": ff.recipes.imagenet_eval(32),
    "random crop": [ff.RandomResizedCrop(32), ff.RandomFlip()],
}
BATCH, REPEAT, CALLS = 64, 8, 200


def main() -> None:
    made = parser(__doc__, rounds=5)
    made.add_argument("--parts", nargs="+", default=[*PARTS], choices=PARTS)
    options = made.parse_args()
    result: dict[str, Any] = {}
    for name in options.parts:
        try:
            result[name] = part(name, options.rounds, options.threads)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    versions = {name: version for name in PACKAGES if (version := installed(name))}
    finish(
        "What does a Transform cost, and what does it make of loaders and servers?",
        {"packages": versions, **result},
        options.out,
    )


def part(name: str, rounds: int, threads: int) -> Any:
    if name == "server":
        return import_module("serving_load").measured(FOLDER)
    if name == "call":
        return {kind: calls(ops, rounds) for kind, ops in LISTS.items()}
    if name == "batch":
        return {kind: batches(kind, rounds, threads) for kind in LISTS}
    paths = [str(path) for path in sorted(FOLDER.iterdir())]
    loaders = import_module("rival_loaders").LOADERS[name](paths * REPEAT, str(FOLDER))
    rates = interleaved(rounds, loaders)
    return rates | {
        "Transform by": {name: ratio(rates, "Transform", name) for name in list(loaders)[1:]}
    }


def installed(package: str) -> str:
    try:
        return metadata.version("tensorflow-cpu" if package == "tensorflow" else package)
    except metadata.PackageNotFoundError:
        return ""


class NativeCode:
    """What a transform's native threads do for some files, with all arguments made before.

    They are its own, with its memory for results: two of them differ by up to 6 us for a file of
    64 x 64, by where their memory is.
    """

    def __init__(self, transform: ff.Transform, blobs: list[bytes]) -> None:
        pipeline = transform._open()
        (branch,) = pipeline._main.branches
        program, executor = branch.program, pipeline._main.executor
        self._blobs = blobs
        self._executor = executor
        self._threads: Any = executor._open()
        self._pool = pipeline._pools[0]
        self._stop = Event()
        (self._part,) = branch.backend._native._parts
        sizes = executor.borrow(blobs, self._stop).sizes
        n, ids = len(blobs), np.arange(len(blobs))
        work = program.work(
            program.draw(lambda slot, count: uniform(0, 0, ids, slot, count)), sizes
        )
        self._windows = work.windows
        layers = zip(self._part.layers, work.choices, strict=True)
        self._values = tuple(layer_values(layer.layer, own) for layer, own in layers)
        self._skip = np.zeros(n, bool)
        self._codes = np.empty(n, np.int8)
        self._spans = np.empty((n, 5), np.int64)
        self._headers = np.empty(n, np.int32), np.empty((n, 2), np.int64)

    def __call__(self) -> np.ndarray:
        samples = self._threads.borrow(self._blobs, self._executor._max_pixels, self._stop)
        samples.inspect(0, *self._headers)
        out = self._pool.take(len(self._blobs))
        self._threads.render(
            self._part.native,
            samples,
            self._skip,
            self._windows.boxes,
            self._windows.flips,
            self._windows.limits,
            self._values,
            out,
            self._codes,
            self._spans,
            self._stop,
        )
        return out


def calls(ops: list[Any], rounds: int) -> dict[str, Any]:
    """Of the file whose size is closest to 0.2 megapixels."""
    blob = min((path.read_bytes() for path in FOLDER.iterdir()), key=distance)
    with ff.Transform(ops, threads=1) as transform:
        native = NativeCode(transform, [blob])
        ids = {"ids": [0]} if transform.random else {}
        contestants: dict[str, Callable[[], Any]] = {
            "native code": native,
            "transform([item])": lambda: transform([blob], **ids).images,
        }
        if not transform.random:
            contestants["transform.one(item)"] = lambda: transform.one(blob)[None]
        return compared(contestants, rounds * CALLS, 1)


def distance(blob: bytes) -> float:
    header = PillowEngine(ff.Decode()).probe([blob])[0]
    return abs(header.height * header.width - 200_000)


def batches(kind: str, rounds: int, threads: int) -> dict[str, Any]:
    blobs = [path.read_bytes() for path in sorted(FOLDER.iterdir())][:BATCH]
    small = [shrunk(blob) for blob in blobs]
    return {
        f"ImageNet size, {threads} threads": batch(LISTS[kind], blobs, threads, rounds * 6),
        "64 x 64, 1 thread": batch(SMALL[kind], small, 1, rounds * 100),
    }


def shrunk(blob: bytes) -> bytes:
    with Image.open(io.BytesIO(blob)) as image, io.BytesIO() as file:
        image.convert("RGB").resize((64, 64)).save(file, "JPEG")
        return file.getvalue()


def batch(ops: list[Any], blobs: list[bytes], threads: int, times: int) -> dict[str, Any]:
    with ff.Transform(ops, threads=threads) as transform:
        native = NativeCode(transform, blobs)
        ids = {"ids": range(len(blobs))} if transform.random else {}
        contestants: dict[str, Callable[[], Any]] = {
            "native code": native,
            "transform(items)": lambda: transform(blobs, **ids).images,
        }
        return compared(contestants, times, len(blobs))


def compared(
    contestants: dict[str, Callable[[], np.ndarray]], times: int, images: int
) -> dict[str, Any]:
    """Microseconds per image; the contestants take turns call by call."""
    wanted, *others = (run().copy() for run in contestants.values())
    assert all(np.array_equal(wanted, other) for other in others)
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    turns = random.Random(0)  # who follows whom, and finds its caches warm, is chance
    for _ in range(times):
        for name in turns.sample(list(contestants), len(contestants)):
            begin, busy = time.perf_counter_ns(), time.process_time_ns()
            contestants[name]()
            busy, took = time.process_time_ns() - busy, time.perf_counter_ns() - begin
            wall[name].append(took / images / 1e3)
            cpu[name].append(busy / images / 1e3)
    native = "native code"
    return {
        name: {
            "wall_us": round(statistics.median(wall[name]), 1),
            "cpu_us": round(statistics.median(cpu[name]), 1),
            "by_native": round(statistics.median(cpu[name]) / statistics.median(cpu[native]), 3),
            "over_native_us": round(
                statistics.median(cpu[name]) - statistics.median(cpu[native]), 2
            ),
        }
        for name in contestants
    }


if __name__ == "__main__":
    main()
