"""The page's tables: devices, ranks, feeds, phases, cold start, recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.format import duration, interval, multiple, one_line, percent, plural
from fastfeed.profiler.model.result import DeviceResult, FeedResult, RankResult, Result
from fastfeed.profiler.reports import figures
from fastfeed.profiler.reports.charts import escaped, stacked_bar, swatch

__all__ = [
    "cold",
    "devices",
    "feeds",
    "functions",
    "per_step",
    "phases",
    "ranks",
    "recording",
    "table",
]

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


def table(head: Sequence[str], rows: Sequence[Sequence[str]], stacked: bool = False) -> str:
    """An HTML table.

    A title "#title" is a column of numbers, "~title" a column of texts that may break anywhere.

    On a phone, a stacked table shows its cells below each other with their titles; other tables
    scroll.
    """
    looks = [{"#": ' class="num"', "~": ' class="any"'}.get(title[:1], "") for title in head]
    plain_head = [escaped(title.lstrip("#~")) for title in head]
    titles = "".join(
        f'<th scope="col"{look}>{title}</th>' for title, look in zip(plain_head, looks, strict=True)
    )
    lines = []
    for row in rows:
        cells = "".join(
            f'<td{look} data-title="{title}">{cell}</td>' if cell else "<td></td>"
            for title, look, cell in zip(plain_head, looks, row, strict=True)
        )
        lines.append(f"<tr>{cells}</tr>")
    look = ' class="stacked"' if stacked else ""
    html = f"<table{look}><thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{plain_head[0]}:'
        f' table">{html}</div>'
    )


def per_step(device: DeviceResult) -> str:
    """Where the time of a steady step goes, and how much steps vary; "" with too few steps.

    The means of the classes add up to the step, and those of the causes to its idle part.
    """
    titles = {about.key: about.title for about in Cause} | _CLASSES
    rows, rest = [], []
    for key, spread in device.per_step.items():
        is_small = spread.mean < _MIN_STEP_SHARE * device.per_step["step"].mean
        if key not in _CLASSES and is_small:
            rest.append(spread.mean)
            continue
        share = percent(spread.mean / max(device.per_step["step"].mean, 1))
        ends = "" if key == "step" else interval(spread.low, spread.high) or share
        cells = (
            titles.get(key, key),
            duration(spread.mean),
            duration(spread.median),
            duration(spread.p95),
            ends,
        )
        rows.append([escaped(cell) for cell in cells])
    if rest:
        rows.append(
            [escaped(plural(len(rest), "smaller cause")), escaped(duration(sum(rest))), "", "", ""]
        )
    head = ("Per step", "#mean", "#median", "#95th percentile", "#share, 95 % interval")
    return table(head, rows) if rows else ""


def functions(device: DeviceResult) -> str:
    """The functions that the host was in while the device was idle for long; "" without any."""
    steps = figures.steps_judged(device)
    rows = [
        [
            f"<b>{escaped(one_line(str(time), 120))}</b>",
            escaped(one_line(time.inside, 120)),
            f"{swatch(time.cause.color)}{escaped(time.cause.title)}",
            escaped(percent(figures.share_of_window(device.judged, time.ns))),
            escaped(duration(time.ns / (steps or 1))),
            f"{time.gaps:,}",
        ]
        for time in device.functions
    ]
    head = (
        "~Function",
        "~mostly in",
        "~kind",
        "#of the time",
        "#per step" if steps else "#in all",
        "#gaps",
    )
    about = "What the late thread was in, for gaps of a millisecond or more."
    return (
        f'<h3>In which functions</h3><p class="soft">{about}</p>{table(head, rows, stacked=True)}'
        if rows
        else ""
    )


def devices(all_devices: list[DeviceResult]) -> str:
    """One row per device, in the order given."""
    rows = []
    for device in all_devices[:MAX_ROWS]:
        budget, steps = device.judged.budget, figures.steps_judged(device)
        rows.append(
            [
                escaped(one_line(device.label, 120)),
                escaped(percent(device.share.value)),
                escaped(percent(budget.idle / budget.window if budget.window else 0.0)),
                stacked_bar(budget, small=True),
                escaped(figures.computing(device)),
                escaped(figures.top_cause(device)),
                escaped(duration(device.comm_wait)),
                _blame(device),
                escaped(duration(budget.window / steps)) if steps else "–",
                escaped(percent(device.launches / device.ops)) if device.ops else "–",
            ]
        )
    head = (
        "~Device",
        "#input",
        "#idle",
        "time",
        "#computing",
        "mostly idle for",
        "#waits for peers",
        "for",
        "#step",
        "#launches found",
    )
    more = (
        f"<p>{len(all_devices) - MAX_ROWS} more devices are in the JSON report.</p>"
        if len(all_devices) > MAX_ROWS
        else ""
    )
    return f"<section><h2>Devices</h2>{table(head, rows)}{more}</section>"


def _blame(device: DeviceResult) -> str:
    """The rank it waited for longest inside collectives, and why that rank was late."""
    charge = max(device.charges, key=lambda charge: charge.ns, default=None)
    if charge is None:
        return ""
    why = f": {charge.cause.title}" if charge.cause is not None else ""
    return escaped(one_line(charge.culprit, 40) + why)


def ranks(all_ranks: Sequence[RankResult]) -> str:
    """How long each rank waited, and was waited for."""
    if not all_ranks:
        return ""
    rows = [
        [
            escaped(one_line(rank.label, 120)),
            escaped(duration(rank.waited_ns)),
            escaped(duration(rank.blamed_ns)),
            multiple(rank.kernels) if rank.kernels is not None else "–",
            f"{rank.collectives:,}",
            escaped(duration(rank.offset_ns)),
        ]
        for rank in sorted(all_ranks, key=lambda rank: -rank.blamed_ns)[:MAX_ROWS]
    ]
    head = (
        "~Rank",
        "#waited for others",
        "#others waited for it",
        "#kernels take",
        "#collectives",
        "#clock offset",
    )
    return f"<section><h2>Ranks, inside collectives</h2>{table(head, rows)}</section>"


def feeds(all_feeds: Sequence[FeedResult]) -> str:
    """fastfeed's own timelines."""
    if not all_feeds:
        return ""
    rows = []
    for feed in all_feeds[:MAX_ROWS]:
        stages = sorted(feed.stages.items(), key=lambda item: -item[1][1])
        rows.append(
            [
                escaped(one_line(feed.name or feed.feed, 80)),
                str(feed.rank),
                f"{feed.batches:,}",
                escaped(duration(feed.span_ns)),
                escaped(percent(feed.wait_share)) if feed.span_ns > 0 else "–",
                str(feed.threads),
                escaped(
                    ", ".join(
                        f"{one_line(name, 24)} {duration(ns)} in {spans:,}"
                        for name, (spans, ns) in stages[:8]
                    )
                ),
            ]
        )
    head = (
        "~Feed",
        "#rank",
        "#batches",
        "#time",
        "#trainer waited",
        "#threads",
        "~stages, all threads together",
    )
    return f"<section><h2>Feeds</h2>{table(head, rows, stacked=True)}</section>"


