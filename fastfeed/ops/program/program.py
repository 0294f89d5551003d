"""The compiled list of ops that backends run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import FILTERS, Border, Size, SizeChoice, full_boxes, op_filters
from fastfeed.ops.convert import Convert
from fastfeed.ops.decode import Decode
from fastfeed.ops.function import Function
from fastfeed.ops.labels import Targets
from fastfeed.ops.map import Map
from fastfeed.ops.program.layers import Choices, Layer, choose, layers
from fastfeed.ops.program.window import ObjectBoxes, Step, Window, Windows, fold
from fastfeed.spec import CLASS_NUMBER, LabelSpec, Spec, before_conversion

__all__ = ["BatchPrograms", "Link", "Program", "Work"]


@dataclass(frozen=True, slots=True)
class Link:
    """One part of the chain after decoding: an op that changes pixels, or a run of geometry."""

    steps: tuple[Step, ...]
    input_spec: Spec
    spec: Spec  # after it
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, steps: list[Step], input_spec: Spec) -> Link:
        """A link of one op, or of a run of geometry."""
        if steps[0].op.kind != "geometry":
            return cls(tuple(steps), input_spec, steps[-1].spec, layers(steps[0].op))
        spec = before_conversion(steps[-1].spec, input_spec.dtype)
        height, width = spec.size
        size = (height or 0, width or 0)
        border = find_border(steps)
        cuts = tuple(Window(size, filter, border) for filter in window_filters(steps))
        return cls(tuple(steps), input_spec, spec, (Layer(cuts),))

    def choose(self, draws: Sequence[np.ndarray], n: int) -> list[Choices]:
        """The choices for n samples, one per layer; draws: one array per step."""
        sizes = np.broadcast_to(np.array(self.input_spec.size, np.int64), (n, 2))
        if self.steps[0].op.kind != "geometry":
            return choose(self.steps[0].op, draws[0], sizes)
        windows = fold(self.steps, draws, sizes)
        values = {
            "box": windows.boxes,
            "size": windows.sizes,
            "flip": windows.flips,
            "limit": full_boxes(sizes) if windows.limits is None else windows.limits,
        }
        drawn = _drawn_filters(self.steps, draws)
        choice = np.zeros(n, np.int64) if drawn is None else drawn
        return [Choices(choice, (values,) * len(self.layers[0].ops))]


def window_filters(steps: Sequence[Step]) -> tuple[str, ...]:
    """The filters last named, since their op decides the output size; a window draws one."""
    named = [op_filters(s.op) for s in steps if hasattr(s.op, "filter")]
    return named[-1] if named else ("bilinear",)


def _drawn_filters(steps: Sequence[Step], draws: Sequence[np.ndarray]) -> np.ndarray | None:
    """Index into `window_filters` of each sample, int64 (n,); None if they have one filter."""
    count = len(window_filters(steps))
    if count == 1:
        return None
    last = max(k for k, step in enumerate(steps) if hasattr(step.op, "filter"))
    return (draws[last][:, -1] * count).astype(np.int64)


def find_border(steps: Sequence[Step]) -> Border | None:
    """The only border in a run of geometry."""
    return next((s.op.border for s in steps if getattr(s.op, "border", None) is not None), None)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """All parameters for n samples, with randomness already drawn.

    With views, a row is a view of a sample.
    """

    windows: Windows
    choices: tuple[Choices, ...] = ()  # one per layer of the program's chain
    views: int = 1  # rows per sample
    fields: Any = None  # values of samples for users' functions, by row

    def __getitem__(self, samples: Any) -> Work:
        """The work for some of the samples."""
        rows = samples
        if self.views > 1:
            chosen = np.arange(len(self.windows.sizes) // self.views)[samples]
            rows = (chosen[:, None] * self.views + np.arange(self.views)).ravel()
        choices = tuple(layer[rows] for layer in self.choices)
        fields = None if self.fields is None else self.fields[samples]
        return Work(self.windows[rows], choices, self.views, fields)


@dataclass(frozen=True)
class Program:
    """A checked list of ops and its fused form."""

    input_spec: Spec  # spec of the source's samples
    steps: tuple[Step, ...]  # the user's list, with the implied Decode
    decode: Decode | None  # None for sources of arrays
    window: tuple[Step, ...]  # geometry, folded into one window per sample
    filters: tuple[str, ...]  # resampling filters of that window; of several, each image draws one
    border: Border | None  # pixels beyond the image, where a window may reach there
    pixels: Spec  # HWC, of one size, mostly uint8: the result of decoding
    chain: tuple[Link, ...]  # ops on these pixels, in order
    augmented: Spec  # after the chain: the same of one size, or what a function returns
    convert: Convert
    spec: Spec  # of one image in the batch
    views: int = 0  # images per sample, if an op makes several of one
    others: tuple[Program, ...] = ()  # for views of further sizes, or further images of a sample
    image: str = ""  # name of the image among those of a sample; empty if there is one
    mix: Step | None = None  # combines finished samples
    targets: Targets | None = None  # soft labels; None: labels as the source has them
    label: LabelSpec = CLASS_NUMBER  # of a batch's labels
    maps: tuple[Map, ...] = ()  # functions on fields of finished batches, in order
    transforms: bool = False  # batches say what was done to each image
    valid: bool = False  # batches say where in each result the image is
    by_size: BatchPrograms | None = None  # if sizes differ from batch to batch

    @property
    def sized(self) -> tuple[Program, ...]:
        """The programs of batches of all sizes; this one alone if there is one size."""
        return (self,) if self.by_size is None else tuple(self.by_size.programs.values())

    @property
    def filter(self) -> str:
        """The window's filter; the first, if each image draws one."""
        return self.filters[0]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of the whole chain."""
        return tuple(layer for link in self.chain for layer in link.layers)

    @property
    def functions(self) -> tuple[Function, ...]:
        """Functions of users on single images."""
        return tuple(op for layer in self.layers for op in layer.ops if isinstance(op, Function))

    @cached_property
    def drawing(self) -> tuple[Step, ...]:
        """Steps that get random numbers: those of window and chain."""
        return (*self.window, *(step for link in self.chain for step in link.steps))

    @property
    def maps_images(self) -> bool:
        """True if a Map takes images or views."""
        inputs = [name for op in self.maps for name in op.inputs]
        images = {part.image for part in (self, *self.others)}
        return any(name in images or name.startswith(("image", "view_")) for name in inputs)

    @cached_property
    def needs_boxes(self) -> Any:
        """The first op that looks where objects are; None if no op does."""
        ops = (step.op for step in self.steps)
        return next((op for op in ops if getattr(op, "needs_boxes", False)), None)

    @property
    def ends_in_function(self) -> bool:
        """True if the last op of the chain is a function whose images have no kernel."""
        return self.augmented != self.pixels.with_size(*self.augmented.size)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample in the batch: the image's, after the number of views if several."""
        shape = tuple(side or 0 for side in self.spec.shape)
        return (self.views, *shape) if self.views else shape

    def refuse_per_image(self, backend: str) -> None:
        """Raise ConfigError for what only the cpu backend does to each image by itself."""
        why = "Standardize(), by each image's own mean" if self.convert.standardized else ""
        if len(self.filters) > 1:
            why = f"a random choice of {' or '.join(self.filters)}"
        if why:
            raise ConfigError(f'{backend} cannot run {why}; use backend="cpu"', field="backend")

    def raw(self) -> Program:
        """This program without conversion: uint8 images, for a device that converts them."""
        return replace(
            self,
            convert=Convert.of([], self.augmented.channels or 0, self.pixels.dtype),
            spec=self.augmented,
        )

    def draw(self, uniform: Callable[[int, int], np.ndarray]) -> list[np.ndarray]:
        """All random numbers of n samples, per step of window and chain.

        `uniform(slot, k)` returns shape (n, k).
        """
        steps = self.drawing
        return [
            uniform(s.slot, s.views * s.op.draws) if s.op.draws else np.empty((0, 0)) for s in steps
        ]

    def windows(self, draws: list[np.ndarray], sizes: np.ndarray) -> Windows:
        """Fold the geometry for displayed sizes (height, width), int64 (n, 2)."""
        return self.work(draws, sizes).windows

    def work(
        self, draws: list[np.ndarray], sizes: np.ndarray, objects: ObjectBoxes | None = None
    ) -> Work:
        """All parameters of n samples, from the result of `draw`, their sizes and their boxes."""
        steps = self.drawing
        views = self.views or 1
        n = len(sizes)
        if views > 1:
            sizes = np.repeat(sizes, views, axis=0)
            spread = zip(steps, draws, strict=True)
            draws = [
                u.reshape(n * views, -1) if s.views > 1 else np.repeat(u, views, axis=0)
                for s, u in spread
            ]
        at = len(self.window)
        choices = []
        windows = fold(self.window, draws[:at], sizes, objects)
        drawn = _drawn_filters(self.window, draws[:at])
        if drawn is not None:
            codes = np.array([FILTERS.index(filter) for filter in self.filters])
            windows = replace(windows, filters=codes[drawn])
        for link in self.chain:
            choices += link.choose(draws[at : at + len(link.steps)], n * views)
            at += len(link.steps)
        return Work(windows, tuple(choices), views)


@dataclass(frozen=True)
class BatchPrograms:
    """A program for each size of batches."""

    choices: tuple[SizeChoice, ...]  # of the ops, as written
    # by the sizes of all choices; with `compiled`, those of the largest and the smallest images
    programs: Mapping[tuple[Size, ...], Program]
    compiled: Callable[[Sequence[Size]], Program] | None = None  # makes programs of other sizes
    # int32 (n, 2): of all samples, before the op that takes the largest of a batch
    image_sizes: np.ndarray | None = field(default=None, compare=False)

    def of_sizes(self, sizes: tuple[Size, ...]) -> Program:
        """The program of these sizes, one per choice."""
        program = self.programs.get(sizes)
        if program is not None:
            return program
        assert self.compiled is not None
        return self.compiled(sizes)
