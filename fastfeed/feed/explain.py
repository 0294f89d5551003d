"""Text for `print(feed)`: the user's ops, the fused stages, and the spec after each."""

from __future__ import annotations

import dataclasses
import itertools
import math
import textwrap
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastfeed.decode.memory_limit import DECODING
from fastfeed.feed.batch_sizes import most_rows
from fastfeed.feed.fields import Field, image_names, view_names
from fastfeed.ops.base import SizeChoice
from fastfeed.ops.function import Function
from fastfeed.ops.map import Map
from fastfeed.ops.program.program import Program
from fastfeed.ops.program.window import Step
from fastfeed.printable import format_size
from fastfeed.sampling import Buckets
from fastfeed.sampling.plan import Plan
from fastfeed.sources.notes import notes_text, source_notes, with_notes

if TYPE_CHECKING:
    from fastfeed.backends.base import Backend
    from fastfeed.feed.config import FeedConfig

_LONG = 60  # characters of a field's value
_WIDTH = 120  # characters of a line of fields
_UNBROKEN = "\N{NO-BREAK SPACE}"  # no line ends here


def short(op: Any) -> str:
    """`RandomFlip()`, `Resize(256)`: an op with the fields that differ from their defaults."""
    if isinstance(op, (Function, Map, SizeChoice)):
        return repr(op)
    if dataclasses.is_dataclass(op) and op == _imagenet(type(op)):
        return f"{type(op).__name__}.imagenet()"
    parts = []
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if field.default is dataclasses.MISSING:
            parts.append(_value(value))
        elif value != field.default:
            parts.append(f"{field.name}={_value(value)}")
    return f"{type(op).__name__}({', '.join(parts)})"


def _value(value: Any) -> str:
    if dataclasses.is_dataclass(value):
        return short(value)
    if isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value)):
        return f"[{', '.join(map(short, value))}]"
    text = repr(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 4]}...{text[-1]}"


def _imagenet(kind: type[Any]) -> Any:
    return kind.imagenet() if hasattr(kind, "imagenet") else None


def feed_text(
    config: FeedConfig, backend: Backend, encoded: int, fields: Mapping[str, Field | None]
) -> str:
    """The lines of `print(feed)`; `encoded`: bytes that files take before they are decoded."""
    source = config.source
    plan = config.plan
    program = config.program
    world = plan.world
    ranks = (
        f", rank {world.rank} of {world.size} (global {plan.global_batch})"
        if world.size > 1
        else ""
    )
    about = repr(source)
    notes = source_notes(source)
    counted = notes_text(notes)  # others say all of them in a line
    count = config.buffers
    views = view_names(program)
    size = _batch_bytes(config, (fields[name] for name in fields if name not in views))
    rows = None if plan.counts else plan.batch
    images = [_field_text(fields[name], rows) for name in image_names(program)]
    lines = [
        with_notes(f"Feed from {about}", notes if counted and about.endswith(counted) else []),
        (
            f"  batch {plan.batch}{ranks}, {plan.steps} steps per epoch, "
            f"shuffle {plan.shuffle}, tail {plan.tail}, seed {plan.seed}"
        ),
        *_bucket_text(plan),
        f"  {_threads_text(config)}",
        program_text(program, backend.decode_path()),
        (
            f"  a batch is {' and '.join(images)}, {format_size(size)}; "
            f"at most {count} in {backend.memory_name} ({format_size(count * size)})"
        ),
        _fields_text(fields, views, rows),
    ]
    if program.decode is not None:
        memory = config.memory or 2 * DECODING.bytes
        limit = f"{memory / 2**30:,.1f} GiB" if memory >= 1 << 30 else format_size(memory)
        lines.append(
            f"  decoding holds at most {limit} at once (an image that needs more is decoded alone),"
            f" encoded files {format_size(encoded)}"
        )
    return "\n".join(lines)


def _threads_text(config: FeedConfig) -> str:
    threads = f"{config.threads} thread{'s' * (config.threads != 1)}"
    if config.side_process:
        threads += " of a helper process"
    batches = f"{config.prefetch} batch{'es' * (config.prefetch != 1)}"
    listed = f", listed in {Path(config.quarantine)}" if config.quarantine is not None else ""
    return f"{threads}, {batches} ahead, bad samples: {config.policy.action}{listed}"


def placed_text(name: str, config: FeedConfig, raw: bool, fields: Iterable[Field | None]) -> str:
    """The line for a device that holds these fields; `raw`: it converts images from bytes."""
    plan = config.plan
    program = config.program
    size = _batch_bytes(config, fields)
    count = config.buffers
    text = f"placed on {name}: at most {count} batches, {format_size(count * size)}"
    if raw:
        size = most_rows(program, plan) * math.prod(program.shape)
        text += (
            f", and the bytes of one, {format_size(size)}, which becomes {program.spec.dtype} there"
        )
    return text


