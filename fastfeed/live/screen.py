"""Rows for a terminal: a table if it is wide enough, else a few lines per feed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fastfeed.live.rates import Rates
from fastfeed.live.states import State
from fastfeed.live.watch import LONG_S, SHORT_S, FeedRow, FeedTable, lasts_about
from fastfeed.printable import printable

STYLES = {
    State.FED: "green",
    State.TIGHT: "yellow",
    State.STARVED: "red",
    State.SEVERE: "bold red",
    State.STALLED: "bold red",
    State.GPU_IDLE: "magenta",
    State.UNKNOWN: "dim",
}
# columns that the table needs, without GPUs and with them
_WIDE = 110
_GPU_WIDE = 145
_BARS = "▁▂▃▄▅▆▇█"
_LEGEND = (
    "waits, need, makes, ready, reads: exact (the feed's own) · step: framework · ~, CPU, GPU,"
    " remedy: estimate"
)


def screen(view: FeedTable, width: int, ascii_only: bool = False) -> RenderableType:
    """Everything, at most `width` columns wide."""
    parts: list[RenderableType] = []
    title = f"fastfeed watch, {time.strftime('%H:%M:%S', time.localtime(view.wall_s))}"
    parts.append(Text(title, style="bold"))
    if not view.rows:
        parts.append(Text("No feed is running. A feed appears here with its first batch."))
    elif width >= (_GPU_WIDE if any(row.gpu is not None for row in view.rows) else _WIDE):
        parts.append(_table(view.rows, width, ascii_only))
    else:
        for row in view.rows:
            parts.append(_block(row, width, ascii_only))
    if view.rows:
        parts.append(Text(_LEGEND if not ascii_only else _LEGEND.replace("·", "-"), style="dim"))
    parts += [Text(printable(note, None), style="dim") for note in view.notes]
    return Group(*parts)


def sparkline(waits: Sequence[float | None], width: int, ascii_only: bool = False) -> str:
    """Shares of time spent waiting (0 to 1), averaged to at most `width` marks; a space if unknown."""
    bars = " .:-=+*#"[: len(_BARS)] if ascii_only else _BARS
    each = max(1, -(-len(waits) // width))
    marks = [_mean(waits[max(0, end - each) : end]) for end in range(len(waits), 0, -each)][::-1]
    return "".join(
        " " if wait is None else bars[min(len(bars) - 1, int(wait * len(bars)))] for wait in marks
    )


def _mean(waits: Sequence[float | None]) -> float | None:
    known = [wait for wait in waits if wait is not None]
    return sum(known) / len(known) if known else None


def _table(rows: Sequence[FeedRow], width: int, ascii_only: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), expand=False)
    gpus = any(row.gpu is not None for row in rows)
    names = [
        "feed",
        "need/s",
        "makes/s",
        "waits 10s",
        "60s",
        "ready",
        "step",
        "reads",
        "CPU",
        *(["SM", "exposed", "NVJPG", "PCIe rx"] * gpus),
    ]
    for name in names:
        table.add_column(
            name, justify="left" if name == "feed" else "right", no_wrap=True, header_style="cyan"
        )
    table.add_column("last minutes", no_wrap=True, header_style="cyan")
    for row in rows:
        gpu = _gpu(row) if row.gpu is not None else [""] * 4
        style = STYLES[row.judgment.state]
        table.add_row(
            Text(_label(row), style=style),
            *_figures(row),
            *(gpu if gpus else []),
            sparkline(row.waits, max(10, width - (110 + 33 * gpus)), ascii_only),
        )
    grid = Table.grid()
    grid.add_row(table)
    for row in rows:
        grid.add_row(_sentence(row, f"{_label(row)}: " if len(rows) > 1 else ""))
    return grid


def _block(row: FeedRow, width: int, ascii_only: bool) -> RenderableType:
    need, make, _, _, ready, step, reads, cpu = _figures(row)
    lines = [Text(_label(row), style="bold"), _sentence(row, "")]
    waits = _waits(row.short) + (f", {_waits(row.long)}" if lasts_about(row.long, LONG_S) else "")
    lines.append(Text(f"waits {waits}"))
    lines.append(Text(f"needs {need}/s makes {make}/s"))
    lines.append(Text(f"ready {ready} step {step} CPU {cpu}"))
    lines.append(Text(f"reads {reads}"))
    if row.gpu is not None:
        sm, exposed, nvjpg, pcie = _gpu(row)
        lines.append(Text(f"SM {sm} exposed {exposed}"))
        lines.append(Text(f"NVJPG {nvjpg} PCIe {pcie}"))
    lines.append(Text(sparkline(row.waits, width, ascii_only)))
    return Group(*lines)


def _sentence(row: FeedRow, prefix: str) -> Text:
    text = Text(prefix)
    text.append(row.judgment.state.value, style=STYLES[row.judgment.state])
    text.append(
        printable(f": {row.judgment.reason}" + (f"; {row.remedy}" if row.remedy else ""), None)
    )
    return text


def _label(row: FeedRow) -> str:
    identity = row.page_file.page.identity
    counters = row.page_file.page.counters
    name = printable(str(identity.get("name") or identity["source"]))[:20]
    rank = f" rank {identity['rank']}" if identity.get("world", 1) > 1 else ""
    steps = (
        f" {counters['epoch']}:{counters['step']}/{identity['steps']}"
        if identity.get("steps")
        else ""
    )
    return f"{name}{rank} pid {identity['pid']}{steps}"


def _figures(row: FeedRow) -> list[str]:
    short = row.short
    long = row.long
    cpu = row.cpu
    usable = f"/{cpu.usable:g}" if cpu.usable else ""
    # of other loaders that is not known
    ahead = row.page_file.page.identity.get("prefetch") is not None
    return [
        _count(short and short.need),
        _make(short),
        _waits(short, SHORT_S),
        _waits(long, LONG_S) if lasts_about(long, LONG_S) else "-",
        f"{short.ready:.1f}" if short is not None and short.ready is not None and ahead else "-",
        (
            f"{short.framework_step_ms:.0f} ms"
            if short is not None and short.framework_step_ms is not None
            else "-"
        ),
        _reads(short),
        f"{cpu.cores:.1f}{usable}" if cpu.cores is not None else "-",
    ]


def _gpu(row: FeedRow) -> list[str]:
    """SM, waits that leave it idle, JPEG engines, copies to it."""
    assert row.gpu is not None
    exposed = "-" if row.exposed is None else f"~{row.exposed:.1%}"
    return [_share(row.gpu.sm), exposed, _share(row.gpu.nvjpg), _bytes(row.gpu.pcie_rx)]


def _reads(window: Rates | None) -> str:
    if window is None or window.read_rate is None:
        return "-"
    retried = (
        f", {window.retries} {'retry' if window.retries == 1 else 'retries'}"
        if window.retries
        else ""
    )
    return f"{window.read_rate / 1e6:,.0f} MB/s{retried}"


def _make(window: Rates | None) -> str:
    """Images/s that the feed can make, marked with "~" if it is more than it delivered."""
    if window is None or window.make is None:
        return "-"
    return ("" if window.make == window.delivered else "~") + _count(window.make)


def _waits(window: Rates | None, column: float = 0.0) -> str:
    """Share of time waiting, with its period unless the column is named after that."""
    if window is None or window.wait is None:
        return "-"
    return f"{window.wait:.1%}" + (
        "" if lasts_about(window, column) else f" in {window.seconds:.0f} s"
    )


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _bytes(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e9:.1f} GB/s"
