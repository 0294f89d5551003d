"""Runs of several ranks, several processes, or several GPUs, and recordings that lost something."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import Kind, RangeKind
from helpers.profiler.simulator.disturbances import DISTURBED, save
from helpers.profiler.simulator.events import MS, US, Op, Run
from helpers.profiler.simulator.loader import Loader
from helpers.profiler.simulator.machine import Host, Stream, recorded
from helpers.profiler.simulator.scenarios import (
    NOT,
    SCENARIOS,
    STARVED,
    Scenario,
    fast,
    item,
    one_gpu,
    slow_loader,
)
from helpers.profiler.simulator.training import COMM, COMPUTE, H2D, Model, Trainer
from helpers.profiler.simulator.truth import idle_times, late_peers

LATE_RANK = 1


def ranks(
    seed: int,
    costs: Sequence[Callable[[int], int]],
    skews: Sequence[int],
    change: Callable[[Trainer], None] = lambda late: None,
) -> Run:
    """One process and one GPU for each cost of a batch; gradients are summed over all of them.

    `change` alters the trainer of LATE_RANK.
    """
    steps = 30
    hosts = [
        Host(index, pid=5000 + 200 * index, gpus=(index,), seed=seed, rank=index, skew_ns=skew)
        for index, skew in enumerate(skews)
    ]
    model = Model(buckets=2)
    trainers = [
        Trainer(host, Loader(host, cost), model) for host, cost in zip(hosts, costs, strict=True)
    ]
    change(trainers[LATE_RANK])
    programs = [trainer.steps(steps) for trainer in trainers]
    collectives: list[list[tuple[int, Op]]] = []
    while all(_advance(programs)):
        collectives.append(
            [(host.rank, one.collective[0]) for host, one in zip(hosts, trainers, strict=True)]
        )
        _finish(hosts, [op for _, op in collectives[-1]])
    for host in hosts:
        host.sync(*host.streams.values(), api="cudaDeviceSynchronize")
    return recorded(hosts, list(idle_times(hosts)), list(late_peers(collectives)), steps)


def _advance(programs: Sequence[Iterator[None]]) -> list[bool]:
    """Run each program to its next collective; says which of them have come to one."""
    return [next(program, "ended") is None for program in programs]


def _finish(hosts: Sequence[Host], ops: Sequence[Op]) -> None:
    """A collective ends everywhere some time after the last rank has begun it."""
    last = max(op.start for op in ops)
    for host, op in zip(hosts, ops, strict=True):
        op.end = last + 400 * US + host.about(1 * US)
        host.stream(COMM).tail = op.end


def late_peer(seed: int) -> Run:
    return ranks(seed, [fast, lambda batch: 12 * MS, fast], [0, 0, 0])


def clock_skew(seed: int) -> Run:
    return ranks(seed, [fast, lambda batch: 12 * MS], [0, 5 * MS])


def equal_ranks(seed: int) -> Run:
    return ranks(seed, [fast, fast], [0, 0])


def late_checkpoint(seed: int) -> Run:
    """One rank alone saves what all of them have learned."""

    def change(late: Trainer) -> None:
        def after(step: int) -> None:
            if step % 4 == 3:
                item(late.host)
                save(late.host)

        late.after = after

    return ranks(seed, [fast, fast, fast], [0, 0, 0], change)


def slow_gpu(seed: int) -> Run:
    """One GPU is slower than its peers, and always busy."""

    def change(late: Trainer) -> None:
        late.model = replace(late.model, kernel=190 * US)

    return ranks(seed, [fast, fast, fast], [0, 0, 0], change)


def two_processes(seed: int) -> Run:
    """Two trainings share one GPU, and both wait for their loaders."""
    hosts = [
        Host(index, pid=6000 + 200 * index, gpus=(0,), seed=seed, rank=index) for index in range(2)
    ]
    for host, cost in zip(hosts, (24 * MS, 26 * MS), strict=True):
        trainer = Trainer(host, Loader(host, lambda batch, cost=cost: cost), Model(kernel=100 * US))
        for _ in trainer.steps(30):
            pass
        host.sync(*host.streams.values(), api="cudaDeviceSynchronize")
    return recorded(hosts, list(idle_times(hosts)), [], 30)


def pipeline(seed: int) -> Run:
    """One process, two GPUs: each half of the model waits for the other's activations."""
    host = Host(0, pid=7000, gpus=(0, 1), seed=seed)
    loader = Loader(host, fast)
    first, second = host.stream(COMPUTE, 0), host.stream(COMPUTE, 1)

    def half(stream: Stream, layers: int, name: str) -> None:
        for _ in range(layers):
            with host.inside(name, RangeKind.OP, Cause.FRAMEWORK):
                host.spend(5 * US)
                host.launch(stream, f"{name}_kernel", 300 * US)

    for step in range(30):
        with host.inside(f"ProfilerStep#{step}", RangeKind.STEP, Cause.PYTHON):
            loader.next(step)
            with host.inside("aten::copy_", RangeKind.OP, Cause.FRAMEWORK):
                host.launch(
                    first, H2D, 90 * US, Kind.H2D, api="cudaMemcpyAsync", size=1 << 20, pageable=0
                )
            half(first, 6, "aten::conv_a")
            host.launch(
                first,
                "Memcpy PtoP (Device -> Device)",
                50 * US,
                Kind.P2P,
                api="cudaMemcpyPeerAsync",
                size=1 << 20,
            )
            host.wait_event(second, host.record(first))
            half(second, 12, "aten::conv_b")
            host.launch(
                second,
                "Memcpy PtoP (Device -> Device)",
                50 * US,
                Kind.P2P,
                api="cudaMemcpyPeerAsync",
                size=1 << 20,
            )
            host.wait_event(first, host.record(second))
            half(first, 6, "aten::conv_c")
    host.sync(first, second, api="cudaDeviceSynchronize")
    return recorded([host], list(idle_times([host])), [], 30)


