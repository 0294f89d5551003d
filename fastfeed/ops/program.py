"""A checked list of ops, in the form that backends run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastfeed.ops.base import Border
from fastfeed.ops.convert import Convert
from fastfeed.ops.decode import Decode
from fastfeed.ops.fold import Step, Window, Windows, fold
from fastfeed.ops.layers import Layer, Taken, layers, taken
from fastfeed.spec import Spec

__all__ = ["Link", "Program", "Work"]


@dataclass(frozen=True, slots=True)
class Link:
    """One part of the chain behind decoding: an op that changes pixels, or a run of geometry."""

    steps: tuple[Step, ...]
    given: Spec
    spec: Spec  # after it
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, steps: list[Step], given: Spec) -> Link:
        """One op, or a run of geometry."""
        spec = steps[-1].spec.as_bytes()
        if steps[0].op.kind != "geometry":
            return cls(tuple(steps), given, spec, layers(steps[0].op))
        filters = [s.op.filter for s in steps if hasattr(s.op, "filter")]
        borders = [s.op.border for s in steps if getattr(s.op, "border", None) is not None]
        height, width = spec.size
        window = Window((height or 0, width or 0), [*filters, "bilinear"][0], [*borders, None][0])
        return cls(tuple(steps), given, spec, (Layer((window,)),))

    def take(self, draws: list[np.ndarray], n: int) -> list[Taken]:
        """What happens to n samples, per layer; draws: one array per step."""
        sizes = np.broadcast_to(np.array(self.given.size, np.int64), (n, 2))
        if self.steps[0].op.kind != "geometry":
            return taken(self.steps[0].op, draws[0], sizes)
        windows = fold(self.steps, draws, sizes)
        limit = np.concatenate([np.zeros((n, 2)), sizes], axis=1) if windows.limits is None else windows.limits
        values = {"box": windows.boxes, "size": windows.sizes, "flip": windows.flips, "limit": limit}
        return [Taken(np.zeros(n, np.int64), (values,))]


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What is to be done to n samples: nothing of it is random any more."""

    windows: Windows
    taken: tuple[Taken, ...] = ()  # one per layer of the program's chain

    def __getitem__(self, rows: Any) -> Work:
        return Work(self.windows[rows], tuple(one[rows] for one in self.taken))


@dataclass(frozen=True, slots=True)
class Program:
    """A checked list of ops and its fused form."""

    given: Spec  # what the source yields
    steps: tuple[Step, ...]  # the user's list, with the implied Decode
    decode: Decode | None  # None for sources of arrays
    window: tuple[Step, ...]  # geometry, folded into one window per sample
    filter: str  # resampling filter of that window
    border: Border | None  # what is seen beyond the image, where a window may reach there
    pixels: Spec  # uint8 HWC, of one size: what decoding gives
    chain: tuple[Link, ...]  # what happens to these pixels, in order
    done: Spec  # uint8 HWC, of one size: after the chain
    convert: Convert
    spec: Spec  # of one sample in the batch

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Of the whole chain."""
        return tuple(layer for link in self.chain for layer in link.layers)

    def raw(self) -> Program:
        """The same without conversion: bytes, for a device that converts them."""
        return replace(self, convert=Convert.of([], self.done.channels or 0), spec=self.done)

    def draw(self, uniform: Callable[[int, int], np.ndarray]) -> list[np.ndarray]:
        """All random numbers of n samples: `uniform(slot, n)`, shape (n, draws), per step of window and chain."""
        steps = [*self.window, *(step for link in self.chain for step in link.steps)]
        return [uniform(step.slot, step.op.draws) if step.op.draws else np.empty((0, 0)) for step in steps]

    def windows(self, draws: list[np.ndarray], sizes: np.ndarray) -> Windows:
        """Fold the geometry: sizes are the displayed (height, width) of the samples, int64 (n, 2)."""
        return fold(self.window, draws[: len(self.window)], sizes)

    def work(self, draws: list[np.ndarray], sizes: np.ndarray) -> Work:
        """All parameters of n samples, from what `draw` gave and their sizes."""
        found: list[Taken] = []
        at = len(self.window)
        for link in self.chain:
            found += link.take(draws[at : at + len(link.steps)], len(sizes))
            at += len(link.steps)
        return Work(self.windows(draws, sizes), tuple(found))