def phases(device: DeviceResult) -> str:
    """Parts of the run other than steady training, with what to change about each."""
    lines = [
        [
            escaped(row.title),
            escaped(percent(row.share)),
            escaped(duration(row.ns)),
            escaped(percent(row.idle)),
            (
                f"{escaped(row.change)}<br><span"
                f' class="soft">{escaped(_largest_causes(row.causes))}</span>'
            ),
        ]
        for row in figures.phase_rows(device)
    ]
    if not lines:
        return ""
    head = ("Part", "#of the recording", "#time", "#idle of that", "~Change")
    return f"<section><h2>The run</h2>{table(head, lines, stacked=True)}</section>"


def _largest_causes(causes: Mapping[Cause, int]) -> str:
    largest = sorted(causes.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{cause.title} {duration(ns)}" for cause, ns in largest if ns > 0)


def cold(device: DeviceResult) -> str:
    """Why the GPU was idle before the first steady step."""
    if device.cold is None or not device.cold.idle:
        return ""
    items = "".join(
        f"<li>{swatch(cause.color)}{escaped(cause.title)} <b>{escaped(duration(ns))}</b></li>"
        for cause, ns in sorted(device.cold.causes.items(), key=lambda item: -item[1])
        if ns > 0
    )
    steps = plural(device.cold.steps, "step")
    return (
        f"<section><h2>Warm-up (excluded)</h2><p>{escaped(steps)} before the first steady step,"
        " idle for "
        f'{escaped(duration(device.cold.idle))}.</p><ul class="legend">{items}</ul></section>'
    )


def recording(result: Result) -> str:
    """The files, and what is missing from their recording."""
    lines = []
    for origin in result.origins[:MAX_ROWS]:
        lacks = [] if origin.host_calls else ["host calls"]
        lacks += [f"{plural(origin.dropped, 'dropped record')}"] if origin.dropped else []
        lacks += ["events dropped by sampling"] if origin.sampled else []
        version = f"{one_line(origin.dialect, 20)} {one_line(origin.version, 40)}"
        lines.append(
            [
                escaped(one_line(str(origin.path), 300)),
                escaped(version),
                escaped(", ".join(lacks) or "nothing"),
            ]
        )
    notes = [
        *result.notes,
        *(note for origin in result.origins[:MAX_ROWS] for note in origin.notes),
    ]
    unique = list(dict.fromkeys(one_line(note, 600) for note in notes))
    notes_html = "".join(f"<li>{escaped(note)}</li>" for note in unique[:40])
    notes_html = f'<h3>Notes</h3><ul class="notes">{notes_html}</ul>' if notes_html else ""
    files = table(("~File", "format", "lacks"), lines, stacked=True) if lines else ""
    return (
        f"<section><h2>How it was recorded</h2>{files}{notes_html}</section>"
        if files or notes_html
        else ""
    )
