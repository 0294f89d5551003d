"""Reports duplicates: a JSON-lines list, and an HTML page with both images of each pair."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Container, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from fastfeed import html_page
from fastfeed.decode.base import DecodeFailure
from fastfeed.decode.pillow_warnings import named
from fastfeed.faults import Failure
from fastfeed.html_page import escape
from fastfeed.preprocess.inputs.plan_ids import label_names, read_labels
from fastfeed.preprocess.inputs.readahead import read_each
from fastfeed.preprocess.model.layout import DUPLICATES, JOB
from fastfeed.preprocess.model.task import to_decode_failure
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.image_info import image_info
from fastfeed.preprocess.planning.shares import DuplicatePair
from fastfeed.preprocess.targets.target import Target
from fastfeed.printable import plural
from fastfeed.sources.base import Source

PAIRS = f"{JOB}/duplicates.jsonl"
_CARD = re.compile(rb"<!--pair (\d+) (\d+)-->.*?<!--end of pair-->\n?", re.DOTALL)
_SECTIONS = {  # by reason: title, pairs with pictures, hint
    "duplicate_near": (
        "Look alike",
        100,
        "Pairs with different labels first, then those that differ most. If these look different to"
        " you, choose a smaller <code>distance</code>.",
    ),
    "duplicate_semantic": (
        "Similar embeddings",
        100,
        "Pairs with different labels first, then those that differ most. If these should both stay,"
        " choose a larger <code>similarity</code>.",
    ),
    "duplicate_exact": ("The same bytes", 20, "Copies, whatever their names."),
}
_BOX = (210, 300)  # maximum height and width of a thumbnail, pixels
_READ_BATCH = 16  # images per read


# an img element, or the reason for its absence; size and format, "" if it cannot be decoded
_Thumbnail = tuple[str, str]


def write_duplicates(target: Target, source: Source, pairs: Sequence[DuplicatePair]) -> None:
    """Write `__job/duplicates.jsonl` with all pairs, and `__job/duplicates.html` with thumbnails."""
    lines = io.BytesIO()
    for pair in pairs:
        line: dict[str, Any] = {"kept": source.uri(pair.kept), "dropped": source.uri(pair.dropped)}
        line |= {"reason": pair.reason, "bits": pair.bits, "labels_differ": pair.conflict}
        line["ids"] = [pair.kept, pair.dropped]
        if pair.reason == "duplicate_semantic":
            line["cosine"] = round(pair.cosine, 6)
        lines.write(json.dumps(line).encode() + b"\n")
    target.write(PAIRS, lines.getvalue())
    target.write(DUPLICATES, _page(source, pairs).encode("utf-8", "replace"))


def forget_duplicates(target: Target, ids: Container[int]) -> None:
    """Take the pairs with one of these images out of the list and off the page.

    Those of earlier versions, which have no ids, are removed as a whole.
    """
    lines = (target.read(PAIRS) or b"").splitlines(keepends=True)
    page = target.read(DUPLICATES) or b""
    pairs = [json.loads(line).get("ids") for line in lines]
    if None in pairs:
        target.remove(DUPLICATES)  # first: without the list, nothing would find the page again
        target.remove(PAIRS)
        return
    shown = _CARD.sub(
        lambda card: b"" if int(card[1]) in ids or int(card[2]) in ids else card[0], page
    )
    if shown != page:
        target.write(DUPLICATES, shown)
    stays = [not any(i in ids for i in pair) for pair in pairs]
    if not all(stays):
        target.write(PAIRS, b"".join(line for line, kept in zip(lines, stays, strict=True) if kept))


def _page(source: Source, pairs: Sequence[DuplicatePair]) -> str:
    worst = sorted(
        pairs, key=lambda pair: (not pair.conflict, -pair.bits, pair.cosine, pair.dropped)
    )
    groups = {why: [pair for pair in worst if pair.reason == why] for why in _SECTIONS}
    chosen = {why: group[: _SECTIONS[why][1]] for why, group in groups.items()}
    shown = [pair for group in chosen.values() for pair in group]
    thumbnails = _thumbnails(source, [id for pair in shown for id in (pair.kept, pair.dropped)])
    conflicts = sum(pair.conflict for pair in pairs)
    what = "a duplicate" if len(pairs) == 1 else "duplicates"
    labels = f" In {plural(conflicts, 'pair')} the labels differ: one of them is wrong."
    body = [
        f"<h1>{plural(len(pairs), 'image')} left out as {what}</h1>",
        "<p class=soft>Of near copies the largest is kept, of the same bytes the first. All are"
        f" listed in <code>{PAIRS}</code>, but pairs of images that were removed since.{labels if conflicts else ''}</p>",
    ]
    for why, (title, _, hint) in _SECTIONS.items():
        if not groups[why]:
            continue
        more = len(groups[why]) - len(chosen[why])
        note = f" {len(chosen[why])} are shown, {more:,} more are not." if more else ""
        cards = "\n".join(_card(source, pair, thumbnails) for pair in chosen[why])
        body.append(
            f"<h2>{title}: {plural(len(groups[why]), 'pair')}</h2>"
            f"<p class=soft>{hint}{note}</p><div class=grid>\n{cards}\n</div>"
        )
    return html_page.page(
        "Duplicates",
        "Pairs of images of which one is left out",
        "\n".join(["<main>", *body, "</main>"]),
        style=html_page.asset(Path(__file__).with_name("duplicates_page.css")),
    )


def _card(source: Source, pair: DuplicatePair, thumbnails: dict[int, _Thumbnail]) -> str:
    head = "the same bytes"
    if pair.reason == "duplicate_near":
        head = "1 bit of 64 differs" if pair.bits == 1 else f"{pair.bits} bits of 64 differ"
    if pair.reason == "duplicate_semantic":
        head = f"cosine {pair.cosine:.3f}"
    if pair.conflict:
        labels = read_labels(source, [pair.kept, pair.dropped])
        kept, dropped = (", ".join(label_names(label, source.classes)) for label in labels)
        head += f"<i>the labels differ: {escape(kept)}, {escape(dropped)}</i>"
    sides = [
        f"<figure><div class=mat>{thumbnails[id][0]}</div>"
        f"<figcaption><em>{verdict}</em> {thumbnails[id][1]}<br>"
        f"{escape(source.uri(id))}</figcaption></figure>"
        for id, verdict in ((pair.kept, "kept"), (pair.dropped, "left out"))
    ]
    card = f"<div class=pair><b>{head}</b>{sides[0]}{sides[1]}</div>"
    return f"<!--pair {pair.kept} {pair.dropped}-->{card}<!--end of pair-->"


def _thumbnails(source: Source, ids: Sequence[int]) -> dict[int, _Thumbnail]:
    """A thumbnail of each image."""
    unique_ids = list(dict.fromkeys(ids))
    rasterizer = Rasterizer(filter="area")
    thumbnails: dict[int, _Thumbnail] = {}
    for first in range(0, len(unique_ids), _READ_BATCH):
        batch = unique_ids[first : first + _READ_BATCH]
        for id, blob in zip(batch, read_each(source, batch), strict=True):
            with named(partial(source.uri, id)):
                try:
                    thumbnails[id] = _thumbnail(rasterizer, blob)
                except Exception as error:
                    thumbnails[id] = escape(to_decode_failure(error).reason), ""
    return thumbnails


def _thumbnail(rasterizer: Rasterizer, blob: Any) -> _Thumbnail:
    if isinstance(blob, Failure):
        return escape(blob.reason), ""
    info = image_info(blob)
    if isinstance(info, DecodeFailure):
        return escape(info.reason), ""
    scale = min(1.0, _BOX[0] / info.height, _BOX[1] / info.width)
    size = max(1, round(info.height * scale)), max(1, round(info.width * scale))
    pixels = rasterizer.pixels(blob, info, (0.0, 0.0, float(info.height), float(info.width)), size)
    if isinstance(pixels, DecodeFailure):
        return escape(pixels.reason), ""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=80)
    data = base64.b64encode(file.getvalue()).decode()
    facts = f"{info.width} × {info.height}, {len(blob) / 1e3:,.0f} kB {escape(info.format)}"
    return f'<img alt="" src="data:image/jpeg;base64,{data}">', facts
