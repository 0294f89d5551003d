"""From the user's list to what runs: check every spec, fold geometry into one window, move conversion last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import Op
from fastfeed.ops.convert import Convert
from fastfeed.ops.decode import Decode
from fastfeed.ops.fold import Step, Windows
from fastfeed.ops.function import as_op
from fastfeed.ops.program import Link, Program, Work
from fastfeed.spec import Spec

__all__ = ["Program", "Step", "Windows", "Work", "fuse"]


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
    runs = _runs([s for s in steps if s.op.kind in ("geometry", "change")])
    window = runs.pop(0) if runs and runs[0][0].op.kind == "geometry" else []
    before = next((s.spec for s in reversed(steps) if s.op.kind == "decode"), given)
    pixels = (window[-1].spec if window else before).as_bytes()
    chain = []
    for run in runs:
        chain.append(Link.of(run, chain[-1].spec if chain else pixels))
    filters = [s.op.filter for s in window if hasattr(s.op, "filter")]
    borders = [s.op.border for s in window if getattr(s.op, "border", None) is not None]
    return Program(
        given=given,
        steps=tuple(steps),
        decode=next((s.op for s in steps if isinstance(s.op, Decode)), None),
        window=tuple(window),
        filter=filters[-1] if filters else "bilinear",
        border=borders[0] if borders else None,
        pixels=pixels,
        chain=tuple(chain),
        done=chain[-1].spec if chain else pixels,
        convert=Convert.of([s.op for s in steps if s.op.kind == "convert"], last.channels or 0),
        spec=last,
    )


def _runs(steps: list[Step]) -> list[list[Step]]:
    """Geometry in runs, each with one border at most; the rest one by one."""
    runs: list[list[Step]] = []
    for step in steps:
        bordered = getattr(step.op, "border", None) is not None
        last = runs[-1] if runs else []
        room = not (bordered and any(getattr(s.op, "border", None) is not None for s in last))
        if last and step.op.kind == "geometry" == last[-1].op.kind and room:
            last.append(step)
        else:
            runs.append([step])
    return runs


def _checked(ops: list[Any], given: Spec) -> list[Step]:
    ops = [as_op(op) for op in ops]
    for i, op in enumerate(ops):
        if isinstance(op, type) or not (hasattr(op, "kind") and hasattr(op, "out")):
            what = f"the class {op.__name__}; write {op.__name__}(...)" if isinstance(op, type) else repr(op)
            raise ConfigError(f"ops[{i}] must be an op such as Resize(224), got {what}")
    implied = given.encoded and not any(op.kind == "decode" for op in ops)
    steps, spec, slot = [], given, 0
    for op in [Decode(), *ops] if implied else ops:
        spec = op.out(spec)
        steps.append(Step(op, spec, slot, implied and not steps))
        slot += bool(op.draws)
    return steps
