"""Kinds of sampled stacks of a training thread, by the profiler's signs for Python frames.

A trace also says between which launches a function ran. Samples do not, so the source text of a
line is evidence instead: a frame below a `for` line is that loop's iterator, and `loss.item()`
waits for the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fastfeed.live.stacks.frames import Frame
from fastfeed.profiler.attribution.classify import Activity, frame_activity
from fastfeed.profiler.attribution.host_code.names import Sign, parse, signs

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
class Reading:
    """One stack with its kind."""

    kind: Activity
    # called from there: one that blocks, or the user's own; None: it is not in Python
    function: Frame | None
    below: Frame  # the training loop, else the innermost function of the user's


def read_stack(frames: Sequence[Frame], is_idle: bool = False) -> Reading:
    """The kind of a stack and the functions that a report names.

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
    return Reading(kind, function, frames[below])


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
    own: int,
    blocked: int | None,
    loop: int | None,
    is_idle: bool,
) -> Activity:
    names = [frame.recorded for frame in frames]
    anywhere = {sign: bool(says[:, sign].any()) for sign in Sign}
    inside = {sign: bool(says[own:, sign].any()) for sign in Sign}
    text = frames[-1].text
    prepares = bool(says[own, Sign.PREPARES])
    if any("<frozen importlib" in name for name in names):
        return Activity.LOAD
    if Activity.COMPILE in activities:
        return Activity.COMPILE
    if loop is not None:
        is_wait = blocked is not None or is_idle or _waits_natively(frames, says, activities, own)
        return Activity.INPUT if is_wait else Activity.INPUT_IN_THREAD
    if blocked is not None:
        is_queue = _QUEUE.search(names[blocked]) or (
            blocked == len(frames) - 1 and _QUEUE_CALL.search(text)
        )
        return Activity.INPUT if is_queue or prepares else Activity.WAITING
    inner = activities[own:]
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
    frames: Sequence[Frame], says: np.ndarray, activities: Sequence[Activity], own: int
) -> bool:
    """True if the thread is in a library's iterator, such as that of tf.data or DALI.

    What runs there is not Python.
    """
    if says[own:, Sign.DECODES].any():
        return False
    names = [frame.recorded for frame in frames]
    iterators = (
        at
        for at in range(own + 1, len(frames))
        if activities[at] is Activity.INPUT or _NEXT.search(names[at])
    )
    return max(iterators, default=-1) >= len(frames) - 2
