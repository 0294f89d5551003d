"""Compiles ops to a Program: checks specs, folds geometry to one window, moves conversion last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import Kind, check_flag, next_slot
from fastfeed.ops.convert import Convert
from fastfeed.ops.decode import Decode
from fastfeed.ops.function import Function, as_op, check_op
from fastfeed.ops.geometry import RandomFlip, Resize
from fastfeed.ops.labels import targets
from fastfeed.ops.program.program import Link, Program, Work, find_border, window_filters
from fastfeed.ops.program.window import Step, Windows
from fastfeed.ops.views import ViewGroup
from fastfeed.spec import CLASS_NUMBER, LabelSpec, Spec, before_conversion

__all__ = ["Program", "Step", "Windows", "Work", "fuse", "with_transforms"]

SLOTS = 4096  # for the ops of one branch of views, or of one image
_UNLIMITED = 1 << 24  # pixels of an unbounded side


def fuse(
    ops: Sequence[Any],
    input_spec: Spec,
    fixed: bool = True,
    classes: int = 0,
    objects: bool = False,
    label: LabelSpec = CLASS_NUMBER,
    slot: int = 0,
) -> Program:
    """Check and fuse a list of ops for a source that yields `given` with this many classes.

    fixed: all results must be of one size. objects: the source has annotations, so mixing samples
    does not need class names for labels of whole images; without class names these stay as they
    are. label: of the source. slot: of the first op that draws.
    """
    if not isinstance(ops, Sequence) or isinstance(ops, str):
        raise ConfigError.of("ops", "a list of ops such as [Resize(224)]", ops)
    steps = _checked([as_op(op) for op in ops], input_spec, slot)
    last = steps[-1].spec if steps else input_spec
    if fixed and not last.fixed:
        raise SpecError(
            f"a batch needs samples of one size, got {last} at the end of the list; "
            "add Resize((height, width)), CenterCrop(size) or RandomResizedCrop(size)"
        )
    at = next((i for i, step in enumerate(steps) if step.op.kind == "views"), None)
    maps = tuple(step.op for step in steps if step.op.kind == "map")
    mix = _mixing(steps, at is not None)
    labeled = bool(classes) or not objects or any(step.op.kind == "label" for step in steps)
    soft = targets([step.op for step in steps], classes, label) if labeled else None
    if soft is not None:
        label = LabelSpec((soft.classes,), "float32")
    if mix is not None:
        _check_mixed(mix, input_spec, steps)
    if at is None:
        return replace(_program(steps, input_spec), mix=mix, targets=soft, label=label, maps=maps)
    programs = [
        _view_program(steps, at, k, group, input_spec)
        for k, group in enumerate(steps[at].op.view_groups)
    ]
    return replace(
        programs[0],
        steps=tuple(steps),
        others=tuple(programs[1:]),
        targets=soft,
        label=label,
        maps=maps,
    )


def with_transforms(program: Program, wanted: Any) -> Program:
    """The program for batches that say what was done to each image, if that is wanted.

    SpecError for ops after which no matrix leads from the original image to the result.
    """
    check_flag("to_original", wanted)
    if not wanted:
        return program
    if reason := unmapped(program):
        raise SpecError(
            f"to_original=True says how each image became the result, and {reason}; leave one of"
            " them out"
        )
    return replace(program, transforms=True)


def unmapped(program: Program) -> str:
    """Reason why no matrix leads from the original image to the result; empty if one does."""
    reason = ""
    if program.mix is not None:
        reason = f"{type(program.mix.op).__name__} makes one image of several"
    if program.views:
        reason = "there are several views of each image"
    for link in program.chain:
        op = link.steps[0].op
        for bending in (op for layer in link.layers for op in layer.ops if hasattr(op, "bends")):
            reason = f"{bending!r} moves every pixel by its own amount"
        if isinstance(op, Function) and link.spec.size != link.input_spec.size:
            reason = f"{op!r} changes the size of images as it likes"
    return reason


def _program(steps: list[Step], input_spec: Spec) -> Program:
    last = steps[-1].spec if steps else input_spec
    runs = _runs([s for s in steps if s.op.kind in ("geometry", "change")])
    window = runs.pop(0) if runs and runs[0][0].op.kind == "geometry" else []
    before = next((s.spec for s in reversed(steps) if s.op.kind == "decode"), input_spec)
    pixels = before_conversion(window[-1].spec if window else before, before.dtype)
    if (
        runs and not pixels.fixed
    ):  # this can only be a second border: ops that change pixels have rejected the spec already
        first, second = (
            next(s.op for s in run if find_border([s]) is not None) for run in (window, runs[0])
        )
        raise SpecError(
            f"{second!r} cannot follow {first!r} where images are of many sizes, got {pixels}: each"
            " adds a border; put Resize((height, width)) between them, or leave one out"
        )
    chain: list[Link] = []
    for late in (step.op for run in runs for step in run if hasattr(step.op, "needs_boxes")):
        raise SpecError(
            f"{late!r} looks where objects are in the image as it was read; put it before ops that"
            " change pixels, and before a second border"
        )
    for run in runs:
        chain.append(Link.of(run, chain[-1].spec if chain else pixels))
    return Program(
        input_spec=input_spec,
        steps=tuple(steps),
        decode=next((s.op for s in steps if isinstance(s.op, Decode)), None),
        window=tuple(window),
        filters=window_filters(window),
        border=find_border(window),
        pixels=pixels,
        chain=tuple(chain),
        augmented=chain[-1].spec if chain else pixels,
        convert=Convert.of(
            [s.op for s in steps if s.op.kind == "convert"], last.channels or 0, before.dtype
        ),
        spec=last,
    )


def _view_program(
    steps: list[Step], at: int, k: int, group: ViewGroup, input_spec: Spec
) -> Program:
    """The program of views of one size: ops before the split, its windows and ops, ops after it."""
    head = steps[:at]
    own = [group.geometry, *(as_op(op) for op in group.ops), *(s.op for s in steps[at + 1 :])]
    spec = head[-1].spec if head else input_spec
    slot = steps[at].slot + k * SLOTS
    tail: list[Step] = []
    for op in own:
        spec = op.out(spec)
        tail.append(Step(op, spec, slot, views=group.count))
        slot = next_slot(op, slot)
    program = _program([*head, *tail], input_spec)
    if len(program.filters) > 1:
        raise SpecError(
            f"views of an image need one filter, got {program.filters} before"
            f" {steps[at].op!r}; write one of them"
        )
    return replace(program, views=group.count)


def _decoded(steps: list[Step], input_spec: Spec) -> Spec:
    """The spec of pixels before all other ops."""
    return next((step.spec for step in steps if step.op.kind == "decode"), input_spec)


def _check_mixed(mix: Step, input_spec: Spec, steps: list[Step]) -> None:
    decoded = _decoded(steps, input_spec)
    if not decoded.has_kernel:
        raise SpecError(
            f"{type(mix.op).__name__} mixes bytes of 1 or 3 channels, got {decoded}; leave it out,"
            " or make such images: Decode(channels=3), or uint8 arrays"
        )


def _mixing(steps: list[Step], views: bool) -> Step | None:
    """The only op that combines samples; no op after it may need single samples."""
    positions = [i for i, step in enumerate(steps) if step.op.kind == "mix"]
    if not positions:
        return None
    names = [type(steps[i].op).__name__ for i in positions]
    if len(positions) > 1:
        choice = f"write RandomChoice([{', '.join(f'{name}()' for name in names)}])"
        advice = choice if len({*names}) > 1 else "leave one of them out"
        raise ConfigError(
            f"a list takes one op that mixes samples, got {' and '.join(names)}; {advice}",
            field="ops",
        )
    for step in steps[positions[0] + 1 :]:
        if step.op.kind not in ("convert", "label", "map"):
            raise SpecError(
                f"{names[0]} works on finished samples; put it after {type(step.op).__name__}"
            )
    if views:
        raise SpecError(
            f"{names[0]} does not go with ops that make several views of a sample; leave one of"
            " them out"
        )
    return steps[positions[0]]


def _runs(steps: list[Step]) -> list[list[Step]]:
    """Group geometry into runs, each with at most one border; other ops stay single."""
    runs: list[list[Step]] = []
    bordered = False  # the last run
    for step in steps:
        border = find_border([step]) is not None
        last = runs[-1] if runs else []
        if last and step.op.kind == "geometry" == last[-1].op.kind and not (border and bordered):
            last.append(step)
            bordered |= border
        else:
            runs.append([step])
            bordered = border
    return runs


def _checked(ops: list[Any], input_spec: Spec, slot: int) -> list[Step]:
    for i, op in enumerate(ops):
        check_op(f"ops[{i}]", op, "Resize(224)")
    implied = input_spec.encoded and not any(op.kind == "decode" for op in ops)
    steps: list[Step] = []
    spec = input_spec
    last: tuple[Function, tuple[Kind, ...]] | None = None  # and the ops that may follow it
    before: dict[Kind, str] = {}  # the name of the last op of each kind
    before_crop: Any = None  # the last op that is neither a flip nor for labels and fields
    for op in [Decode(), *ops] if implied else ops:
        _check_order(op, before)
        if last is not None and op.kind not in last[1]:
            raise SpecError(
                f"{op!r} cannot follow {last[0]!r}, which returns {spec} or moves boxes; put it"
                " before, or do it in the function"
            )
        if not spec.encoded:
            _check_crop_fits(op, spec, before_crop)
        if isinstance(op, Function) and (kinds := _next_kinds(op, spec)):
            last = op, kinds
        given = spec
        spec = op.out(spec)
        if op.kind == "change" and given.dtype != _decoded(steps, input_spec).dtype:
            raise SpecError(
                f"{type(op).__name__} works on pixels as they are decoded, got {given}; put it"
                " before ToFloat and Normalize"
            )
        steps.append(Step(op, spec, slot, implied and not steps))
        slot = next_slot(op, slot)
        before[op.kind] = type(op).__name__
        if not isinstance(op, RandomFlip) and op.kind not in ("label", "map"):
            before_crop = op
    return steps


def _next_kinds(op: Function, spec: Spec) -> tuple[Kind, ...]:
    """Kinds of ops that may follow a function on images of this spec; () for any."""
    after = op.out(spec)
    if after != spec.with_size(*after.size):
        return ("label", "map")  # our code has no pixels like these
    return ("label", "map", "convert", "mix") if op.annotations else ()


def _check_crop_fits(op: Any, spec: Spec, last: Any) -> None:
    """Reject a crop after a Resize to one side that is larger than any image can be."""
    cuts = op.kind in ("geometry", "views") and hasattr(op, "size")
    if not cuts or not isinstance(last, Resize) or spec.fixed:
        return
    sizes = last.largest_results(_UNLIMITED)
    if sizes and not any(_fits(op, spec.with_size(*size)) for size in sizes):
        side = {"long": "long side", "cover": "size"}.get(last.fit or "", "short side")
        raise SpecError(
            f"{op!r} is larger than any image after {last!r}, whose {side} is {last.size}; "
            "write a larger Resize or a smaller size"
        )


def _fits(op: Any, spec: Spec) -> bool:
    try:
        op.out(spec)
    except SpecError:
        return False
    return True


def _check_order(op: Any, before: dict[Kind, str]) -> None:
    """Check rules of order that specs do not express, after the last op of each kind."""
    name = type(op).__name__
    if op.kind == "views" and "views" in before:
        raise SpecError(
            f"{name} cannot follow {before['views']}: a list splits a sample into views once"
        )
    if op.kind == "views" and "change" in before:
        raise SpecError(
            f"{name} must come before ops that change pixels, which then change every view by"
            f" itself; put it before {before['change']}"
        )
