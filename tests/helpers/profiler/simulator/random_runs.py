"""Random training runs and random recordings of them: frameworks, cold starts, cuts, missing marks,
streams, ranks.

`random_run(seed)` is the run, what was recorded of it, and the share of its time that input really
cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import Kind, RangeKind
from helpers.profiler.simulator.cases import ranks
from helpers.profiler.simulator.events import MS, US, Range, Run
from helpers.profiler.simulator.loader import NEXT
from helpers.profiler.simulator.scenarios import item, one_gpu
from helpers.profiler.simulator.training import BATCH_BYTES, COMPUTE, COPY, H2D, Model, Trainer

FRAMEWORKS = ("pytorch", "lightning", "tensorflow", "jax", "fastfeed")
_WAIT_OF = {
    "lightning": "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
    "tensorflow": "IteratorGetNext",
    "jax": "next_batch",
    "fastfeed": "fastfeed:wait",
}
_WAITS = dict(
    zip(
        _WAIT_OF.values(),
        (RangeKind.NVTX, RangeKind.OP, RangeKind.NVTX, RangeKind.FEED),
        strict=True,
    )
)
_DEPTH = 2  # batches that the loader is ahead
_LATE = 1  # the rank whose loader is slow, where there are several


@dataclass(frozen=True, slots=True)
class RandomRun:
    about: str  # for messages
    recorded: Run
    late: int  # index of the GPU whose share is known
    steps: int  # that were recorded whole and warm
    period_ns: float  # their mean length, on the host or, where that runs ahead, on the device
    # lowest and highest true share, by which steps at either end are counted
    shares: tuple[float, float]


def random_run(seed: int) -> RandomRun:
    """The run with this number."""
    rng = np.random.default_rng([7, seed])
    framework = FRAMEWORKS[rng.integers(len(FRAMEWORKS))]
    count, cold = int(rng.integers(14, 41)), int(rng.integers(1, 4)) if rng.random() < 0.4 else 0
    step = Model(layers=int(rng.integers(3, 7)), kernel=int(rng.integers(200, 350)) * US)
    compute = step.kernel * (3 * step.layers + 2)
    # from a loader that keeps up to one that takes 2.5 times as long as the step
    cost = int(compute * rng.choice([0.3, rng.uniform(0.9, 1.3), rng.uniform(1.0, 2.5)]))
    world = int(rng.choice([1, 1, 1, 2, 3]))
    cold = cold if world == 1 else 0
    is_short = world == 1 and not cold and rng.random() < 0.6
    count = 26 if is_short else count
    has_copy_stream, reads_loss = rng.random() < 0.3, rng.random() < 0.7
    change = _trainer_change(has_copy_stream, reads_loss, cold)
    if world == 1:
        run = one_gpu(
            seed,
            lambda batch: cost,
            steps=count + cold,
            model=step,
            change=change,
            workers=1,
            depth=_DEPTH,
        )
        late = 0
    else:
        costs = [
            lambda batch, rank=rank: cost if rank == _LATE else cost // 3 for rank in range(world)
        ]
        run, late = (
            ranks(seed, costs, [int(at) for at in rng.integers(0, 5 * MS, world)], change),
            _LATE,
        )
    marks = [one for one in run.ranges if one.kind == RangeKind.STEP and one.host == late]
    begin, end = _short(rng, marks) if is_short else _cuts(rng, marks)
    begin = begin if world == 1 else 0  # the other hosts are ahead by any number of steps
    named = replace(run, ranges=tuple(_named(run.ranges, framework)))
    drops = {name for name in ("step", "optimizer") if rng.random() < 0.4}
    whole = [one for one in marks[cold:] if one.start >= begin and one.end <= end]
    skips = 2 if is_short else _DEPTH + 4
    shares = _true_shares(run, late, whole, skips)
    lost = sum(shares) / len(shares)
    if (
        max(shares) < 0.01 and rng.random() < 0.3
    ):  # nothing marks anything: without the waits the truth would not show
        drops = {"step", "optimizer", "wait"}
    if "step" in drops and not drops & {
        "optimizer",
        "wait",
    }:  # steps may then begin where the optimizer's end
        ends = [
            one.end
            for one in run.ranges
            if one.host == late and one.name.startswith("Optimizer.step")
        ]
        rounds = [
            replace(marks[0], start=at, end=to) for at, to in pairwise(ends) if at >= whole[0].start
        ]
        shares += _true_shares(run, late, [one for one in rounds if one.end <= end], skips)
    marked = replace(named, ranges=tuple(one for one in named.ranges if _role(one) not in drops))
    recorded = recording(marked, begin, end, closes_open=rng.random() < 0.5)
    worked = [op for op in run.ops if op.gpu == late and op.submitted >= marks[cold].start]
    busy = max(op.end for op in worked) - min(op.start for op in worked)
    host = marks[-1].end - marks[cold].start
    return RandomRun(
        f"run {seed}: {framework}, {len(whole)} whole steps of {count}, {cold} cold, {world} ranks, without "
        f"{sorted(drops) or 'nothing'}, recorded from {begin / MS:.1f} to {end / MS:.1f} ms, input costs {lost:.1%}",
        recorded,
        late,
        len(whole),
        max(host, busy) / (len(marks) - cold),
        (min(shares), max(shares)),
    )


def _trainer_change(has_copy_stream: bool, reads_loss: bool, cold: int):
    def change(trainer: Trainer) -> None:
        host = trainer.host
        if has_copy_stream:

            def copy(compute: object) -> None:
                host.launch(
                    host.stream(COPY),
                    H2D,
                    90 * US,
                    Kind.H2D,
                    api="cudaMemcpyAsync",
                    size=BATCH_BYTES,
                    pageable=0,
                )
                host.wait_event(host.stream(COMPUTE), host.record(host.stream(COPY)))

            trainer.copy = copy
        if cold:
            host.lazy_ns = 5 * MS

        def before(step: int) -> None:
            for _ in range(4 if step < cold else 0):
                host.allocate("cudaMalloc", 3 * MS)

        trainer.before = before
        if reads_loss:
            trainer.after = lambda step: item(host)

    return change


def _cuts(rng: np.random.Generator, marks: list[Range]) -> tuple[int, int]:
    """Where a recording begins and ends: mostly inside a step, at least five steps apart."""
    begin = 0 if rng.random() < 0.4 else int(rng.uniform(0, marks[2].end))
    end = (
        marks[-1].end + MS
        if rng.random() < 0.4
        else int(rng.uniform(marks[-3].start, marks[-1].end))
    )
    return begin, end


def _short(rng: np.random.Generator, marks: list[Range]) -> tuple[int, int]:
    """Where a recording of three to twelve whole steps of a warm run begins and ends: inside the
    steps around them.
    """
    first, count = int(rng.integers(8, 12)), int(rng.integers(3, 13))
    before, after = marks[first - 1], marks[first + count]
    return int(rng.uniform(before.start + 1, before.end)), int(
        rng.uniform(after.start, after.end - 1)
    )


def _role(one: Range) -> str:
    if one.kind == RangeKind.STEP or "run_training_batch" in one.name:
        return "step"
    if one.name in _WAITS or one.name == NEXT or "__next__" in one.name:
        return "wait"
    return "optimizer" if one.name.startswith("Optimizer.step") else ""


def _named(ranges: tuple[Range, ...], framework: str) -> Iterator[Range]:
    """The ranges that this framework would record."""
    waits = {(one.host, one.start): one for one in ranges if one.name == NEXT}
    starts = sorted(waits)
    for one in ranges:
        if framework == "pytorch":
            yield one
        elif one.kind == RangeKind.STEP:
            number = one.name.split("#")[1]
            if framework == "lightning":  # the batch is fetched before the mark
                host, at = next(key for key in starts if key >= (one.host, one.start))
                yield replace(
                    one,
                    start=waits[host, at].end,
                    name="[pl][profile]run_training_batch",
                    kind=RangeKind.NVTX,
                )
            elif framework != "fastfeed":
                yield replace(one, name=f"train {number}" if framework == "jax" else number)
        elif one.name == NEXT:
            name = _WAIT_OF[framework]
            yield replace(one, name=name, kind=_WAITS[name])
        elif framework == "lightning" or not (
            one.kind == RangeKind.PYTHON or one.name.startswith("Optimizer")
        ):
            yield one


def recording(run: Run, begin: int, end: int, *, closes_open: bool = False) -> Run:
    """What a recording from `begin` to `end` has.

    Some close ranges that are open at the end, others drop them.
    """
    calls = tuple(one for one in run.calls if one.start >= begin and one.end <= end)
    launched = {(one.host, one.corr) for one in calls}
    ops = tuple(op for op in run.ops if op.start >= begin and op.end <= end)
    ranges = [one for one in run.ranges if one.start >= begin and one.end <= end]
    if closes_open:
        last = {
            host: max(one.end for one in (*ops, *calls, *ranges) if one.host == host)
            for host in range(len(run.hosts))
        }
        ranges += [
            replace(one, end=last[one.host])
            for one in run.ranges
            if begin <= one.start < last[one.host] and one.end > end
        ]
    waits = tuple(one for one in run.waits if (one.host, one.corr) in launched)
    return replace(
        run,
        ops=ops,
        calls=calls,
        ranges=tuple(sorted(ranges, key=lambda one: one.start)),
        waits=waits,
    )


def _true_shares(run: Run, gpu: int, steps: list[Range], skips: int) -> list[float]:
    """With fewer than `skips` of the first of these steps left out, and the last one left out or
    not.
    """
    some = [steps[skip : len(steps) - drop] for skip in range(skips) for drop in range(2)]
    return [_true_share(run, gpu, rest) for rest in some if rest]


def _true_share(run: Run, gpu: int, steps: list[Range]) -> float:
    """The fraction of these steps that this GPU idles for input."""
    begin, end = steps[0].start, steps[-1].end
    lost = sum(
        max(0, min(one.end, end) - max(one.start, begin))
        for one in run.idle
        if one.gpu == gpu and one.cause in (Cause.INPUT, Cause.H2D_STAGING)
    )
    return lost / (end - begin)
