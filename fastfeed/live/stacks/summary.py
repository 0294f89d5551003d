"""Sampled stacks summed by kind and by function, and the verdict; no figure is exact."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fastfeed.live.stacks.frames import Frame, Stack
from fastfeed.profiler.attribution.classify import INPUT_ACTIVITIES, Activity, frame_activity
from fastfeed.profiler.attribution.host_code.names import Sign, parse, signs

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
class StackSummary:
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
            where = f"{_describe_function(first)} ({title(first.kind)})"
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
                f" {_describe_function(first)}."
            )
        if waiting >= STARVED:
            first = next(
                function for function in self.functions if function.kind is Activity.WAITING
            )
            return (
                f"{waiting:.0%} of samples wait, for input or something else; {first.share:.0%} are"
                f" {_describe_function(first)}."
            )
        known = f"{self.input_share:.0%} of samples are known to be input"
        return f"{known}; {first.share:.0%} are {_describe_function(first)} ({title(first.kind)})."

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


def summarize(stacks: Sequence[Stack], ready: float | None) -> StackSummary:
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
    return StackSummary(
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


def _describe_function(function: FunctionShare) -> str:
    return (
        f"in {function.function} below {function.below}"
        if function.function
        else f"in {function.below}"
    )


def _place(frame: Frame) -> dict[str, Any]:
    return {"name": frame.name, "file": frame.file, "line": frame.line, "text": frame.text}


_LOOP = re.compile(r"(async )?for\b.*\bin\b.*[:(,\[]\s*(#.*)?$")  # without its body


_BLOCKING_CALL = re.compile(r"\.(get|recv\w*|result|acquire|wait|join|poll|select)\(|\bsleep\(")


_QUEUE = re.compile(r"queues?\.py\(\d+\): get(_nowait)?$")


_QUEUE_CALL = re.compile(r"\.(get|recv\w*)\(")


_SYNC_CALL = re.compile(
    r"\.(item|tolist|cpu|numpy)\(\)|\bsynchronize\(|block_until_ready|device_get\(|\.to\(['\"]cpu|\bfloat\(\w*loss"
)


_SYNC = re.compile(r"\): (synchronize|block_until_ready)$")


_NEXT = re.compile(r"\): (__a?next__|a?next)$")


_COMPUTE = re.compile(  # functions of frameworks that launch work
    r"torch/(nn/(modules|parallel)/|nn/functional|autograd/|optim/|_tensor\.py|_ops\.py|_dynamo/eval_frame|amp/)"
    r"|jax/_src/(pjit|api|dispatch|core|interpreters/)|tensorflow/python/(eager|ops|framework)/"
    r"|keras/src/(layers|ops|backend/(?!\w+/trainer)|optimizers)/"
)


@dataclass(frozen=True, slots=True)
class ClassifiedStack:
    """One stack with its kind."""

    kind: Activity
    # called from there: one that blocks, or the user's own; None: it is not in Python
    function: Frame | None
    below: Frame  # the training loop, else the innermost function of the user's


def read_stack(frames: Sequence[Frame], is_idle: bool = False) -> ClassifiedStack:
    """The kind of a stack and the functions that a report names.

    A trace also says between which launches a function ran. Samples do not, so the source text of a
    line is evidence instead: a frame below a `for` line is that loop's iterator, and `loss.item()`
    waits for the GPU.

    Args:
        frames: The outermost first, at least one.
        is_idle: The thread certainly computed nothing in most samples of this stack.
    """
    names = tuple(frame.recorded for frame in frames)
    says = _signs(names)
    activities = [frame_activity(name) for name in names]
    users = [at for at, name in enumerate(names) if parse(name).is_users]
    own = users[-1] if users else 0  # the innermost function of the user's
    blocked = _blocked(frames, says, users)
    loop = _loop(frames, says, activities, is_idle)
    kind = _kind(frames, says, activities, own, blocked, loop, is_idle)
    below = own if loop is None else _caller(frames, users, loop)
    inside = max(own, below + 1) if blocked is None or blocked <= below else blocked
    function = frames[inside] if inside < len(frames) else None
    return ClassifiedStack(kind, function, frames[below])


@lru_cache(maxsize=4096)
def _signs(names: tuple[str, ...]) -> np.ndarray:
    return signs(names)


def _blocked(frames: Sequence[Frame], says: np.ndarray, users: Sequence[int]) -> int | None:
    """The frame that waits for another thread or process, with no function of the user's inside."""
    first = users[-1] + 1 if users else 0
    inner = np.flatnonzero(says[first:, Sign.BLOCKS])
    if len(inner):
        return first + int(inner[0])
    return len(frames) - 1 if _BLOCKING_CALL.search(frames[-1].text) else None


