"""One screen of text: verdict, time breakdown, causes, gaps, change, caveats.

It starts with the essentials and adds details while the terminal has room; without a terminal, up
to 40 lines.
"""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from fastfeed.printable import plural
from fastfeed.profiler.model.format import WORDS, duration, interval, one_line, percent
from fastfeed.profiler.model.result import DeviceResult, Gap, Result
from fastfeed.profiler.reports import figures, layout
from fastfeed.profiler.reports.layout import Sheet
from fastfeed.profiler.verdict.advice import late_rank_sentence

DEFAULT_LINES = 40  # lines without a terminal
MAX_WIDTH = 120  # longer lines are hard to read
SHORT = {"h2d": "H2D copies", "other": "other copies", "overhead": "profiler"}
# else bold yellow
STYLES = {
    "not_starved": "bold green",
    "starved": "bold red",
    "severe": "bold red",
    "starved_of_copies": "bold red",
}


class Detail(NamedTuple):
    """Rows or lines of each part of the report; by default the fewest."""

    causes: int = 3
    functions: int = 1
    worst: int = 1  # gaps
    gaps: int = 1  # lines for each gap
    wrap: int = 1  # lines of a sentence
    evidence: int = 0
    against: int = 0
    notes: int = 0
    ranks: int = 1
    phases: int = 0
    spaced: bool = False


# applied in this order while there is room
ENRICHMENTS: tuple[dict[str, int], ...] = (
    {"against": 1},
    {"functions": 3},
    {"phases": 1},
    {"worst": 3},
    {"ranks": 3},
    {"wrap": 2},
    {"causes": 5},
    {"notes": 1},
    {"ranks": 5},
    {"evidence": 1},
    {"gaps": 2},
    {"phases": 4},
    {"ranks": 8},
    {"spaced": True},
    {"causes": 8},
    {"evidence": 2, "against": 2},
    {"wrap": 3},
    {"notes": 3},
    {"functions": 6},
    {"ranks": 10},
)


def render(result: Result, console: Console) -> None:
    """Print the report to a console.

    Text is never interpreted as markup, and no line is wider than the console.
    """
    width = max(20, min(console.width, MAX_WIDTH))
    room = max(console.size.height - 1, 20) if console.is_terminal else DEFAULT_LINES
    detail = Detail()
    lines = _lines(result, Sheet(console, width, detail.wrap), detail)
    if len(lines) > room:
        detail = Detail(worst=0, functions=0, causes=1)
        lines = _lines(result, Sheet(console, width, detail.wrap), detail)
    for more in ENRICHMENTS:
        richer = detail._replace(**more)
        tried = _lines(result, Sheet(console, width, richer.wrap), richer)
        if len(tried) <= room:
            detail = richer
            lines = tried
    layout.show(lines, console)


def _lines(result: Result, sheet: Sheet, detail: Detail) -> list[Text]:
    devices = figures.by_need(result)
    lines = _head(result, devices, sheet)
    parts: list[list[Text]] = []
    if devices:
        first = devices[0]
        parts += [
            [*_budget(first, sheet), *_causes(first, sheet, detail), *_input(first, sheet)],
            _functions(first, sheet, detail),
            _devices(devices, sheet, detail) if len(devices) > 1 else [],
            _phases(first, sheet, detail),
            _gaps(result, first, sheet, detail),
        ]
    parts += [part(result, sheet, detail) for part in (_feeds, _action, _caveats)]
    for part in parts:
        if part and detail.spaced:
            lines.append(Text(""))
        lines += part
    return lines


def _head(result: Result, devices: list[DeviceResult], sheet: Sheet) -> list[Text]:
    verdict = result.verdict
    word = WORDS.get(verdict.word, one_line(verdict.word, 20).upper())
    lines = sheet.labeled(
        word,
        one_line(verdict.headline, 400) or "There is nothing to analyze in these files.",
        style=STYLES.get(verdict.word, "bold yellow"),
        indent=len(word) + 2,
        lines=3,
    )
    details = []
    if verdict.confidence:
        details.append(one_line(verdict.confidence, 20))
    share = figures.judged_share(result)
    if ends := interval(share.low, share.high):
        details.append(f"95 % interval {ends}")
    if devices:
        more = f" and {len(devices) - 1} more" if len(devices) > 1 else ""
        details += [one_line(devices[0].label, 60) + more, _steps(devices[0])]
    elif result.origins:
        details.append(one_line(result.origins[0].path, 60))
    return [*lines, *sheet.sentence(" · ".join(details), style="dim", lines=2)]


def _steps(device: DeviceResult) -> str:
    step = figures.step_ns(device)
    if step is None:
        return f"no steady steps: the whole {duration(device.whole.budget.window)} is judged"
    left = device.cold.steps if device.cold else 0
    text = f"{plural(figures.steps_judged(device), 'step')} of {duration(step)}"
    what = "cut step" if device.cold and device.cold.steps == device.cold.cut else "warm-up step"
    text += f", {plural(left, what)} excluded" if left else ""
    missing = device.steps.missing
    return text + (f", {missing:,} missing by their numbers" if missing else "")