def replicas(seed: int) -> Run:
    """Another thread launches, and the main thread gets the batches, as in DataParallel."""

    class Replicated(Trainer):
        __slots__ = ()

        def step(self, number: int) -> Iterator[None]:
            with self.host.on(30, "replica 0"):
                yield from Trainer.step(self, number)

    host = Host(0, pid=4300, gpus=(0,), seed=seed)
    for _ in Replicated(host, Loader(host, lambda batch: 12 * MS)).steps(30):
        pass
    host.sync(*host.streams.values(), api="cudaDeviceSynchronize")
    return recorded([host], list(idle_times([host])), [], 30)


def dropped(seed: int) -> Run:
    """The profiler's buffer overflowed: one launch of six is missing."""
    run = slow_loader(seed)
    return replace(run, calls=tuple(call for at, call in enumerate(run.calls) if at % 6))


def checkpoint_and_loader(seed: int) -> Run:
    """Two causes at once, each known."""

    def change(trainer: Trainer) -> None:
        host = trainer.host

        def after(step: int) -> None:
            item(host)
            if step % 10 == 4:
                with host.inside("save_checkpoint", RangeKind.NVTX, Cause.CHECKPOINT):
                    host.spend(20 * MS)

        trainer.after = after

    return one_gpu(seed, lambda batch: 11 * MS, steps=40, depth=2, change=change)


ALL: dict[str, Scenario] = (
    SCENARIOS
    | DISTURBED
    | {
        "late_peer": Scenario(late_peer, STARVED, Cause.INPUT),
        "clock_skew": Scenario(clock_skew, STARVED, Cause.INPUT),
        "equal_ranks": Scenario(equal_ranks, NOT),
        "late_checkpoint": Scenario(late_checkpoint, NOT, Cause.CHECKPOINT),
        "slow_gpu": Scenario(slow_gpu, NOT),
        "two_processes": Scenario(two_processes, STARVED, Cause.INPUT, ("nsys",)),
        "pipeline": Scenario(pipeline, NOT, Cause.PEER),
        "replicas": Scenario(replicas, STARVED, Cause.INPUT),
        "dropped": Scenario(dropped, frozenset({"abstained"})),
        "checkpoint_and_loader": Scenario(checkpoint_and_loader, STARVED, Cause.INPUT),
    }
)
