"""A comparison as one self-contained HTML page: changes, and both timelines, aligned by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastfeed.html_page import Markup, bullets, escape, section, table
from fastfeed.profiler.compare.changes import (
    Comparison,
    DeviceChange,
    FeedChange,
    MetricChange,
    Side,
)
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.format import WORDS, duration, one_line, percent
from fastfeed.profiler.model.result import DeviceResult
from fastfeed.profiler.reports import figures, picture, sections, tables
from fastfeed.profiler.reports.page import self_contained
from fastfeed.profiler.reports.picture import LOOK
from fastfeed.profiler.reports.tables import swatch

PAIRS = 8  # devices with two timelines each
ANCHORS = 10_000  # steps that timelines are aligned by
MIN_SHARE = 0.0005  # of the window: a cause below this on both sides has no row
MAX_FEEDS = 16
_MOVES = {"less": "less", "more": "more", "same": "within noise", "unknown": "too few steps to say"}


def page(comparison: Comparison) -> str:
    """HTML text; write it as UTF-8."""
    title = f"Before and after: {comparison.outcome}"
    return self_contained(
        title,
        one_line(comparison.sentence, 300),
        _body(comparison),
        lambda rows: _data(comparison, rows),
    )


def _data(comparison: Comparison, rows: int) -> dict[str, Any]:
    devices = _devices(comparison)
    data = picture.timelines([(device, _zero(device)) for device in devices], rows)
    for drawn, device in zip(data["devices"], devices, strict=True):
        steady = (
            device.steps.spans[device.steps.steady][:ANCHORS]
            if figures.steps_judged(device)
            else ()
        )
        drawn["anchors"] = [int(start) - _zero(device) for start, _ in steady]
    return {**data, "aligned": True}


def _devices(comparison: Comparison) -> list[DeviceResult]:
    """Before and after of each pair that is shown."""
    return [
        device for change in comparison.devices[:PAIRS] for device in (change.before, change.after)
    ]


def _zero(device: DeviceResult) -> int:
    """The start of the first steady step: there both pictures begin."""
    judged = device.judged.spans
    return int(judged[0, 0]) if len(judged) else device.first


def _body(comparison: Comparison) -> str:
    parts = [_head(comparison)]
    if comparison.devices:
        parts += [_timelines(comparison), _changes(comparison.devices[0], len(comparison.devices))]
        parts += [_others(comparison.devices)]
    parts += [_feed(change) for change in comparison.feeds[:MAX_FEEDS]]
    parts.append(section("Notes", bullets(one_line(note, 600) for note in comparison.notes)))
    parts.append(
        "</main><footer>Made by fastfeed diff. docs/reading_a_report.md explains each"
        " part.</footer>"
    )
    return "\n".join(filter(None, parts))


def _head(comparison: Comparison) -> str:
    sides = [
        Markup(f"{title}: <b>{escape(WORDS.get(side.word, side.word))}</b>, {escape(_name(side))}")
        for title, side in (("Before", comparison.before), ("After", comparison.after))
    ]
    outcome = escape(comparison.outcome)
    return (
        f'<header><span class="word {outcome}">{outcome.upper()}</span>'
        f"<h1>{escape(one_line(_capitalized(comparison.sentence), 800))}</h1>"
        f"{bullets(sides, 'facts')}</header>\n<main>"
    )


def _capitalized(sentence: str) -> str:
    sentence = sentence.replace(" -> ", " → ")
    return sentence[:1].upper() + sentence[1:] + ("" if sentence.endswith(".") else ".")


def _name(side: Side) -> str:
    more = f" and {len(side.paths) - 1} more" if len(side.paths) > 1 else ""
    return (one_line(side.paths[0], 300) if side.paths else "no file") + more


def _changes(change: DeviceChange, count: int) -> str:
    of = f" of {one_line(change.label, 120)}" if count > 1 else ""
    step = [change.step] if change.step.before_ns is not None else []
    causes = [metric for metric in change.causes if max(metric.before, metric.after) >= MIN_SHARE]
    parts = [metric for metric in change.parts if metric.before or metric.after]
    lines = _table("Cause", causes)
    return section(
        f"What changed{of}",
        _table("Time", [*step, *parts]),
        f"<h3>Idle for</h3>{lines}" if lines else "",
    )


def _table(title: str, metrics: Sequence[MetricChange]) -> Markup:
    """Table of before, after and certainty: per step if there are steps, else as shares."""
    rows = []
    for metric in metrics:
        if metric.before_ns is not None and metric.after_ns is not None:
            before = duration(metric.before_ns)
            after = duration(metric.after_ns)
            change = _signed(metric.after_ns - metric.before_ns)
        else:
            before = percent(metric.before)
            after = percent(metric.after)
            change = f"{(metric.after - metric.before) * 100:+.1f} points"
        interval = " to ".join(map(_signed, metric.change_ns[1:])) if metric.change_ns else ""
        name = Markup(_swatch(metric) + escape(metric.title))
        rows.append([name, before, after, change, interval, _MOVES[metric.direction]])
    head = (title, "#before", "#after", "#change", "#95 % interval", "~moved")
    return table(head, rows, stacked=True)


def _swatch(metric: MetricChange) -> str:
    """Color swatch of a metric, as in the timelines."""
    if metric.key.startswith("cause:"):
        return swatch(Cause[metric.name.upper()].color)
    return swatch(LOOK[metric.key][1]) if metric.key in LOOK else ""


def _signed(ns: float) -> str:
    return ("+" if ns > 0 else "") + duration(ns)


def _timelines(comparison: Comparison) -> str:
    devices = _devices(comparison)
    about = (
        "Both begin in the same step, at the same scale: steps that became shorter end sooner. Time"
        " 0 is the first steady step. Top: steps. Middle: the GPU, with gaps in the color of their"
        " cause. Bottom: the host waits for input. Hover or tap for details. Drag to move,"
        " double-click to zoom in."
    )
    if len(comparison.devices) > PAIRS:
        about += f" {PAIRS} of {len(comparison.devices)} devices are shown."
    captions = [
        f"{'After' if index % 2 else 'Before'}: {device.label}"
        for index, device in enumerate(devices)
    ]
    return sections.timelines("Timelines, aligned by step", about, devices, captions)


def _others(changes: Sequence[DeviceChange]) -> str:
    if len(changes) < 2:
        return ""
    rows = [
        [
            one_line(change.label, 120),
            percent(change.input.before),
            percent(change.input.after),
            "–" if change.step.before_ns is None else duration(change.step.before_ns),
            "–" if change.step.after_ns is None else duration(change.step.after_ns),
        ]
        for change in changes[: tables.MAX_ROWS]
    ]
    head = ("~Device", "#input before", "#input after", "#step before", "#step after")
    return section("Devices", table(head, rows, stacked=True))


def _feed(change: FeedChange) -> str:
    before, after = change.batches
    counts = f"{before:,} batches before, {after:,} after."
    batch = [change.batch] if change.batch.before_ns is not None else []
    stages = _table("Stage", change.stages)
    return section(
        f"Feed {one_line(change.label, 120)}",
        f'<p class="soft">{counts} Of the trainer, from the first batch on.</p>',
        _table("Trainer", [*batch, change.wait]),
        f"<h3>Work per batch, all threads together</h3>{stages}" if stages else "",
    )