def _bucket_text(plan: Plan) -> list[str]:
    """The line of images by size, if batches differ in their number."""
    order = plan.shuffle
    if not plan.counts or not isinstance(order, Buckets):
        return []
    sizes = dict.fromkeys(sorted(order.bucket_sizes, key=math.prod))
    texts = [f"{order.images_of(size)} of {size[0]}x{size[1]}" for size in sizes]
    ranks = " over all ranks" if plan.world.size > 1 else ""
    return [f"  images of a batch{ranks}, by its size: {', '.join(texts)}"]


def _batch_bytes(config: FeedConfig, fields: Iterable[Field | None]) -> int:
    """Most bytes of a batch: fields that differ from batch to batch are of the largest size."""
    most = most_rows(config.program, config.plan)
    rows = config.plan.batch
    known = [field for field in fields if field is not None]
    return sum(field.nbytes * (most if field.largest else rows) for field in known)


def _field_text(field: Field | None, batch: int | None) -> str:
    if field is None:
        return "of the type and size that is read"
    sides = ("?" if side is None else str(side) for side in (batch, *field.shape))
    return f"{field.dtype}[{', '.join(sides)}]"


def _fields_text(
    fields: Mapping[str, Field | None], views: Collection[str], batch: int | None
) -> str:
    """Lines of names with dtypes and shapes; consecutive views of one shape share it."""
    texts = {name: _field_text(field, batch) for name, field in fields.items()}
    runs = itertools.groupby(texts, lambda name: (texts[name], name in views or name))
    parts = [f"{', '.join(names)} {text}".replace(" ", _UNBROKEN) for (text, _), names in runs]
    lines = textwrap.fill(
        f"  its fields: {', '.join(parts)}",
        _WIDTH,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(_UNBROKEN, " ")


def program_text(program: Program, path: str) -> str:
    """Two tables: the ops as written, and the stages that run."""
    written = [
        (
            _named(s.image, short(s.op)) + ("  (added automatically)" if s.implied else ""),
            str(s.spec),
        )
        for s in program.steps
    ]
    runs: list[tuple[str, ...]] = []
    for branch in (program, *program.others):
        if not runs or branch.image:
            read = _named(branch.image, "read")
            kind = "bytes" if branch.input_spec.encoded else "arrays"
            runs.append((read, kind, str(branch.input_spec)))
        runs += _branch(branch)
    if program.targets is not None:
        smoothed = (
            f", {program.targets.smoothing:g} of each spread over all"
            if program.targets.smoothing
            else ""
        )
        runs.append(("labels", f"soft labels{smoothed}", f"float32[{program.targets.classes}]"))
    for op in program.maps:
        runs.append(("map", f"{op!r}, yours, in Python", ", ".join(op.out_names)))
    runs_as = "  runs as"
    if program.by_size is not None:
        runs_as += ", for the largest size that batches have"
    lines = ["  you wrote", *_columns(written), runs_as, *_columns(runs), f"    on {path}"]
    return "\n".join(lines)


def _named(image: str, text: str) -> str:
    return f"{image}: {text}" if image else text


def _branch(program: Program) -> list[tuple[str, ...]]:
    """The stages of one program, from bytes to the batch."""
    verb = "decode" if program.input_spec.encoded else "cut"
    several = f"{program.views} views: " if program.views else ""
    runs = [
        (
            verb,
            f"{several}{_window(program.window)}, one {' or '.join(program.filters)} resampling",
            str(program.pixels),
        )
    ]
    for link in program.chain:
        first = link.steps[0].op
        own = sorted(
            {repr(op) for layer in link.layers for op in layer.ops if isinstance(op, Function)}
        )
        yours = f": {', '.join(own)}, yours, in Python" if own else ""
        what = _window(link.steps) if first.kind == "geometry" else f"{type(first).__name__}{yours}"
        runs.append(("change", what, str(link.spec)))
    if program.mix is not None:
        op = program.mix.op
        partners = f"{type(op).__name__}, in random groups of {op.group} of the global batch"
        partners += ", by one draw" if op.per == "batch" else ""
        partners += "" if op.off_epoch is None else f", before epoch {op.off_epoch}"
        runs.append(("mix", partners, str(program.augmented)))
    if program.spec != program.augmented:
        how = "layout" if program.convert.keeps_bytes else "scale and offset"
        how += " by table" if program.pixels.has_kernel and how != "layout" else ""
        how = "scale and offset by image" if program.convert.standardized else how
        runs.append(("convert", how, str(program.spec)))
    return runs


def _window(steps: tuple[Step, ...]) -> str:
    return " + ".join(type(s.op).__name__ for s in steps) or "whole image"


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    return ["    " + "  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows]
