"""What moved between two analyses: one screen of text, and a document for programs."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.text import Text

from fastfeed.profiler.compare.changes import Comparison, DeviceChange, MetricChange, Side
from fastfeed.profiler.model.format import WORDS, duration, one_line, percent, plural
from fastfeed.profiler.reports import layout
from fastfeed.profiler.reports.layout import Sheet

__all__ = ["SCHEMA", "as_dict", "render"]

SCHEMA = "fastfeed.comparison/1"
WIDEST = 120  # longer lines are hard to read
CAUSES = 8  # rows
FAINT = 0.0005  # of the window: a cause below it on both sides has no row
OTHERS = 6  # devices beside the first
STYLES = {"better": "bold green", "worse": "bold red"}  # else bold yellow
MARKS = {"less": "less", "more": "more", "same": "~", "unknown": "?"}
FIGURES = 48  # columns beside the name of a row


def render(comparison: Comparison, console: Console) -> None:
    """Print the comparison. Nothing in it is read as markup, and no line is wider than the console."""
    sheet = Sheet(console, max(40, min(console.width, WIDEST)), 3)
    for line in _lines(comparison, sheet):
        line.rstrip()
        console.print(layout.encodable(line, console), no_wrap=True, overflow="crop", highlight=False, crop=True)


def _lines(made: Comparison, sheet: Sheet) -> list[Text]:
    word = made.outcome.upper()
    found = sheet.labeled(
        word, one_line(made.sentence, 600), style=STYLES.get(made.outcome, "bold yellow"), indent=len(word) + 2, lines=5
    )
    first = made.devices[0] if made.devices else None
    found += _side("Before", made.before, _count(first, "before"), sheet)
    found += _side("After", made.after, _count(first, "after"), sheet)
    if first:
        found += [Text(""), *_table(first, sheet)]
        found += _others(made.devices[1:], sheet)
    for said, note in enumerate(made.notes[:4]):
        found += sheet.labeled("" if said else "Note", one_line(note, 400), style="dim")
    return found


def _count(change: DeviceChange | None, side: str) -> str:
    if change is None:
        return ""
    device = getattr(change, side)
    steps = int(device.steps.steady.sum()) if device.steady is not None else 0
    return plural(steps, "step") if steps else f"no steady steps in {duration(device.whole.budget.window)}"


def _side(label: str, side: Side, steps: str, sheet: Sheet) -> list[Text]:
    word = WORDS.get(side.word, one_line(side.word, 20).upper())
    said = " · ".join(part for part in (word, steps) if part) + " · "
    more = f" and {len(side.paths) - 1} more" if len(side.paths) > 1 else ""
    name = one_line(side.paths[0], 4_000) if side.paths else "no file"
    room = max(12, sheet.room - len(said) - len(more))
    if len(name) > room:  # what tells two files apart is at the end
        name = "…" + name[1 - room :]
    return sheet.labeled(label, said + name + more, lines=1)


def _table(change: DeviceChange, sheet: Sheet) -> list[Text]:
    """Of one device: the step, the budget, the causes that moved most."""
    timed = change.step.before_ns is not None
    name = sheet.width - FIGURES
    what = "ms per step" if timed else "share"
    head = f"{layout.fitted(one_line(change.label, 60), name)}{'before':>9}{'after':>9}{'change':>9}  95 % interval"
    found = [Text(head, style="dim"), *_rows([change.step] if timed else [], name, timed)]
    found += _rows([move for move in change.parts if move.before or move.after], name, timed)
    found.append(Text(f"idle for, {what}", style="dim"))
    seen = [move for move in change.causes if max(move.before, move.after) >= FAINT]
    shown = seen if len(seen) == CAUSES + 1 else seen[:CAUSES]
    found += _rows(shown, name, timed)
    if len(change.causes) > len(shown):
        found.append(Text(f"{len(change.causes) - len(shown)} more are smaller or moved less", style="dim"))
    return found


def _rows(moves: tuple[MetricChange, ...] | list[MetricChange], name: int, timed: bool) -> list[Text]:
    return [_row(move, name, timed) for move in moves]


def _row(move: MetricChange, name: int, timed: bool) -> Text:
    if timed and move.before_ns is not None and move.after_ns is not None:
        figures = f"{_ms(move.before_ns):>9}{_ms(move.after_ns):>9}{_ms(move.after_ns - move.before_ns, True):>9}"
    else:
        points = (move.after - move.before) * 100
        figures = f"{percent(move.before):>9}{percent(move.after):>9}{f'{points:+.1f}'.replace('-0.0', '+0.0'):>9}"
    interval = f"{_ms(move.change_ns[1], True)}..{_ms(move.change_ns[2], True)}" if move.change_ns else ""
    style = {"less": "green", "more": "red"}.get(move.moved, "dim")
    if move.key == "compute":
        style = ""  # more of it may be good or bad
    return Text.assemble(
        f"{layout.fitted(move.title, name)}{figures}  {interval:<14}", (f" {MARKS[move.moved]}", style)
    )


def _ms(ns: float, signed: bool = False) -> str:
    value = ns / 1e6
    digits = 1 if abs(value) >= 10 else 2
    return f"{value:{'+' if signed else ''},.{digits}f}"


def _others(changes: tuple[DeviceChange, ...], sheet: Sheet) -> list[Text]:
    """One line for each other device."""
    found = []
    for change in changes[:OTHERS]:
        step = change.step
        text = f"input {percent(change.input.before)} -> {percent(change.input.after)}"
        if step.before_ns is not None and step.after_ns is not None:
            text += f", step {duration(step.before_ns)} -> {duration(step.after_ns)}"
        found.append(Text(f"{layout.fitted(one_line(change.label, 60), sheet.width - FIGURES)}  {text}"))
    if len(changes) > OTHERS:
        found.append(Text(f"{plural(len(changes) - OTHERS, 'more device')}: --json", style="dim"))
    return found


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """Numbers, strings, lists and dicts, as json.dumps takes them. Shares are fractions of 1, causes stable keys."""
    return {
        "schema": SCHEMA,
        "outcome": comparison.outcome,
        "sentence": comparison.sentence,
        "before": _side_dict(comparison.before),
        "after": _side_dict(comparison.after),
        "devices": [_change_dict(change) for change in comparison.devices],
        "only_before": list(comparison.only_before),
        "only_after": list(comparison.only_after),
        "notes": list(comparison.notes),
    }


def _side_dict(side: Side) -> dict[str, Any]:
    return {"paths": list(side.paths), "verdict": side.word, "reasons": list(side.reasons), "devices": side.devices}


def _change_dict(change: DeviceChange) -> dict[str, Any]:
    return {
        "before": change.before.label,
        "after": change.after.label,
        "rank": change.after.rank,
        "speedup": change.speedup,
        "step": _move_dict(change.step),
        "input": _move_dict(change.input),
        "budget": [_move_dict(move) for move in change.parts],
        "causes": [_move_dict(move) for move in change.causes],
    }


def _move_dict(move: MetricChange) -> dict[str, Any]:
    change = [value if math.isfinite(value) else None for value in move.change_ns] if move.change_ns else None
    return {
        "key": move.key.removeprefix("cause:"),
        "title": move.title,
        "before": move.before,
        "after": move.after,
        "before_ns_per_step": move.before_ns,
        "after_ns_per_step": move.after_ns,
        "change_ns_per_step": dict(zip(("value", "low", "high"), change, strict=True)) if change else None,
        "moved": move.moved,
    }
