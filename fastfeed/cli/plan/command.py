"""`fastfeed plan SOURCE --world-size 256 --batch 128`: compute what each rank will read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fastfeed.cli.open_source import (
    AllowHost,
    AllowPath,
    AllowScheme,
    Epoch,
    Seed,
    Split,
    StorageOption,
    allowed,
    open_source,
)
from fastfeed.cli.screen.help import ACCESS, MORE, argument, flag, option
from fastfeed.cli.screen.streams import Console, show_written
from fastfeed.printable import format_size, plural

if TYPE_CHECKING:
    import numpy as np

    from fastfeed.cli.plan.cluster import Simulation
    from fastfeed.cli.plan.files import SampleGroups
    from fastfeed.sampling.plan import Plan
    from fastfeed.sources.base import Source

# by default, if there is enough data
_RANKS = 8
_BATCH = 128
_LEAST_STEPS = 4  # of a picture
_CHUNK = 8 << 20  # bytes that a disk cache fetches at once


def plan(
    source: Annotated[
        str, argument("SOURCE", "Folder of images, shards or a table, local or s3://...")
    ],
    world_size: Annotated[
        int | None,
        option("N", "Ranks. Default: 8, or what the data allows.", "--world-size", "-w", min=1),
    ] = None,
    batch: Annotated[
        int | None,
        option("N", "Samples per rank and step. Default: 128, or less.", "--batch", "-b", min=1),
    ] = None,
    ranks_per_node: Annotated[
        int, option("N", "Ranks per machine; they share a disk cache.", panel=MORE, min=1)
    ] = 8,
    speed: Annotated[float, option("X", "Images per second of one rank.", min=0.001)] = 1000.0,
    blocks: Annotated[
        int,
        option(
            "N",
            "Shards per lane and window, as in ff.Blocks. 0: shuffle all samples.",
            panel=MORE,
            min=0,
        ),
    ] = 0,
    lanes: Annotated[
        int, option("N", "Lanes that every batch is drawn from, with --blocks.", panel=MORE, min=1)
    ] = 64,
    out: Annotated[
        Path | None, option("PNG", "Also draw a picture of what is read when.", "--out", "-o")
    ] = None,
    as_json: Annotated[bool, flag("Print the result as JSON.", "--json")] = False,
    seed: Seed = 0,
    epoch: Epoch = 0,
    label: Annotated[
        str | None,
        option(
            "NAME",
            "Label: a member, field or column of shards or a table. Not needed to plan.",
            panel=ACCESS,
        ),
    ] = None,
    split: Split = None,
    storage_option: StorageOption = None,
    allow_path: AllowPath = None,
    allow_host: AllowHost = None,
    allow_scheme: AllowScheme = None,
) -> None:
    """Compute what each rank of a cluster will read. No image is read.

    Examples:
        fastfeed plan photos/                                # 8 ranks
        fastfeed plan 'train-{000..099}.tar' -w 256          # 256 ranks
        fastfeed plan 'train-{000..099}.tar' -o plan.png     # and a picture
    """
    import json

    from fastfeed.distributed.world import World
    from fastfeed.errors import ConfigError
    from fastfeed.sampling import Blocks, Shuffle
    from fastfeed.sampling.plan import Plan

    if out is not None and (out.suffix.lower() != ".png" or not out.resolve().parent.is_dir()):
        raise ConfigError(f"--out must be a .png in an existing folder, got {out}")
    allow = allowed(allow_path, allow_host, allow_scheme)
    opened = open_source(source, label, storage_option or [], allow=allow, split=split)
    shuffle: Shuffle = Blocks(window=blocks, lanes=lanes).bind(opened) if blocks else "full"
    ranks = min(_RANKS, len(opened) // (batch or 1) or 1) if world_size is None else world_size
    per_rank = min(_BATCH, len(opened) // ranks or 1) if batch is None else batch
    plan = Plan.make(len(opened), batch=per_rank, seed=seed, world=World(0, ranks), shuffle=shuffle)
    drawn = out if plan.steps >= _LEAST_STEPS else None
    simulation, groups = _simulated(opened, plan, epoch, ranks_per_node, drawn is not None)
    if as_json:
        typer.echo(json.dumps(figures(simulation, speed, ranks_per_node), indent=1))
    else:
        _show(simulation, speed, ranks_per_node)
    if drawn is not None:
        from fastfeed.cli.plan.picture import draw

        draw(simulation, groups).save(drawn)
        show_written(Console(stderr=as_json), "picture", out)
    elif out is not None:
        Console(stderr=as_json).plain(
            "no picture: it shows how steps differ, and the epoch has"
            f" {plural(plan.steps, 'step')}, fewer than {_LEAST_STEPS}; pass a smaller --batch"
            " or --world-size"
        )


def figures(simulation: Simulation, speed: float, ranks_per_node: int) -> dict[str, object]:
    """Everything in the table, as numbers."""
    plan = simulation.plan
    seconds = plan.steps * plan.batch / speed  # rank 0's batch; others differ by one sample at most
    per_node = min(ranks_per_node, plan.world.size)
    chunks = simulation.node_units_read * max(1.0, -(-simulation.unit_bytes // _CHUNK))
    known = bool(simulation.bytes.any())
    cached = float(simulation.node_units_read.mean()) * simulation.unit_bytes / seconds
    return {
        "ranks": plan.world.size,
        "steps": plan.steps,
        "global_batch": plan.global_batch,
        "epoch_s": seconds,
        "followed_steps": len(simulation.steps),
        "units": simulation.units,
        "samples_per_rank": _range(simulation.samples),
        "bytes_per_rank": _range(simulation.bytes) if known else None,
        "imbalance": simulation.imbalance,
        "units_per_rank_epoch": _range(simulation.units_read),
        "units_per_rank_step": _range(simulation.per_step),
        "units_per_global_batch": _range(simulation.in_batch),
        "units_per_node_epoch": _range(simulation.node_units_read),
        "requests_per_s_rank": speed,
        "requests_per_s_all": speed * plan.world.size,
        "bytes_per_s_rank": float(simulation.bytes.mean()) / seconds if known else None,
        "bytes_per_s_all": float(simulation.bytes.sum()) / seconds if known else None,
        "cached_requests_per_s_node": float(chunks.mean()) / seconds,
        "cached_bytes_per_s_node": cached if known else None,
        "ranks_per_node": per_node,
    }


def _simulated(
    source: Source, plan: Plan, epoch: int, ranks_per_node: int, drawn: bool
) -> tuple[Simulation, SampleGroups | None]:
    """Simulation of an epoch, with groups of samples if the picture shows files."""
    from fastfeed.cli.plan.cluster import simulate
    from fastfeed.cli.plan.files import (
        file_sizes,
        group_samples,
        has_separate_files,
        with_mean_size,
    )
    from fastfeed.sources.base import Sharded

    if not drawn or (isinstance(source, Sharded) and len(source.bounds) > 2):
        return with_mean_size(simulate(source, plan, epoch, ranks_per_node)), None
    ids, sizes = file_sizes(source, all_sizes=True) if has_separate_files(source) else ((), None)
    groups = group_samples(source)
    sizes = sizes if len(ids) == len(source) else None
    simulation = simulate(source, plan, epoch, ranks_per_node, sizes=sizes, groups=groups.of)
    return with_mean_size(simulation), groups


def _range(values: np.ndarray) -> dict[str, float]:
    return {"least": float(values.min()), "mean": float(values.mean()), "most": float(values.max())}


def _show(simulation: Simulation, speed: float, ranks_per_node: int) -> None:
    from fastfeed.cli.plan.files import has_separate_files

    console = Console()
    plan = simulation.plan
    f = figures(simulation, speed, ranks_per_node)
    console.plain(str(simulation.source))
    console.plain(
        f"{plural(plan.world.size, 'rank')} x batch {plan.batch} ="
        f" {plural(plan.global_batch, 'sample')} per step, {plural(plan.steps, 'step')},"
        f" shuffle {plan.shuffle}; an epoch takes {_time(f['epoch_s'])} at {speed:g} images/s per"
        " rank"
    )
    if not simulation.is_complete:
        console.print(
            f"[yellow]{len(simulation.steps):,} evenly spread steps were simulated; shard counts"
            " cover only those[/]"
        )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "min", "mean", "max"):
        table.add_column(name, justify="left" if not name else "right")
    size = _size if simulation.bytes.any() else lambda value: "unknown"
    machine = plural(min(ranks_per_node, plan.world.size), "rank")
    rows = [
        ("samples per rank and epoch", simulation.samples, _count),
        ("bytes per rank and epoch", simulation.bytes, size),
        ("shards per rank and epoch", simulation.units_read, _count),
        ("shards per rank and step", simulation.per_step, _count),
        ("shards in a global batch", simulation.in_batch, _count),
        (f"shards per machine of {machine} and epoch", simulation.node_units_read, _count),
    ]
    files = has_separate_files(simulation.source)
    for name, values, text in rows[:2] if files else rows:
        table.add_row(name, *(text(float(v)) for v in (values.min(), values.mean(), values.max())))
    console.print(table)
    console.plain(
        f"imbalance: the busiest rank reads {simulation.imbalance:.1%} more than the mean"
    )
    rates = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "requests/s", "bytes/s"):
        rates.add_column(name, justify="left" if not name else "right")
    rates.add_row("one read per sample, per rank", _count(speed), _size(f["bytes_per_s_rank"]))
    total = _count(f["requests_per_s_all"]), _size(f["bytes_per_s_all"])
    rates.add_row("one read per sample, all ranks", *total)
    if files:
        console.print(rates)
        console.plain("each sample is a separate file, so a request; shards need fewer requests")
        return
    rates.add_row(
        f"through a disk cache of {_CHUNK >> 20} MiB chunks, per machine",
        _count(f["cached_requests_per_s_node"]),
        _size(f["cached_bytes_per_s_node"]),
    )
    console.print(rates)


def _count(value: object) -> str:
    number = float(value)  # type: ignore[arg-type]
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.1f}"


def _size(value: object) -> str:
    return "unknown" if value is None else format_size(float(value))  # type: ignore[arg-type]


def _time(seconds: object) -> str:
    total = float(seconds)  # type: ignore[arg-type]
    if total < 1:
        return f"{max(total * 1000, 1):.0f} ms"
    if total < 60:
        return f"{total:.1f} s"
    if total < 3600:
        return f"{total / 60:.1f} min"
    hours, rest = divmod(round(total), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d} h"
