"""Reports duplicates: a JSON-lines list, and an HTML page with both photographs of each pair."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.decode.base import Bad
from fastfeed.decode.pillow_warnings import named
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.readahead import read_each
from fastfeed.preprocess.model.layout import DUPLICATES, JOB
from fastfeed.preprocess.model.sample_faults import fault_of
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.image_info import image_info
from fastfeed.preprocess.planning.shares import DuplicatePair
from fastfeed.preprocess.targets.target import Target
from fastfeed.sources.base import Source

__all__ = ["PAIRS", "write_duplicates"]

PAIRS = f"{JOB}/duplicates.jsonl"
_MAX_SHOWN = {"duplicate_near": 100, "duplicate_exact": 20}  # pairs with pictures
_TITLES = {
    "duplicate_near": "Look alike",
    "duplicate_exact": "The same bytes",
}
_HINTS = {
    "duplicate_near": (
        "Pairs with different labels first, then those that differ most. If these look different to"
        " you, choose a smaller <code>distance</code>."
    ),
    "duplicate_exact": "Copies, whatever their names.",
}
_BOX = (210, 300)  # maximum height and width of a thumbnail, pixels
_READ_BATCH = 16  # photographs per read
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
class _Thumbnail:
    """A photograph of a pair, as HTML."""

    picture: str  # an img element, or the reason there is none
    facts: str  # size and format; empty if it cannot be decoded


def write_duplicates(target: Target, source: Source, pairs: Sequence[DuplicatePair]) -> None:
    """`__job/duplicates.jsonl`, a line for each pair, and `__job/duplicates.html` with thumbnails
    of some.
    """
    lines = io.BytesIO()
    for pair in pairs:
        line: dict[str, Any] = {"kept": source.uri(pair.kept), "dropped": source.uri(pair.dropped)}
        line |= {"reason": pair.reason, "bits": pair.bits, "labels_differ": pair.conflict}
        lines.write(json.dumps(line).encode() + b"\n")
    target.write(PAIRS, lines.getvalue())
    target.write(DUPLICATES, _page(source, pairs).encode("utf-8", "replace"))


def _page(source: Source, pairs: Sequence[DuplicatePair]) -> str:
    sections = {reason: [pair for pair in pairs if pair.reason == reason] for reason in _TITLES}
    chosen = {
        reason: sorted(group, key=lambda pair: (not pair.conflict, -pair.bits, pair.dropped))[
            : _MAX_SHOWN[reason]
        ]
        for reason, group in sections.items()
    }
    thumbnails = _thumbnails(
        source,
        [id for group in chosen.values() for pair in group for id in (pair.kept, pair.dropped)],
    )
    conflicts = sum(pair.conflict for pair in pairs)
    body = [
        (
            f"<h1>{_count(len(pairs), 'photograph')} left out as"
            f" {'a duplicate' if len(pairs) == 1 else 'duplicates'}</h1>"
        ),
        "<p class=soft>Of near copies the largest is kept, of the same bytes the first. All are"
        f" listed in <code>{PAIRS}</code>."
        + (
            f" In {_count(conflicts, 'pair')} the labels differ: one of them is wrong."
            if conflicts
            else ""
        )
        + "</p>",
    ]
    for reason, group in sections.items():
        if not group:
            continue
        more = len(group) - len(chosen[reason])
        body.append(
            f"<h2>{_TITLES[reason]}: {_count(len(group), 'pair')}</h2><p"
            f" class=soft>{_HINTS[reason]}"
        )
        body.append(
            f" {len(chosen[reason])} are shown, {more:,} more are not.</p>" if more else "</p>"
        )
        body.append("<div class=grid>")
        body += [_card(source, pair, thumbnails) for pair in chosen[reason]]
        body.append("</div>")
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport"
        f' content="width=device-width"><title>Duplicates</title><style>{_STYLE}</style>\n<main>\n'
        + "\n".join(body)
        + "\n</main>\n</html>\n"
    )


def _card(source: Source, pair: DuplicatePair, thumbnails: dict[int, _Thumbnail]) -> str:
    head = (
        f"{_count(pair.bits, 'bit')} of 64 differ"
        if pair.reason == "duplicate_near"
        else "the same bytes"
    )
    if pair.bits == 1:
        head = "1 bit of 64 differs"
    if pair.conflict:
        names = [_class_name(source, id) for id in (pair.kept, pair.dropped)]
        head += f"<i>the labels differ: {escape(names[0])}, {escape(names[1])}</i>"
    sides = [
        f"<figure><div class=mat>{thumbnails[id].picture}</div>"
        f"<figcaption><em>{verdict}</em> {thumbnails[id].facts}<br>"
        f"{escape(source.uri(id))}</figcaption></figure>"
        for id, verdict in ((pair.kept, "kept"), (pair.dropped, "left out"))
    ]
    return f"<div class=pair><b>{head}</b>{sides[0]}{sides[1]}</div>"


def _thumbnails(source: Source, ids: Sequence[int]) -> dict[int, _Thumbnail]:
    """A thumbnail of each photograph."""
    unique_ids, rasterizer = list(dict.fromkeys(ids)), Rasterizer(filter="area")
    thumbnails: dict[int, _Thumbnail] = {}
    for first in range(0, len(unique_ids), _READ_BATCH):
        batch = unique_ids[first : first + _READ_BATCH]
        for id, blob in zip(batch, read_each(source, batch), strict=True):
            with named(partial(source.uri, id)):
                try:
                    thumbnails[id] = _thumbnail(rasterizer, blob)
                except Exception as error:
                    thumbnails[id] = _Thumbnail(escape(fault_of(error).reason), "")
    return thumbnails


def _thumbnail(rasterizer: Rasterizer, blob: Any) -> _Thumbnail:
    if isinstance(blob, Failure):
        return _Thumbnail(escape(blob.reason), "")
    info = image_info(blob)
    if isinstance(info, Bad):
        return _Thumbnail(escape(info.reason), "")
    scale = min(1.0, _BOX[0] / info.height, _BOX[1] / info.width)
    size = max(1, round(info.height * scale)), max(1, round(info.width * scale))
    pixels = rasterizer.pixels(blob, info, (0.0, 0.0, float(info.height), float(info.width)), size)
    if isinstance(pixels, Bad):
        return _Thumbnail(escape(pixels.reason), "")
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=80)
    picture = (
        f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}">'
    )
    return _Thumbnail(
        picture, f"{info.width} × {info.height}, {len(blob) / 1e3:,.0f} kB {escape(info.format)}"
    )


def _class_name(source: Source, id: int) -> str:
    label = int(source.label(np.array([id], np.int64))[0])
    return source.classes[label] if label < len(source.classes) else str(label)


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
