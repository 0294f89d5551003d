"""Step times after a change, from the proof's parts and the threads' time per image.

A feed of n threads that need m ms of thread time per image makes a batch of b in b m / n ms at
best. Where that is longer than the step with a busy feed, the step is as long as the threads take,
and changes as their time does. Where it is not, the wait has another reason, and nothing that
spares the threads time changes it. Twice the cores, or separate cores, leave no contention. No
estimate is below the part that was measured, or above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_FASTER = 2  # how much faster the storage of "faster storage" is
_CORES = 2  # how many times as many
_DECODE = ("decode",)  # what a GPU can take over
_SHARE = 0.05  # of the threads' time, from which on decoding is worth a line
_WORTH = 0.01  # of the step; smaller gains are not proposed as a remedy


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
        """Values for JSON."""
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
        before, after = self.make(self.stage_ms, self.threads), self.make(stage_ms, threads)
        if before > self.busy:
            return min(self.real, max(least, self.real * after / before))
        return min(self.real, max(least, after) + max(0.0, self.real - self.busy))


def what_if(measured: Measured) -> tuple[WhatIf, ...]:
    """All changes that can be estimated, each by itself."""
    real, rows = measured.real, []
    stage_ms, threads, contention = measured.stage_ms, measured.threads, measured.contention

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
