"""Bars and the chart of steps: HTML and SVG without a script."""

from __future__ import annotations

from html import escape
from itertools import pairwise

import numpy as np

from fastfeed.printable import printable
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.format import duration, one_line, percent
from fastfeed.profiler.model.result import DeviceResult, TimeBreakdown
from fastfeed.profiler.reports import figures
from fastfeed.profiler.reports.picture import LOOK

__all__ = ["escaped", "idle_bar", "stacked_bar", "steps", "swatch"]

COLUMNS = 240  # of the chart of steps
STARVED_LINE = 0.05  # a step above it is starved


def escaped(text: str) -> str:
    """Escaped for HTML, including quoted attributes, line by line without control characters."""
    return escape("\n".join(printable(line, None) for line in text.split("\n")), quote=True)


def swatch(color: str) -> str:
    """A color sample for a legend; "" is idle time."""
    return (
        f'<i class="swatch" style="background:{color}"></i>'
        if color
        else '<i class="swatch idle"></i>'
    )


def stacked_bar(budget: TimeBreakdown, small: bool = False) -> str:
    """A window split into its parts."""
    if budget.window <= 0:
        return ""
    parts = []
    for key, title in figures.PARTS.items():
        ns = getattr(budget, key)
        if ns > 0:
            share = ns / budget.window
            look = f"background:{LOOK[key][1]}" if key in LOOK else ""
            label = escaped(f"{title} {percent(share)}, {duration(ns)}")
            parts.append(
                f'<i class="{"" if look else "idle"}" style="flex:{share:.6f};{look}"'
                f' title="{label}"></i>'
            )
    summary = ", ".join(
        f"{title} {percent(getattr(budget, key) / budget.window)}"
        for key, title in figures.PARTS.items()
    )
    return (
        f'<div class="bar{" small" if small else ""}" role="img"'
        f' aria-label="{escaped(summary)}">{"".join(parts)}</div>'
    )


def idle_bar(rows: list[figures.CauseRow]) -> str:
    """Idle time split into its causes."""
    total = sum(row.ns for row in rows)
    parts = "".join(
        f'<i style="flex:{row.ns / total:.6f};background:{row.cause.color}" '
        f'title="{escaped(f"{row.cause.title} {percent(row.share)}, {duration(row.ns)}")}"></i>'
        for row in rows
    )
    label = ", ".join(f"{row.cause.title} {percent(row.ns / total)}" for row in rows)
    return (
        '<div class="bar" role="img"'
        f' aria-label="{escaped(f"Of the idle time: {label}")}">{parts}</div>'
    )


def steps(device: DeviceResult) -> str:
    """Input wait and other idle time per step, as columns; several steps share a column if there
    are many.
    """
    count = len(device.steps.spans)
    if not count:
        return ""
    shares = figures.step_shares(device)
    edges = np.unique(np.linspace(0, count, min(count, COLUMNS) + 1).astype(int))
    waited = np.add.reduceat(shares.input, edges[:-1]) / np.diff(edges)
    other = np.add.reduceat(shares.idle, edges[:-1]) / np.diff(edges)
    color, top = Cause.INPUT.color, _top(float((waited + other).max(initial=0)))
    columns = []
    for index, (low, high) in enumerate(pairwise(edges.tolist())):
        label = _label(device, low) + (f" to {_label(device, high - 1)}" if high - low > 1 else "")
        title = (
            f"{label}: input {percent(waited[index])}, idle {percent(waited[index] + other[index])}"
        )
        x, width = 1000 * low / count, 1000 * (high - low) / count
        pad = width * 0.12 if len(edges) < 120 else 0.0
        dull = "" if device.steps.steady[low:high].any() else ' opacity=".35"'
        h_in, h_all = 100 * waited[index] / top, 100 * (waited[index] + other[index]) / top
        columns.append(
            f"<g{dull}><title>{escaped(title)}</title>"
            f'<rect x="{x + pad:.2f}" y="{100 - h_all:.2f}" width="{width - 2 * pad:.2f}"'
            f' height="{h_all - h_in:.2f}" '
            f'fill="#8b8d98"/><rect x="{x + pad:.2f}" y="{100 - h_in:.2f}"'
            f' width="{width - 2 * pad:.2f}" '
            f'height="{h_in:.2f}" fill="{color}"/></g>'
        )
    y = 100 - 100 * STARVED_LINE / top
    marks = "".join(
        f'<span style="bottom:{100 * fraction:.0f}%">{percent(fraction * top)[:-4]} %</span>'
        for fraction in (0, 0.5, 1)
    )
    method = (
        f", found by {escaped(one_line(device.steps.found_by, 80))}"
        if device.steps.found_by
        else ""
    )
    about = (
        f"{count:,} steps{method}. Columns: {swatch(color)}waiting for input,"
        f" {swatch('#8b8d98')}other idle time, as shares of the step. Pale columns are left out of"
        " the verdict. The line is at 5 %."
    )
    drawn = (
        '<svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escaped(_chart_label(device, shares))}">{"".join(columns)}'
        f'<path d="M0 {y:.2f}H1000" stroke="{color}" stroke-dasharray="4 4" '
        'vector-effect="non-scaling-stroke"/></svg>'
    )
    ends = "".join(f"<span>{escaped(_label(device, index))}</span>" for index in (0, count - 1))
    return (
        f'<section><h2>Step by step</h2><p class="soft">{about}</p><div'
        f' class="chart">{marks}{drawn}</div><div class="ends">{ends}</div></section>'
    )


def _top(highest: float) -> float:
    """The end of the axis."""
    return next((top for top in (0.1, 0.2, 0.4, 0.6, 0.8) if highest <= top), 1.0)


def _label(device: DeviceResult, index: int) -> str:
    return (
        one_line(device.steps.labels[index], 40)
        if index < len(device.steps.labels)
        else f"step {index}"
    )


def _chart_label(device: DeviceResult, shares: figures.StepShares) -> str:
    over = float((shares.input > STARVED_LINE).mean()) if len(shares.input) else 0.0
    return (
        f"{len(shares.input)} steps; {percent(over)} of them wait for input more than 5 % of their"
        " time"
    )
