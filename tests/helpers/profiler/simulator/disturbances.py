"""What else makes a host late, alone and all together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import Kind, RangeKind
from helpers.profiler.simulator.events import MS, US, Run
from helpers.profiler.simulator.machine import Host
from helpers.profiler.simulator.scenarios import NOT, STARVED, Scenario, item, one_gpu
from helpers.profiler.simulator.training import BATCH_BYTES, COMPUTE, Trainer

# what happens at the end of a step, when the device has run dry
Disturbance = Callable[[Host], None]


def collect(host: Host) -> None:
    with host.inside("GC (generation 2)", RangeKind.GC, Cause.GC):
        host.spend(3 * MS)


def save(host: Host) -> None:
    with host.inside("save_checkpoint", RangeKind.NVTX, Cause.CHECKPOINT):
        with host.inside("torch/serialization.py(850): save", RangeKind.PYTHON):
            host.spend(5 * MS)


def evaluate(host: Host) -> None:
    with host.inside("validation", RangeKind.NVTX, Cause.CHECKPOINT):
        host.spend(2 * MS)


def barrier(host: Host) -> None:
    with host.inside("c10d::barrier", RangeKind.OP, Cause.HOST_COMM):
        with host.inside("pthread_cond_wait", RangeKind.SYSTEM):
            host.spend(2 * MS)


def recompile(host: Host) -> None:
    with host.inside("compile_inner (dynamo_timed)", RangeKind.NVTX, Cause.COMPILE):
        host.spend(6 * MS)


def reallocate(host: Host) -> None:
    host.allocate("cudaFree", 500 * US)
    host.spend(20 * US)
    host.allocate("cudaMalloc", 700 * US)


def blocking_copy(host: Host) -> None:
    """cudaMemcpy: it returns when the bytes have arrived, and its thread has been woken."""
    compute = host.stream(COMPUTE)
    with host.inside("aten::to", RangeKind.OP, Cause.FRAMEWORK):
        with host.call("cudaMemcpy") as corr, host.doing(Cause.COPY):
            host.spend(400 * US)
            op = host.enqueue(
                compute,
                "Memcpy HtoD (Pinned -> Device)",
                60 * US,
                Kind.H2D,
                corr,
                host.now,
                4096,
                0,
            )
            host.until(op.end)
            host.spend(200 * US)
            op.submitted = host.now


def staged(host: Host) -> None:
    with host.inside("aten::copy_", RangeKind.OP, Cause.FRAMEWORK):
        host.staged_copy(host.stream(COMPUTE), BATCH_BYTES, 1 * MS, 300 * US)


def slow_wake(host: Host) -> None:
    item(host, wake=600 * US)


def think(host: Host) -> None:
    with host.inside("metrics.py(77): summarize", RangeKind.PYTHON):
        host.spend(800 * US)


ALL_OF_THEM: tuple[Disturbance, ...] = (
    collect,
    save,
    evaluate,
    barrier,
    recompile,
    reallocate,
    blocking_copy,
    staged,
    slow_wake,
    think,
)


def disturbed(*chosen: Disturbance, every: int = 3) -> Callable[[int], Run]:
    """A run that is healthy but for one of these every so many steps."""

    def make(seed: int) -> Run:
        def change(trainer: Trainer) -> None:
            def after(step: int) -> None:
                item(trainer.host)
                if step % every == every - 1:
                    chosen[step // every % len(chosen)](trainer.host)

            trainer.after = after

        return one_gpu(seed, steps=36, change=change)

    return make


def mixture(seed: int) -> Run:
    """Any of them after any step, and a loader of any speed: what a bad day looks like."""
    chance = np.random.default_rng([seed, 77])
    slow = chance.integers(2, 16, 64) * MS

    def change(trainer: Trainer) -> None:
        def after(step: int) -> None:
            if chance.random() < 0.7:
                item(trainer.host)
            for at in chance.permutation(len(ALL_OF_THEM))[: chance.integers(0, 3)]:
                ALL_OF_THEM[at](trainer.host)

        trainer.after = after

    return one_gpu(
        seed,
        lambda batch: int(slow[batch]),
        steps=40,
        workers=int(chance.integers(1, 4)),
        change=change,
    )


ANY = NOT | STARVED | {"borderline"}

DISTURBED: dict[str, Scenario] = {
    "barriers": Scenario(disturbed(barrier), NOT, Cause.HOST_COMM),
    "recompiles": Scenario(disturbed(recompile), NOT, Cause.COMPILE),
    "blocking_copies": Scenario(disturbed(blocking_copy, every=1), NOT, Cause.COPY),
    "metrics": Scenario(
        disturbed(think, every=1), NOT, Cause.PYTHON, ("chrome", "xplane")
    ),  # the others have no frames
    "mixture": Scenario(mixture, ANY),
}
