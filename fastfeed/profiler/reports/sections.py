"""The static parts of the page: verdict, bars, tables. All text is escaped."""

from __future__ import annotations

from collections.abc import Sequence

from fastfeed.html_page import Markup, bullets, escape, section, table
from fastfeed.printable import plural
from fastfeed.profiler.model.causes import FAMILIES
from fastfeed.profiler.model.format import (
    WORDS,
    duration,
    interval,
    multiple,
    one_line,
    percent,
)
from fastfeed.profiler.model.result import DeviceResult, Gap, Result
from fastfeed.profiler.reports import figures, tables
from fastfeed.profiler.reports.picture import LOOK, PICTURES
from fastfeed.profiler.reports.tables import idle_bar, stacked_bar, swatch

_BUTTONS = {
    "back": ("‹", "Earlier"),
    "on": ("›", "Later"),
    "out": ("−", "Zoom out"),
    "in": ("+", "Zoom in"),
}


def body(result: Result) -> str:
    """Everything between <body> and the script."""
    devices = figures.by_need(result)
    parts = [_head(result, devices)]
    if devices:
        first = devices[0]
        parts += [
            _time(first, len(devices)),
            tables.devices(devices) if len(devices) > 1 else "",
            _timelines(devices),
            _worst(result, first),
            tables.phases(first),
            tables.steps(first),
            tables.per_step(first),
            _remedies(result),
        ]
    parts += [_certainty(result), tables.ranks(result.ranks), tables.feeds(result.feeds)]
    parts += [tables.cold(devices[0]) if devices else "", tables.recording(result)]
    parts.append(
        "</main><footer>Made by fastfeed. docs/reading_a_report.md explains each part.</footer>"
    )
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
        first = devices[0]
        more = f" and {len(devices) - 1} more" if len(devices) > 1 else ""
        facts.append(one_line(first.label, 120) + more)
        step = figures.step_ns(first)
        facts.append(
            f"{duration(first.judged.budget.window)}, no steady steps"
            if step is None
            else f"{plural(figures.steps_judged(first), 'step')} of {duration(step)}"
        )
        if first.steps.missing:
            facts.append(f"{plural(first.steps.missing, 'step')} missing by their numbers")
    look = verdict.word if verdict.word in WORDS else ""
    return (
        f'<header><span class="word {look}">{escape(word)}</span><h1>{escape(headline)}</h1>'
        f"{bullets(facts, 'facts')}{_action(result)}</header>\n<main>"
    )


def _action(result: Result) -> str:
    """The recommended change; without a verdict, why, and how to record a better trace."""
    verdict = result.verdict
    parts = []
    if verdict.reasons:
        reasons = "".join(f"<p>{_text(reason)}</p>" for reason in verdict.reasons)
        parts.append(f"<h2>Why there is no verdict</h2>{reasons}")
    if verdict.record:
        parts.append(
            f"<h2>How to record a trace that supports one</h2><pre>{_text(verdict.record)}</pre>"
        )
    if verdict.change:
        gain = figures.gain(result)
        more = f' <span class="soft">({escape(gain)})</span>' if gain else ""
        parts.append(f"<h2>What to change</h2><p>{_text(verdict.change)}{more}</p>")
    if verdict.command:
        parts.append(f"<h2>Then measure again</h2><pre>{_text(verdict.command)}</pre>")
    if not parts:
        return ""
    return f'<section class="act" aria-label="What to do">{"".join(parts)}</section>'


def _time(device: DeviceResult, count: int) -> str:
    """The time breakdown, and the causes of its idle part."""
    budget = device.judged.budget
    of = f" of {one_line(device.label, 120)}" if count > 1 else ""
    legend = []
    for key, title in figures.PARTS.items():
        ns = getattr(budget, key)
        if ns > 0:
            color = LOOK[key][1] if key in LOOK else ""
            share = escape(percent(ns / budget.window))
            legend.append(Markup(f"{swatch(color)}{escape(title)} <b>{share}</b>"))
    return section(
        f"Where the time{of} goes", stacked_bar(budget), bullets(legend, "legend"), _causes(device)
    )


