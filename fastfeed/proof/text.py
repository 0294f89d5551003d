"""The report in a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from fastfeed.profiler.reports.layout import Sheet, bar, encodable, fitted
from fastfeed.proof.result import Proof
from fastfeed.proof.sentences import MODES, PARTS, cannot, headline, ms, percent, verdict, word
from fastfeed.proof.statistics import Estimate

__all__ = ["plain", "render"]

_STYLES = {"not_starved": "green", "starved": "red", "severe": "bold red", "unsure": "yellow"}
_WIDE = 76  # columns from which there is room for bars
_BAR = 16


def render(proof: Proof, console: Console) -> None:
    """Print the report."""
    width = min(console.width, 110)
    sheet = Sheet(console, width, lines=6)
    for line in [
        *sheet.labeled(verdict(proof).upper(), headline(proof), style=_STYLES[word(proof)], indent=12, lines=8),
        *sheet.sentence(cannot(proof), lines=8),
    ]:
        console.print(encodable(line, console), highlight=False, soft_wrap=True)
    for text in [*_parts(proof, width, sheet.ascii), *_steps(proof), *_what_if(proof, width)]:
        style = "bold" if text and not text.startswith(" ") else ""
        console.print(encodable(Text(text, style=style), console), highlight=False, soft_wrap=True)
    tail = [f"note: {note}" for note in proof.notes]
    for sentence in [_how(proof), *tail]:
        for line in sheet.sentence(sentence, style="dim", lines=6):
            console.print(encodable(line, console), highlight=False, soft_wrap=True)


def plain(proof: Proof, width: int = 100) -> str:
    """The same as text without colors."""
    out = io.StringIO()
    render(proof, Console(file=out, width=width, color_system=None, force_terminal=False, force_jupyter=False))
    return out.getvalue().rstrip("\n")


def _range(part: Estimate) -> str:
    return f"{ms(part.low)} to {ms(part.high)}"


def _parts(proof: Proof, width: int, ascii: bool) -> Iterator[str]:
    real = proof.real.ns
    rows = [("step", proof.steps["resident"]), *proof.parts.items(), ("together", proof.real)]
    yield ""
    yield f"{'a step':13}{'ms':>9}  {'95 % interval':>20}{'share':>9}"
    for name, part in rows:
        share = part.ns / real if real else 0.0
        line = f"  {name:11}{ms(part.ns):>9}  {_range(part):>20}{percent(share):>9}"
        if width >= _WIDE:
            line += "  " + fitted(bar(share, _BAR, ascii), _BAR)
        if width >= _WIDE + 30 and name in PARTS:
            line += "  " + fitted(PARTS[name], width - len(line) - 2).rstrip()
        yield line.rstrip()


def _steps(proof: Proof) -> Iterator[str]:
    yield ""
    yield f"{'measured with':46}{'ms':>9}{'images/s':>12}{'cores':>8}"
    for name, step in proof.steps.items():
        rate, cores = proof.images_per_second(name), proof.cores.get(name, 0.0)
        yield f"  {MODES[name]:44}{ms(step.ns):>9}{rate:>12,.0f}{cores:>8.1f}"


def _what_if(proof: Proof, width: int) -> Iterator[str]:
    if not proof.whatif:
        return
    yield ""
    yield f"{'what if (estimates)':46}{'ms':>9}{'gain':>12}"
    for row in proof.whatif:
        yield f"  {row.change:44}{ms(row.step_ns):>9}{percent(row.gain):>12}"
        if row.remedy:
            yield "    " + fitted(row.remedy, max(20, width - 4)).rstrip()
    yield ""


def _how(proof: Proof) -> str:
    feed = proof.feed
    own = "" if proof.own_wait is None else f"; the feed's own count of waiting: {percent(proof.own_wait)}"
    name = feed["name"] or feed["source"]
    rank = f", rank {feed['rank']} of {feed['world']}" if feed["world"] > 1 else ""
    threads = f"{feed['threads']} thread{'s' * (feed['threads'] != 1)}"
    return (
        f"{name}{rank}, batch {feed['batch']}, {threads}, {feed['prefetch']} ahead; {proof.rounds} rounds of blocks of "
        f"{proof.block_steps} steps, intervals over rounds{own}"
    )
