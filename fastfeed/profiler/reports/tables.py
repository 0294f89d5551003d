"""The page's tables: devices, ranks, feeds, cold start, how it was recorded."""

from __future__ import annotations

from collections.abc import Sequence

from fastfeed.profiler.model.causes import CAUSES
from fastfeed.profiler.model.format import duration, one_line, percent, plural
from fastfeed.profiler.model.result import DeviceResult, FeedResult, RankResult, Result
from fastfeed.profiler.reports import figures
from fastfeed.profiler.reports.charts import escaped, stacked_bar, swatch

__all__ = ["cold", "devices", "feeds", "per_step", "ranks", "recording", "table"]

MOST = 128  # rows
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
    """Rows of HTML under titles: "#title" is a column of numbers, "~title" one of texts that may break anywhere.

    On a phone a stacked table has its cells below each other, with their titles; others scroll.
    """
    looks = [{"#": ' class="num"', "~": ' class="any"'}.get(title[:1], "") for title in head]
    plain_head = [escaped(title.lstrip("#~")) for title in head]
    titles = "".join(f'<th scope="col"{look}>{title}</th>' for title, look in zip(plain_head, looks, strict=True))
    lines = []
    for row in rows:
        cells = "".join(
            f'<td{look} data-title="{title}">{cell}</td>' if cell else "<td></td>"
            for title, look, cell in zip(plain_head, looks, row, strict=True)
        )
        lines.append(f"<tr>{cells}</tr>")
    look = ' class="stacked"' if stacked else ""
    made = f"<table{look}><thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{plain_head[0]}: table">{made}</div>'


def per_step(device: DeviceResult) -> str:
    """What a steady step is made of, and how far steps differ; nothing where there are too few."""
    titles = {about.key: about.title for about in CAUSES.values()} | _CLASSES
    rows = [
        [
            escaped(titles.get(key, key)),
            escaped(duration(one.median)),
            escaped(duration(one.p95)),
            "" if key == "step" else escaped(f"{percent(one.low)} to {percent(one.high)}"),
        ]
        for key, one in device.per_step.items()
    ]
    return table(("Per step", "#median", "#95th percentile", "#share, 95 % interval"), rows) if rows else ""


def devices(many: list[DeviceResult]) -> str:
    """One row for each, the one that waits most first."""
    rows = []
    for one in many[:MOST]:
        budget, steps = one.judged.budget, figures.steps_judged(one)
        rows.append([
            escaped(one_line(one.label, 120)),
            escaped(percent(one.share.value)),
            escaped(percent(budget.idle / budget.window if budget.window else 0.0)),
            stacked_bar(budget, small=True),
            escaped(figures.top_cause(one)),
            escaped(duration(one.comm_wait)),
            _blame(one),
            escaped(duration(budget.window / steps)) if steps else "–",
            escaped(percent(one.launches / one.ops)) if one.ops else "–",
        ])  # fmt: skip
    head = (
        "~Device",
        "#input",
        "#idle",
        "time",
        "idle mostly for",
        "#waits for peers",
        "for",
        "#step",
        "#launches found",
    )
    more = f"<p>{len(many) - MOST} more devices are in the JSON report.</p>" if len(many) > MOST else ""
    return f"<section><h2>Devices</h2>{table(head, rows)}{more}</section>"


def _blame(one: DeviceResult) -> str:
    """For whom it waited longest inside collectives, and why that one was late."""
    charge = max(one.charges, key=lambda charge: charge.ns, default=None)
    if charge is None:
        return ""
    why = f": {CAUSES[charge.cause].title}" if charge.cause is not None else ""
    return escaped(one_line(charge.culprit, 40) + why)


def ranks(many: Sequence[RankResult]) -> str:
    """Who waited, and who was waited for."""
    if not many:
        return ""
    rows = [
        [
            escaped(one_line(one.label, 120)),
            escaped(duration(one.waited_ns)),
            escaped(duration(one.blamed_ns)),
            f"{one.collectives:,}",
            escaped(duration(one.offset_ns)),
        ]
        for one in sorted(many, key=lambda one: -one.blamed_ns)[:MOST]
    ]
    head = ("~Rank", "#waited for others", "#others waited for it", "#collectives", "#clock offset")
    return f"<section><h2>Ranks, inside collectives</h2>{table(head, rows)}</section>"


def feeds(many: Sequence[FeedResult]) -> str:
    """What fastfeed's own timeline says."""
    if not many:
        return ""
    rows = []
    for one in many[:MOST]:
        stages = sorted(one.stages.items(), key=lambda item: -item[1][1])
        rows.append([
            escaped(one_line(one.name or one.feed, 80)),
            str(one.rank),
            f"{one.batches:,}",
            escaped(duration(one.span_ns)),
            escaped(percent(one.waited_ns / one.span_ns)) if one.span_ns > 0 else "–",
            str(one.threads),
            escaped(", ".join(f"{one_line(name, 24)} {duration(ns)} in {spans:,}" for name, (spans, ns) in stages[:8])),
        ])  # fmt: skip
    head = ("~Feed", "#rank", "#batches", "#time", "#trainer waited", "#threads", "~stages, all threads together")
    return f"<section><h2>Feeds</h2>{table(head, rows, stacked=True)}</section>"


def cold(device: DeviceResult) -> str:
    """What the start was idle for."""
    if device.cold is None or not device.cold.idle:
        return ""
    items = "".join(
        f"<li>{swatch(CAUSES[cause].color)}{escaped(CAUSES[cause].title)} <b>{escaped(duration(ns))}</b></li>"
        for cause, ns in sorted(device.cold.causes.items(), key=lambda item: -item[1])
        if ns > 0
    )
    steps = plural(device.cold.steps, "step")
    return (
        f"<section><h2>Left out: the start</h2><p>{escaped(steps)} before the steady ones, idle for "
        f'{escaped(duration(device.cold.idle))}.</p><ul class="legend">{items}</ul></section>'
    )


def recording(result: Result) -> str:
    """Files, and what their recording leaves out."""
    lines = []
    for one in result.origins[:MOST]:
        lacks = [] if one.host_calls else ["host calls"]
        lacks += [f"{plural(one.dropped, 'dropped record')}"] if one.dropped else []
        lacks += ["events that were sampled away"] if one.sampled else []
        version = f"{one_line(one.dialect, 20)} {one_line(one.version, 40)}"
        lines.append(
            [escaped(one_line(str(one.path), 300)), escaped(version), escaped(", ".join(lacks) or "nothing known")]
        )
    notes = [*result.notes, *(note for origin in result.origins[:MOST] for note in origin.notes)]
    unique = list(dict.fromkeys(one_line(note, 600) for note in notes))
    said = "".join(f"<li>{escaped(note)}</li>" for note in unique[:40])
    said = f'<h3>Notes</h3><ul class="said">{said}</ul>' if said else ""
    files = table(("~File", "format", "lacks"), lines, stacked=True) if lines else ""
    return f"<section><h2>How it was recorded</h2>{files}{said}</section>" if files or said else ""
