"""Runs one op at five strengths: its first random numbers are 0.1, then 0.3, and so on.

No op is treated specially: random numbers become pixels as in a feed. Only the size of the
image is chosen here, small enough for a crop to cut much of it away.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.backends.cpu import backend as cpu
from fastfeed.backends.cpu.mixing import mix
from fastfeed.decode.executor import Executor
from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.geometry import Resize
from fastfeed.ops.move_boxes import boxes_after, stages
from fastfeed.ops.program.compile import Program, Work, fuse
from fastfeed.ops.program.layers import Choices
from fastfeed.ops.program.window import ObjectBoxes, Window
from fastfeed.runtime.timeline import Timeline
from fastfeed.spec import Spec

STRENGTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
# random numbers that are the strength itself: often whether and how much. If all were, corners
# would move alike
_LED = 2
_GOLDEN = 0.618  # from one of the others to the next: evenly spread, whatever their number
PAPER = (252, 252, 250)  # around pictures, of one row too if their sizes differ
_ENLARGED = (1.0, 8 / 7, 1.5, 2.0, 4.0)  # how much larger than a crop an image may have to be


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """One picture of the grid."""

    image: np.ndarray  # uint8 (height, width, 3)
    words: str = ""  # what was drawn, as a caption
    box: tuple[float, float, float, float] | None = None  # left, top, right, bottom in pixels


def sample_box(image: np.ndarray) -> tuple[float, float, float, float]:
    """A box around the middle: left, top, right, bottom."""
    height, width = image.shape[:2]
    return 0.3 * width, 0.22 * height, 0.7 * width, 0.8 * height


def scaled(image: np.ndarray, short: float) -> np.ndarray:
    """The image resized to this short side in pixels."""
    height, width = image.shape[:2]
    by = short / min(height, width)
    size = max(1, round(width * by)), max(1, round(height * by))
    return _resized(image, size)


def pictures(ops: Sequence[Any], photos: Sequence[np.ndarray], side: int) -> list[Picture]:
    """Five results of applying these ops, in order, to the first image.

    `side` is the image's short side in pixels for ops that work on images of one size; mixing takes
    the other images in turn. One picture if nothing is random.
    """
    op = ops[0]
    if op.kind == "views":
        return _views(op, photos[0])
    if op.kind == "mix":
        return _mixed(op, photos, side)
    scales = any(op.kind == "geometry" and hasattr(op, "filter") for op in ops)
    if op.kind == "geometry":
        photo = photos[0] if scales else _smallest(op, photos[0], side)
    else:
        photo = scaled(photos[0], side)
    strengths = np.array(STRENGTHS if any(op.draws for op in ops) else STRENGTHS[:1])
    spec = functools.reduce(lambda spec, op: op.out(spec), ops, _spec(photo))
    if not spec.fixed:
        size = scaled(photo, side).shape[:2]
        has_border = any(getattr(op, "border", None) for op in ops)  # one more would be refused
        last = Resize(size) if has_border else Resize(size, fit="corner", fill=PAPER)
        ops = [*ops, last]
    return _run(fuse(ops, _spec(photo)), photo, strengths)


def _smallest(op: Any, photo: np.ndarray, side: int) -> np.ndarray:
    """The image, scaled down as far as the op accepts."""
    want = op.out(Spec((None, None, 3), "uint8", "HWC")).size
    if None in want:
        return scaled(photo, side)
    for factor in _ENLARGED:
        image = scaled(photo, factor * min(want))
        try:
            op.out(_spec(image))
        except SpecError:
            continue
        return image
    raise ConfigError(
        f"{op!r} is larger than the image, {photo.shape[1]}x{photo.shape[0]}; choose a smaller size"
    )


def _run(program: Program, photo: np.ndarray, u: np.ndarray) -> list[Picture]:
    """Run a program as a feed does, with random numbers of these strengths, shape (n,)."""
    for op in program.functions:
        if op.fields or program.ends_in_function:
            raise ConfigError(
                f"{op!r} takes fields of samples, or returns images that are not drawn; leave it"
                " out of --ops"
            )
    n = len(u)
    sizes = np.tile(np.array(photo.shape[:2]), (n, 1))
    boxes = np.tile(np.array(sample_box(photo)), (n, 1))
    objects = ObjectBoxes(np.arange(n), boxes)
    work = program.work(program.draw(lambda slot, draws: _numbers(u, draws)), sizes, objects)
    shape: Any = program.spec.shape
    out = np.empty((n, *shape), np.uint8)
    executor = Executor(None, 1)
    backend = cpu.compile(program, executor, Timeline(), n)
    never = threading.Event()
    samples = executor.borrow([photo] * n, never)
    for bad in backend.render_native(samples, np.zeros(n, bool), work, out, never).values():
        raise ConfigError(f"the ops fail: {bad.reason} {bad.detail}")
    executor.close()
    moves = stages(program, work)
    moved = bool(program.window) or len(moves) > 1
    where: dict[int, Any] = {}
    if moved:
        for box, row in zip(*boxes_after(moves, boxes, np.arange(n)), strict=False):
            where[int(row)] = tuple(map(float, box))
    captions = [_caption(program, work, row, photo) for row in range(n)]
    return [Picture(out[row], captions[row], where.get(row)) for row in range(n)]


def _numbers(u: np.ndarray, draws: int) -> np.ndarray:
    """Random numbers by strength: float64 (n, draws)."""
    return (u[:, None] + _GOLDEN * np.maximum(np.arange(draws) - _LED + 1, 0)) % 1


def _views(op: Any, photo: np.ndarray) -> list[Picture]:
    """Five of the views, evenly chosen."""
    views: list[Picture] = []
    for branch in op.view_groups:
        cut = branch.geometry.out(_spec(photo)).size
        image = photo if hasattr(branch.geometry, "filter") else scaled(photo, 1.5 * min(cut))
        u = (0.5 + _GOLDEN * np.arange(len(views), len(views) + branch.count)) % 1
        views += _run(fuse([branch.geometry, *branch.ops], _spec(image)), image, u)
    chosen = np.linspace(0, len(views) - 1, len(STRENGTHS)).round().astype(int)
    return [
        Picture(views[i].image, f"view {i + 1} of {len(views)}", views[i].box)
        for i in dict.fromkeys(chosen.tolist())
    ]


def _mixed(op: Any, photos: Sequence[np.ndarray], side: int) -> list[Picture]:
    first = scaled(photos[0], side)
    height, width = first.shape[:2]
    group = np.stack([_covering(photos[i % len(photos)], height, width) for i in range(op.group)])
    n = len(STRENGTHS)
    how = op.mix_plan(_numbers(np.array(STRENGTHS), op.draws), (height, width))
    out = np.empty((n, height, width, 3), np.uint8)
    mix(group, np.tile(np.arange(op.group), (n, 1)), how, out)
    return [Picture(out[row], f"{how.shares[row, 0]:.0%} this image") for row in range(n)]


def _covering(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """The middle of the image, resized to cover that size."""
    by = max(height / image.shape[0], width / image.shape[1])
    size = max(width, round(image.shape[1] * by)), max(height, round(image.shape[0] * by))
    image = _resized(image, size)
    top = (image.shape[0] - height) // 2
    left = (image.shape[1] - width) // 2
    return image[top : top + height, left : left + width]


def _resized(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The image in a size (width, height), antialiased."""
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))


