"""The op protocols: an op is a frozen value that describes a step, independent of any backend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.spec import Spec

__all__ = [
    "FILTERS",
    "MEANING",
    "Border",
    "ByteOp",
    "Composite",
    "FrozenOp",
    "Geometry",
    "Kind",
    "Mixing",
    "Op",
    "Simple",
    "Size",
    "SizeChoice",
    "Splitting",
    "check_fill",
    "check_filter",
    "check_flag",
    "check_integer",
    "check_number",
    "check_op_size",
    "check_p",
    "check_range",
    "check_size",
    "is_number",
    "need_bytes",
    "need_movable",
    "need_movable_by",
    "need_pixels",
    "op_filters",
    "shade",
]

MEANING = 2  # of the ops: a higher number in every release in which an op gives other pixels
# all but the last two are antialiased: the support grows with the reduction
FILTERS = (
    "bilinear",
    "bicubic",
    "lanczos",
    "box",
    "nearest",
    "linear",
)


LARGEST_SIDE = 65_535  # pixels
Size = int | tuple[int, int]  # the side of a square, or (height, width), pixels

Kind = Literal["decode", "geometry", "change", "convert", "label", "mix", "views", "map"]


class Op(Protocol):
    """One entry of a user's list.

    Its kind decides where in the list it may be and which part of the feed runs it.

    decode    encoded bytes to pixels
    geometry  moves pixels along the axes: folded into one window per sample, see `Geometry`
    change    uint8 HWC pixels of one size to others: run one after another, see `program/layers.py`
    convert   changes dtype, range or layout: folded into one pass at the end
    label     changes labels
    mix       combines several finished samples
    views     makes several images out of one
    map       computes fields of finished batches, see `Map`

    An op also has `draws`, how many uniform numbers it needs per sample. Both are class variables,
    or properties where an op is composed of others. A protocol can declare only one of these forms,
    so it declares neither. Ops that resample have `filter`, the name of the filter; those that may
    reach beyond the image, `border`.
    """

    def out(self, spec: Spec) -> Spec:
        """The spec of a sample after this op.

        Args:
            spec (Spec): Shape, dtype and layout before it.

        Returns:
            Shape, dtype and layout after it.

        Raises:
            SpecError: If the op cannot follow `spec`; the text says what to put before it.
        """
        ...


def next_slot(op: Any, slot: int) -> int:
    """The slot of random numbers after that of an op; Maps draw from slots at the other end."""
    return slot + (bool(op.draws) and op.kind != "map")


class Simple(Op, Protocol):
    """An op that moves or changes pixels and is not composed of others."""

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Parameters of the op for n samples.

        Args:
            u (np.ndarray): The samples' random numbers, float64 (n, draws) in [0, 1).
            sizes (np.ndarray): (height, width) of the images, int64 (n, 2), pixels.

        Returns:
            Arrays by name, a row per sample.
        """
        ...


class Geometry(Simple, Protocol):
    """An op that only moves pixels.

    Its parameters are always these three, so any run of them folds into one window.

    box   float64 (n, 4): top, left, height, width of the kept part, in pixels of the input image
    size  int64 (n, 2): height, width of the output
    flip  bool (n, 2): mirrored top to bottom, left to right

    Ops with a `border` may give boxes that reach beyond the image; the border defines the pixels
    there.
    """


class Composite(Op, Protocol):
    """An op composed of others, such as `Maybe`.

    Which of them runs on a sample is data, see `program/layers.py`.
    """

    @property
    def layers(self) -> tuple[Any, ...]:
        """The layers in order: a tuple of `Layer` that does not depend on any sample."""
        ...

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Any]:
        """The op that each of n samples takes at each layer, with its parameters.

        Args:
            u (np.ndarray): The samples' random numbers, float64 (n, draws) in [0, 1).
            sizes (np.ndarray): (height, width) of the images, int64 (n, 2), pixels.

        Returns:
            One `Choices` per layer.
        """
        ...


class Mixing(Op, Protocol):
    """An op that combines neighbors in the epoch's order, in aligned groups of `group` samples."""

    def mix_plan(self, u: np.ndarray, size: tuple[Any, Any]) -> Any:
        """The plan that combines n samples with their neighbors.

        Args:
            u (np.ndarray): The samples' random numbers, float64 (n, draws) in [0, 1).
            size (tuple[int, int]): (height, width) of all images, pixels.

        Returns:
            A `MixPlan`: what is done to each sample, the shares of its group, the box.
        """
        ...


class Splitting(Op, Protocol):
    """An op that makes several views of an image."""

    @property
    def view_groups(self) -> tuple[Any, ...]:
        """Groups of views of one size, as `ViewGroup`, in the order of the batch."""
        ...