def _causes(device: DeviceResult) -> str:
    rows = figures.cause_rows(device)
    if not rows:
        return "<p>The GPU was never idle.</p>"
    lines = []
    for row in rows:
        cause = row.cause
        width = f"width:{100 * row.ns / rows[0].ns:.1f}%"
        lines.append(
            f"<tr><td>{tables.colored(row.cause)}</td>"
            f'<td class="num">{escape(percent(row.share))}</td>'
            f'<td class="num">{(row.ns_per_step or row.ns) / 1e6:,.2f} ms</td>'
            f'<td class="wide"><span class="track"><i style="{width};background:{cause.color}"></i>'
            f'</span></td><td class="wide soft">{escape(cause.means)}</td></tr>'
        )
    each = "per step" if figures.steps_judged(device) else "in all"
    return (
        f"<h3>Why it is idle</h3>{idle_bar(rows)}"
        '<table class="causes"><thead><tr><th scope="col">Cause</th>'
        '<th scope="col" class=num>of the time</th>'
        f'<th scope="col" class=num>{each}</th><th scope="col">Against the largest</th>'
        f'<th scope="col">Meaning</th></tr></thead><tbody>{"".join(lines)}</tbody></table>'
        f"{tables.functions(device)}{_input(device)}"
    )


def _input(device: DeviceResult) -> str:
    wait = device.judged.input
    if not wait.total:
        return ""
    steps = figures.steps_judged(device)
    per = " per step" if steps else ""
    total, exposed, hidden, ramp = (
        escape(duration(ns / (steps or 1)))
        for ns in (wait.total, wait.exposed, wait.hidden, wait.ramp)
    )
    filling = f" {ramp} more passed until the queue was full again." if wait.ramp else ""
    return (
        f"<p>The host waited {total}{per} for input: <b>{exposed}</b> while the GPU was idle,"
        f" {hidden} while it still had work, which costs nothing.{filling}"
        f" {plural(wait.waits, 'wait')} in all, the longest {escape(duration(wait.longest))}.</p>"
    )


def _timelines(devices: list[DeviceResult]) -> str:
    shown = devices[:PICTURES]
    about = (
        "Top: steps. Middle: the GPU, with gaps in the color of their cause; where several events"
        " share a pixel, each gets its share of the height. Bottom: the host waits for input."
        " Hover or tap for details. Drag to move, double-click to zoom in; on the keyboard, arrows"
        " move between gaps, + and - zoom."
    )
    if len(devices) > len(shown):
        about += f" The {PICTURES} most starved of {len(devices)} devices are shown."
    return timelines("Timeline", about, devices, [device.label for device in shown])


def timelines(title: str, about: str, devices: Sequence[DeviceResult], captions: list[str]) -> str:
    """A section with the timelines of the first devices, one for each caption."""
    pictures = "".join(
        _timeline(index, device, caption)
        for index, (device, caption) in enumerate(zip(devices, captions, strict=False))
    )
    what = "timeline is" if title == "Timeline" else "timelines are"
    return section(
        title,
        f'<p class="soft">{about}</p>{_timeline_tools(devices)}{pictures}<noscript><p>The {what}'
        " drawn by a script, and scripts are disabled.</p></noscript>",
    )


def _timeline_tools(devices: Sequence[DeviceResult]) -> str:
    """The legend of the timelines of these devices, and the buttons that move them."""
    buttons = "".join(
        f'<button type="button" data-do="{key}" aria-label="{title}"'
        f' title="{title}">{text}</button>'
        for key, (text, title) in _BUTTONS.items()
    )
    buttons += '<button type="button" data-do="whole">Full range</button>'
    if any(device.steady is not None for device in devices):
        buttons += '<button type="button" data-do="judged">Steady steps</button>'
    keys = [
        Markup(f"{swatch(color)}{escape(title)}")
        for key, (title, color) in LOOK.items()
        if any(getattr(device.whole.budget, key, 0) > 0 for device in devices)
    ]
    return f'{bullets(keys, "legend")}<div class="tools">{buttons}</div>'


