"""Turns rates into a state with hysteresis, and a reason."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum

from fastfeed.live.page import IDLE, TRAINING, WAITING
from fastfeed.live.rates import PageReading, Rates
from fastfeed.printable import printable
from fastfeed.profiler.model.causes import SEVERE, STARVED

TIGHT = 0.01  # share of time waiting
# below this share of SM time a GPU that does not wait for input idles for another reason
GPU_IDLE = 0.5
# no batch for the longer of both
STALL_S = 30.0
STALL_STEPS = 20
IDLE_CORES = 0.02  # a process that uses less does nothing
# a trainer that keeps a batch for longer than both is not training
HELD_S = 10.0
HELD_STEPS = 20
PAUSE_S = 3.0  # a pause between two epochs that is shorter says nothing
_STAGES = {
    "read": "read",
    "decode": "decoded",
    "augment": "augmented",
    "place": "copied to the device",
}
WINDOWS = 3  # windows in a row that must agree before the state changes


class State(str, Enum):
    """States of a feed, in order of how much is lost."""

    FED = "FED"
    TIGHT = "TIGHT"
    STARVED = "STARVED"
    SEVERE = "SEVERE"
    STALLED = "STALLED"
    GPU_IDLE = "GPU IDLE BUT NOT INPUT"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Judgment:
    state: State
    reason: str  # a clause

    @property
    def at_once(self) -> bool:
        """True for states that do not depend on shares, and are valid without hysteresis."""
        return self.state in (State.STALLED, State.UNKNOWN)


def judge(
    reading: PageReading,
    window: Rates | None,
    *,
    alive: bool | None = True,
    stopped: bool = False,
    sm: float | None = None,
    cores: float | None = None,
    wall_s: float | None = None,
) -> Judgment:
    """The state by one window, without looking back.

    Args:
        reading: The newest one.
        window: Rates of the last ten seconds; None if this is the first reading.
        alive: Whether the process lives; None: not known.
        stopped: It was stopped by a signal or a debugger.
        sm: Share of time in which the GPU's multiprocessors worked, an estimate by NVML; None: not
            known.
        cores: That the process and its helper keep busy; None: not known.
        wall_s: Time of day of this reading, seconds since 1970; None: times of day are left out.
    """
    counters = reading.page.counters
    since_s = reading.since / 1e9
    step_s = reading.step_ns / 1e9
    if alive is False:
        ended_s = max(0, reading.at_ns - counters["updated_ns"]) / 1e9
        last = f"its last sign was {ended_s:.0f} s ago{_clock(wall_s, ended_s)}"
        return Judgment(
            State.STALLED,
            f"its process has ended without closing the feed, as after a kill: {last}",
        )
    if stopped:
        pid = reading.page.identity.get("pid")
        why = f"its process is stopped, by a signal or a debugger: kill -CONT {pid} continues it"
        return Judgment(
            State.STALLED, f"{why}; no batch for {since_s:.0f} s{_clock(wall_s, since_s)}"
        )
    paused = counters["phase"] == IDLE and not (window and window.batches and since_s < PAUSE_S)
    if counters["phase"] == IDLE and (paused or counters["failed"]):
        why = (
            "an error has ended the iteration"
            if counters["failed"]
            else "between epochs, or training has ended"
        )
        return Judgment(State.UNKNOWN, f"not iterated for {since_s:.0f} s: {why}")
    if counters["phase"] == WAITING and since_s > max(STALL_S, STALL_STEPS * step_s):
        return Judgment(
            State.STALLED,
            f"no batch for {since_s:.0f} s{_clock(wall_s, since_s)}{_doing(reading, window)}",
        )
    if not counters["batches"]:
        return Judgment(State.UNKNOWN, f"the first batch is being made, for {since_s:.0f} s")
    if (
        counters["phase"] == TRAINING
        and since_s > max(STALL_S, STALL_STEPS * step_s)
        and cores is not None
        and cores < IDLE_CORES
        and not sm
    ):
        return Judgment(
            State.STALLED,
            f"the trainer has kept its batch for {since_s:.0f} s{_clock(wall_s, since_s)} and does"
            " nothing, on the CPU or a GPU: it hangs, or waits for other ranks",
        )
    if counters["phase"] == TRAINING and since_s > max(HELD_S, HELD_STEPS * step_s):
        return Judgment(
            State.UNKNOWN,
            f"the trainer has kept its batch for {since_s:.0f} s: it compiles, validates, saves, or"
            " the loop was left",
        )
    if reading.page.identity.get("steps_only"):
        return Judgment(State.UNKNOWN, _not_watched(window, sm))
    if (
        window is None
        or window.wait is None
        or (not window.batches and counters["phase"] == TRAINING)
    ):
        return Judgment(State.UNKNOWN, "no batch was taken in the last seconds")
    return _by_share(reading, window, window.wait, sm)


def _not_watched(window: Rates | None, sm: float | None) -> str:
    step = window.framework_step_ms if window is not None else None
    text = "its data is not watched, so how long it waits is not known"
    text += f"; a step takes {step:.0f} ms" if step is not None else ""
    if sm is not None:
        text += f"; its GPU works {sm:.0%} of the time, an estimate"
    return f"{text}; wrap it in ff.watched(data) to find out"


def _clock(wall_s: float | None, ago_s: float) -> str:
    """Time of day as the end of a sentence: `, since 14:03:22`."""
    return (
        "" if wall_s is None else time.strftime(", since %H:%M:%S", time.localtime(wall_s - ago_s))
    )


def _doing(reading: PageReading, window: Rates | None) -> str:
    """Stage and place of the awaited batch, as the end of a sentence."""
    (stage, place) = reading.page.doing
    counters = reading.page.counters
    if not stage:
        helper = counters["helper_pid"]
        return f"; the helper process {helper} makes it" if helper else ""
    repeated = (
        f", {window.retries} reads were repeated" if window is not None and window.retries else ""
    )
    done = printable(f"{_STAGES.get(stage, stage)}{f' from {place}' if place else ''}")
    return f"; it is being {done}, for {reading.doing_ns / 1e9:.0f} s{repeated}"


def _by_share(reading: PageReading, window: Rates, wait: float, sm: float | None) -> Judgment:
    if wait >= STARVED:
        return Judgment(
            State.SEVERE if wait >= SEVERE else State.STARVED,
            f"waits {wait:.0%} of the time for batches",
        )
    if wait >= TIGHT:
        return Judgment(State.TIGHT, f"waits {wait:.1%} of the time for batches")
    if sm is not None and sm < GPU_IDLE:
        return Judgment(
            State.GPU_IDLE,
            f"the feed waits for the trainer, whose GPU works {sm:.0%} of the time: `fastfeed"
            " profile`",
        )
    keeps_ahead = (reading.page.identity.get("prefetch") or 0) > 0
    if keeps_ahead and window.ready is not None and window.ready < 1:
        return Judgment(State.TIGHT, "does not wait, but no batch is ready ahead of time")
    return Judgment(State.FED, "a batch is ready whenever the trainer requests one")


@dataclass(slots=True)
class Hysteresis:
    """Changes the state when WINDOWS judgments in a row agree on another one."""

    current: Judgment | None = None
    _other: State | None = field(default=None)
    _times: int = 0

    def __call__(self, judgment: Judgment) -> Judgment:
        """The state to show, with the newest reason if the state is unchanged."""
        current = self.current
        if (
            current is None
            or judgment.at_once
            or current.at_once
            or judgment.state is current.state
        ):
            self.current = judgment
            self._other = None
            self._times = 0
            return judgment
        self._times = self._times + 1 if judgment.state is self._other else 1
        self._other = judgment.state
        if self._times >= WINDOWS:
            self.current = judgment
            self._other = None
            self._times = 0
        assert self.current is not None
        return self.current
