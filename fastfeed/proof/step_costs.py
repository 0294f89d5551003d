"""Costs of a step by part of its input, and estimates of what changes would gain at most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fastfeed.errors import ProofError
from fastfeed.printable import plural
from fastfeed.profiler.model.causes import SEVERE, STARVED
from fastfeed.proof.measure.modes import Mode
from fastfeed.proof.measure.record import ProofRecord
from fastfeed.proof.measure.statistics import Estimate, difference, mean, parts

SCHEMA = 1
_REAL = (Mode.COLD, Mode.WARM, Mode.REAL)  # the first of these that was measured counts
_FEW = 2  # rounds; with fewer there is no interval
_Costs = TypeVar("_Costs", bound="StepCosts")
_FASTER = 2  # how much faster the storage of "faster storage" is
_CORES = 2  # how many times as many
_DECODE = ("decode",)  # what a GPU can take over
_SHARE = 0.05  # of the threads' time, from which on decoding is worth a line
_WORTH = 0.01  # of the step; smaller gains are not proposed as a remedy


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Costs of a step by part of its input; fields as in `Proof`."""

    steps: dict[str, Estimate]
    parts: dict[str, Estimate]
    input: Estimate
    feed: dict[str, Any]
    rounds: int
    block_steps: int
    own_wait: float | None
    cores: dict[str, float]
    stage_ms: dict[str, float]
    whatif: tuple[WhatIf, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls: type[_Costs], record: ProofRecord, notes: Sequence[str] = ()) -> _Costs:
        """Conclude from a record.

        Args:
            record (ProofRecord): Of at least two whole rounds.
            notes (Sequence[str]): Sentences that come first. Default: ().

        Returns:
            The result.

        Raises:
            ProofError: If there are fewer rounds.

        Example:
            >>> ff.Proof.of(record)  # doctest: +SKIP
        """
        if record.rounds < _FEW or record.sizes is None:
            raise ProofError(_too_short(record))
        by_mode = {
            Mode(name): [b for b in record.blocks if b.mode == name] for name in record.modes
        }
        means = {mode: [b.ns / b.steps for b in blocks] for mode, blocks in by_mode.items()}
        real = next(mode for mode in _REAL if mode in means)
        images = {
            mode: sum(b.steps for b in blocks) * record.feed["batch"]
            for mode, blocks in by_mode.items()
        }
        stage_ms = {mode: _stages(by_mode[mode], images[mode]) for mode in _REAL if mode in means}
        spent = sum(b.ns for b in by_mode[real])
        found = parts(means)
        return cls(
            steps={mode.value: mean(blocks) for mode, blocks in means.items()},
            parts=found,
            input=difference(means[Mode.RESIDENT], means[real]),
            feed=dict(record.feed),
            rounds=record.rounds,
            block_steps=record.sizes.steps,
            own_wait=sum(b.wait_ns for b in by_mode[real]) / spent if spent else None,
            cores={
                m.value: sum(b.cpu_ns for b in bs) / max(1, sum(b.ns for b in bs))
                for m, bs in by_mode.items()
            },
            stage_ms=stage_ms[real],
            whatif=_estimates(record, means, found, stage_ms) if "contention" in found else (),
            notes=(*notes, *_notes(record)),
        )

    @property
    def real(self) -> Estimate:
        """Step time with real input: cold if measured, else warm; "real" for other loaders."""
        return self.steps[self.slowest]

    @property
    def slowest(self) -> str:
        """Kind of input behind `real`: "cold", "warm", or "real" for other loaders."""
        return next(mode.value for mode in _REAL if mode.value in self.steps)

    @property
    def input_share(self) -> float:
        """Share of a step that its input costs, 0 to 1."""
        return max(0.0, self.input.ns / self.real.ns) if self.real.ns > 0 else 0.0

    @property
    def gain(self) -> float:
        """Images per second that an infinitely fast feed would give more, as a share."""
        resident = self.steps["resident"].ns
        return max(0.0, self.real.ns / resident - 1) if resident > 0 else 0.0

    @property
    def remedy(self) -> WhatIf | None:
        """The change that would gain most, of those that can be made."""
        return max(
            (row for row in self.whatif if row.remedy), key=lambda row: row.gain, default=None
        )

    def images_per_second(self, mode: str) -> float:
        """Images per second of this rank.

        Args:
            mode (str): A key of `steps`.

        Returns:
            Batch by step time; 0 where that is 0.

        Example:
            >>> feed = ff.Feed(ff.Arrays(np.zeros((64, 8, 8, 3), np.uint8)), [], batch=8)
            >>> ff.prove(lambda batch: None, feed, seconds=1).images_per_second("warm") > 0
            True
        """
        return self.feed["batch"] * 1e9 / self.steps[mode].ns if self.steps[mode].ns > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The result for JSON, as docs/proving.md documents it; fields are only ever added.

        Returns:
            Strings, numbers, lists and dicts; times are milliseconds per step.
        """
        return {
            "fastfeed_prove": SCHEMA,
            "feed": self.feed,
            "rounds": self.rounds,
            "block_steps": self.block_steps,
            "steps": {name: step.as_dict() for name, step in self.steps.items()},
            "parts": {name: part.as_dict() for name, part in self.parts.items()},
            "input": self.input.as_dict(),
            "input_share": self.input_share,
            "gain_at_most": self.gain,
            "feed_wait_share": self.own_wait,
            "cpu_cores": self.cores,
            "stage_ms_per_image": self.stage_ms,
            "what_if": [row.as_dict() for row in self.whatif],
            "verdict": verdict(self),
            "notes": list(self.notes),
        }


def _estimates(
    record: ProofRecord,
    means: Mapping[Mode, Sequence[float]],
    costs: Mapping[str, Estimate],
    stage_ms: Mapping[Mode, Mapping[str, float]],
) -> tuple[WhatIf, ...]:
    """Estimates of what changes would gain, for a feed."""
    ns = {mode: float(mean(blocks).ns) for mode, blocks in means.items()}
    contention = costs["contention"]
    return what_if(
        Measured(
            resident=ns[Mode.RESIDENT],
            contention=float(contention.ns) if contention.low > 0 else 0.0,
            busy=ns[Mode.BUSY],
            warm=ns[Mode.WARM],
            cold=ns.get(Mode.COLD),
            batch=record.feed["batch"],
            threads=record.feed["threads"],
            fetches="fetch" in costs and costs["fetch"].low > 0,
            cores=record.cores,
            warm_stage_ms=stage_ms[Mode.WARM],
            cold_stage_ms=stage_ms.get(Mode.COLD, stage_ms[Mode.WARM]),
            gpu=record.gpu,
            side_process=record.feed["side_process"],
        )
    )


def _stages(blocks: Sequence[Any], images: int) -> dict[str, float]:
    """Thread time per image, milliseconds."""
    total: dict[str, int] = {}
    for block in blocks:
        for stage, ns in block.stage_ns.items():
            total[stage] = total.get(stage, 0) + ns
    return {stage: ns / images / 1e6 for stage, ns in total.items()} if images else {}


def _notes(record: ProofRecord) -> list[str]:
    notes = list(record.notes)
    if record.no_cold:
        notes.append(f"fetch was not measured apart from preparation: {record.no_cold}")
    elif Mode.COLD.value in record.modes and not record.cold_verified:
        notes.append(
            "files were dropped from the page cache, but this system does not say whether it still"
            " has them"
        )
    if not record.complete and record.sizes is not None:
        notes.append(
            f"only {record.rounds} of {record.sizes.rounds} rounds were measured, so the intervals"
            " are wide"
        )
    return notes


def _too_short(record: ProofRecord) -> str:
    if record.sizes is None:
        return (
            f"the run was too short for a proof: it ended after {plural(record.steps, 'step')},"
            " while it was still settling; let the trainer run for longer"
        )
    needed = record.sizes.block * len(record.modes) * record.sizes.rounds
    return (
        f"the run was too short for a proof: it ended after {plural(record.steps, 'step')}, and a"
        f" proof of {record.seconds:g} s takes about {needed:,} here; let the trainer run for longer, or"
        " lower --seconds"
    )


def word(costs: StepCosts) -> str:
    """ "not_starved", "starved", "severe", or "unsure" where the interval does not decide."""
    low = costs.input.low / costs.real.ns
    high = costs.input.high / costs.real.ns
    if high < STARVED:
        return "not_starved"
    if low >= SEVERE:
        return "severe"
    return "starved" if low >= STARVED else "unsure"


def verdict(costs: StepCosts) -> str:
    """The verdict on the input in words."""
    return {
        "not_starved": "not the input",
        "starved": "it is the input",
        "severe": "it is the input",
        "unsure": "not decided",
    }[word(costs)]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One change.

    Args:
        change (str): In words.
        step_ns (float): Step time after it, nanoseconds, estimated.
        gain (float): Images per second more, as a share: 0.25 is a quarter more.
        remedy (str): What to write or buy, with its number; "" where it would not help.
    """

    change: str
    step_ns: float
    gain: float
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Change, step time and gain, for JSON."""
        return {
            "change": self.change,
            "step_ms": self.step_ns / 1e6,
            "gain": self.gain,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements that the estimates are made of; times per step in nanoseconds."""

    resident: float
    busy: float
    warm: float
    cold: float | None
    contention: float  # 0 where its interval holds 0
    fetches: bool  # cold files cost more than warm ones, as far as the intervals show
    batch: int
    threads: int
    cores: int
    warm_stage_ms: Mapping[str, float]  # thread time per image
    cold_stage_ms: Mapping[str, float]
    gpu: bool  # the trainer uses one
    side_process: bool

    @property
    def real(self) -> float:
        """The slowest kind of input that was measured."""
        return self.warm if self.cold is None else self.cold

    @property
    def stage_ms(self) -> Mapping[str, float]:
        """Thread time per image with that."""
        return self.warm_stage_ms if self.cold is None else self.cold_stage_ms

    def make(self, stage_ms: Mapping[str, float], threads: float) -> float:
        """Time to make a batch, by thread time."""
        return self.batch * sum(stage_ms.values()) * 1e6 / threads

    def changed(self, stage_ms: Mapping[str, float], threads: float, contention: float) -> float:
        """Step time with other thread time, threads and contention; never longer than now."""
        least = self.busy - self.contention + contention  # of the trainer
        before = self.make(self.stage_ms, self.threads)
        after = self.make(stage_ms, threads)
        if before > self.busy:
            return min(self.real, max(least, self.real * after / before))
        return min(self.real, max(least, after) + max(0.0, self.real - self.busy))


