"""The report as one HTML page, without a script."""

from __future__ import annotations

from fastfeed import html_page
from fastfeed.html_page import Markup, bullets, escape, table
from fastfeed.printable import plural
from fastfeed.proof.measure.statistics import Estimate
from fastfeed.proof.report.sentences import (
    MODES,
    PARTS,
    cannot,
    faster,
    headline,
    ms,
    percent,
    rate,
    shown,
)
from fastfeed.proof.step_costs import StepCosts, verdict, word

TITLE = "Is it the input"
_COLORS = {
    "step": "#2f9e5f",
    "copy": "#3b82c4",
    "contention": "#9b59b6",
    "preparation": "#e0a030",
    "fetch": "#d64545",
    "loading": "#e0a030",
}
_STYLE = """
.range { position: relative; display: block; height: 12px; min-width: 90px; margin-top: 5px; }
.range i { position: absolute; height: 100%; border-radius: 2px; }
.range b { position: absolute; top: 5px; height: 2px; background: var(--ink); }
td .soft { font-weight: 400; }
.act p.soft { font-size: 14px; }
"""


def page(proof: StepCosts) -> str:
    """HTML text; write it as UTF-8."""
    name = shown(proof.feed["name"] or proof.feed["source"])
    parts = (
        _head(proof),
        _bar(proof),
        _act(proof),
        _parts(proof),
        _modes(proof),
        _what_if(proof),
        _notes(proof),
    )
    body = "\n".join(["<main>", *parts, "</main>"])
    return html_page.page(f"{TITLE}: {name}", headline(proof), body, style=_STYLE)


def _head(proof: StepCosts) -> str:
    feed = proof.feed
    is_feed = proof.slowest != "real"
    facts = [
        f"{feed['source']}, {feed['samples']:,} samples" if is_feed else feed["source"],
        f"batch {feed['batch']}",
    ]
    if is_feed:
        threads = plural(feed["threads"], "thread")
        facts.append(f"{threads}, {feed['prefetch']} batches ahead")
    facts.append(f"{proof.rounds} rounds of blocks of {proof.block_steps} steps")
    if feed["name"]:
        facts.insert(0, f"feed {shown(feed['name'])}")
    if feed["world"] > 1:
        facts.append(f"rank {feed['rank']} of {feed['world']}")
    return (
        f'<span class="word {word(proof)}">{escape(verdict(proof).upper())}</span>\n'
        f"<h1>{escape(headline(proof))}</h1>\n<p>{escape(cannot(proof))}</p>\n"
        f"{bullets(facts, 'facts')}"
    )


def _rows(proof: StepCosts) -> list[tuple[str, Estimate]]:
    return [("step", proof.steps["resident"]), *proof.parts.items()]


def _bar(proof: StepCosts) -> str:
    real = max(1, proof.real.ns)
    pieces = []
    legend = []
    swatches = []
    for name, part in _rows(proof):
        color = _COLORS[name]
        share = f"{name} {percent(part.ns / real)}"
        width = max(0.0, 100 * part.ns / real)
        pieces.append(f'<i style="width:{width:.2f}%;background:{color}"></i>')
        legend.append(share)
        swatch = f'<span class="swatch" style="background:{color}"></span>'
        swatches.append(Markup(swatch + escape(share)))
    return (
        f'<div class="bar" role="img" aria-label="{escape(", ".join(legend))}">{"".join(pieces)}'
        f"</div>\n{bullets(swatches, 'legend')}"
    )


def _act(proof: StepCosts) -> str:
    remedy = proof.remedy
    if remedy is None or word(proof) == "not_starved":
        return ""
    return (
        f'<section class="act"><h2>What would help most</h2><p>{escape(remedy.remedy)}</p>'
        f'<p class="soft">{escape(remedy.change)}: about {escape(ms(remedy.step_ns))} ms per step;'
        f" training would {escape(faster(remedy.gain))}, as an estimate</p></section>"
    )


def _parts(proof: StepCosts) -> str:
    real = max(1.0, float(proof.real.ns))
    rows = [
        (
            Markup(
                f"<b>{name}</b><br>"
                f'<span class="soft">{escape(PARTS.get(name, "with real input"))}</span>'
            ),
            ms(part.ns),
            f"{ms(part.low)} to {ms(part.high)}",
            percent(part.ns / real),
            _range(part, real, _COLORS.get(name, "var(--soft)")),
        )
        for name, part in [*_rows(proof), ("total", proof.real)]
    ]
    note = (
        "Parts add up exactly. The line in a bar is the 95 % interval, Student's t over rounds of"
        " paired blocks."
    )
    head = ("part", "#ms", "#95 % interval", "#share", "")
    lines = table(head, rows, stacked=True)
    return f'<h2>Breakdown of a step</h2>{lines}<p class="soft">{note}</p>'


def _range(part: Estimate, real: float, color: str) -> Markup:
    width, low, high = (
        100 * min(1.0, max(0.0, ns / real)) for ns in (part.ns, part.low, part.high)
    )
    return Markup(
        f'<span class="range"><i style="width:{width:.2f}%;background:{color}"></i>'
        f'<b style="left:{min(low, 99.5):.2f}%;width:{max(0.5, high - low):.2f}%"></b></span>'
    )


def _modes(proof: StepCosts) -> str:
    rows = [
        (
            MODES[name],
            ms(step.ns),
            rate(proof.images_per_second(name)),
            f"{proof.cores.get(name, 0.0):.1f}",
        )
        for name, step in proof.steps.items()
    ]
    head = ("input", "#ms per step", "#images/s", "#cores busy")
    return f"<h2>Input modes</h2>{table(head, rows, stacked=True)}"


def _what_if(proof: StepCosts) -> str:
    if not proof.whatif:
        return ""
    rows = [(row.change, ms(row.step_ns), percent(row.gain), row.remedy) for row in proof.whatif]
    lines = table(("change", "#ms per step", "#gain", "what to do"), rows, stacked=True)
    return (
        f'<h2>What if</h2>{lines}<p class="soft">Estimates from the threads\' time per image.</p>'
    )


def _notes(proof: StepCosts) -> str:
    notes = list(proof.notes)
    if proof.own_wait is not None:
        notes.append(
            f"the feed itself counted {percent(proof.own_wait)} of the time as waiting, in real"
            " blocks"
        )
    notes.append("the weights of this run are meaningless")
    return f"<h2>Notes</h2>{bullets(notes)}<footer>fastfeed prove</footer>"