def _budget(device: DeviceResult, sheet: Sheet) -> list[Text]:
    budget = device.judged.budget
    parts = [(key, getattr(budget, key)) for key in figures.PARTS]
    bar = Text.assemble(
        sheet.label("GPU time"), layout.stacked(parts, budget.window, sheet.room, sheet.ascii)
    )
    texts = {
        key: f"{layout.mark(key, sheet.ascii)} {SHORT.get(key, key)} {percent(ns / budget.window)}"
        for key, ns in parts
        if ns > 0 and budget.window > 0
    }
    ranked = sorted(texts, key=lambda key: (key in ("compute", "idle"), getattr(budget, key)))
    lines = layout.pack_lines(list(texts.values()), sheet.room)
    while len(lines) > sheet.lines and len(texts) > 2:  # the smallest are left out
        del texts[ranked.pop(0)]
        lines = layout.pack_lines(list(texts.values()), sheet.room)
    return [bar, *(Text(" " * layout.LABEL + line) for line in lines)]


def _causes(device: DeviceResult, sheet: Sheet, detail: Detail) -> list[Text]:
    rows = figures.cause_rows(device)
    if not rows:
        return []
    steps = figures.steps_judged(device)
    title = min(27, max(16, sheet.room - 34))
    head = f"{'':{title}} {'of time':>8} {'ms/step' if steps else 'ms':>9}"
    lines = [Text.assemble(sheet.label("Idle for"), (head, "dim"))]
    shown = rows if len(rows) == detail.causes + 1 else rows[: detail.causes]
    parts = [(row.cause.title, row.ns, row.cause.color) for row in shown]
    if rest := rows[len(shown) :]:
        parts.append((f"{len(rest)} more", sum(row.ns for row in rest), "dim"))
    width = max(4, min(40, sheet.room - title - 20))
    for name, ns, style in parts:
        ms = f"{ns / (steps or 1) / 1e6:>9,.2f}"
        text = f"{layout.fitted(name, title)} {percent(device.judged.share(ns)):>8} {ms}  "
        bar = layout.bar(ns / rows[0].ns, width, sheet.ascii)
        lines.append(Text.assemble(sheet.label(""), text, (bar, style)))
    return lines


def _input(device: DeviceResult, sheet: Sheet) -> list[Text]:
    wait = device.judged.input
    if not wait.total:
        return []
    steps = figures.steps_judged(device) or 1
    each = " per step" if figures.steps_judged(device) else ""
    text = (
        f"{duration(wait.total / steps)}{each}: {duration(wait.exposed / steps)} with the GPU idle,"
        f" {duration(wait.hidden / steps)} hidden"
    )
    if sheet.lines > 1:
        text += f"; {plural(wait.waits, 'wait')}, longest {duration(wait.longest)}"
    lines = sheet.labeled("Input wait", text)
    if (stage := device.stage) is not None:
        slowest = (
            f"slowest stage of tf.data: {one_line(stage.name, 40)}, {percent(stage.share, 0)} of"
            " these waits"
        )
        lines += sheet.labeled("", slowest)
    return lines


def _functions(device: DeviceResult, sheet: Sheet, detail: Detail) -> list[Text]:
    """The functions that the host was in while the GPU was idle for long, and the kind of each."""
    steps = figures.steps_judged(device) or 1
    texts = []
    for time in device.functions[: detail.functions]:
        share = percent(device.judged.share(time.ns))
        each = f"{duration(time.ns / steps)}{' per step' if steps > 1 else ''}"
        inside = f", in {one_line(time.inside, 40)}" if time.inside else ""
        texts.append(f"{share}, {each}: {one_line(str(time), 60)}{inside}: {time.cause.title}")
    return sheet.listed("Functions", texts, lines=min(2, detail.wrap))


def _devices(devices: list[DeviceResult], sheet: Sheet, detail: Detail) -> list[Text]:
    """One row per device, most starved first."""
    name = max(12, sheet.room - 56)
    head = f"{'':{name}} {'input':>7} {'idle':>7} {'compute':>8} {'for peers':>10}  largest cause"
    lines = [Text.assemble(sheet.label("Devices"), (head, "dim"))]
    shown = devices if len(devices) == detail.ranks + 1 else devices[: detail.ranks]
    for device in shown:
        budget = device.judged.budget
        idle = budget.idle / budget.window if budget.window else 0.0
        text = (
            f"{layout.fitted(one_line(device.label), name)} {percent(device.share.value):>7}"
            f" {percent(idle):>7} {figures.computing(device):>8} {duration(device.comm_wait):>10} "
            f" {layout.fitted(figures.top_cause(device), 18)}"
        )
        lines.append(Text.assemble(sheet.label(""), text))
    rest = devices[len(shown) :]
    if rest:
        low, high = (pick(device.share.value for device in rest) for pick in (min, max))
        lines += sheet.labeled(
            "", f"{len(rest)} more: input {percent(low)} to {percent(high)}", style="dim"
        )
    late = devices[0].late_rank  # the rank that made the others wait inside collectives
    return lines + ([] if late is None else sheet.labeled("", late_rank_sentence(late)))


