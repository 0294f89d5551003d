"""The part of a list of ops that is exact on arrays of bytes: cuts, gray, and tables of levels.

Ops that map each byte by itself, conversion included, are run once on all 256 levels and become one
table, so that an exported graph gives the same bits on any device.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.decode.padding import source_index
from fastfeed.errors import ConfigError, SpecError
from fastfeed.feed.transform.batches import make_batch
from fastfeed.feed.transform.config import TransformConfig
from fastfeed.feed.transform.pipeline import Pipeline
from fastfeed.ops import (
    LUT,
    Brightness,
    Gamma,
    Grayscale,
    Invert,
    Posterize,
    Sequential,
    Solarize,
    Standardize,
)
from fastfeed.ops.base import Border, check_size, shade
from fastfeed.ops.program.compile import fuse
from fastfeed.ops.program.program import find_border
from fastfeed.ops.program.window import Step, Windows, fold
from fastfeed.spec import Spec

GRAY = (19_595, 38_470, 7_471)  # of R, G, B; with half of it added, shares of 1 << 16
_BYTEWISE = (Brightness, Gamma, Invert, LUT, Posterize, Solarize)


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Rows and columns of an image; a fill color where it has none."""

    rows: np.ndarray  # int64 (height,): of the image before
    columns: np.ndarray  # int64 (width,)
    inside: np.ndarray  # bool (height, width, 1)
    fill: np.ndarray  # uint8 (channels,)


@dataclass(frozen=True, slots=True)
class Gray:
    """Every channel becomes the pixel's gray."""


@dataclass(frozen=True, slots=True, eq=False)
class LookupTable:
    """The result for every byte of every channel."""

    values: np.ndarray  # (256, channels)

    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """The results, channel by channel, and the place of each channel's first, int32."""
        channels = self.values.shape[1]
        return self.values.T.ravel(), np.arange(channels, dtype=np.int32) * 256


@dataclass(frozen=True, slots=True, eq=False)
class PixelGraph:
    """Steps from uint8 (n, height, width, channels) to images of `spec`."""

    shape: tuple[int, int, int]  # of one image before: height, width, channels
    steps: tuple[Cut | Gray | LookupTable, ...]
    spec: Spec  # of one image after; its layout is applied last

    @classmethod
    def of(cls, ops: Sequence[Any], input_spec: Spec, size: Any = None) -> PixelGraph:
        """The graph of images as geometry at the front of the list leaves them.

        size: (height, width) of whole images; then that geometry is a part of the graph. ConfigError
        or SpecError for ops that are not exact.
        """
        listed = [each for op in ops for each in _flat(op)]
        for op in listed:
            _check(op)
        program = fuse(listed, input_spec)
        if not program.pixels.has_kernel:
            raise SpecError(f"a graph takes uint8 of 1 or 3 channels, got {program.pixels}")
        height, width = program.pixels.size if size is None else check_size("export", size)
        shape = (height or 0, width or 0, program.pixels.channels or 0)
        steps: list[Cut | Gray | LookupTable] = []
        if size is not None and program.window:
            steps += _cut(program.window, shape)
        bytewise: list[Any] = []
        for link in program.chain:
            op = link.steps[0].op
            if isinstance(op, _BYTEWISE):
                bytewise.append(op)
                continue
            steps += _table(bytewise, shape[2])
            bytewise = []
            if isinstance(op, Grayscale):
                steps += [Gray()] * (shape[2] > 1)
            else:
                steps += _cut(link.steps, link.input_spec.shape)
        last = _table(bytewise, shape[2])
        if not program.convert.keeps_bytes:
            table = program.convert.table()
            last = [
                LookupTable(np.take_along_axis(table, last[0].values, axis=0) if last else table)
            ]
        return cls(shape, (*steps, *last), program.spec)


def _flat(op: Any) -> list[Any]:
    if isinstance(op, Sequential):
        return [each for part in op.ops for each in _flat(part)]
    return [] if getattr(op, "kind", None) == "label" else [op]


def _check(op: Any) -> None:
    """Refuse an op that a graph cannot have."""
    if getattr(op, "draws", 0):
        raise ConfigError(
            f"a graph has no random numbers, got {op!r}; export transform.evaluation", field="ops"
        )
    kind = getattr(op, "kind", None)
    exact = kind in ("decode", "geometry", "convert") and not isinstance(op, Standardize)
    if exact or isinstance(op, (*_BYTEWISE, Grayscale)):
        return
    names = ", ".join(sorted(kind.__name__ for kind in (*_BYTEWISE, Grayscale)))
    raise ConfigError(
        f"a graph can have ops that are exact on single pixels ({names}), crops and conversion, got"
        f" {op!r}; leave it out of the exported list and run it by a Transform before",
        field="ops",
    )


def _table(ops: list[Any], channels: int) -> list[LookupTable]:
    """One table for a run of ops on single bytes, by running them on all levels."""
    if not ops:
        return []
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(channels, axis=2)
    spec = Spec(levels.shape, "uint8", "HWC")
    config = TransformConfig(ops, threads=1, input_spec=spec)
    with closing(Pipeline(config)) as pipeline:
        batch = make_batch(config, pipeline, [levels], None, None, 0, None, None, None)
    return [LookupTable(batch.images[0].reshape(256, channels))]


def _cut(steps: Sequence[Step], shape: Sequence[Any]) -> list[Cut]:
    """The rows and columns of a run of geometry; SpecError if it resamples."""
    sizes = np.array([shape[:2]], np.int64)
    windows = fold(steps, [np.empty((1, 0))] * len(steps), sizes)
    box = windows.boxes[0]
    if (box != np.rint(box)).any() or (box[2:] != windows.sizes[0]).any():
        names = ", ".join(repr(step.op) for step in steps)
        raise SpecError(
            f"{names} resamples images of {shape[0]}x{shape[1]}, which a graph would do with other"
            " pixels; leave size out and pass images as this geometry leaves them, by a Transform"
        )
    border = find_border(steps) or Border()
    (rows, has_row), (columns, has_column) = (
        _line(windows, axis, int(shape[axis]), border) for axis in (0, 1)
    )
    inside = (has_row[:, None] & has_column)[:, :, None]
    return [Cut(rows, columns, inside, np.array(shade(border.fill, shape[2]), np.uint8))]


def _line(
    windows: Windows, axis: int, length: int, border: Border
) -> tuple[np.ndarray, np.ndarray]:
    """Indices along one axis, int64, and whether the image has them, bool."""
    first, count = (int(windows.boxes[0, axis + part]) for part in (0, 2))
    low = 0
    high = length
    if windows.limits is not None:
        low = int(windows.limits[0, axis])
        high = low + int(windows.limits[0, axis + 2])
    at = first + np.arange(count)
    if windows.flips[0, axis]:
        at = at[::-1]
    inside = (at >= low) & (at < high)
    if border.mode != "constant":
        at = low + source_index(at - low, high - low, border.mode)
        inside[:] = True
    return np.clip(at, low, high - 1), inside
