"""One training run each, with the verdict that it deserves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import Kind, RangeKind
from helpers.profiler.simulator.events import MS, US, Run
from helpers.profiler.simulator.loader import Loader
from helpers.profiler.simulator.machine import Host, recorded
from helpers.profiler.simulator.training import BATCH_BYTES, COMPUTE, COPY, H2D, Model, Trainer
from helpers.profiler.simulator.truth import idle_times

STEPS = 30
NOT, STARVED = frozenset({"not_starved"}), frozenset({"starved", "severe"})


@dataclass(frozen=True, slots=True)
class Scenario:
    make: Callable[[int], Run]  # from a seed
    words: frozenset[str]  # any of these verdicts
    main: Cause | None = None  # what most of the idle time is for
    dialects: Sequence[str] = ("nsys", "chrome", "xplane", "nvprof")  # that can carry it


def fast(batch: int) -> int:
    return 2 * MS


def one_gpu(
    seed: int,
    cost: Callable[[int], int] = fast,
    *,
    steps: int = STEPS,
    model: Model | None = None,
    change: Callable[[Trainer], None] = lambda trainer: None,
    **loader: Any,
) -> Run:
    """A run of one process on one GPU, whose trainer `change` may alter first; `loader` is for
    Loader.
    """
    host = Host(0, pid=4100, gpus=(0,), seed=seed)
    trainer = Trainer(host, Loader(host, cost, **loader), model or Model())
    change(trainer)
    for _ in trainer.steps(steps):
        pass
    host.sync(*host.streams.values(), api="cudaDeviceSynchronize")
    return recorded([host], list(idle_times([host])), [], steps)


def item(host: Host, wake: int = 4 * US) -> None:
    """loss.item(): a copy to the host, and the host waits for it."""
    compute = host.stream(COMPUTE)
    with host.inside("aten::item", RangeKind.OP, Cause.FRAMEWORK):
        host.launch(
            compute,
            "Memcpy DtoH (Device -> Pageable)",
            2 * US,
            Kind.D2H,
            api="cudaMemcpyAsync",
            size=4,
            pageable=1,
        )
        host.sync(compute, wake=wake)


def healthy(seed: int) -> Run:
    def change(trainer: Trainer) -> None:
        trainer.after = lambda step: item(trainer.host) if step % 10 == 9 else None

    return one_gpu(seed, change=change)


def deep_queue(seed: int) -> Run:
    """The host is so far ahead that its launches wait for a place in the queue."""
    return one_gpu(seed, steps=60)


def slow_loader(seed: int) -> Run:
    return one_gpu(seed, lambda batch: 11 * MS)


def every_fourth(seed: int) -> Run:
    return one_gpu(
        seed, lambda batch: 12 * MS if batch % 4 == 0 else 2 * MS, steps=48, workers=1, depth=2
    )


def epoch_start(seed: int) -> Run:
    return one_gpu(seed, steps=56, epoch=8, startup=30 * MS)


def hidden_wait(seed: int) -> Run:
    return one_gpu(seed, lambda batch: 7 * MS, workers=2, depth=6)


def pageable_copy(seed: int) -> Run:
    def change(trainer: Trainer) -> None:
        trainer.copy = lambda stream: trainer.host.staged_copy(
            stream, BATCH_BYTES, 2 * MS, 700 * US
        )
        trainer.after = lambda step: item(trainer.host)

    return one_gpu(seed, change=change)


def item_harmless(seed: int) -> Run:
    def change(trainer: Trainer) -> None:
        trainer.after = lambda step: item(trainer.host)

    return one_gpu(seed, change=change)


def item_exposed(seed: int) -> Run:
    def change(trainer: Trainer) -> None:
        trainer.after = lambda step: item(trainer.host, wake=900 * US)

    return one_gpu(seed, change=change)


def tiny_kernels(seed: int) -> Run:
    return one_gpu(
        seed,
        model=Model(kernel=3 * US, python=9 * US, operator=12 * US),
        cost=lambda batch: 100 * US,
    )


def cache_emptied(seed: int) -> Run:
    def change(trainer: Trainer) -> None:
        def after(step: int) -> None:
            with trainer.host.inside("torch/cuda/memory.py(160): empty_cache", RangeKind.PYTHON):
                trainer.host.allocate("cudaFree", 400 * US)
                trainer.host.allocate("cudaFree", 300 * US)
            trainer.host.allocate("cudaMalloc", 250 * US)

        trainer.after = after

    return one_gpu(seed, change=change)


def checkpoints(seed: int) -> Run:
    def change(trainer: Trainer) -> None:
        host = trainer.host

        def after(step: int) -> None:
            if step % 10 != 6:
                return
            with host.inside("save_checkpoint", RangeKind.NVTX, Cause.CHECKPOINT):
                with host.inside("torch/serialization.py(850): save", RangeKind.PYTHON):
                    for _ in range(3):
                        host.launch(
                            host.stream(COMPUTE),
                            "Memcpy DtoH (Device -> Pinned)",
                            300 * US,
                            Kind.D2H,
                            api="cudaMemcpyAsync",
                            size=90 << 20,
                            pageable=0,
                        )
                        host.sync(host.stream(COMPUTE), cause=Cause.CHECKPOINT)
                    host.spend(14 * MS)

        trainer.after = after

    return one_gpu(seed, steps=40, change=change)


def prefetched(seed: int) -> Run:
    """Copies on a stream of their own, and compute that waits for them by an event."""

    def change(trainer: Trainer) -> None:
        host = trainer.host

        def copy(compute: object) -> None:
            side = host.stream(COPY)
            host.launch(
                side, H2D, 90 * US, Kind.H2D, api="cudaMemcpyAsync", size=BATCH_BYTES, pageable=0
            )
            host.wait_event(host.stream(COMPUTE), host.record(side))

        trainer.copy = copy

    return one_gpu(seed, lambda batch: 12 * MS, change=change)


def across_streams(seed: int) -> Run:
    """Compute goes back and forth between two streams, and each passing on takes its time."""

    def change(trainer: Trainer) -> None:
        host = trainer.host

        def before(step: int) -> None:
            compute, side = host.stream(COMPUTE), host.stream(COPY)
            with host.inside("aten::record_stream", RangeKind.OP, Cause.FRAMEWORK):
                for _ in range(4):
                    host.wait_event(side, host.record(compute), slow=60 * US)
                    host.launch(side, "side_kernel", 120 * US)
                    host.wait_event(compute, host.record(side), slow=60 * US)
                    host.launch(compute, "main_kernel", 120 * US)

        trainer.before = before

    return one_gpu(seed, change=change)


def graphs(seed: int, cost: Callable[[int], int] = lambda batch: 12 * MS) -> Run:
    def change(trainer: Trainer) -> None:
        host = trainer.host
        nodes = [(f"graph_kernel_{node}", 200 * US) for node in range(20)]

        def copy(compute: object) -> None:
            with host.inside("cuda_graph.replay", RangeKind.OP, Cause.FRAMEWORK):
                host.launch(
                    host.stream(COMPUTE),
                    H2D,
                    90 * US,
                    Kind.H2D,
                    api="cudaMemcpyAsync",
                    size=BATCH_BYTES,
                    pageable=0,
                )
                host.spend(5 * US)
                host.graph(host.stream(COMPUTE), nodes)

        trainer.copy = copy

    return one_gpu(seed, cost, model=Model(layers=1, kernel=60 * US), change=change)


def garbage(seed: int) -> Run:
    def change(trainer: Trainer) -> None:
        host = trainer.host

        def after(step: int) -> None:
            item(host)
            if step % 5 == 3:
                with host.inside("GC (generation 2)", RangeKind.GC, Cause.GC):
                    host.spend(9 * MS)

        trainer.after = after

    return one_gpu(seed, change=change)


def no_core(seed: int) -> Run:
    def change(trainer: Trainer) -> None:
        def after(step: int) -> None:
            item(trainer.host)
            if step % 2:
                trainer.host.preempted(3 * MS)

        trainer.after = after

    return one_gpu(seed, change=change)


def cold_start(seed: int) -> Run:
    def change(trainer: Trainer) -> None:
        host = trainer.host
        host.lazy_ns = 6 * MS

        def before(step: int) -> None:
            if step < 2:
                for _ in range(4):
                    host.allocate("cudaMalloc", 1500 * US)

        trainer.before = before
        trainer.after = lambda step: item(host)

    return one_gpu(seed, lambda batch: 20 * MS if batch == 0 else 2 * MS, change=change)


SCENARIOS: dict[str, Scenario] = {
    "healthy": Scenario(healthy, NOT),
    "deep_queue": Scenario(deep_queue, NOT),
    "slow_loader": Scenario(slow_loader, STARVED, Cause.INPUT),
    "every_fourth": Scenario(every_fourth, STARVED, Cause.INPUT),
    "epoch_start": Scenario(epoch_start, STARVED | {"borderline"}, Cause.INPUT),
    "hidden_wait": Scenario(hidden_wait, NOT),
    "pageable_copy": Scenario(pageable_copy, STARVED, Cause.H2D_STAGING),
    "item_harmless": Scenario(item_harmless, NOT),
    "item_exposed": Scenario(item_exposed, NOT, Cause.SYNC),
    "tiny_kernels": Scenario(tiny_kernels, NOT, Cause.FRAMEWORK),
    "cache_emptied": Scenario(cache_emptied, NOT, Cause.ALLOC),
    "checkpoints": Scenario(checkpoints, NOT, Cause.CHECKPOINT),
    "prefetched": Scenario(prefetched, STARVED, Cause.INPUT),
    "across_streams": Scenario(across_streams, NOT, Cause.DEPENDENCY),
    "graphs": Scenario(graphs, STARVED, Cause.INPUT),
    "garbage": Scenario(garbage, NOT, Cause.GC),
    "no_core": Scenario(no_core, NOT, Cause.CPU_CONTENTION, ("nsys",)),
    "cold_start": Scenario(cold_start, NOT, Cause.MODULE_LOAD),
}
