"""Who was left out in favor of whom: a list for programs, and a page with both photographs of each pair."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.decode.base import Bad
from fastfeed.faults import Failure
from fastfeed.preprocess.pixels.decode import Rasterizer, image_info
from fastfeed.preprocess.survey.select import DuplicatePair
from fastfeed.preprocess.targets.target import Target
from fastfeed.sources.base import Source

__all__ = ["DUPLICATES", "PAGE", "write_duplicates"]

DUPLICATES, PAGE = "_job/duplicates.jsonl", "_job/duplicates.html"
_SHOWN = {"duplicate_near": 100, "duplicate_exact": 20}  # pairs with pictures
_TITLES = {
    "duplicate_near": "Look alike",
    "duplicate_exact": "The same bytes",
}
_HINTS = {
    "duplicate_near": "First where labels differ, then those that differ most. If these are different pictures to you, "
    "choose a smaller <code>distance</code>.",
    "duplicate_exact": "Copies, under whatever name.",
}
_BOX = (210, 300)  # pixels that a thumbnail fits into: height, width
_AT_ONCE = 16  # photographs read together
_STYLE = """
:root { --ground: #fff; --raised: #f6f7f9; --line: #dde1e7; --ink: #1b2027; --soft: #566070; --bad: #c8272d;
  --mat: #e9ecf1; color-scheme: light; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171c; --raised: #1c2027; --line: #323945; --ink: #e7eaef;
  --soft: #a2acba; --bad: #ff7b7f; --mat: #0d1014; color-scheme: dark; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1340px; padding: 28px 24px 56px; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 25px; line-height: 1.3; margin: 6px 0 4px; font-weight: 650; }
h2 { font-size: 18px; margin: 40px 0 4px; padding-top: 14px; border-top: 1px solid var(--line); font-weight: 650; }
p { margin: 4px 0 14px; max-width: 90ch; } .soft { color: var(--soft); font-size: 13px; }
code { font: 13px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(560px, 100%), 1fr)); gap: 18px; }
.pair { background: var(--raised); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px;
  display: grid; grid-template-columns: 1fr 1fr; gap: 6px 14px; align-content: start; }
.pair b { grid-column: 1 / -1; font-size: 13px; font-weight: 650; font-variant-numeric: tabular-nums; }
.pair b i { font-style: normal; color: var(--bad); margin-left: 10px; }
figure { margin: 0; min-width: 0; } figcaption { font-size: 12px; line-height: 1.4; color: var(--soft); }
figcaption em { font-style: normal; font-weight: 650; color: var(--ink); }
.mat { height: 210px; margin-bottom: 6px; background: var(--mat); border-radius: 4px; display: flex;
  align-items: center; justify-content: center; color: var(--soft); font-size: 13px; }
.mat img { max-width: 100%; max-height: 100%; display: block; }
"""


@dataclass(frozen=True, slots=True)
class _Shown:
    """One photograph of a pair."""

    picture: str  # HTML
    facts: str  # size and format; empty where it cannot be decoded


def write_duplicates(target: Target, source: Source, pairs: Sequence[DuplicatePair]) -> None:
    """`_job/duplicates.jsonl`, a line for each pair, and `_job/duplicates.html` with pictures of some."""
    lines = io.BytesIO()
    for pair in pairs:
        line: dict[str, Any] = {"kept": source.uri(pair.kept), "dropped": source.uri(pair.dropped)}
        line |= {"reason": pair.reason, "bits": pair.bits, "labels_differ": pair.conflict}
        lines.write(json.dumps(line).encode() + b"\n")
    target.write(DUPLICATES, lines.getvalue())
    target.write(PAGE, _page(source, pairs).encode("utf-8", "replace"))


def _page(source: Source, pairs: Sequence[DuplicatePair]) -> str:
    sections = {reason: [pair for pair in pairs if pair.reason == reason] for reason in _TITLES}
    chosen = {
        reason: sorted(some, key=lambda pair: (not pair.conflict, -pair.bits, pair.dropped))[: _SHOWN[reason]]
        for reason, some in sections.items()
    }
    shown = _looked_at(source, [id for some in chosen.values() for pair in some for id in (pair.kept, pair.dropped)])
    conflicts = sum(pair.conflict for pair in pairs)
    body = [
        f"<h1>{_count(len(pairs), 'photograph')} left out as {'a duplicate' if len(pairs) == 1 else 'duplicates'}</h1>",
        f"<p class=soft>Of a pair, the first in the source stays. All pairs are listed in <code>{DUPLICATES}</code>."
        + (f" In {_count(conflicts, 'pair')} the labels differ: one of them is wrong." if conflicts else "")
        + "</p>",
    ]
    for reason, some in sections.items():
        if not some:
            continue
        more = len(some) - len(chosen[reason])
        body.append(f"<h2>{_TITLES[reason]}: {_count(len(some), 'pair')}</h2><p class=soft>{_HINTS[reason]}")
        body.append(f" {len(chosen[reason])} are shown, {more:,} more are not.</p>" if more else "</p>")
        body.append("<div class=grid>")
        body += [_card(source, pair, shown) for pair in chosen[reason]]
        body.append("</div>")
    return (
        '<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">'
        f"<title>Duplicates</title><style>{_STYLE}</style>\n" + "\n".join(body) + "\n</html>\n"
    )


def _card(source: Source, pair: DuplicatePair, shown: dict[int, _Shown]) -> str:
    head = f"{_count(pair.bits, 'bit')} of 64 differ" if pair.reason == "duplicate_near" else "the same bytes"
    if pair.bits == 1:
        head = "1 bit of 64 differs"
    if pair.conflict:
        names = [_class(source, id) for id in (pair.kept, pair.dropped)]
        head += f"<i>the labels differ: {escape(names[0])}, {escape(names[1])}</i>"
    sides = [
        f"<figure><div class=mat>{shown[id].picture}</div><figcaption><em>{verdict}</em> {shown[id].facts}<br>"
        f"{escape(source.uri(id))}</figcaption></figure>"
        for id, verdict in ((pair.kept, "stays"), (pair.dropped, "left out"))
    ]
    return f"<div class=pair><b>{head}</b>{sides[0]}{sides[1]}</div>"


def _looked_at(source: Source, ids: Sequence[int]) -> dict[int, _Shown]:
    """A small picture of each."""
    wanted, rasterizer = list(dict.fromkeys(ids)), Rasterizer(filter="area")
    shown: dict[int, _Shown] = {}
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        for id, blob in zip(some, source.read(some), strict=True):
            shown[id] = _small(rasterizer, blob)
    return shown


def _small(rasterizer: Rasterizer, blob: Any) -> _Shown:
    if isinstance(blob, Failure):
        return _Shown(escape(blob.reason), "")
    seen = image_info(blob)
    if isinstance(seen, Bad):
        return _Shown(escape(seen.reason), "")
    scale = min(1.0, _BOX[0] / seen.height, _BOX[1] / seen.width)
    size = max(1, round(seen.height * scale)), max(1, round(seen.width * scale))
    pixels = rasterizer.pixels(blob, seen, (0.0, 0.0, float(seen.height), float(seen.width)), size)
    if isinstance(pixels, Bad):
        return _Shown(escape(pixels.reason), "")
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=80)
    picture = f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}">'
    return _Shown(picture, f"{seen.width} × {seen.height}, {len(blob) / 1e3:,.0f} kB {escape(seen.format)}")


def _class(source: Source, id: int) -> str:
    label = int(source.label(np.array([id], np.int64))[0])
    return source.classes[label] if label < len(source.classes) else str(label)


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
