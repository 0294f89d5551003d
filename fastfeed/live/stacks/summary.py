"""Sampled stacks summed by kind and by function, and the verdict; no figure is exact."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastfeed.live.stacks.frames import Frame, Stack
from fastfeed.live.stacks.kinds import read_stack
from fastfeed.profiler.attribution.classify import INPUT_ACTIVITIES, Activity

_TITLES = {  # samples do not know launches, so these mean more than in a trace
    Activity.WAITING: "other wait",
    Activity.FRAMEWORK: "inside the framework",
    Activity.PYTHON: "other code",
}
_INPUT = {
    Activity.INPUT: "wait for input",
    Activity.INPUT_IN_THREAD: "prepare batches in the main thread",
}
_MIN_SHARE = 0.01  # of all samples; less is left out of the table
_MOST = 12  # functions in the table
STARVED = 0.05  # share of samples, as of time in the profiler and for feeds
_HUNG = 20  # equal samples, at least
_AWAKE = 0.0005  # share of the time; less is waking up to look whether to wait on


@dataclass(frozen=True, slots=True)
class FunctionShare:
    """Samples of one kind in one function."""

    kind: Activity
    function: Frame | None  # called there, at its most frequent line; None: not in Python
    below: Frame  # the line of the user's code that it is called from
    samples: int
    share: float  # of all samples, 0 to 1


@dataclass(frozen=True, slots=True)
class Summary:
    """Samples of one main thread."""

    samples: int
    kinds: dict[Activity, float]  # shares of samples, 0 to 1, the greatest first
    functions: tuple[FunctionShare, ...]  # the greatest first
    is_hung: bool  # all samples are equal, and the thread hardly ran

    @property
    def input_share(self) -> float:
        """Share of samples that wait for input or prepare it, 0 to 1."""
        return sum(self.kinds.get(kind, 0.0) for kind in INPUT_ACTIVITIES)

    @property
    def verdict(self) -> str:
        """The verdict as one sentence."""
        first = self.functions[0]
        waiting = self.kinds.get(Activity.WAITING, 0.0)
        if self.is_hung:
            where = f"{_where(first)} ({title(first.kind)})"
            return (
                f"All {self.samples} samples are the same, without CPU time: {where}. It hangs, or"
                " waits for long."
            )
        if self.input_share >= STARVED:
            first = next(
                function for function in self.functions if function.kind in INPUT_ACTIVITIES
            )
            kinds = [
                text for kind, text in _INPUT.items() if self.kinds.get(kind, 0.0) >= _MIN_SHARE
            ]
            return (
                f"{self.input_share:.0%} of samples {' or '.join(kinds)}; {first.share:.0%} are"
                f" {_where(first)}."
            )
        if waiting >= STARVED:
            first = next(
                function for function in self.functions if function.kind is Activity.WAITING
            )
            return (
                f"{waiting:.0%} of samples wait, for input or something else; {first.share:.0%} are"
                f" {_where(first)}."
            )
        known = f"{self.input_share:.0%} of samples are known to be input"
        return f"{known}; {first.share:.0%} are {_where(first)} ({title(first.kind)})."

    @property
    def advice(self) -> str:
        """The next thing to do, one sentence."""
        first = self.functions[0]
        if self.kinds.get(Activity.INPUT_IN_THREAD, 0.0) >= max(
            STARVED, self.kinds.get(Activity.INPUT, 0.0)
        ):
            return (
                "Move this work into workers or a thread that prepares batches ahead; a"
                " fastfeed.Feed does."
            )
        if self.input_share >= STARVED:
            return (
                "Wrap the loader in ff.watched(loader) to see exact waits; a fastfeed.Feed also"
                " shows a remedy."
            )
        if first.kind is Activity.WAITING:
            return "If this process only starts others, watch the one that trains."
        if first.kind in (Activity.LOAD, Activity.COMPILE):
            return "Watch it again once it trains."
        return "`fastfeed profile` records the GPU as well, and says why it idles."

    def as_dict(self) -> dict[str, Any]:
        """The summary as values for JSON."""
        functions = [
            {
                "kind": key(function.kind),
                "samples": function.samples,
                "share": function.share,
                "function": function.function and _place(function.function),
                "below": _place(function.below),
            }
            for function in self.functions
        ]
        return {
            "samples": self.samples,
            "verdict": self.verdict,
            "advice": self.advice,
            "hung": self.is_hung,
            "input_share": self.input_share,
            "kinds": {key(kind): share for kind, share in self.kinds.items()},
            "functions": functions,
        }


def summarize(stacks: Sequence[Stack], ready: float | None) -> Summary:
    """Sum stacks, of which there is at least one.

    Args:
        stacks: Of the main thread.
        ready: The share of the time that this thread ran or waited for a core, 0 to 1; None:
            unknown.
    """
    samples = sum(stack.samples for stack in stacks)
    counts: Counter[tuple[Activity, str, Frame]] = Counter()
    lines: dict[tuple[Activity, str, Frame], Counter[Frame | None]] = defaultdict(Counter)
    kinds: Counter[Activity] = Counter()
    for stack in stacks:
        is_idle = ready is not None and ready < stack.samples / samples / 2
        reading = read_stack(stack.frames, is_idle)
        name = (
            "" if reading.function is None else f"{reading.function.file} {reading.function.name}"
        )
        at = reading.kind, name, reading.below
        counts[at] += stack.samples
        lines[at][reading.function] += stack.samples
        kinds[reading.kind] += stack.samples
    functions = [
        FunctionShare(at[0], lines[at].most_common(1)[0][0], at[2], count, count / samples)
        for at, count in counts.most_common()
    ]
    first = {kind: function for function in reversed(functions) for kind in [function.kind]}
    kept = [
        function
        for at, function in enumerate(functions)
        if (function is first[function.kind] and kinds[function.kind] >= _MIN_SHARE * samples)
        or (at < _MOST and function.share >= _MIN_SHARE)
    ]
    is_hung = len(stacks) == 1 and samples >= _HUNG and ready is not None and ready < _AWAKE
    return Summary(
        samples,
        {kind: count / samples for kind, count in kinds.most_common()},
        tuple(kept),
        is_hung,
    )


def key(kind: Activity) -> str:
    """The stable name of a kind, as in the profiler's JSON."""
    return "waiting" if kind is Activity.WAITING else kind.cause.key


def title(kind: Activity) -> str:
    """The name of a kind in reports."""
    return _TITLES.get(kind) or kind.cause.title


def _where(function: FunctionShare) -> str:
    return (
        f"in {function.function} below {function.below}"
        if function.function
        else f"in {function.below}"
    )


def _place(frame: Frame) -> dict[str, Any]:
    return {"name": frame.name, "file": frame.file, "line": frame.line, "text": frame.text}