@dataclass(frozen=True, slots=True)
class Border:
    """The pixels beyond the edge of an image."""

    # reflect: dcb|abcd|cba, the edge itself once; symmetric: cba|abcd|dcb
    mode: Literal["constant", "edge", "reflect", "symmetric"] = "constant"
    fill: tuple[int, int, int] = (0, 0, 0)  # RGB, for "constant"

    def __post_init__(self) -> None:
        if self.mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ConfigError.of("mode", '"constant", "edge", "reflect" or "symmetric"', self.mode)


def need_pixels(op: Any, spec: Spec) -> None:
    """Refuse anything but HWC pixels."""
    name = type(op).__name__
    if spec.encoded:
        raise SpecError(f"{name} needs HWC pixels, got {spec}; put Decode() before it")
    if spec.layout != "HWC":
        raise SpecError(f"{name} needs HWC pixels, got {spec}; put ToLayout after it")


def need_bytes(op: Any, spec: Spec) -> Spec:
    """Return the spec; refuse anything but uint8 HWC pixels of one size."""
    need_pixels(op, spec)
    name = type(op).__name__
    if spec.dtype != "uint8":
        advice = 'leave it out, or make images of bytes: Decode(dtype="uint8"), or uint8 arrays'
        if spec.dtype != "uint16":
            advice = f"put it before ToFloat and Normalize; if images have float32 pixels, {advice}"
        raise SpecError(f"{name} works on bytes, got {spec}; {advice}")
    if spec.channels not in (1, 3):
        raise SpecError(
            f"{name} works on images of 1 or 3 channels, got {spec}; leave it out, or write"
            " Decode(channels=3)"
        )
    return _need_size(op, spec)


def need_movable(op: Any, spec: Spec) -> Spec:
    """Return the spec; refuse pixels that are not bytes if the op would change their values."""
    need_pixels(op, spec)
    if spec.has_kernel:
        return _need_size(op, spec)
    if op.filter != "nearest" or any(op.fill):
        raise SpecError(
            f"{type(op).__name__} works on bytes, got {spec}; put it before ToFloat and Normalize;"
            ' for other pixels write filter="nearest", and leave fill out'
        )
    return _need_size(op, spec)


def need_movable_by(op: Any, parts: Sequence[Any], spec: Spec) -> Spec:
    """`need_movable` of an op that is composed of others."""
    if all(part.kind == "change" and hasattr(part, "filter") for part in parts):
        for part in parts:
            part.out(spec)
        return spec
    return need_bytes(op, spec)


def _need_size(op: Any, spec: Spec) -> Spec:
    if not spec.fixed:
        raise SpecError(
            f"{type(op).__name__} needs images of one size, got {spec}; put Resize((height, width)),"
            " CenterCrop(size) or RandomResizedCrop(size) before it, which is also cheaper"
        )
    return spec


def check_size(name: str, size: Any) -> tuple[int, int]:
    """(height, width) in pixels from an int (square) or a pair."""
    pair = size if isinstance(size, (tuple, list)) else (size, size)
    # a list, not generators: each number of a generator is a Python call, in every batch
    plain = [int(n) for n in pair if isinstance(n, (int, np.integer)) and not isinstance(n, bool)]
    if len(pair) != 2 or len(plain) != 2:
        raise ConfigError.of(f"{name} size", "an int or (height, width)", size)
    height, width = plain
    if not (1 <= height <= LARGEST_SIDE and 1 <= width <= LARGEST_SIDE):
        raise ConfigError.of(f"{name} size", "in [1, 65535] pixels", size)
    return height, width


class BatchFacts(NamedTuple):
    """Facts about a batch, the same on all ranks, that its size may depend on."""

    epoch: int = 0
    draw: float = 0.0  # random number of the batch, in [0, 1)
    bucket: Size | None = None  # of its order; None if that has no sizes
    # height and width that hold each image of the global batch, as the ops before make it
    largest: tuple[int, int] | None = None


@runtime_checkable
class SizeChoice(Protocol):
    """A size that differs from batch to batch; a feed puts the size of each batch in its place."""

    @property
    def starts(self) -> tuple[int, ...]:
        """Epochs at which other sizes begin."""
        ...

    @property
    def count(self) -> int:
        """Number of sizes that the batch's random number chooses from, all equally likely."""
        ...

    def size_at(self, batch: BatchFacts) -> Size:
        """The size of one batch.

        Args:
            batch (BatchFacts): What is known of the batch.

        Returns:
            The side of a square, or (height, width), pixels.
        """
        ...


def check_op_size(name: str, size: Any) -> None:
    """Raise ConfigError unless `size` is a size, or a choice of sizes."""
    if not isinstance(size, SizeChoice):
        check_size(name, size)


def height_width(size: Any) -> tuple[int, int]:
    """(height, width) of a size that was checked, without the checks: ops need it in every batch."""
    if isinstance(size, tuple):
        return size
    if not isinstance(size, int):
        raise SpecError(
            f"{size!r} is the size of each batch of a Feed, and there are no batches here; write a"
            " size instead, such as 224"
        )
    return size, size


