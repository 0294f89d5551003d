"""Loaders whose names say nothing: queues with a thread, work in the training thread, nested
libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import RangeKind
from helpers.profiler.simulator.events import MS, US, Run
from helpers.profiler.simulator.loader import Loader
from helpers.profiler.simulator.scenarios import item, one_gpu
from helpers.profiler.simulator.training import Trainer

_LOCK = "<built-in method acquire of _thread.lock object at 0x7f04c93a23c0>"
_QUEUE = ("queue.py(154): get", "threading.py(295): wait", _LOCK)
_PIPE = (
    "multiprocessing/connection.py(379): _recv",
    "<built-in method recv_bytes of zork.Pipe object at 0x7f04>",
)
# frames around a batch, outermost first, and whether the training thread makes it there; {} is a
# made-up word
KINDS: dict[str, tuple[tuple[str, ...], bool]] = {
    "queue and thread": (("{}.py(64): {}", *_QUEUE), False),
    "queue in the loop": (_QUEUE, False),
    "executor": (
        ("{}/{}.py(31): {}", "concurrent/futures/_base.py(428): result", "threading.py(295): wait"),
        False,
    ),
    "iterator of a library": (("{}/core.py(18): __next__", "{}/impl.py(9): {}", *_QUEUE), False),
    "nested libraries": (
        (
            "{}/outer.py(75): __next__",
            "<built-in function next>",
            "{}/inner.py(48): {}",
            "<built-in function next>",
            *_PIPE,
        ),
        False,
    ),
    "generator": (("{}.py(12): {}",), True),
    "work in an iterator": (("{}.py(20): __next__", "{}/ops.py(33): {}"), True),
    "work in the loop": (("{}.py(5): {}", "PIL/Image.py(2332): resize"), True),
    "no function": ((), True),
}
_SYLLABLES = ("zo", "rk", "bla", "mi", "tu", "xe", "po", "qua")


@dataclass(slots=True)
class UnknownLoader(Loader):
    """`frames` are around each batch, outermost first; `inline`: the training thread makes it
    itself.
    """

    frames: Sequence[str] = ()
    inline: bool = False

    def next(self, batch: int) -> None:
        host = self.host
        with ExitStack() as stack:
            stack.enter_context(host.doing(Cause.INPUT_IN_THREAD if self.inline else Cause.INPUT))
            for frame in self.frames:
                stack.enter_context(host.inside(frame, RangeKind.PYTHON))
            if self.inline:
                host.spend(self.cost(batch))
            else:
                self._make(batch)
                host.spend(12 * US)
                host.until(max(host.now, self.ready[batch]))
            self.taken.append(host.now)


def run_of_unknown(seed: int, *, has_frames: bool = True) -> tuple[str, Run]:
    """A random run with a loader of a random kind and speed, and its kind."""
    chance = np.random.default_rng([seed, 4])
    kind = str(chance.choice(list(KINDS)))
    patterns, inline = KINDS[kind]
    frames = [
        pattern.format(*("".join(chance.choice(_SYLLABLES, 3)) for _ in range(4)))
        for pattern in patterns
    ]
    cost = int(chance.integers(1, 25)) * MS

    def change(trainer: Trainer) -> None:
        workers = int(chance.integers(1, 4))
        trainer.loader = UnknownLoader(
            trainer.host, lambda batch: cost, workers=workers, frames=frames, inline=inline
        )
        if chance.random() < 0.5:
            trainer.after = lambda step: item(trainer.host)
        if not has_frames:
            trainer.host.is_python_recorded = False

    return kind, one_gpu(seed, steps=int(chance.integers(8, 24)), change=change)
