"""Compiles ops once for each size that batches may have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, FastfeedError, SpecError
from fastfeed.ops.base import BatchFacts, Size, SizeChoice
from fastfeed.ops.batch_sizes import LargestSize
from fastfeed.ops.function import as_op
from fastfeed.ops.program.compile import fuse, unmapped
from fastfeed.ops.program.program import BatchPrograms, Program
from fastfeed.ops.program.window import Step, fold
from fastfeed.spec import Spec

__all__ = ["fuse_sizes", "size_choices", "sizes_at", "with_sizes"]

_HOLDERS = ("size", "op", "ops", "views")  # fields of ops that hold a size, or other ops
_PIXELS = ("decode", "geometry", "change")  # kinds of ops; others do not matter to sizes
_MOST = 256  # programs


def fuse_sizes(
    ops: Any,
    compiled: Callable[[Any], Program],
    buckets: Sequence[Size],
    image: tuple[str, Spec],
    image_sizes: Callable[[], np.ndarray],
) -> Program:
    """The program of ops, which is the largest one if batches are of several sizes.

    ops: a list, or lists by image. compiled: compiles ops without choices of sizes. buckets: sizes
    of the order's buckets, if it has any. image: name and spec of the first image. image_sizes:
    reads (height, width) of all images, int64 (n, 2).
    """
    choices = tuple(dict.fromkeys(size_choices(ops)))
    if not choices:
        return compiled(ops)
    of_sizes = partial(_compiled, compiled, ops, choices)
    by_size = BatchPrograms(choices, {})
    largest: list[tuple[int, int]] = []
    if any(isinstance(choice, LargestSize) for choice in choices):
        name, spec = image
        listed = ops.get(name) if isinstance(ops, Mapping) else ops
        if not isinstance(listed, (list, tuple)):
            return compiled(ops)  # which refuses them
        first = dict(zip(choices, _size_sets(choices, buckets)[0], strict=True))
        sizes = _sizes_before([as_op(op) for op in listed], spec, first, image_sizes)
        largest = [tuple(sizes.max(axis=0).tolist()), tuple(sizes.min(axis=0).tolist())]
        by_size = replace(by_size, image_sizes=sizes, compiled=of_sizes)
    programs = {sizes: of_sizes(sizes) for sizes in _size_sets(choices, buckets, largest)}
    most = max(programs, key=lambda sizes: math.prod(programs[sizes].shape))
    program = programs[most]
    written = _as_written(ops, dict(zip(choices, most, strict=True)), program.steps)
    steps = zip(written, *(part.steps for part in programs.values()), strict=True)
    return replace(
        program,
        steps=tuple(_without_size(step, others) for step, *others in steps),
        by_size=replace(by_size, programs=programs),
    )


def _compiled(
    compiled: Callable[[Any], Program],
    ops: Any,
    choices: Sequence[SizeChoice],
    sizes: Sequence[Size],
) -> Program:
    """The program of these sizes; errors name the ops as they were written."""
    chosen = dict(zip(choices, sizes, strict=True))
    try:
        program = compiled(with_sizes(ops, chosen))
    except FastfeedError as error:
        text = str(error)
        for op in _sized_ops(ops):
            text = text.replace(repr(with_sizes(op, chosen)), repr(op))
        error.args = (text, *error.args[1:])
        raise
    if not any(isinstance(choice, LargestSize) for choice in choices):
        return program
    if reason := unmapped(program):
        raise SpecError(
            f"LargestSize() makes the field `valid`, which says where each image is, and {reason};"
            " leave one of them out"
        )
    return replace(program, valid=True)


def _sizes_before(
    ops: Sequence[Any],
    spec: Spec,
    sizes: Mapping[SizeChoice, Size],
    image_sizes: Callable[[], np.ndarray],
) -> np.ndarray:
    """Sizes of all images before the first op that takes the largest of a batch: int32 (n, 2)."""
    places = (k for k, op in enumerate(ops) if isinstance(getattr(op, "size", 0), LargestSize))
    k = next(places, None)
    before = None
    if k is not None and getattr(ops[k], "fit", "") == "corner":
        moves = [op for op in ops[:k] if getattr(op, "kind", "") in _PIXELS]
        before = fuse(with_sizes(moves, sizes), spec, fixed=False)
    if before is None or before.chain or before.border:
        raise SpecError(
            'LargestSize() is the size of a Resize(..., fit="corner") that comes before ops which'
            f" change pixels, got {[*ops]}; write Resize(LargestSize(), fit='corner') there"
        )
    steps = before.window
    images = np.maximum(image_sizes(), 0).astype(np.int64)
    known = images[(images > 0).all(axis=1)]
    if not len(known):
        raise ConfigError("LargestSize() needs sizes of images, and no image has one")
    images = np.where((images > 0).all(axis=1, keepdims=True), images, known[0])
    found = [
        fold(steps, [np.full((len(images), step.op.draws), u) for step in steps], images).sizes
        for u in (0.0, 0.999)
    ]
    moves = ops[:k]
    differs = any(hasattr(op, "needs_boxes") for op in moves) or any(size_choices(moves))
    if differs or (found[0] != found[1]).any():
        raise SpecError(
            "LargestSize() needs sizes that do not depend on random numbers or the batch, got"
            f" {[*moves]} before it; leave out the op that draws a size"
        )
    return found[0].astype(np.int32)


def sizes_at(choices: Sequence[SizeChoice], batch: BatchFacts) -> tuple[Size, ...]:
    """The sizes of a batch, one per choice."""
    return tuple(choice.size_at(batch) for choice in choices)


def _size_sets(
    choices: Sequence[SizeChoice],
    buckets: Sequence[Size],
    largest: Sequence[tuple[int, int]] = (),
) -> list[tuple[Size, ...]]:
    """All sizes that batches may have, a tuple with one per choice."""
    epochs = sorted({0}.union(*(choice.starts for choice in choices)))
    cuts = sorted({k / choice.count for choice in choices for k in range(choice.count + 1)})
    draws = [(low + high) / 2 for low, high in pairwise(cuts)]
    places = product(epochs, draws, dict.fromkeys(buckets) or (None,), largest or (None,))
    found = list(dict.fromkeys(sizes_at(choices, BatchFacts(*place)) for place in places))
    if len(found) > _MOST:
        raise ConfigError(
            f"batches must be of at most {_MOST} sizes, got {len(found)}: one for every epoch of"
            " a schedule, draw and bucket together; pass fewer sizes",
            field="ops",
        )
    return found


def size_choices(value: Any) -> Iterator[SizeChoice]:
    """The choices of sizes in ops."""
    if isinstance(value, SizeChoice):
        yield value
    for part in _parts(value).values():
        yield from size_choices(part)


def _sized_ops(value: Any) -> Iterator[Any]:
    """The ops that have a choice of sizes."""
    parts = _parts(value).values()
    if is_dataclass(value) and any(isinstance(part, SizeChoice) for part in parts):
        yield value
    for part in parts:
        yield from _sized_ops(part)


def _parts(value: Any) -> Mapping[Any, Any]:
    """Parts of a list, a mapping or an op that may hold sizes."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value) if f.name in _HOLDERS}
    return {}


