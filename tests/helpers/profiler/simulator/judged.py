"""Scenarios as the analysis sees them: written, read back, analyzed; each once per session."""

from __future__ import annotations

import functools
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.readers import read
from helpers.profiler.simulator.cases import ALL
from helpers.profiler.simulator.confusion import Confusion, confusion
from helpers.profiler.simulator.events import Idle, Run
from helpers.profiler.simulator.truth import known_time
from helpers.profiler.simulator.write import write


@dataclass(frozen=True, slots=True)
class Judged:
    run: Run
    traces: tuple[Trace, ...]
    result: Result

    def devices(self) -> Iterator[tuple[int, DeviceResult, Sequence[Idle]]]:
        """Each GPU of the run with its result and the truth, by when the trace of that GPU has its
        first op.
        """
        for gpu, device in enumerate(self.result.devices):
            yield gpu, device, [one for one in self.run.idle if one.gpu == gpu]

    def window(self, gpu: int) -> int:
        """Nanoseconds of the time in which all is known of this GPU."""
        begin, end = known_time(gpu, self.run.ops, self.run.ranges)
        return end - begin

    def confusion(self, gpu: int, device: DeviceResult, truth: Sequence[Idle]) -> Confusion:
        shift = device.first - known_time(gpu, self.run.ops, self.run.ranges)[0]
        return confusion(truth, device.slices, shift)

    def true_causes(self, gpu: int) -> Counter[Cause]:
        """Nanoseconds per cause."""
        causes: Counter[Cause] = Counter()
        for one in self.run.idle:
            if one.gpu == gpu:
                causes[one.cause] += one.end - one.start
        return causes


@functools.cache
def run_of(scenario: str) -> Run:
    return ALL[scenario].make(0)


@functools.cache
def judged(scenario: str, dialect: str) -> Judged:
    traces = traces_of(scenario, dialect)
    return Judged(run_of(scenario), traces, analyze(traces))


@functools.cache
def traces_of(scenario: str, dialect: str) -> tuple[Trace, ...]:
    return read_back(run_of(scenario), dialect, together=scenario == "two_processes")


def read_back(run: Run, dialect: str, *, together: bool = False) -> tuple[Trace, ...]:
    """The run as a reader gives it, one trace per process or `together` one of all."""
    with tempfile.TemporaryDirectory() as folder:
        return tuple(read(path) for path in write(run, dialect, Path(folder), together=together))


def unmarked(run: Run) -> Run:
    """The same run with a loader without annotations and without Python frames: nothing names the
    wait.
    """
    return replace(run, ranges=tuple(one for one in run.ranges if "__next__" not in one.name))
