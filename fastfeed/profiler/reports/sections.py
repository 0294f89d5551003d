"""The static parts of the page: verdict, bars, tables. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fastfeed.profiler.model.causes import FAMILIES
from fastfeed.profiler.model.format import (
    WORDS,
    duration,
    interval,
    multiple,
    one_line,
    percent,
    plural,
)
from fastfeed.profiler.model.result import DeviceResult, Gap, Result
from fastfeed.profiler.reports import charts, figures, tables
from fastfeed.profiler.reports.charts import escaped, idle_bar, stacked_bar, swatch
from fastfeed.profiler.reports.picture import LOOK, PICTURES

__all__ = ["body", "escaped", "timeline", "timeline_tools"]


def body(result: Result) -> str:
    """Everything between <body> and the script."""
    devices = figures.by_need(result)
    parts = [_head(result, devices)]
    if devices:
        parts += [
            _time(devices[0], len(devices)),
            tables.devices(devices) if len(devices) > 1 else "",
        ]
        parts += [_timelines(devices), _worst(result, devices[0])]
        parts += [
            tables.phases(devices[0]),
            charts.steps(devices[0]),
            tables.per_step(devices[0]),
            _remedies(result),
        ]
    parts += [_certainty(result), tables.ranks(result.ranks), tables.feeds(result.feeds)]
    if devices:
        parts += [tables.cold(devices[0])]
    parts += [tables.recording(result), _foot()]
    return "\n".join(filter(None, parts))


def _head(result: Result, devices: list[DeviceResult]) -> str:
    verdict = result.verdict
    word = WORDS.get(verdict.word, one_line(verdict.word, 20).upper())
    headline = one_line(verdict.headline, 600) or "There is nothing to analyze in these files."
    facts = []
    if verdict.confidence:
        facts.append(f"confidence: {one_line(verdict.confidence, 20)}")
    share = figures.judged_share(result)
    what = "copies" if verdict.word == "starved_of_copies" else "input"
    if ends := interval(share.low, share.high):
        facts.append(f"{what}, 95 % interval: {ends}")
    if share.steps_over is not None:
        facts.append(f"{percent(share.steps_over)} of the steps above 5 %")
    if devices:
        facts.append(
            one_line(devices[0].label, 120)
            + (f" and {len(devices) - 1} more" if len(devices) > 1 else "")
        )
        step = figures.step_ns(devices[0])
        facts.append(
            f"{duration(devices[0].judged.budget.window)}, no steady steps"
            if step is None
            else f"{plural(figures.steps_judged(devices[0]), 'step')} of {duration(step)}"
        )
        if devices[0].steps.missing:
            facts.append(f"{plural(devices[0].steps.missing, 'step')} missing by their numbers")
    items = "".join(f"<li>{escaped(fact)}</li>" for fact in facts)
    word_class = verdict.word if verdict.word in WORDS else ""
    return (
        '<header><span class="word'
        f' {word_class}">{escaped(word)}</span><h1>{escaped(headline)}</h1><ul'
        f' class="facts">{items}</ul>{_action(result)}</header>\n<main>'
    )


def _action(result: Result) -> str:
    """The recommended change; without a verdict, why, and how to record a better trace."""
    verdict = result.verdict
    parts = []
    if verdict.reasons:
        parts.append(
            "<h2>Why there is no verdict</h2>"
            + "".join(f"<p>{_text(reason)}</p>" for reason in verdict.reasons)
        )
    if verdict.record:
        parts.append(
            f"<h2>How to record a trace that supports one</h2><pre>{_text(verdict.record)}</pre>"
        )
    if verdict.change:
        gain = figures.gain(result)
        more = f' <span class="soft">({escaped(gain)})</span>' if gain else ""
        parts.append(f"<h2>What to change</h2><p>{_text(verdict.change)}{more}</p>")
    if verdict.command:
        parts.append(f"<h2>Then measure again</h2><pre>{_text(verdict.command)}</pre>")
    return (
        f'<section class="act" aria-label="What to do">{"".join(parts)}</section>' if parts else ""
    )


def _time(device: DeviceResult, count: int) -> str:
    """The time breakdown, and the causes of its idle part."""
    budget = device.judged.budget
    of = f" of {escaped(one_line(device.label, 120))}" if count > 1 else ""
    parts = [
        (key, title, getattr(budget, key))
        for key, title in figures.PARTS.items()
        if getattr(budget, key) > 0
    ]
    legend = "".join(
        f"<li>{swatch(LOOK[key][1] if key in LOOK else '')}{escaped(title)} "
        f"<b>{escaped(percent(ns / budget.window))}</b></li>"
        for key, title, ns in parts
    )
    return (
        f"<section><h2>Where the time{of} goes</h2>{stacked_bar(budget)}<ul"
        f' class="legend">{legend}</ul>{_causes(device)}</section>'
    )


def _causes(device: DeviceResult) -> str:
    rows = figures.cause_rows(device)
    if not rows:
        return "<p>The GPU was never idle.</p>"
    steps = figures.steps_judged(device)
    lines = []
    for row in rows:
        time = f"{(row.ns_per_step or row.ns) / 1e6:,.2f}"
        lines.append(
            f"<tr><td>{swatch(row.cause.color)}{escaped(row.cause.title)}</td>"
            f'<td class="num">{escaped(percent(row.share))}</td><td class="num">{time} ms</td>'
            '<td class="wide"><span class="track"><i'
            f' style="width:{100 * row.ns / rows[0].ns:.1f}%;'
            f'background:{row.cause.color}"></i></span></td><td class="wide'
            f' soft">{escaped(row.cause.means)}</td></tr>'
        )
    head = (
        "Cause",
        "of the time",
        "per step" if steps else "in all",
        "Against the largest",
        "Meaning",
    )
    columns = "".join(
        f'<th scope="col"{" class=num" if at in (1, 2) else ""}>{text}</th>'
        for at, text in enumerate(head)
    )
    return (
        f"<h3>Why it is idle</h3>{idle_bar(rows)}"
        "<table"
        f' class="causes"><thead><tr>{columns}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
        f"{tables.functions(device)}{_input(device)}"
    )


def _input(device: DeviceResult) -> str:
    wait = device.judged.input
    if not wait.total:
        return ""
    steps = figures.steps_judged(device)
    each, per = (steps, " per step") if steps else (1, "")
    total, exposed, hidden, ramp = (
        escaped(duration(ns / each)) for ns in (wait.total, wait.exposed, wait.hidden, wait.ramp)
    )
    filling = f" {ramp} more passed until the queue was full again." if wait.ramp else ""
    return (
        f"<p>The host waited {total}{per} for input: <b>{exposed}</b> while the GPU was idle,"
        f" {hidden} while it still had work, which costs nothing.{filling}"
        f" {plural(wait.waits, 'wait')} in all, the longest {escaped(duration(wait.longest))}.</p>"
    )


def _timelines(devices: list[DeviceResult]) -> str:
    shown = devices[:PICTURES]
    subset = (
        f" The {PICTURES} most starved of {len(devices)} devices are shown."
        if len(devices) > len(shown)
        else ""
    )
    pictures = "".join(timeline(index, device, device.label) for index, device in enumerate(shown))
    about = (
        "Top: steps. Middle: the GPU, with gaps in the color of their cause; where several events"
        " share a pixel, each gets its share of the height. Bottom: the host waits for input."
        " Hover or tap for details. Drag to move, double-click to zoom in; on the keyboard, arrows"
        f" move between gaps, + and - zoom.{escaped(subset)}"
    )
    return (
        "<section><h2>Timeline</h2><p"
        f' class="soft">{about}</p>{timeline_tools(devices)}{pictures}<noscript><p>The timeline is'
        " drawn by a script, and scripts are disabled.</p></noscript></section>"
    )


def timeline_tools(devices: Sequence[DeviceResult]) -> str:
    """The legend of the timelines of these devices, and the buttons that move them."""
    labels = {
        "back": ("‹", "Earlier"),
        "on": ("›", "Later"),
        "out": ("−", "Zoom out"),
        "in": ("+", "Zoom in"),
    }
    buttons = "".join(
        f'<button type="button" data-do="{key}" aria-label="{title}"'
        f' title="{title}">{text}</button>'
        for key, (text, title) in labels.items()
    )
    buttons += '<button type="button" data-do="whole">Full range</button>'
    if any(device.steady is not None for device in devices):
        buttons += '<button type="button" data-do="judged">Steady steps</button>'
    keys = "".join(
        f"<li>{swatch(color)}{escaped(title)}</li>"
        for key, (title, color) in LOOK.items()
        if _has_time(devices, key)
    )
    return f'<ul class="legend">{keys}</ul><div class="tools">{buttons}</div>'


def timeline(index: int, device: DeviceResult, caption: str) -> str:
    """The picture of one device; `index` is its place in the page's data."""
    return (
        f"<figure><figcaption><b>{escaped(one_line(caption, 120))}</b></figcaption><canvas"
        f' class="device" tabindex="0" role="img" data-device="{index}"'
        f' aria-label="{escaped(_timeline_label(device))}"></canvas></figure>'
    )


