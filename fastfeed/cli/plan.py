"""`fastfeed plan SOURCE --world-size 256 --batch 128`: what a cluster will read, before it is rented."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import numpy as np

    from fastfeed.feed.cluster_plan import Simulation

__all__ = ["plan"]

_CHUNK = 8 << 20  # bytes that a disk cache fetches at once


def plan(
    source: Annotated[str, typer.Argument(help="Folder, shards (train-{000..099}.tar), table; local or s3://...")],
    world_size: Annotated[int, typer.Option("--world-size", "-w", min=1, help="Ranks in all.")] = 8,
    batch: Annotated[int, typer.Option("--batch", "-b", min=1, help="Samples per rank per step.")] = 128,
    ranks_per_node: Annotated[int, typer.Option(min=1, help="Ranks of one machine; they share a cache.")] = 8,
    speed: Annotated[float, typer.Option(min=0.001, help="Images/s that one rank trains on.")] = 1000.0,
    blocks: Annotated[int, typer.Option(min=0, help="Shuffle shards, this many at a time per lane; 0: all.")] = 0,
    lanes: Annotated[int, typer.Option(min=1, help="Streams that every batch is drawn from, with --blocks.")] = 64,
    seed: Annotated[int, typer.Option(help="Of the run to plan.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="Of the run to plan.")] = 0,
    label: Annotated[str | None, typer.Option(help="As the source takes it; none is needed to plan.")] = None,
    storage: Annotated[list[str] | None, typer.Option("--storage-option", help="name=value for fsspec.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Draw ranks, time and shards: a PNG.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Work out what every rank reads in an epoch: samples, bytes, shards, requests per second. Reads no image."""
    import json

    from fastfeed.cli.open_source import open_source
    from fastfeed.distributed.world import World
    from fastfeed.errors import ConfigError
    from fastfeed.feed.cluster_plan import simulate
    from fastfeed.sampling.plan import Blocks, Plan, Shuffle

    if out is not None and (out.suffix.lower() != ".png" or not out.resolve().parent.is_dir()):
        raise ConfigError(f"--out must be a .png in an existing folder, got {out}")
    opened = open_source(source, label, storage or [])
    shuffle: Shuffle = Blocks(window=blocks, lanes=lanes).bind(opened) if blocks else "full"
    made = Plan.make(len(opened), batch=batch, seed=seed, world=World(0, world_size), shuffle=shuffle)
    found = simulate(opened, made, epoch, ranks_per_node)
    if as_json:
        typer.echo(json.dumps(figures(found, speed, ranks_per_node), indent=1))
    else:
        _show(found, speed, ranks_per_node)
    if out is not None:
        from fastfeed.cli.plan_picture import draw

        draw(found).save(out)
        Console(stderr=as_json).print(f"ranks, time and shards -> [bold]{out}[/]", highlight=False)


def figures(found: Simulation, speed: float, ranks_per_node: int) -> dict[str, object]:
    """All that the table shows, as numbers."""
    plan = found.plan
    seconds = plan.steps * plan.batch / speed  # rank 0's batch; others differ by one sample at most
    per_node = min(ranks_per_node, plan.world.size)
    chunks = found.node_units_read * max(1.0, -(-found.unit_bytes // _CHUNK))
    return {
        "ranks": plan.world.size,
        "steps": plan.steps,
        "global_batch": plan.global_batch,
        "epoch_s": seconds,
        "followed_steps": len(found.steps),
        "units": found.units,
        "samples_per_rank": _range(found.samples),
        "bytes_per_rank": _range(found.bytes),
        "imbalance": found.imbalance,
        "units_per_rank_epoch": _range(found.units_read),
        "units_per_rank_step": _range(found.per_step),
        "units_per_global_batch": _range(found.in_batch),
        "units_per_node_epoch": _range(found.node_units_read),
        "requests_per_s_rank": speed,
        "requests_per_s_all": speed * plan.world.size,
        "bytes_per_s_rank": float(found.bytes.mean()) / seconds,
        "bytes_per_s_all": float(found.bytes.sum()) / seconds,
        "cached_requests_per_s_node": float(chunks.mean()) / seconds,
        "cached_bytes_per_s_node": float(found.node_units_read.mean()) * found.unit_bytes / seconds,
        "ranks_per_node": per_node,
    }


def _range(values: np.ndarray) -> dict[str, float]:
    return {"least": float(values.min()), "mean": float(values.mean()), "most": float(values.max())}


def _show(found: Simulation, speed: float, ranks_per_node: int) -> None:
    console, plan, f = Console(), found.plan, figures(found, speed, ranks_per_node)
    console.print(f"{found.source!r}", soft_wrap=True, highlight=False)
    console.print(
        f"{plan.world.size} ranks x batch {plan.batch} = {plan.global_batch:,} samples per step, {plan.steps:,} steps, "
        f"shuffle {plan.shuffle}; an epoch takes {_time(f['epoch_s'])} at {speed:g} images/s per rank",
        soft_wrap=True,
        highlight=False,
    )
    if not found.is_complete:
        console.print(f"[yellow]{len(found.steps):,} evenly spread steps were followed; shards are counted in those[/]")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "least", "mean", "most"):
        table.add_column(name, justify="left" if not name else "right")
    rows = (
        ("samples per rank and epoch", found.samples, _count),
        ("bytes per rank and epoch", found.bytes, _size),
        ("shards per rank and epoch", found.units_read, _count),
        ("shards per rank and step", found.per_step, _count),
        ("shards in a global batch", found.in_batch, _count),
        (f"shards per machine ({f['ranks_per_node']} ranks) and epoch", found.node_units_read, _count),
    )
    for name, values, text in rows:
        table.add_row(name, *(text(float(v)) for v in (values.min(), values.mean(), values.max())))
    console.print(table)
    console.print(f"imbalance: the busiest rank reads {found.imbalance:.1%} more than the mean", highlight=False)
    rates = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "requests/s", "bytes/s"):
        rates.add_column(name, justify="left" if not name else "right")
    rates.add_row("one read per sample, per rank", _count(speed), _size(f["bytes_per_s_rank"]))
    rates.add_row("one read per sample, all ranks", _count(f["requests_per_s_all"]), _size(f["bytes_per_s_all"]))
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
    number = float(value)  # type: ignore[arg-type]
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            return f"{number:.3g} {unit}"
        number /= 1000
    raise AssertionError


def _time(seconds: object) -> str:
    whole = float(seconds)  # type: ignore[arg-type]
    hours, rest = divmod(round(whole), 3600)
    return (
        f"{whole:.1f} s"
        if whole < 60
        else f"{hours}:{rest // 60:02d}:{rest % 60:02d} h"
        if hours
        else f"{whole / 60:.1f} min"
    )