def _caption(program: Program, work: Work, row: int, photo: np.ndarray) -> str:
    """Caption of a drawing: its random choices in a few words."""
    parts = []
    if program.window:
        windows = work.windows
        parts.append(_window(windows.boxes[row], windows.flips[row], photo.shape))
    both = zip(program.layers, work.choices, strict=True)
    steps = [
        (layer.ops[int(chosen.choice[row])], chosen)
        for layer, chosen in both
        if chosen.choice[row] >= 0
    ]
    several = any(len(layer.ops) > 1 for layer in program.layers) or len(program.layers) > 1
    for op, chosen in steps:
        values = chosen.values[int(chosen.choice[row])]
        if isinstance(op, Window):
            parts.append(_window(values["box"][row], values["flip"][row], values["limit"][row][2:]))
        elif several and len(steps) > 1:
            parts.append(type(op).__name__)  # no room for more
        else:
            parts.append(f"{type(op).__name__ if several else ''} {_values(values, row)}".strip())
    return ", ".join(word for word in parts if word)


def _window(box: np.ndarray, flip: np.ndarray, shape: Sequence[float]) -> str:
    share = float(box[2] * box[3]) / float(shape[0] * shape[1])
    parts = [f"{share:.0%} of the image"] if share < 0.995 else []
    parts += ["mirrored"] if flip[1] else []
    parts += ["upside down"] if flip[0] else []
    return ", ".join(parts)


_WORDS: dict[str, Callable[[np.ndarray], str]] = {
    "matrix": lambda matrix: _turned(matrix),  # noqa: PLW0108 - defined below
    "box": lambda b: f"{int(b[2])} x {int(b[3])}" if b[2] else "nothing",
    "bits": lambda b: f"{int(b)} bit{'s' if b > 1 else ''}",
    "channels": lambda c: "".join("RGB-"[int(k)] for k in c),  # -1: filled
    "offset": lambda _: "",
    "top": lambda _: "",
    "left": lambda _: "",
}


def _values(values: dict[str, Any], row: int) -> str:
    parts = []
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            describe = _WORDS.get(name)
            if describe is not None:
                parts.append(describe(value[row]))
            elif value.ndim == 1:
                parts.append(f"{name} {value[row]:.3g}")
        elif isinstance(value, (tuple, Choices)):
            continue  # ops within an op
    return ", ".join(word for word in parts if word)


def _turned(matrix: np.ndarray) -> str:
    """Rotation in degrees and scale of a matrix; nothing for a perspective."""
    if abs(matrix[2, :2]).max() > 1e-9:
        return ""
    angle = np.degrees(np.arctan2(matrix[1, 0], matrix[0, 0]))
    scale = 1 / np.sqrt(abs(np.linalg.det(matrix[:2, :2])))
    parts = [f"{abs(angle):.0f}° {'left' if angle > 0 else 'right'}"] if abs(angle) >= 0.5 else []
    parts += [f"{scale:.2f} x"] if abs(scale - 1) > 0.005 else []
    return ", ".join(parts)


def _spec(image: np.ndarray) -> Spec:
    return Spec(image.shape, "uint8", "HWC")