def _timeline(index: int, device: DeviceResult, caption: str) -> str:
    """The picture of one device; `index` is its place in the page's data."""
    budget = device.whole.budget
    idle = percent(budget.idle / budget.window) if budget.window > 0 else "0 %"
    worst = "; ".join(
        f"{duration(gap.end - gap.start)}: {next((cause.title for cause in gap.causes), '')}"
        for gap in device.worst[:3]
    )
    label = (
        f"Timeline of {one_line(device.label, 120)}, {duration(budget.window)}, idle {idle} of it."
        f" Longest gaps: {worst}"
    )
    return (
        f"<figure><figcaption><b>{escape(one_line(caption, 120))}</b></figcaption>"
        f'<canvas class="device" tabindex="0" role="img" data-device="{index}"'
        f' aria-label="{escape(label)}"></canvas></figure>'
    )


def _worst(result: Result, device: DeviceResult) -> str:
    if not device.worst:
        return ""
    begin = figures.begin(result, device)
    pictures = "".join(_gap(index, gap, begin) for index, gap in enumerate(device.worst[:3]))
    about = "Times are relative to the start of the gap, which is framed."
    return section(
        "The worst gaps, close up",
        f'<p class="soft">{about}</p><div class="gaps">{pictures}</div>',
    )


def _gap(index: int, gap: Gap, begin: int) -> str:
    length = max(1, gap.end - gap.start)
    causes = ", ".join(
        f"{cause.title} {percent(ns / length)}" for cause, ns in list(gap.causes.items())[:3]
    )
    start = escape(duration(gap.start - begin))
    lines = [f"<b>{escape(duration(length))}</b> at {start}: {escape(causes)}"]
    details = {
        "in": gap.step,
        "thread": gap.thread,
        "inside": gap.inside,
        "before": gap.last_op,
        "after": gap.next_op,
    }
    for word, value in details.items():
        if value:
            lines.append(f"{word} <b>{escape(one_line(value, 140))}</b>")
    label = f"Gap of {duration(length)}: {causes}"
    return (
        f'<figure><canvas class="gap" tabindex="0" role="img" data-gap="{index}"'
        f' aria-label="{escape(label)}"></canvas><figcaption>{"<br>".join(lines)}<br><button'
        f' type="button" data-show="{index}">Show in the timeline</button></figcaption></figure>'
    )


def _remedies(result: Result) -> str:
    rows = [
        [
            FAMILIES.get(remedy.family, one_line(remedy.family, 40)),
            percent(remedy.share),
            "" if remedy.ms_per_step is None else f"{remedy.ms_per_step:,.2f} ms",
            multiple(remedy.ceiling),
            Markup(f'{_text(remedy.change)}<br><span class="soft">{_text(remedy.evidence)}</span>'),
        ]
        for remedy in result.verdict.remedies
    ]
    about = (
        "Each ceiling is for its row alone: how many times faster a step could be without any of"
        " that time."
    )
    head = ("What", "#of the time", "#per step", "#ceiling", "~Change")
    lines = table(head, rows, stacked=True)
    start = f'<p class="soft">{about}</p>' if lines else ""
    return section("What would help, and how much at most", start, lines)


def _certainty(result: Result) -> str:
    verdict = result.verdict
    parts = {
        "Evidence": verdict.evidence,
        "Evidence against it": verdict.counter_evidence,
        "What would disprove it": (verdict.refutation,) if verdict.refutation else (),
    }
    columns = "".join(
        f"<div><h3>{title}</h3>{bullets(map(_text, sentences))}</div>"
        for title, sentences in parts.items()
        if sentences
    )
    return section("Confidence", f'<div class="two">{columns}</div>') if columns else ""


def _text(sentence: str) -> Markup:
    return escape(one_line(sentence, 1000))
