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
from fastfeed.ops.move_boxes import stages
from fastfeed.ops.program.compile import SLOTS, Program, fuse
from fastfeed.sampling.rng import uniform
from fastfeed.spec import Spec

__all__ = ["fuse_images"]

_OF_IMAGES = ("decode", "geometry", "change", "convert")  # kinds of ops; others are of samples
_SIZES = [(480, 640), (333, 500), (768, 512), (97, 64)]  # of images on which geometry is compared
_SAMPLES = 32


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
    n = _SAMPLES
    fixed = first.input_spec.size if first.input_spec.fixed else None
    sizes = np.resize(np.array([fixed] if fixed else _SIZES, np.int64), (n, 2))
    ids = np.arange(n)
    paths, outs = [], []
    for program in (first, other):
        work = program.work(program.draw(lambda slot, k: uniform(0, 0, ids, slot, k)), sizes)
        moves = stages(program, work)
        paths.append(reduce(np.matmul, [move.forward for move in reversed(moves)]))
        outs.append(moves[-1].sizes[:, ::-1].astype(np.float64))  # width, height
    corners = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]], np.float64)
    points = corners * np.concatenate([outs[0], np.ones((n, 1))], axis=1)[:, None]
    there = (paths[1] @ np.linalg.inv(paths[0]) @ points.transpose(0, 2, 1)).transpose(0, 2, 1)
    shares = there[..., :2] / there[..., 2:]
    expected = points[..., :2] * (outs[1] / outs[0])[:, None]
    if (np.abs(shares - expected) > 1).any():  # pixels
        raise ConfigError(
            f"the ops of {first.image!r} and {other.image!r} crop, flip or turn images differently:"
            f" {_moves(first)} and {_moves(other)}; put the same ones into both lists, before"
            ' other random ops, or pass Together(..., geometry="own")'
        )


def _moves(program: Program) -> str:
    """Ops that may move pixels, with their number among the random ops of the list."""
    drawing = [step.op for step in program.steps if next_slot(step.op, 0)]
    names = [
        f"{type(op).__name__} (random op {drawing.index(op) + 1})" if op in drawing else repr(op)
        for op in (step.op for step in program.steps)
        if op.kind in ("geometry", "change")
    ]
    return ", ".join(names) or "none"