def _loop(
    frames: Sequence[Frame], says: np.ndarray, activities: Sequence[Activity], is_idle: bool
) -> int | None:
    """Index of the outermost frame that is an iterator or a user's loop in one, outside of models.

    A loop's head without a function inside is a loop that computes, unless the thread is idle
    there.
    """
    computes = (
        any(_COMPUTE.search(frame.recorded) for frame in frames) and not says[:, Sign.DECODES].any()
    )
    in_iterator = len(frames) if is_idle else len(frames) - 1
    for at, frame in enumerate(frames):
        if activities[at] is Activity.INPUT:  # by its name
            return at
        is_head = (
            at < in_iterator
            and _LOOP.match(frame.text) is not None
            and parse(frame.recorded).is_users
        )
        if (is_head or says[at, Sign.ITERATES]) and not computes:
            return at
    return None


def _caller(frames: Sequence[Frame], users: Sequence[int], loop: int) -> int:
    """The user's function whose loop it is: at the loop's head, or around the iterator."""
    if _LOOP.match(frames[loop].text):
        return loop
    return max((at for at in users if at < loop), default=loop)


def _kind(
    frames: Sequence[Frame],
    says: np.ndarray,
    activities: Sequence[Activity],
    innermost_own: int,
    blocked: int | None,
    loop: int | None,
    is_idle: bool,
) -> Activity:
    names = [frame.recorded for frame in frames]
    anywhere = {sign: bool(says[:, sign].any()) for sign in Sign}
    inside = {sign: bool(says[innermost_own:, sign].any()) for sign in Sign}
    text = frames[-1].text
    prepares = bool(says[innermost_own, Sign.PREPARES])
    if any("<frozen importlib" in name for name in names):
        return Activity.LOAD
    if Activity.COMPILE in activities:
        return Activity.COMPILE
    if loop is not None:
        is_wait = (
            blocked is not None
            or is_idle
            or _waits_natively(frames, says, activities, innermost_own)
        )
        return Activity.INPUT if is_wait else Activity.INPUT_IN_THREAD
    if blocked is not None:
        is_queue = _QUEUE.search(names[blocked]) or (
            blocked == len(frames) - 1 and _QUEUE_CALL.search(text)
        )
        return Activity.INPUT if is_queue or prepares else Activity.WAITING
    inner = activities[innermost_own:]
    computes = any(_COMPUTE.search(name) for name in names)
    kinds = (
        (anywhere[Sign.DECODES], Activity.INPUT_IN_THREAD),
        (Activity.HOST_COMM in activities, Activity.HOST_COMM),
        (anywhere[Sign.SIMULATES], Activity.ENVIRONMENT),
        (inside[Sign.RECORDS] or Activity.CHECKPOINT in inner, Activity.CHECKPOINT),
        (
            _SYNC.search(names[-1]) or Activity.SYNC in inner or _SYNC_CALL.search(text),
            Activity.SYNC,
        ),
        (computes, Activity.FRAMEWORK),
        (prepares, Activity.INPUT_IN_THREAD),
        (inside[Sign.TRANSFERS], Activity.IO),
        ("gc.collect(" in text, Activity.GC),
    )
    return next(
        (kind for holds, kind in kinds if holds), Activity.WAITING if is_idle else Activity.PYTHON
    )


def _waits_natively(
    frames: Sequence[Frame], says: np.ndarray, activities: Sequence[Activity], innermost_own: int
) -> bool:
    """True if the thread is in a library's iterator, such as that of tf.data or DALI.

    What runs there is not Python.
    """
    if says[innermost_own:, Sign.DECODES].any():
        return False
    names = [frame.recorded for frame in frames]
    iterators = (
        at
        for at in range(innermost_own + 1, len(frames))
        if activities[at] is Activity.INPUT or _NEXT.search(names[at])
    )
    return max(iterators, default=-1) >= len(frames) - 2
