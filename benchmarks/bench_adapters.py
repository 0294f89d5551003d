"""What do the adapters leave of the plain feed's rate, and what does it cost to hand a batch over?

Each adapter runs in a process of its own (`--only`), next to the plain feed: the same files, crops
and threads, uint8 NHWC batches. "Hand-over" is one batch of 256x224x224x3 uint8, from the feed's
memory to the framework's array.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
from rounds import DATA, finish, interleaved, parser, ratio

import fastfeed as ff
from fastfeed.feed.session import FeedSession
from fastfeed.runtime.buffers import aligned

# an epoch shows every file so often, with other crops: beginning one is not what is asked
BATCH, REPEATED = (
    50,
    20,
)
ADAPTERS = ("torch", "jax", "tfdata", "keras-tensorflow", "keras-jax", "keras-torch")
CLAIMS = {"share": 0.95, "handover_ms": 8.0}


def main() -> None:
    wanted = parser(__doc__, rounds=7)
    wanted.add_argument("--only", choices=ADAPTERS, help="one adapter, in this process")
    options = wanted.parse_args()
    if options.only:
        print(json.dumps(one(options.only, options.rounds, options.threads)))
        return
    found = {}
    for name in ADAPTERS:
        command = [sys.executable, "-W", "ignore", __file__, "--only", name]
        command += ["--rounds", str(options.rounds), "--threads", str(options.threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
        print(name, found[name]["share"], found[name]["handover_ms"], file=sys.stderr)
    finish(
        "What do adapters cost?", {"batch": BATCH, "claims": CLAIMS, "adapters": found}, options.out
    )


def one(name: str, rounds: int, threads: int) -> dict[str, Any]:
    """Rates of the plain feed and of one adapter, and its hand-over."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    kind, _, backend = name.partition("-")
    if backend:
        os.environ["KERAS_BACKEND"] = backend
    source = ff.ImageFolder(DATA / "imagenet-sample", labeled=False)
    ops = [ff.RandomResizedCrop(224), ff.RandomFlip()]
    made = {"batch": BATCH, "threads": threads, "seed": 1, "shuffle": ff.Repeated(REPEATED)}
    plain, adapted = (ff.Feed(source, ops, **made) for _ in range(2))
    epoch = WALKS[kind](adapted, backend)

    def walk(epoch: Callable[[], Iterator[Any]], feed: ff.Feed) -> int:
        feed.seek(0)
        return sum(len(labels) for _, labels in until_end(epoch()))

    contestants = {
        "plain feed": lambda: walk(lambda: ((b.images, b.labels) for b in plain), plain),
        name: lambda: walk(epoch, adapted),
    }
    result = interleaved(rounds, contestants)
    return {
        "result": result,
        "share": ratio(result, name, "plain feed"),
        "handover_ms": handover(kind, backend),
    }


def until_end(items: Iterator[Any]) -> Iterator[Any]:
    """For Keras on TensorFlow, whose iterators end with `OutOfRangeError`."""
    try:
        yield from items
    except Exception as error:
        if type(error).__name__ != "OutOfRangeError":
            raise


def keras_walk(feed: ff.Feed, backend: str) -> Callable[[], Iterator[Any]]:
    """What `fit` iterates."""
    adapter = feed.to_keras()
    if backend == "tensorflow":
        trainer = import_module("keras.src.backend.tensorflow.trainer")
        strategy = import_module("tensorflow").distribute.get_strategy()
        return (
            trainer.TFEpochIterator(strategy, x=adapter, steps_per_execution=1)
            ._get_iterator()
            .__iter__
        )
    return (
        adapter.get_jax_iterator
        if backend == "jax"
        else lambda: iter(adapter.get_torch_dataloader())
    )


WALKS = {
    "torch": lambda feed, _: feed.to_torch("cpu").__iter__,
    "jax": lambda feed, _: feed.to_jax().__iter__,
    "tfdata": lambda feed, _: feed.to_tfdata().__iter__,
    "keras": keras_walk,
}


def handover(kind: str, backend: str) -> float:
    """Milliseconds until a ready batch is an array of the framework, median of 30."""
    images = aligned((256, 224, 224, 3), "uint8")
    images[:] = np.random.default_rng(0).integers(0, 256, images.shape, dtype=np.uint8)
    arrays = (images, np.arange(256))
    framework = {"torch": "torch", "jax": "jax", "tensorflow": "tfdata"}.get(backend, kind)
    module = import_module(f"fastfeed.adapters.{framework}")
    if framework == "tfdata":
        feed = ff.Feed(ff.Arrays(np.zeros((256, 224, 224, 3), np.uint8)), [], batch=256)
        tuples = module.BatchTuples.of(FeedSession.of(feed))
        endless = module.build_dataset(
            FeedSession.of(feed), feed, lambda _: (arrays for _ in iter(int, 1)), tuples
        )
        walk = iter(endless)
        times = timed(lambda: next(walk))
    else:
        placement = module.placement("cpu", 4)
        wait = (
            import_module("jax").block_until_ready if framework == "jax" else lambda placed: placed
        )
        times = timed(lambda: wait(placement.take(placement.put(arrays))))
    return round(1e3 * statistics.median(times), 3)


def timed(run: Callable[[], Any]) -> list[float]:
    """Seconds of 30 runs after three."""
    times = []
    for _ in range(33):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return times[3:]


if __name__ == "__main__":
    main()