def _gaps(result: Result, device: DeviceResult, sheet: Sheet, detail: Detail) -> list[Text]:
    begin = figures.begin(result, device)
    explain = _explained if detail.gaps > 1 else _briefly
    texts = [
        f"{duration(gap.end - gap.start)} at {duration(gap.start - begin)}: {explain(gap)}"
        for gap in device.worst[: detail.worst]
    ]
    return sheet.listed("Worst gaps", texts, lines=detail.gaps)


def _phases(device: DeviceResult, sheet: Sheet, detail: Detail) -> list[Text]:
    """Parts of the run that are not steady training, those that take most of its time."""
    texts = [
        f"{row.title}, {percent(row.share)} of the recording, idle {percent(row.idle)} of that."
        f" {row.change}"
        for row in figures.phase_rows(device)[: detail.phases]
    ]
    return sheet.listed("The run", texts, lines=max(2, detail.wrap))


def _briefly(gap: Gap) -> str:
    cause = next((cause.title for cause in gap.causes), "no cause")
    inside = f" in {one_line(gap.inside, 30)}" if gap.inside else ""
    thread = f", {one_line(gap.thread, 20)}" if gap.thread else ""
    return f"{cause}{inside}{thread}" + (
        f"; then {one_line(gap.next_op, 40)}" if gap.next_op else ""
    )


def _explained(gap: Gap) -> str:
    length = max(gap.end - gap.start, 1)
    causes = [f"{cause.title} {percent(ns / length)}" for cause, ns in list(gap.causes.items())[:2]]
    who = f", {one_line(gap.thread, 30)}" if gap.thread else ""
    inside = f" in {one_line(gap.inside, 48)}" if gap.inside else ""
    inside += f" in {one_line(gap.step, 24)}" if gap.step else ""
    ended = f"; ended by {one_line(gap.next_op, 48)}" if gap.next_op else ""
    return (", ".join(causes) or "no cause") + who + inside + ended


def _feeds(result: Result, sheet: Sheet, detail: Detail) -> list[Text]:
    texts = []
    for feed in result.feeds[:3]:
        busiest = f"; most work: {one_line(feed.busiest, 24)}" if feed.busiest else ""
        texts.append(
            f"{one_line(feed.name or feed.feed, 40)}: {plural(feed.batches, 'batch')} in"
            f" {duration(feed.span_ns)}, trainer waited {percent(feed.wait_share)} of its time;"
            f" {plural(feed.threads, 'thread')}{busiest}"
        )
    lines = sheet.listed("Feed", texts, lines=min(2, detail.wrap))
    if len(result.feeds) > 3:
        lines += sheet.labeled("", f"{len(result.feeds) - 3} more feeds", style="dim")
    return lines


def _action(result: Result, sheet: Sheet, detail: Detail) -> list[Text]:
    """Lines with the advice; without a verdict, the reasons and how to record a better trace."""
    verdict = result.verdict
    wrap = max(2, detail.wrap)
    reasons = [one_line(reason, 400) for reason in verdict.reasons[: 1 + detail.evidence]]
    lines = sheet.listed("Because", reasons, lines=wrap)
    if verdict.record:
        lines += sheet.labeled("Record", one_line(verdict.record, 400), lines=wrap)
    is_all = not (result.devices or result.feeds)  # nothing but the waits of the host is known
    evidence = verdict.evidence[: detail.evidence + 2 * is_all]
    lines += sheet.listed("Evidence", [one_line(sentence, 400) for sentence in evidence])
    if verdict.change:
        gain = figures.gain(result)
        text = one_line(verdict.change, 400) + (f" ({gain})" if gain else "")
        lines += sheet.labeled("Change", text, style="bold", lines=3)
    if verdict.command:
        # complete, for copying
        lines += sheet.labeled("Measure", one_line(verdict.command, 400), lines=5)
    return lines


def _caveats(result: Result, sheet: Sheet, detail: Detail) -> list[Text]:
    verdict = result.verdict
    against = [one_line(sentence, 400) for sentence in verdict.counter_evidence[: detail.against]]
    lines = sheet.listed("But", against)
    if verdict.refutation and detail.against:
        lines += sheet.labeled("Test", one_line(verdict.refutation, 400))
    notes = [one_line(note, 400) for note in result.notes[: detail.notes]]
    lines += sheet.listed("Note", notes, style="dim")
    if len(result.notes) > detail.notes > 0:
        more = plural(len(result.notes) - detail.notes, "more note")
        lines += sheet.labeled("", f"{more}: --json, --html", style="dim")
    return lines