def _has_time(devices: Iterable[DeviceResult], key: str) -> bool:
    return any(getattr(device.whole.budget, key, 0) > 0 for device in devices)


def _timeline_label(device: DeviceResult) -> str:
    budget = device.whole.budget
    idle = percent(budget.idle / budget.window) if budget.window > 0 else "0 %"
    worst = "; ".join(
        f"{duration(gap.end - gap.start)}: {_titles(gap.causes, 1)}" for gap in device.worst[:3]
    )
    name = one_line(device.label, 120)
    return (
        f"Timeline of {name}, {duration(budget.window)}, idle {idle} of it. Longest gaps: {worst}"
    )


def _titles(causes: Mapping, limit: int) -> str:
    return ", ".join(cause.title for cause in list(causes)[:limit])


def _worst(result: Result, device: DeviceResult) -> str:
    if not device.worst:
        return ""
    begin = figures.offsets(result)[[other is device for other in result.devices].index(True)]
    pictures = "".join(_gap(index, gap, begin) for index, gap in enumerate(device.worst[:3]))
    about = "Times are relative to the start of the gap, which is framed."
    head = f'<h2>The worst gaps, close up</h2><p class="soft">{about}</p>'
    return f'<section>{head}<div class="gaps">{pictures}</div></section>'


def _gap(index: int, gap: Gap, begin: int) -> str:
    length = max(1, gap.end - gap.start)
    causes = ", ".join(
        f"{cause.title} {percent(ns / length)}" for cause, ns in list(gap.causes.items())[:3]
    )
    lines = [
        f"<b>{escaped(duration(length))}</b> at {escaped(duration(gap.start - begin))}:"
        f" {escaped(causes)}"
    ]
    details = (
        ("in", gap.step),
        ("thread", gap.thread),
        ("inside", gap.inside),
        ("before", gap.last_op),
    )
    for word, value in (*details, ("after", gap.next_op)):
        if value:
            lines.append(f"{word} <b>{escaped(one_line(value, 140))}</b>")
    label = f"Gap of {duration(length)}: {causes}"
    return (
        f'<figure><canvas class="gap" tabindex="0" role="img" data-gap="{index}"'
        f' aria-label="{escaped(label)}"></canvas><figcaption>{"<br>".join(lines)}<br><button'
        f' type="button" data-show="{index}">Show in the timeline</button></figcaption></figure>'
    )