def with_sizes(value: Any, sizes: Mapping[SizeChoice, Size]) -> Any:
    """Ops with sizes in place of their choices."""
    if isinstance(value, SizeChoice):
        return sizes[value]
    parts = _parts(value)
    replaced = {key: with_sizes(part, sizes) for key, part in parts.items()}
    changed = {key: part for key, part in replaced.items() if part is not parts[key]}
    if not changed:
        return value
    if isinstance(value, Mapping):
        return replaced
    if isinstance(value, (list, tuple)):
        return type(value)(replaced.values())
    return replace(value, **changed)


def _as_written(
    ops: Any, sizes: Mapping[SizeChoice, Size], steps: Sequence[Step]
) -> Iterator[Step]:
    """Steps with the ops that the user wrote."""
    lists = ops if isinstance(ops, Mapping) else {"": ops}
    written = {str(name): map(as_op, listed) for name, listed in lists.items()}
    for step in steps:
        if step.implied:
            yield step
            continue
        sized = ((op, with_sizes(op, sizes)) for op in written[step.image])
        yield replace(step, op=next(op for op, same in sized if same == step.op))


def _without_size(step: Step, others: Sequence[Step]) -> Step:
    """A step whose spec has no lengths that differ between batches."""
    shapes = [other.spec.shape for other in others]
    if len({len(shape) for shape in shapes}) > 1:
        return step
    shape = tuple(sides[0] if len({*sides}) == 1 else None for sides in zip(*shapes, strict=True))
    return replace(step, spec=replace(step.spec, shape=shape))
