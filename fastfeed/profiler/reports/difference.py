"""A comparison of two analyses as one screen of text, and as a JSON document."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from fastfeed.printable import plural
from fastfeed.profiler.compare.changes import (
    Comparison,
    DeviceChange,
    FeedChange,
    MetricChange,
    Side,
)
from fastfeed.profiler.model.format import WORDS, duration, one_line, percent
from fastfeed.profiler.reports import layout
from fastfeed.profiler.reports.document import plain
from fastfeed.profiler.reports.layout import Sheet

SCHEMA = "fastfeed.comparison/1"
MAX_WIDTH = 120  # longer lines are hard to read
CAUSES = 8  # rows
MIN_SHARE = 0.0005  # of the window: a cause below this on both sides has no row
OTHERS = 6  # devices after the first
STYLES = {"better": "bold green", "worse": "bold red"}  # else bold yellow
MARKS = {"less": "less", "more": "more", "same": "~", "unknown": "?"}
FIGURES = 48  # columns after the name of a row


def render(comparison: Comparison, console: Console) -> None:
    """Print the comparison to a console.

    Text is never interpreted as markup, and no line is wider than the console.
    """
    sheet = Sheet(console, max(40, min(console.width, MAX_WIDTH)), 3)
    layout.show(_lines(comparison, sheet), console)


def _lines(comparison: Comparison, sheet: Sheet) -> list[Text]:
    word = comparison.outcome.upper()
    lines = sheet.labeled(
        word,
        one_line(comparison.sentence, 600),
        style=STYLES.get(comparison.outcome, "bold yellow"),
        indent=len(word) + 2,
        lines=5,
    )
    first = comparison.devices[0] if comparison.devices else None
    lines += _side("Before", comparison.before, _count(first, "before"), sheet)
    lines += _side("After", comparison.after, _count(first, "after"), sheet)
    if first:
        lines += [Text(""), *_table(first, sheet)]
        lines += _others(comparison.devices[1:], sheet)
    for feed in comparison.feeds[: 1 if first else OTHERS]:
        lines += [Text(""), *_feed(feed, sheet)]
    notes = [one_line(note, 400) for note in comparison.notes[:4]]
    return lines + sheet.listed("Note", notes, style="dim")


def _count(change: DeviceChange | None, side: str) -> str:
    if change is None:
        return "no GPU"
    device = getattr(change, side)
    steps = int(device.steps.steady.sum()) if device.steady is not None else 0
    if steps:
        return plural(steps, "step")
    return f"no steady steps in {duration(device.whole.budget.window)}"


def _side(label: str, side: Side, steps: str, sheet: Sheet) -> list[Text]:
    word = WORDS.get(side.word, one_line(side.word, 20).upper())
    summary = " · ".join(part for part in (word, steps) if part) + " · "
    more = f" and {len(side.paths) - 1} more" if len(side.paths) > 1 else ""
    name = one_line(side.paths[0], 4_000) if side.paths else "no file"
    room = max(12, sheet.room - len(summary) - len(more))
    if len(name) > room:  # the end of a path is what differs
        name = "…" + name[1 - room :]
    return sheet.labeled(label, summary + name + more, lines=1)


def _table(change: DeviceChange, sheet: Sheet) -> list[Text]:
    """One device: the step, the time breakdown, the causes that changed most."""
    timed = change.step.before_ns is not None
    name = sheet.width - FIGURES
    what = "ms per step" if timed else "share"
    step = [change.step] if timed else []
    parts = [metric for metric in change.parts if metric.before or metric.after]
    lines = [
        _head(one_line(change.label, 60), name),
        *(_row(metric, name, timed) for metric in [*step, *parts]),
    ]
    lines.append(Text(f"idle for, {what}", style="dim"))
    visible = [metric for metric in change.causes if max(metric.before, metric.after) >= MIN_SHARE]
    shown = visible if len(visible) == CAUSES + 1 else visible[:CAUSES]
    lines += [_row(metric, name, timed) for metric in shown]
    if len(change.causes) > len(shown):
        rest = len(change.causes) - len(shown)
        verb = "is" if rest == 1 else "are"
        lines.append(Text(f"{rest} more {verb} smaller or changed less", style="dim"))
    return lines


def _head(label: str, name: int) -> Text:
    columns = f"{'before':>9}{'after':>9}{'change':>9}  95 % interval"
    return Text(layout.fitted(label, name) + columns, style="dim")


def _feed(change: FeedChange, sheet: Sheet) -> list[Text]:
    """One feed: the time of a batch, what the trainer waited of it, and the work of each stage."""
    timed = change.batch.before_ns is not None
    name = sheet.width - FIGURES
    before, after = change.batches
    counts = f"{before:,} and {after:,} batches"
    lines = [_head(one_line(f"feed {change.label}, {counts}", 100), name)]
    batch = [change.batch] if timed else []
    lines += [_row(metric, name, timed) for metric in [*batch, change.wait]]
    if change.stages:
        lines.append(Text("work, ms per batch, all threads together", style="dim"))
    return lines + [_row(metric, name, True) for metric in change.stages[:CAUSES]]


def _row(metric: MetricChange, name: int, timed: bool) -> Text:
    if timed and metric.before_ns is not None and metric.after_ns is not None:
        before = _ms(metric.before_ns)
        after = _ms(metric.after_ns)
        change = _ms(metric.after_ns - metric.before_ns, True)
    else:
        before = percent(metric.before)
        after = percent(metric.after)
        change = f"{(metric.after - metric.before) * 100:+.1f}".replace("-0.0", "+0.0")
    figures = f"{before:>9}{after:>9}{change:>9}"
    interval = ""
    if metric.change_ns:
        interval = f"{_ms(metric.change_ns[1], True)}..{_ms(metric.change_ns[2], True)}"
    style = {"less": "green", "more": "red"}.get(metric.direction, "dim")
    if metric.key == "compute":
        style = ""  # more compute may be good or bad
    return Text.assemble(
        f"{layout.fitted(metric.title, name)}{figures}  {interval:<14}",
        (f" {MARKS[metric.direction]}", style),
    )


def _ms(ns: float, signed: bool = False) -> str:
    value = ns / 1e6
    digits = 1 if abs(value) >= 10 else 2
    return f"{value:{'+' if signed else ''},.{digits}f}"


def _others(changes: tuple[DeviceChange, ...], sheet: Sheet) -> list[Text]:
    """One line per other device."""
    lines = []
    for change in changes[:OTHERS]:
        step = change.step
        text = f"input {percent(change.input.before)} -> {percent(change.input.after)}"
        if step.before_ns is not None and step.after_ns is not None:
            text += f", step {duration(step.before_ns)} -> {duration(step.after_ns)}"
        name = layout.fitted(one_line(change.label, 60), sheet.width - FIGURES)
        lines.append(Text(f"{name}  {text}"))
    if len(changes) > OTHERS:
        lines.append(Text(f"{plural(len(changes) - OTHERS, 'more device')}: --json", style="dim"))
    return lines


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """Numbers, strings, lists and dicts, for json.dumps.

    Shares are fractions of 1, causes are stable keys.
    """
    return {"schema": SCHEMA, **plain(comparison, digits=99)}
