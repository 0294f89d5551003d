"""Step rates on photographs against a batch that lies on the device: how many cores a GPU needs."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_check.parts.setting import NotRun, Wrong, busy_seconds
from benchmarks.gpu_check.steps.feeds import OPS, SIDE, TINY, TINY_OPS, endless, feed, threads_here
from benchmarks.gpu_check.steps.nets import jax_net, torch_net
from fastfeed.backends.options import GpuDecode

THREADS = (4, 16, 8, 12, 2)  # in order of worth: the mark is at 4
NETS = ("resnet50", "resnet18", "vit_b")
BATCH = {"resnet18": 256, "resnet50": 256, "vit_b": 128}
_ENOUGH, _FAR = 0.98, 0.9  # real / synthetic; where it is lower, fewer threads are not tried
_DRAINED = 4  # batches that lay ready

Take = Callable[[], Any]


def run(context: Any) -> None:
    folder = next(iter(context.setting().sets.values()))
    (_jax if context.name == "train-jax" else _torch)(context, folder)


def _torch(context: Any, folder: Path) -> None:
    import torch

    nets, ways = ("resnet18",) if context.stand_in else NETS, {"kernel": "cpu"}
    if context.name == "train-torch-gpu":
        nets, ways = nets[:1], {} if context.stand_in else {"nvjpeg": GpuDecode("nvjpeg")}
        ways |= {"hybrid": GpuDecode(cpu_share=None), "GPU": GpuDecode()}
    device = "cpu" if context.stand_in else "cuda"

    def begin(net: str, batch: int) -> tuple[Any, Any, Any]:
        step = torch_net(net, batch, context.stand_in)
        return step, context.setting().sync, torch.randn(batch, *_size(context), 3, device=device)

    tidy = (lambda: None) if context.stand_in else torch.cuda.empty_cache
    _every(context, folder, nets, ways, begin, lambda made: made.to_torch(device), tidy)
    _ended(context)


def _jax(context: Any, folder: Path) -> None:
    import jax

    if jax.default_backend() != "gpu" and not context.stand_in:
        raise NotRun(f"JAX computes on {jax.default_backend()}, not on a GPU")

    def begin(net: str, batch: int) -> tuple[Any, Any, Any]:
        step, wait = jax_net(net, batch, context.stand_in)
        still = np.random.default_rng(1).standard_normal((batch, *_size(context), 3), np.float32)
        return step, wait, jax.device_put(still, jax.devices()[0])

    _every(context, folder, NETS, {"kernel": "cpu"}, begin, lambda made: made.to_jax())
    _ended(context)


def _every(
    context: Any,
    folder: Path,
    nets: Sequence[str],
    ways: dict[str, Any],
    begin: Callable[[str, int], tuple[Any, Any, Any]],
    deliver: Callable[[Any], Any],
    tidy: Callable[[], Any] = lambda: None,
) -> None:
    """Each net in each way, with its share of the time. begin: (a step, what waits for it, a batch
    on the device).
    """
    pairs = list(itertools.product(ways.items(), nets))
    for number, ((way, decode), net) in enumerate(pairs):
        name, batch = f"{net}, {way}", 8 if context.stand_in else BATCH[net]
        with context.part(1 / (len(pairs) - number)):
            try:
                _by_threads(context, name, folder, batch, decode, *begin(net, batch), deliver)
            except Exception as error:  # the other nets are worth having
                context.note(name, {"error": f"{type(error).__name__}: {error}"[:300]})
        gc.collect()
        tidy()


def _ended(context: Any) -> None:
    _cores(context)
    if wrong := [
        f"{name}: {rows['error']}" for name, rows in context.figures.items() if "error" in rows
    ]:
        raise Wrong(wrong, context.figures)


def _by_threads(
    context: Any,
    name: str,
    folder: Path,
    batch: int,
    decode: Any,
    step: Any,
    wait: Any,
    still: Any,
    deliver: Any,
) -> None:
    found = {
        threads: row for threads, row in context.interrupted(name).items() if threads != "error"
    }
    for threads in [
        n for n in THREADS if n in threads_here(context.stand_in, tuple(sorted(THREADS)))
    ] or [1]:
        far = any(
            threads < int(more) and row["real / synthetic"] < _FAR for more, row in found.items()
        )
        if (
            str(threads) in found
            or far
            or context.skips(f"{name}, {threads} threads", 1 if context.stand_in else 8)
        ):
            continue
        with feed(folder, batch, threads, decode, TINY_OPS if context.stand_in else OPS) as made:
            batches = endless(deliver(made))
            found[str(threads)] = contest(
                step, wait, lambda: still, lambda b=batches: next(b), batch, _seconds(context)
            )
            batches.close()
        context.note(name, found)
    if found:
        context.note(name, found)


def _size(context: Any) -> tuple[int, int]:
    return (TINY, TINY) if context.stand_in else (SIDE, SIDE)


def _seconds(context: Any) -> float:
    return 0.01 if context.stand_in else min(1.5, context.seconds / 80)


def contest(
    step: Any, wait: Any, still: Take, real: Take, batch: int, seconds: float
) -> dict[str, Any]:
    """Both in turn, forth and back, for as long each."""
    for take in (still, real, still, real):
        step(take())
    wait()
    counts = {
        "synthetic": _steps_in(seconds, step, wait, still),
        "real": _steps_in(seconds, step, wait, real),
    }
    rates: dict[str, list[float]] = {"synthetic": [], "real": []}
    busy = 0.0
    for name in ("synthetic", "real", "real", "synthetic"):
        take, steps = real if name == "real" else still, counts[name]
        for _ in range(_DRAINED):
            step(take())
        wait()
        start, used = time.perf_counter(), busy_seconds()
        for _ in range(steps):
            step(take())
        wait()
        rates[name].append(batch * steps / (time.perf_counter() - start))
        busy += busy_seconds() - used if name == "real" else 0
    synthetic, fed = (statistics.median(rates[name]) for name in ("synthetic", "real"))
    return {
        "synthetic_images_per_second": round(synthetic, 1),
        "real_images_per_second": round(fed, 1),
        "real / synthetic": round(fed / synthetic, 4),
        "spread": round(max(rates["real"]) / min(rates["real"]) - 1, 4),
        "cpu_ms per image": round(1e3 * busy / (2 * counts["real"] * batch), 3),
    }


def _steps_in(seconds: float, step: Any, wait: Any, take: Take) -> int:
    """How many such steps take so long, by a third of that time."""
    start, tried = time.perf_counter(), 0
    while time.perf_counter() - start < seconds / 3:
        step(take())
        tried += 1
        if tried % 8 == 0:
            wait()
    wait()
    return max(4, int(seconds * tried / (time.perf_counter() - start)))


def _cores(context: Any) -> None:
    """The fewest threads that are enough, by net and way to decode."""
    enough: dict[str, Any] = {}
    for name, rows in context.figures.items():
        if isinstance(rows, dict) and "error" not in rows:
            there = [
                int(n)
                for n, row in rows.items()
                if n.isdigit() and row["real / synthetic"] >= _ENOUGH
            ]
            enough[name] = min(there) if there else "more than were tried"
    if not context.stand_in:
        context.note(f"threads per GPU for real / synthetic >= {_ENOUGH}", enough)
