"""The page's tables, bars and chart of steps: HTML and SVG without a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from fastfeed.html_page import Markup, bullets, escape, section, table
from fastfeed.printable import plural
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.format import duration, interval, multiple, one_line, percent
from fastfeed.profiler.model.result import (
    DeviceResult,
    FeedResult,
    RankResult,
    Result,
    TimeBreakdown,
)
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
        h_in = 100 * waited[index] / top
        h_all = 100 * idle[index] / top
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


MAX_ROWS = 128  # rows
_MIN_STEP_SHARE = 0.001  # of a step: smaller causes share a row
_CLASSES = {
    "step": "length",
    "compute": "computing",
    "comm": "exposed communication",
    "h2d": "exposed copies to the GPU",
    "other": "exposed other copies",
    "overhead": "profiler",
    "idle": "idle",
}


def colored(cause: Cause) -> Markup:
    """The title of a cause after a sample of its color."""
    return Markup(f"{swatch(cause.color)}{escape(cause.title)}")


def per_step(device: DeviceResult) -> Markup:
    """The parts of a steady step, and how much steps vary; "" with too few steps.

    The means of the classes add up to the step, and those of the causes to its idle part.
    """
    titles = {about.key: about.title for about in Cause} | _CLASSES
    rows = []
    rest = []
    for key, spread in device.per_step.items():
        step = device.per_step["step"].mean
        if key not in _CLASSES and spread.mean < _MIN_STEP_SHARE * step:
            rest.append(spread.mean)
            continue
        share = interval(spread.low, spread.high) or percent(spread.mean / max(step, 1))
        times = map(duration, (spread.mean, spread.median, spread.p95))
        rows.append([titles.get(key, key), *times, "" if key == "step" else share])
    if rest:
        rows.append([plural(len(rest), "smaller cause"), duration(sum(rest)), "", "", ""])
    head = ("Per step", "#mean", "#median", "#95th percentile", "#share, 95 % interval")
    return table(head, rows)


def functions(device: DeviceResult) -> Markup:
    """The functions that the host was in while the device was idle for long; "" without any."""
    steps = figures.steps_judged(device)
    rows = [
        [
            Markup(f"<b>{escape(one_line(str(time), 120))}</b>"),
            one_line(time.inside, 120),
            colored(time.cause),
            percent(device.judged.share(time.ns)),
            duration(time.ns / (steps or 1)),
            f"{time.gaps:,}",
        ]
        for time in device.functions
    ]
    head = ("~Function", "~mostly in", "~kind", "#of the time")
    lines = table([*head, "#per step" if steps else "#in all", "#gaps"], rows, stacked=True)
    about = "What the late thread was in, for gaps of a millisecond or more."
    start = f'<h3>In which functions</h3><p class="soft">{about}</p>'
    return Markup(start + lines if lines else "")


def devices(all_devices: list[DeviceResult]) -> Markup:
    """One row per device, in the order given."""
    rows = []
    for device in all_devices[:MAX_ROWS]:
        budget = device.judged.budget
        steps = figures.steps_judged(device)
        rows.append(
            [
                one_line(device.label, 120),
                percent(device.share.value),
                percent(budget.idle / budget.window if budget.window else 0.0),
                stacked_bar(budget, small=True),
                figures.computing(device),
                figures.top_cause(device),
                duration(device.comm_wait),
                _blame(device),
                duration(budget.window / steps) if steps else "–",
                percent(device.launches / device.ops) if device.ops else "–",
            ]
        )
    head = ("~Device", "#input", "#idle", "time", "#computing", "mostly idle for")
    head += ("#waits for peers", "for", "#step", "#launches found")
    more = len(all_devices) - MAX_ROWS
    note = f"<p>{more} more devices are in the JSON report.</p>" if more > 0 else ""
    return section("Devices", table(head, rows), note)


def _blame(device: DeviceResult) -> str:
    """The rank it waited for longest inside collectives, and why that rank was late."""
    charge = max(device.charges, key=lambda charge: charge.ns, default=None)
    if charge is None:
        return ""
    why = f": {charge.cause.title}" if charge.cause is not None else ""
    return one_line(charge.late_rank, 40) + why


def ranks(all_ranks: Sequence[RankResult]) -> Markup:
    """Table of the time that each rank waited, and that others waited for it."""
    rows = [
        [
            one_line(rank.label, 120),
            duration(rank.waited_ns),
            duration(rank.blamed_ns),
            multiple(rank.kernels) if rank.kernels is not None else "–",
            f"{rank.collectives:,}",
            duration(rank.offset_ns),
        ]
        for rank in sorted(all_ranks, key=lambda rank: -rank.blamed_ns)[:MAX_ROWS]
    ]
    head = ("~Rank", "#waited for others", "#others waited for it", "#kernels take")
    return section(
        "Ranks, inside collectives", table([*head, "#collectives", "#clock offset"], rows)
    )


def feeds(all_feeds: Sequence[FeedResult]) -> Markup:
    """One row per timeline of a feed."""
    rows = []
    for feed in all_feeds[:MAX_ROWS]:
        stages = sorted(feed.stages.items(), key=lambda item: -item[1][1])[:8]
        work = (f"{one_line(name, 24)} {duration(ns)} in {n:,}" for name, (n, ns) in stages)
        rows.append(
            [
                one_line(feed.name or feed.feed, 80),
                str(feed.rank),
                f"{feed.batches:,}",
                duration(feed.span_ns),
                percent(feed.wait_share) if feed.span_ns > 0 else "–",
                str(feed.threads),
                ", ".join(work),
            ]
        )
    head = ("~Feed", "#rank", "#batches", "#time", "#trainer waited", "#threads")
    lines = table([*head, "~stages, all threads together"], rows, stacked=True)
    return section("Feeds", lines)


def phases(device: DeviceResult) -> Markup:
    """Parts of the run other than steady training, with what to change about each."""
    rows = [
        [
            row.title,
            percent(row.share),
            duration(row.ns),
            percent(row.idle),
            Markup(
                f'{escape(row.change)}<br><span class="soft">'
                f"{escape(_largest_causes(row.causes))}</span>"
            ),
        ]
        for row in figures.phase_rows(device)
    ]
    head = ("Part", "#of the recording", "#time", "#idle of that", "~Change")
    return section("The run", table(head, rows, stacked=True))


def _largest_causes(causes: Mapping[Cause, int]) -> str:
    largest = sorted(causes.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{cause.title} {duration(ns)}" for cause, ns in largest if ns > 0)


def cold(device: DeviceResult) -> Markup:
    """Causes of idle time before the first steady step."""
    if device.cold is None or not device.cold.idle:
        return Markup("")
    causes = [
        Markup(f"{colored(cause)} <b>{escape(duration(ns))}</b>")
        for cause, ns in sorted(device.cold.causes.items(), key=lambda item: -item[1])
        if ns > 0
    ]
    return section(
        "Warm-up (excluded)",
        f"<p>{plural(device.cold.steps, 'step')} before the first steady step, idle for"
        f" {escape(duration(device.cold.idle))}.</p>",
        bullets(causes, "legend"),
    )


def recording(result: Result) -> Markup:
    """The files, and the parts that are missing from their recording."""
    rows = []
    for origin in result.origins[:MAX_ROWS]:
        lacks = [] if origin.host_calls else ["host calls"]
        lacks += [f"{plural(origin.dropped, 'dropped record')}"] if origin.dropped else []
        lacks += ["events dropped by sampling"] if origin.sampled else []
        version = f"{one_line(origin.dialect, 20)} {one_line(origin.version, 40)}"
        rows.append([one_line(str(origin.path), 300), version, ", ".join(lacks) or "nothing"])
    origins = result.origins[:MAX_ROWS]
    notes = [*result.notes, *(note for origin in origins for note in origin.notes)]
    unique = list(dict.fromkeys(one_line(note, 600) for note in notes))[:40]
    heading = "<h3>Notes</h3>" if unique else ""
    files = table(("~File", "format", "lacks"), rows, stacked=True)
    return section("How it was recorded", files, heading, bullets(unique))
