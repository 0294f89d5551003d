"""Bars and the chart of steps: HTML and SVG without a script."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fastfeed.html_page import Markup, escape, section
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.format import duration, one_line, percent
from fastfeed.profiler.model.result import DeviceResult, TimeBreakdown
from fastfeed.profiler.reports import figures
from fastfeed.profiler.reports.picture import LOOK

COLUMNS = 240  # of the chart of steps
STARVED_LINE = 0.05  # a step above it is starved
_IDLE_COLOR = "#8b8d98"


def swatch(color: str) -> Markup:
    """A color sample for a legend; "" is idle time."""
    look = f'class="swatch" style="background:{color}"' if color else 'class="swatch idle"'
    return Markup(f"<i {look}></i>")


def stacked_bar(budget: TimeBreakdown, small: bool = False) -> Markup:
    """A window split into its parts."""
    if budget.window <= 0:
        return Markup("")
    parts = []
    shares = []
    for key, title in figures.PARTS.items():
        ns = getattr(budget, key)
        share = ns / budget.window
        shares.append(f"{title} {percent(share)}")
        if ns > 0:
            look = f"background:{LOOK[key][1]}" if key in LOOK else ""
            label = escape(f"{title} {percent(share)}, {duration(ns)}")
            parts.append(
                f'<i class="{"" if look else "idle"}" style="flex:{share:.6f};{look}"'
                f' title="{label}"></i>'
            )
    return _bar(parts, ", ".join(shares), " small" if small else "")


def idle_bar(rows: list[figures.CauseRow]) -> Markup:
    """Idle time split into its causes."""
    total = sum(row.ns for row in rows)
    parts = []
    for row in rows:
        cause = row.cause
        label = escape(f"{cause.title} {percent(row.share)}, {duration(row.ns)}")
        style = f"flex:{row.ns / total:.6f};background:{cause.color}"
        parts.append(f'<i style="{style}" title="{label}"></i>')
    shares = ", ".join(f"{row.cause.title} {percent(row.ns / total)}" for row in rows)
    return _bar(parts, f"Of the idle time: {shares}")


def _bar(parts: list[str], label: str, look: str = "") -> Markup:
    return Markup(
        f'<div class="bar{look}" role="img" aria-label="{escape(label)}">{"".join(parts)}</div>'
    )


def steps(device: DeviceResult) -> Markup:
    """Input wait and other idle time per step, as columns of one or several steps."""
    count = len(device.steps.spans)
    if not count:
        return Markup("")
    waiting, other = figures.step_shares(device)
    edges = np.unique(np.linspace(0, count, min(count, COLUMNS) + 1).astype(int))
    waited = np.add.reduceat(waiting, edges[:-1]) / np.diff(edges)
    idle = waited + np.add.reduceat(other, edges[:-1]) / np.diff(edges)
    color = Cause.INPUT.color
    highest = float(idle.max(initial=0))
    top = next((top for top in (0.1, 0.2, 0.4, 0.6, 0.8) if highest <= top), 1.0)
    columns = []
    for index, (low, high) in enumerate(pairwise(edges.tolist())):
        label = _label(device, low) + (f" to {_label(device, high - 1)}" if high - low > 1 else "")
        title = f"{label}: input {percent(waited[index])}, idle {percent(idle[index])}"
        width = 1000 * (high - low) / count
        pad = width * 0.12 if len(edges) < 120 else 0.0
        dull = "" if device.steps.steady[low:high].any() else ' opacity=".35"'
        place = f'x="{1000 * low / count + pad:.2f}"', f'width="{width - 2 * pad:.2f}"'
        h_in, h_all = 100 * waited[index] / top, 100 * idle[index] / top
        columns.append(
            f"<g{dull}><title>{escape(title)}</title>"
            f"{_column(place, h_all, h_all - h_in, _IDLE_COLOR)}"
            f"{_column(place, h_in, h_in, color)}</g>"
        )
    y = 100 - 100 * STARVED_LINE / top
    marks = "".join(
        f'<span style="bottom:{100 * fraction:.0f}%">{percent(fraction * top)[:-4]} %</span>'
        for fraction in (0, 0.5, 1)
    )
    found_by = device.steps.found_by
    method = f", found by {escape(one_line(found_by, 80))}" if found_by else ""
    about = (
        f"{count:,} steps{method}. Columns: {swatch(color)}waiting for input,"
        f" {swatch(_IDLE_COLOR)}other idle time, as shares of the step. Pale columns are left out of"
        " the verdict. The line is at 5 %."
    )
    over = float((waiting > STARVED_LINE).mean())
    label = f"{count} steps; {percent(over)} of them wait for input more than 5 % of their time"
    drawn = (
        '<svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">{"".join(columns)}<path d="M0 {y:.2f}H1000" stroke="{color}"'
        ' stroke-dasharray="4 4" vector-effect="non-scaling-stroke"/></svg>'
    )
    ends = "".join(f"<span>{escape(_label(device, index))}</span>" for index in (0, count - 1))
    return section(
        "Step by step",
        f'<p class="soft">{about}</p><div class="chart">{marks}{drawn}</div>',
        f'<div class="ends">{ends}</div>',
    )


def _column(place: tuple[str, str], top: float, height: float, color: str) -> str:
    x, width = place
    return f'<rect {x} y="{100 - top:.2f}" {width} height="{height:.2f}" fill="{color}"/>'


def _label(device: DeviceResult, index: int) -> str:
    labels = device.steps.labels
    return one_line(labels[index], 40) if index < len(labels) else f"step {index}"