def _remedies(result: Result) -> str:
    lines = [
        [
            escaped(FAMILIES.get(remedy.family, one_line(remedy.family, 40))),
            escaped(percent(remedy.share)),
            "" if remedy.ms_per_step is None else f"{remedy.ms_per_step:,.2f} ms",
            escaped(multiple(remedy.ceiling)),
            f'{_text(remedy.change)}<br><span class="soft">{_text(remedy.evidence)}</span>',
        ]
        for remedy in result.verdict.remedies
    ]
    if not lines:
        return ""
    return (
        '<section><h2>What would help, and how much at most</h2><p class="soft">Each ceiling is for'
        " its row alone: how many times faster a step could be without any of that time.</p>"
        + tables.table(
            ("What", "#of the time", "#per step", "#ceiling", "~Change"), lines, stacked=True
        )
        + "</section>"
    )


def _certainty(result: Result) -> str:
    verdict = result.verdict
    parts = [("Evidence", verdict.evidence), ("Evidence against it", verdict.against)]
    parts += [("What would disprove it", (verdict.falsify,) if verdict.falsify else ())]
    html = "".join(
        f"<div><h3>{title}</h3><ul"
        f' class="notes">{"".join(f"<li>{_text(item)}</li>" for item in sentences)}</ul></div>'
        for title, sentences in parts
        if sentences
    )
    return f'<section><h2>Confidence</h2><div class="two">{html}</div></section>' if html else ""


def _foot() -> str:
    return "</main><footer>Made by fastfeed. docs/reading_a_report.md explains each part.</footer>"


def _text(sentence: str) -> str:
    return escaped(one_line(sentence, 1000))