def what_if(measured: Measured) -> tuple[WhatIf, ...]:
    """All changes that can be estimated, each by itself.

    A feed of n threads that need m ms of thread time per image makes a batch of b in b m / n ms at
    best. Where that is longer than the step with a busy feed, the step is as long as the threads
    take, and changes as their time does. Where it is not, the wait has another reason, and nothing
    that spares the threads time changes it. Twice the cores, or separate cores, leave no
    contention. No estimate is below the part that was measured, or above it.
    """
    real = measured.real
    rows = []
    stage_ms = measured.stage_ms
    threads = measured.threads
    contention = measured.contention

    def row(change: str, step: float, remedy: str = "") -> None:
        step = min(max(step, measured.resident), real)
        gain = real / step - 1 if step > 0 else 0.0
        rows.append(WhatIf(change, step, gain, remedy if gain >= _WORTH else ""))

    row("an infinitely fast feed", measured.resident)
    if stage_ms:
        needed = _threads_needed(measured, stage_ms)
        doubled = threads * _CORES
        row(
            f"{_CORES} times the cores and threads",
            measured.changed(stage_ms, doubled, 0.0),
            _more_threads(measured, needed, doubled) if needed > threads else "",
        )
    if measured.cold is not None:
        cache = "memory or a local disk for all files: fastfeed.Cache" if measured.fetches else ""
        row("a cache that holds all files", measured.warm, cache)
        faster = {stage: ms / _FASTER if stage == "read" else ms for stage, ms in stage_ms.items()}
        half = measured.warm + max(0.0, measured.cold - measured.warm) / _FASTER
        step = measured.changed(faster, threads, contention)
        if not stage_ms or measured.make(measured.warm_stage_ms, threads) >= measured.busy:
            step = half  # no slack: a trainer that waits for warm files waits for all of the rest
        row(
            f"storage {_FASTER} times as fast",
            max(measured.warm, min(step, half)),
            "faster storage, or shards" if measured.fetches else "",
        )
    decode = sum(ms for stage, ms in stage_ms.items() if stage in _DECODE)
    if decode >= _SHARE * sum(stage_ms.values()) > 0:
        share = _gpu_share(measured, stage_ms, decode)
        rest = {stage: 0.0 if stage in _DECODE else ms for stage, ms in stage_ms.items()}
        remedy = (
            f'decode="hybrid": the GPU must take {share:.0%} of them'
            if share is not None
            else 'decode="gpu"'
        )
        row(
            (
                "JPEGs decoded by the GPU alone"
                if measured.gpu
                else "JPEGs decoded by a GPU (none is used here)"
            ),
            measured.changed(rest, threads, contention),
            remedy if measured.gpu else "",
        )
    if contention > 0 and stage_ms:
        apart = "" if measured.side_process else "side_process=True, "
        row(
            "dedicated cores for the feed",
            measured.changed(stage_ms, threads, 0.0),
            f"{apart}fewer threads, or more cores",
        )
    return tuple(rows)


def _threads_needed(measured: Measured, stage_ms: Mapping[str, float]) -> int:
    """Threads that make a batch within one step."""
    alone = measured.make(stage_ms, 1)
    if alone / measured.threads > measured.busy:
        alone = max(alone, measured.real * measured.threads)  # as they were measured
    return max(1, math.ceil(alone / measured.busy))


def _more_threads(measured: Measured, needed: int, doubled: int) -> str:
    threads = min(needed, doubled)
    cores = (
        f", on {threads} cores instead of {measured.cores}" if threads > measured.cores > 0 else ""
    )
    rest = f"; {needed} for no wait at all" if needed > doubled else ""
    return f"threads={threads} instead of {measured.threads}{cores}{rest}"


def _gpu_share(measured: Measured, stage_ms: Mapping[str, float], decode: float) -> float | None:
    """Share of images that a GPU must decode so that the rest keeps up; None: all are too few."""
    surplus = sum(stage_ms.values()) - measured.busy * measured.threads / measured.batch / 1e6
    share = surplus / decode
    return min(1.0, max(0.0, share)) if share <= 1 else None
