"""From the user's list to what runs: check every spec, fold geometry into one window, move conversion last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import Op
from fastfeed.ops.convert import Convert, Normalize, ToFloat, ToLayout
from fastfeed.ops.decode import Decode
from fastfeed.ops.geometry import CenterCrop, RandomFlip, RandomResizedCrop, Resize
from fastfeed.spec import Spec

__all__ = ["Program", "Step", "Windows", "fuse"]

_GEOMETRY = (Resize, CenterCrop, RandomResizedCrop, RandomFlip)
_CONVERT = (ToFloat, Normalize, ToLayout)


@dataclass(frozen=True, slots=True)
class Step:
    """One op of the user's list, and where its randomness comes from."""

    op: Any
    spec: Spec  # after it
    slot: int  # counts the ops that draw, so adding one that does not leaves all numbers as they were
    implied: bool = False  # not written by the user


@dataclass(frozen=True, slots=True)
class Windows:
    """What to cut from each sample, and how to lay it down: n samples."""

    boxes: np.ndarray  # float64 (n, 4): top, left, height, width, in pixels of the displayed image
    flips: np.ndarray  # bool (n, 2): top to bottom, left to right
    sizes: np.ndarray  # int64 (n, 2): height, width of the result

    def __getitem__(self, rows: Any) -> Windows:
        return Windows(self.boxes[rows], self.flips[rows], self.sizes[rows])


@dataclass(frozen=True, slots=True)
class Program:
    """A checked list of ops and its fused form."""

    given: Spec  # what the source yields
    steps: tuple[Step, ...]  # the user's list, with the implied Decode
    decode: Decode | None  # None for sources of arrays
    window: tuple[Step, ...]  # geometry, folded into one window per sample
    filter: str  # resampling filter of that window
    pixels: Spec  # uint8 HWC, of one size: the batch buffer between decoding and conversion
    convert: Convert
    spec: Spec  # of one sample in the batch

    def raw(self) -> Program:
        """The same without conversion: bytes, for a device that converts them."""
        return replace(self, convert=Convert.of([], self.pixels.channels or 0), spec=self.pixels)

    def draw(self, uniform: Callable[[int, int], np.ndarray]) -> list[np.ndarray]:
        """All random numbers of n samples: per geometry step `uniform(slot, n)`, shape (n, draws)."""
        return [uniform(step.slot, step.op.draws) if step.op.draws else np.empty((0, 0)) for step in self.window]

    def windows(self, draws: list[np.ndarray], sizes: np.ndarray) -> Windows:
        """Fold the geometry: sizes are the displayed (height, width) of the samples, int64 (n, 2)."""
        n = len(sizes)
        boxes = np.concatenate([np.zeros((n, 2)), sizes], axis=1).astype(np.float64)
        flips, now = np.zeros((n, 2), bool), sizes.astype(np.int64)
        for step, u in zip(self.window, draws, strict=True):
            move = step.op.params(u, now)
            corner, kept = move["box"][:, :2], move["box"][:, 2:]
            corner = np.where(flips, now - corner - kept, corner)  # back to the unmirrored image
            unit = boxes[:, 2:] / now  # source pixels per pixel of the image as it is now
            boxes = np.concatenate([boxes[:, :2] + corner * unit, kept * unit], axis=1)
            flips, now = flips ^ move["flip"], move["size"]
        return Windows(boxes, flips, now)


def fuse(ops: Sequence[Op], given: Spec, fixed: bool = True) -> Program:
    """Check and fuse a list of ops for a source that yields `given`; `fixed`: all results must be of one size."""
    if not isinstance(ops, Sequence) or isinstance(ops, str):
        raise ConfigError(f"ops must be a list of ops such as [Resize(224)], got {ops!r}")
    steps = _checked(list(ops), given)
    last = steps[-1].spec if steps else given
    if fixed and not last.fixed:
        raise SpecError(
            f"a batch needs samples of one size, got {last} at the end of the list; "
            "add Resize((height, width)), CenterCrop(size) or RandomResizedCrop(size)"
        )
    window = tuple(s for s in steps if isinstance(s.op, _GEOMETRY))
    convert = Convert.of([s.op for s in steps if isinstance(s.op, _CONVERT)], last.channels or 0)
    height, width = last.size
    filters = [s.op.filter for s in window if hasattr(s.op, "filter")]
    return Program(
        given=given,
        steps=tuple(steps),
        decode=next((s.op for s in steps if isinstance(s.op, Decode)), None),
        window=window,
        filter=filters[-1] if filters else "bilinear",
        pixels=Spec((height, width, last.channels), "uint8", "HWC"),
        convert=convert,
        spec=last,
    )


def _checked(ops: list[Any], given: Spec) -> list[Step]:
    for i, op in enumerate(ops):
        if not isinstance(op, (Decode, *_GEOMETRY, *_CONVERT)):
            what = f"the class {op.__name__}; write {op.__name__}(...)" if isinstance(op, type) else repr(op)
            raise ConfigError(f"ops[{i}] must be an op such as Resize(224), got {what}")
    implied = given.encoded and not any(isinstance(op, Decode) for op in ops)
    steps, spec, slot = [], given, 0
    for op in [Decode(), *ops] if implied else ops:
        spec = op.out(spec)
        steps.append(Step(op, spec, slot, implied and not steps))
        slot += bool(op.draws)
    return steps
