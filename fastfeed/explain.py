"""What a feed will do, in words: the user's list, what it was fused into, and the spec after every stage."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fastfeed.ops.fuse import Program
from fastfeed.plan import Plan

__all__ = ["feed_text", "megabytes", "placed_text", "program_text", "short"]


def short(op: Any) -> str:
    """`RandomFlip()`, `Resize(256)`: an op with the fields that differ from their defaults."""
    if dataclasses.is_dataclass(op) and op == _imagenet(type(op)):
        return f"{type(op).__name__}.imagenet()"
    parts = []
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if field.default is dataclasses.MISSING:
            parts.append(repr(value))
        elif value != field.default:
            parts.append(f"{field.name}={value!r}")
    return f"{type(op).__name__}({', '.join(parts)})"


def _imagenet(kind: type[Any]) -> Any:
    return kind.imagenet() if hasattr(kind, "imagenet") else None


def feed_text(source: Any, plan: Plan, program: Program, how: str, path: str, held: int, where: str) -> str:
    """What a feed will do; `held` batches are in memory at most, in the memory that is called `where`."""
    spec, world = program.spec, plan.world
    ranks = f", rank {world.rank} of {world.size} (global {plan.global_batch})" if world.size > 1 else ""
    shape = (plan.batch, *spec.shape)
    lines = [
        f"Feed from {source!r}",
        f"  batch {plan.batch}{ranks}, {plan.steps} steps per epoch, "
        f"shuffle {plan.shuffle}, tail {plan.tail}, seed {plan.seed}",
        f"  {how}",
        program_text(program, path),
        f"  a batch is {spec.dtype}[{', '.join(map(str, shape))}], {megabytes(shape, spec.dtype)}; "
        f"at most {held} are in {where}, {megabytes(shape, spec.dtype, held)}",
    ]
    return "\n".join(lines)


def placed_text(name: str, plan: Plan, program: Program, held: int, raw: bool) -> str:
    """What a device holds of a feed's batches; `raw`: they arrive as bytes and are converted there."""
    shape, spec = (plan.batch, *program.spec.shape), program.spec
    text = f"placed on {name}: at most {held} batches, {megabytes(shape, spec.dtype, held)}"
    if raw:
        text += f", and the bytes of one, {megabytes(shape, 'uint8')}, which becomes {spec.dtype} there"
    return text


def program_text(program: Program, path: str) -> str:
    """The two tables: what was written, what runs."""
    wrote = [(short(s.op) + ("  (put in for you)" if s.implied else ""), str(s.spec)) for s in program.steps]
    geometry = " + ".join(type(s.op).__name__ for s in program.window) or "whole image"
    runs = [("read", "bytes" if program.given.encoded else "arrays", str(program.given))]
    verb = "decode" if program.given.encoded else "cut"
    runs.append((verb, f"{geometry}, one {program.filter} resampling", str(program.pixels)))
    if program.spec != program.pixels:
        how = "layout" if program.convert.keeps_bytes else "scale and offset by table"
        runs.append(("convert", how, str(program.spec)))
    lines = ["  you wrote", *_columns(wrote), "  runs as", *_columns(runs), f"    on {path}"]
    return "\n".join(lines)


def megabytes(shape: tuple[int | None, ...], dtype: str, count: int = 1) -> str:
    """The size of `count` arrays."""
    size = count * math.prod(n or 0 for n in shape) * np.dtype(dtype).itemsize
    return f"{size / 1e6:.1f} MB"


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    return ["    " + "  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows]
