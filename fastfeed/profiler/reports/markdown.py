"""A compact Markdown report for a pull request: headline, table, and change to make."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fastfeed.printable import plural
from fastfeed.profiler.model.format import WORDS, duration, interval, one_line, percent
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.reports import figures

_MAX_DEVICES = 16  # rows
_MAX_CAUSES = 5  # rows
_MAX_FUNCTIONS = 3  # rows
_MEANS_SOMETHING = re.compile(r"([\\`*_{}\[\]<>|#~&])")


def as_markdown(result: Result) -> str:
    """Headline, devices, largest causes of idle time and recommended change as Markdown.

    Args:
        result (Result): What `analyze` returned.

    Returns:
        Lines that end with a newline. Names from the trace are escaped, so that they neither format
        nor mention.
    """
    verdict = result.verdict
    devices = figures.by_need(result)
    word = WORDS.get(verdict.word, verdict.word)
    parts = [f"**{_escaped(word)}** {_escaped(verdict.headline)}"]
    if devices:
        parts.append(_devices(devices))
        parts += [part(devices[0]) for part in (_causes, _functions, _phases)]
    parts += [f"**Because** {_escaped(reason)}" for reason in verdict.reasons[:2]]
    if verdict.record:
        parts.append(f"**Record** {_escaped(verdict.record)}")
    elif verdict.change:
        gain = figures.gain(result)
        parts.append(f"**Change** {_escaped(verdict.change)}" + (f" ({gain})" if gain else ""))
    parts += [f"**But** {_escaped(sentence)}" for sentence in verdict.counter_evidence[:2]]
    parts.append(f"<sub>{_escaped(' · '.join(_details(result, devices)))}</sub>")
    return "\n\n".join(part for part in parts if part) + "\n"


def _details(result: Result, devices: Sequence[DeviceResult]) -> list[str]:
    details = [result.verdict.confidence] if result.verdict.confidence else []
    share = figures.judged_share(result)
    if ends := interval(share.low, share.high):
        details.append(f"95 % interval {ends}")
    if devices and (count := figures.steps_judged(devices[0])):
        details.append(plural(count, "steady step"))
    return [*details, "fastfeed analyze"]


def _devices(devices: Sequence[DeviceResult]) -> str:
    rows = []
    for device in devices[:_MAX_DEVICES]:
        step = figures.step_ns(device)
        rows.append(
            [
                _escaped(device.label, 80),
                percent(device.share.value),
                percent(device.judged.share(device.judged.budget.idle)),
                figures.computing(device),
                "–" if step is None else duration(step),
                _escaped(figures.top_cause(device)),
            ]
        )
    more = len(devices) - _MAX_DEVICES
    note = f"\n\n{plural(more, 'more device')} in the JSON document." if more > 0 else ""
    return (
        _table(("device", "#input", "#idle", "#compute", "#step", "idle mostly for"), rows) + note
    )


def _causes(device: DeviceResult) -> str:
    rows = [
        [
            _escaped(row.cause.title),
            percent(row.share),
            "–" if row.ns_per_step is None else duration(row.ns_per_step),
        ]
        for row in figures.cause_rows(device)[:_MAX_CAUSES]
    ]
    return _table(("idle for", "#of time", "#per step"), rows)


def _functions(device: DeviceResult) -> str:
    steps = figures.steps_judged(device)
    rows = [
        [
            _escaped(str(time), 80),
            _escaped(time.cause.title),
            percent(device.judged.share(time.ns)),
            duration(time.ns / steps) if steps else "–",
        ]
        for time in device.functions[:_MAX_FUNCTIONS]
    ]
    return _table(("idle in function", "kind", "#of time", "#per step"), rows)


def _phases(device: DeviceResult) -> str:
    rows = [
        [_escaped(row.title), percent(row.share), percent(row.idle), _escaped(row.change)]
        for row in figures.phase_rows(device)
    ]
    return _table(("part of the run", "#of the recording", "#idle of that", "change"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, "" without rows; the titles of columns of numbers begin with #."""
    if not rows:
        return ""
    lines = [
        [title.lstrip("#") for title in head],
        ["---:" if title[0] == "#" else "---" for title in head],
        *rows,
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str, limit: int = 400) -> str:
    """A text as one line in which nothing is Markdown, HTML or a mention."""
    return _MEANS_SOMETHING.sub(r"\\\1", one_line(text, limit)).replace("@", "&#64;")
