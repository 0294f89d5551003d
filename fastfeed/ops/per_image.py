"""Compiles the ops of samples with several images: a program per image, moved alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import next_slot
from fastfeed.ops.function import as_op
from fastfeed.ops.move_boxes import Stage, stages
from fastfeed.ops.program.compile import SLOTS, Program, Work, fuse
from fastfeed.sampling.rng import uniform
from fastfeed.spec import Spec

__all__ = ["fuse_images"]

_OF_IMAGES = ("decode", "geometry", "change", "convert")  # kinds of ops; others are of samples
_SIZES = [(480, 640), (333, 500), (768, 512), (97, 64)]  # of images on which geometry is compared
_SAMPLES = 32
_BENT_SAMPLES = 1024  # more, since a bend that the other image lacks may be rare
_LOOK = {"filter": "nearest", "fill": (0, 0, 0), "border": "edge"}  # of ops that bend


def fuse_images(
    ops: Any, specs: Mapping[str, Spec], same_geometry: bool, **options: Any
) -> Program:
    """Check and fuse one list of ops for all images of a sample, or a mapping of lists by image.

    The result is the program of the first image, those of the others are its `others`. The n-th
    random op of every list draws the same numbers, unless each image has its own geometry.

    specs: of the images' sources, by name. options: of `fuse`, for labels.
    """
    names = list(specs)
    if isinstance(ops, Mapping) and list(map(str, ops)) != names and {*ops} != {*names}:
        raise ConfigError(
            f"ops must be one list for all images, or a list for each of {', '.join(names)}, got"
            f" lists for {', '.join(map(str, ops)) or 'none'}"
        )
    first = names[0]
    programs: list[Program] = []
    for k, name in enumerate(names):
        own = ops[name] if isinstance(ops, Mapping) else ops
        more = options if name == first else {}
        if isinstance(own, Sequence) and not isinstance(own, str):
            own = _of_image([as_op(op) for op in own], name, first, isinstance(ops, Mapping))
        try:
            program = fuse(own, specs[name], slot=0 if same_geometry else k * SLOTS, **more)
        except (ConfigError, SpecError) as error:
            raise type(error)(f"{name}: {error}") from error
        if name != first and any(op.annotations for op in program.functions):
            raise SpecError(
                f"boxes and masks are of {first!r}, the first image, got a Function of {name!r} that"
                " takes them; write a list of ops for each image"
            )
        programs.append(replace(program, image=name))
    if same_geometry and isinstance(ops, Mapping):
        for program in programs[1:]:
            _check_geometry(programs[0], program)
    steps = programs[0].steps
    if isinstance(ops, Mapping):
        steps = tuple(replace(s, image=part.image) for part in programs for s in part.steps)
    return replace(programs[0], steps=steps, others=tuple(programs[1:]))


def _of_image(ops: list[Any], name: str, first: str, listed: bool) -> list[Any]:
    """The ops of one image; those of labels belong to the first. `listed`: in a separate list."""
    for op in ops:
        kind = getattr(op, "kind", "change")
        if kind in ("mix", "views"):
            raise SpecError(
                f"{type(op).__name__} is for samples of one image, got Together; leave it out"
            )
        if kind not in _OF_IMAGES and listed and name != first:
            raise SpecError(
                f"{type(op).__name__} is for samples, not for one of their images; put it into the"
                f" list of {first!r}, the first one"
            )
    return ops if name == first else [op for op in ops if getattr(op, "kind", "") in _OF_IMAGES]


def _check_geometry(first: Program, other: Program) -> None:
    """Refuse ops that move pixels of two images differently, for images of one size."""
    fixed = first.input_spec.size if first.input_spec.fixed else None
    sizes = np.resize(np.array([fixed] if fixed else _SIZES, np.int64), (_BENT_SAMPLES, 2))
    ids = np.arange(len(sizes))
    programs = (first, other)
    works = [
        program.work(program.draw(lambda slot, k: uniform(0, 0, ids, slot, k)), sizes)
        for program in programs
    ]
    bends = [_bends(program, work) for program, work in zip(programs, works, strict=True)]
    same = [*bends[0].values()] == [*bends[1].values()]
    for ends in zip([*bends[0], None], [*bends[1], None], strict=True) if same else ():
        moves = [
            stages(program, work[:_SAMPLES], end)
            for program, work, end in zip(programs, works, ends, strict=True)
        ]
        same = same and _same_places(*moves)
    if not same:
        raise ConfigError(
            f"the ops of {first.image!r} and {other.image!r} crop, flip, turn or bend images"
            f" differently: {_moves(first)} and {_moves(other)}; put the same ones into both lists,"
            " before other random ops, and those that bend where images are of one size, or pass"
            ' Together(..., geometry="own")'
        )


def _bends(program: Program, work: Work) -> dict[int, list[Any]]:
    """Bends of the samples at each layer that has any, by the number of layers before it."""
    bends: dict[int, list[Any]] = {}
    sizes = [link.input_spec.size for link in program.chain for _ in link.layers]
    for k, (layer, choices) in enumerate(zip(program.layers, work.choices, strict=True)):
        for i, (op, values) in enumerate(zip(layer.ops, choices.values, strict=True)):
            if hasattr(op, "bends"):
                on = choices.choice == i
                drawn = [on.tobytes(), *(array[on].tobytes() for array in values.values())]
                bends.setdefault(k, []).append((replace(op, **_LOOK), sizes[k], drawn))
    return bends


def _same_places(moves: Sequence[Stage], others: Sequence[Stage]) -> bool:
    """True if pixels of two images get to the same share of the results, within a pixel."""
    n = len(moves[0].sizes)
    paths = []
    outs = []
    for each in (moves, others):
        paths.append(reduce(np.matmul, [move.forward for move in reversed(each)]))
        outs.append(each[-1].sizes[:, ::-1].astype(np.float64))  # width, height
    corners = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]], np.float64)
    points = corners * np.concatenate([outs[0], np.ones((n, 1))], axis=1)[:, None]
    there = (paths[1] @ np.linalg.inv(paths[0]) @ points.transpose(0, 2, 1)).transpose(0, 2, 1)
    shares = there[..., :2] / there[..., 2:]
    expected = points[..., :2] * (outs[1] / outs[0])[:, None]
    return not (np.abs(shares - expected) > 1).any()  # pixels


def _moves(program: Program) -> str:
    """Ops that may move pixels, with their number among the random ops of the list."""
    drawing = [step.op for step in program.steps if next_slot(step.op, 0)]
    names = [
        f"{type(op).__name__} (random op {drawing.index(op) + 1})" if op in drawing else repr(op)
        for op in (step.op for step in program.steps)
        if op.kind in ("geometry", "change")
    ]
    return ", ".join(names) or "none"
