"""The report as one HTML page in the style of the profiler's: no script, nothing from elsewhere,
light and dark.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import resources
from string import Template

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
from fastfeed.proof.result import Proof, verdict, word

__all__ = ["TITLE", "page"]

TITLE = "Is it the input"
_COLORS = {
    "step": "#2f9e5f",
    "copy": "#3b82c4",
    "contention": "#9b59b6",
    "preparation": "#e0a030",
    "fetch": "#d64545",
    "loading": "#e0a030",
}
_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="$description">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
$style
.range { position: relative; display: block; height: 12px; min-width: 90px; margin-top: 5px; }
.range i { position: absolute; height: 100%; border-radius: 2px; }
td .soft { font-weight: 400; }
.act p.soft { font-size: 14px; }
.range b { position: absolute; top: 5px; height: 2px; background: var(--ink); }
</style>
</head>
<body>
<main>
$body
</main>
</body>
</html>
""")


def page(proof: Proof) -> str:
    """HTML text; write it as UTF-8."""
    name = shown(proof.feed["name"] or proof.feed["source"])
    style = resources.files("fastfeed.profiler.reports").joinpath("page.css").read_text("utf-8")
    sections = [
        _head(proof),
        _bar(proof),
        _act(proof),
        _parts(proof),
        _modes(proof),
        _what_if(proof),
        _notes(proof),
    ]
    return _PAGE.substitute(
        title=_text(f"{TITLE}: {name}"),
        description=_text(headline(proof)),
        style=style,
        body="\n".join(sections),
    )


def _text(text: object) -> str:
    return html.escape(str(text), quote=True)


def _head(proof: Proof) -> str:
    feed = proof.feed
    is_feed = proof.slowest != "real"
    facts = [
        f"{feed['source']}, {feed['samples']:,} samples" if is_feed else feed["source"],
        f"batch {feed['batch']}",
        *(
            [
                f"{feed['threads']} thread{'s' * (feed['threads'] != 1)}, {feed['prefetch']}"
                " batches ahead"
            ]
            * is_feed
        ),
        f"{proof.rounds} rounds of blocks of {proof.block_steps} steps",
    ]
    if feed["name"]:
        facts.insert(0, f"feed {shown(feed['name'])}")
    if feed["world"] > 1:
        facts.append(f"rank {feed['rank']} of {feed['world']}")
    return (
        '<span class="word'
        f' {word(proof)}">{_text(verdict(proof).upper())}</span>\n<h1>{_text(headline(proof))}</h1>\n'
        f"<p>{_text(cannot(proof))}</p>\n<ul"
        f" class=facts>{''.join(f'<li>{_text(fact)}</li>' for fact in facts)}</ul>"
    )


def _rows(proof: Proof) -> list[tuple[str, Estimate]]:
    return [("step", proof.steps["resident"]), *proof.parts.items()]


def _bar(proof: Proof) -> str:
    real = max(1, proof.real.ns)
    pieces, legend, swatches = [], [], []
    for name, part in _rows(proof):
        color, share = _COLORS[name], f"{name} {percent(part.ns / real)}"
        pieces.append(
            f'<i style="width:{max(0.0, 100 * part.ns / real):.2f}%;background:{color}"></i>'
        )
        legend.append(share)
        swatches.append(
            f'<li><span class="swatch" style="background:{color}"></span>{_text(share)}</li>'
        )
    return (
        '<div class="bar" role="img"'
        f' aria-label="{_text(", ".join(legend))}">{"".join(pieces)}</div>\n<ul'
        f' class="legend">{"".join(swatches)}</ul>'
    )


def _act(proof: Proof) -> str:
    remedy = proof.remedy
    if remedy is None or word(proof) == "not_starved":
        return ""
    return (
        f'<section class="act"><h2>What would help most</h2><p>{_text(remedy.remedy)}</p><p'
        f" class=soft>{_text(remedy.change)}: about {_text(ms(remedy.step_ns))} ms per step;"
        f" training would {_text(faster(remedy.gain))}, as an estimate</p></section>"
    )


def _parts(proof: Proof) -> str:
    real = max(1.0, float(proof.real.ns))
    rows = []
    for name, part in [*_rows(proof), ("total", proof.real)]:
        rows.append(
            [
                (
                    f"<b>{name}</b><br><span"
                    f" class=soft>{_text(PARTS.get(name, 'with real input'))}</span>"
                ),
                _text(ms(part.ns)),
                _text(f"{ms(part.low)} to {ms(part.high)}"),
                _text(percent(part.ns / real)),
                _range(part, real, _COLORS.get(name, "var(--soft)")),
            ]
        )
    note = (
        "Parts add up exactly. The line in a bar is the 95 % interval, Student's t over rounds of"
        " paired blocks."
    )
    table = _table(("", "ms", "95 % interval", "share", ""), rows)
    return f"<h2>Breakdown of a step</h2>{table}<p class=soft>{note}</p>"


def _range(part: Estimate, real: float, color: str) -> str:
    def at(ns: float) -> float:
        return 100 * min(1.0, max(0.0, ns / real))

    low, high = at(part.low), at(part.high)
    return (
        f'<span class="range"><i style="width:{at(part.ns):.2f}%;background:{color}"></i>'
        f'<b style="left:{low:.2f}%;width:{max(0.5, high - low):.2f}%"></b></span>'
    )


def _modes(proof: Proof) -> str:
    rows = [
        [
            _text(MODES[name]),
            _text(ms(step.ns)),
            _text(rate(proof.images_per_second(name))),
            _text(f"{proof.cores.get(name, 0.0):.1f}"),
        ]
        for name, step in proof.steps.items()
    ]
    return f"<h2>Input modes</h2>{_table(('input', 'ms per step', 'images/s', 'cores busy'), rows)}"


def _what_if(proof: Proof) -> str:
    if not proof.whatif:
        return ""
    rows = [
        [_text(row.change), _text(ms(row.step_ns)), _text(percent(row.gain)), _text(row.remedy)]
        for row in proof.whatif
    ]
    table = _table(("change", "ms per step", "gain", "what to do"), rows)
    return f"<h2>What if</h2>{table}<p class=soft>Estimates from the threads' time per image.</p>"


def _notes(proof: Proof) -> str:
    notes = list(proof.notes)
    if proof.own_wait is not None:
        notes.append(
            f"the feed itself counted {percent(proof.own_wait)} of the time as waiting, in real"
            " blocks"
        )
    notes.append("the weights of this run are meaningless")
    items = "".join(f"<li>{_text(note)}</li>" for note in notes)
    return f'<h2>Notes</h2><ul class="notes">{items}</ul><footer>fastfeed prove</footer>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first and the last column are text where they are no number."""
    head = "".join(
        f'<th scope="col"{_class(k, heads)}>{_text(name)}</th>' if name else "<td></td>"
        for k, name in enumerate(heads)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_class(k, heads)}{_data_title(heads[k]) * bool(cell)}>{cell}</td>"
            for k, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        '<div class="scroll"><table'
        f' class="stacked"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _data_title(head: str) -> str:
    """What a phone shows in front of the cell."""
    return f' data-title="{_text(head)}"' if head else ""


def _class(column: int, heads: Sequence[str]) -> str:
    name = heads[column]
    return ' class="num"' if column and name and name != "what to do" else ""