class FrozenOp:
    """Base class of ops: fields become plain values, and are checked, when the op is made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        fields_of: Any = self
        for field in fields(fields_of):
            object.__setattr__(self, field.name, _plain(getattr(self, field.name)))
        self._check()

    def _check(self) -> None:
        """Raise ConfigError if a field is wrong."""


class ByteOp(FrozenOp):
    """Base class of ops that change the bytes of images of one size."""

    __slots__ = ()

    kind: ClassVar[Kind] = "change"

    def out(self, spec: Spec) -> Spec:
        return need_bytes(self, spec)


def _plain(value: Any) -> Any:
    """Convert arrays and NumPy's numbers to Python's, and lists to tuples."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    return tuple(_plain(item) for item in value) if isinstance(value, (list, tuple)) else value


def check_filter(name: str, filter: Any, several: bool = False) -> None:
    """Refuse an unknown resampling filter; `several`: a tuple of two or more may be drawn from."""
    if several and isinstance(filter, tuple) and len(filter) > 1:
        for each in filter:
            check_filter(name, each)
    elif filter not in FILTERS:
        more = ", or a tuple of these" if several else ""
        raise ConfigError.of(f"{name} filter", f"one of {', '.join(FILTERS)}{more}", filter)


def op_filters(op: Any) -> tuple[str, ...]:
    """The filters that an op that resamples draws from; its own, if it is one."""
    return op.filter if isinstance(op.filter, tuple) else (op.filter,)


def check_range(
    name: str, pair: Any, minimum: float, maximum: float, hint: str = "", above: bool = False
) -> tuple[float, float]:
    """(low, high) with minimum <= low <= high <= maximum; `above`: minimum < low.

    `hint` suggests a valid value.
    """
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(map(is_number, pair)):
        raise ConfigError.of(name, "a pair (low, high)", pair, hint)
    low, high = (float(v) for v in pair)
    if not minimum <= low <= high <= maximum or (above and low == minimum):
        sign = "<" if above else "<="
        must = f"{minimum:g} {sign} low <= high <= {maximum:g}"
        raise ConfigError.of(name, must, pair, hint)
    return low, high


def is_number(value: Any) -> bool:
    """True for numbers of Python and NumPy, of which flags are none."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def check_number(
    name: str, value: Any, low: float, high: float, hint: str = "", ends: str = "[]"
) -> None:
    """Raise ConfigError unless `value` is a number in an interval with these `ends`: "(]", "[)"."""
    outside = ([low] if ends[0] == "(" else []) + ([high] if ends[1] == ")" else [])
    if not is_number(value) or not low <= value <= high or value in outside:
        raise ConfigError.of(name, f"in {ends[0]}{low:g}, {high:g}{ends[1]}", value, hint)


def check_integer(
    name: str, value: Any, low: int, high: float = math.inf, hint: str = "", more: str = ""
) -> None:
    """Raise ConfigError unless `value` is an integer in [low, high].

    more: the unit, or what else is allowed, for the text of the error.
    """
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or not low <= value <= high:
        allowed = f">= {low}" if high == math.inf else f"in [{low}, {high}]"
        raise ConfigError.of(name, f"an integer {allowed}{more}", value, hint)


def check_p(name: str, p: Any) -> None:
    """Raise ConfigError unless `p` is a probability."""
    check_number(name, p, 0, 1)


def check_flag(name: str, value: Any, must: str = "True or False") -> None:
    """Raise ConfigError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ConfigError.of(name, must, value)


def check_fill(name: str, fill: Any, must: str = "three integers in [0, 255], RGB") -> None:
    """Raise ConfigError unless `fill` is an RGB color."""
    is_color = isinstance(fill, tuple) and len(fill) == 3
    if not is_color or not all(type(v) is int and 0 <= v <= 255 for v in fill):
        raise ConfigError.of(name, must, fill)


def shade(fill: tuple[int, int, int], channels: int, dtype: Any = "uint8") -> tuple[int, ...]:
    """An RGB color for an image with this many channels; of uint16, 255 becomes 65535.

    Gray is ITU-R 601 luma, as in Pillow's convert("L"); alpha is opaque.
    """
    r, g, b = fill
    gray = (r * 19_595 + g * 38_470 + b * 7_471 + 0x8000) >> 16
    color = {1: (gray,), 3: fill, 4: (*fill, 255)}[channels]
    return tuple(257 * value for value in color) if dtype == "uint16" else color


def full_boxes(sizes: np.ndarray) -> np.ndarray:
    """Boxes of whole images of these sizes: float64, shape (n, 4)."""
    boxes = np.zeros((len(sizes), 4))
    boxes[:, 2:] = sizes
    return boxes
