"""The report of a proof in a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from fastfeed.printable import plural
from fastfeed.profiler.reports.layout import Sheet, bar, encodable, fitted
from fastfeed.proof.report.sentences import MODES, PARTS, cannot, headline, ms, percent, rate, shown
from fastfeed.proof.step_costs import StepCosts, verdict, word

_STYLES = {"not_starved": "green", "starved": "red", "severe": "bold red", "unsure": "yellow"}
_BAR = 16
_TABLES = 75  # columns from which there is room for tables,
_BARS = 76  # for bars in them,
_WORDS = 140  # and for what the parts are


def render(proof: StepCosts, console: Console) -> None:
    """Print the report of a proof to a console."""
    sheet = Sheet(console, min(console.width, 110), lines=12)
    label = verdict(proof).upper()
    lines = [
        *sheet.labeled(label, headline(proof), style=_STYLES[word(proof)], indent=len(label) + 2),
        *sheet.sentence(cannot(proof)),
    ]
    wide = console.width >= _TABLES
    parts = _parts(proof, console.width, sheet.ascii)
    for text in [*parts, *_steps(proof, sheet, wide), *_what_if(proof, sheet, wide)]:
        lines.append(Text(text, style="bold" if text and not text.startswith(" ") else ""))
    tail = [f"note: {note}" for note in proof.notes]
    for sentence in [_how(proof), *tail]:
        lines += sheet.sentence(sentence, style="dim")
    for line in lines:
        console.print(encodable(line, console), highlight=False, soft_wrap=True)


def plain(proof: StepCosts, width: int = 100) -> str:
    """Return the report as text without colors."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, color_system=None, force_terminal=False, force_jupyter=False
    )
    render(proof, console)
    return out.getvalue().rstrip("\n")


def _parts(proof: StepCosts, width: int, ascii: bool) -> Iterator[str]:
    real = proof.real.ns
    wide = width >= _TABLES
    rows = [("step", proof.steps["resident"]), *proof.parts.items(), ("total", proof.real)]
    columns = (
        f"{'ms':>9}  {'95 % interval':>20}{'share':>9}" if wide else f"{'ms':>10}{'share':>10}"
    )
    yield ""
    yield f"{'part of step':13}{columns}"
    for name, part in rows:
        share = part.ns / real if real else 0.0
        ends = f"{ms(part.low)} to {ms(part.high)}"
        if not wide:
            yield f"  {name:11}{ms(part.ns):>10}{percent(share):>10}"
            yield f"    {ends}"
            continue
        line = f"  {name:11}{ms(part.ns):>9}  {ends:>20}{percent(share):>9}"
        if width >= _BARS:
            line += "  " + fitted(bar(share, _BAR, ascii), _BAR)
        if width >= _WORDS:
            line += "  " + PARTS.get(name, "")
        yield line.rstrip()


def _steps(proof: StepCosts, sheet: Sheet, wide: bool) -> Iterator[str]:
    yield ""
    yield f"{'measured with':46}{'ms':>9}{'images/s':>12}{'cores':>8}" if wide else "measured with"
    for name, step in proof.steps.items():
        images = rate(proof.images_per_second(name))
        cores = f"{proof.cores.get(name, 0.0):.1f}"
        if wide:
            yield f"  {MODES[name]:44}{ms(step.ns):>9}{images:>12}{cores:>8}"
            continue
        yield from _indented(sheet, MODES[name], 2)
        yield f"    {ms(step.ns)} ms, {images} images/s, {cores} cores"


def _what_if(proof: StepCosts, sheet: Sheet, wide: bool) -> Iterator[str]:
    if not proof.whatif:
        return
    yield ""
    yield f"{'what if (estimates)':46}{'ms':>9}{'gain':>12}" if wide else "what if (estimates)"
    for row in proof.whatif:
        if wide:
            yield f"  {row.change:44}{ms(row.step_ns):>9}{percent(row.gain):>12}"
        else:
            yield from _indented(sheet, row.change, 2)
            yield f"    {ms(row.step_ns)} ms, gain {percent(row.gain)}"
        if row.remedy:
            yield from _indented(sheet, row.remedy, 4)
    yield ""


def _indented(sheet: Sheet, text: str, columns: int) -> Iterator[str]:
    for line in sheet.sentence(text, width=sheet.width - columns):
        yield " " * columns + line.plain


def _how(proof: StepCosts) -> str:
    feed = proof.feed
    is_feed = proof.slowest != "real"
    whose = "the feed's" if is_feed else "the loop's"
    own = (
        ""
        if proof.own_wait is None
        else f"; {whose} own count of waiting: {percent(proof.own_wait)}"
    )
    name = shown(feed["name"] or feed["source"])
    rank = f", rank {feed['rank']} of {feed['world']}" if feed["world"] > 1 else ""
    ahead = f", {plural(feed['threads'], 'thread')}, {feed['prefetch']} ahead"
    return (
        f"{name}{rank}, batch {feed['batch']}{ahead * is_feed}; {proof.rounds} rounds of "
        f"blocks of {proof.block_steps} steps, intervals over rounds{own}"
    )
