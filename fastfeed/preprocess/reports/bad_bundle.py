"""A zip file about bad images: a page with small previews, and a line of JSON for each of them."""

from __future__ import annotations

import base64
import json
import os
import zipfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastfeed import html_page
from fastfeed.html_page import escape
from fastfeed.preprocess.engines import Engine, run_pieces
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.model.bad_filter import BadImage
from fastfeed.preprocess.model.record import REASONS
from fastfeed.preprocess.reports.bad_previews import AT_ONCE, BadPreview, PreviewTask
from fastfeed.preprocess.reports.statistics import ranked
from fastfeed.printable import format_size
from fastfeed.runtime.atomic_write import atomic_write

_TIME = (1980, 1, 1, 0, 0, 0)  # of the files in it: the same images make the same bytes
_HEX_COLUMNS = 8


def write_bundle(
    path: str | os.PathLike[str],
    input: Input,
    images: Sequence[BadImage],
    engine: Engine,
    *,
    count: int = 200,
    side: int = 160,
    title: str = "",
    on_preview: Callable[[int, int], None] | None = None,
) -> int:
    """Write the bundle, and return the number of images in it. OSError.

    Args:
        path: The zip file, which is replaced.
        input: The source, with the ids of the plan.
        images: Bad images to choose from.
        engine: Runs the decoders.
        count: Images at most, some of each reason.
        side: Side of a preview in pixels, at most.
        title: Title of the page.
        on_preview: Called with the numbers of images done, and of all.
    """
    chosen = spread(images, count)
    ids = [image.sample.id for image in chosen]
    task = PreviewTask(input, ids, [image.sample.reason for image in chosen], side)
    previews: dict[int, list[BadPreview]] = {}
    pieces = range(-(-len(chosen) // AT_ONCE))
    with run_pieces(engine, task, pieces) as outcomes:
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            if outcome.summary:
                previews[outcome.piece] = outcome.summary["previews"]
                done = sum(map(len, previews.values()))
                if on_preview is not None:
                    on_preview(done, len(chosen))
    shown = [preview for piece in pieces for preview in previews[piece]]
    pairs = list(zip(chosen, shown, strict=True))
    lines = "".join(json.dumps(_document(*pair)) + "\n" for pair in pairs)
    files = {"index.html": page(pairs, len(images), title), "bad.jsonl": lines}
    with atomic_write(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in files.items():
            about = zipfile.ZipInfo(name, _TIME)
            about.compress_type = zipfile.ZIP_DEFLATED
            bundle.writestr(about, text.encode("utf-8", "backslashreplace"))
    return len(chosen)


def spread(images: Sequence[BadImage], count: int) -> list[BadImage]:
    """Up to `count` images, of each reason as many as possible, evenly spread over each."""
    by_reason: dict[str, list[BadImage]] = defaultdict(list)
    for image in images:
        by_reason[image.sample.reason].append(image)
    chosen: list[BadImage] = []
    smallest = sorted(by_reason.values(), key=len)  # what they leave is for the others
    for number, group in enumerate(smallest):
        share = min(len(group), (count - len(chosen)) // (len(smallest) - number))
        chosen += [group[k * len(group) // share] for k in range(share)]
    return chosen


def page(pairs: Sequence[tuple[BadImage, BadPreview]], total: int, title: str) -> str:
    """The page as one self-contained HTML file."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for image, preview in pairs:
        by_reason[image.sample.reason].append(_card(image, preview))
    sections = [
        f"<h2>{escape(reason)}: {escape(REASONS.get(reason, ''))}</h2>"
        f'<div class="cards">{"".join(by_reason[reason])}</div>'
        for reason, _ in ranked({reason: len(cards) for reason, cards in by_reason.items()})
    ]
    count = f"{len(pairs):,} of {total:,}" if len(pairs) < total else f"{total:,}"
    body = (
        f'<main>\n<div class="soft">fastfeed preprocess</div><h1>{count} bad images'
        f'</h1><div class="soft">{escape(title)}</div>{"".join(sections)}</main>'
    )
    return html_page.page(
        f"Bad images: {title}",
        "Bad images of a job of fastfeed preprocess",
        body,
        style=html_page.asset(Path(__file__).with_name("bad_bundle.css")),
    )


def _card(image: BadImage, preview: BadPreview) -> str:
    picture = f"<pre>{escape(hex_lines(preview.first))}</pre>" if preview.first else ""
    if preview.jpeg:
        data = base64.b64encode(preview.jpeg).decode()
        picture = f'<img alt="" src="data:image/jpeg;base64,{data}">'
    facts = [preview.format, image.class_name]
    if preview.width is not None:
        facts.insert(1, f"{preview.width:,} × {preview.height:,}")
    if preview.bytes is not None:
        facts.insert(0, format_size(preview.bytes))
    detail = [text for text in (image.sample.detail, preview.note) if text]
    return (
        f'<figure><div class="mat">{picture or escape("no content")}</div>'
        f"<figcaption>{escape(image.name)}<br>{escape(', '.join(filter(None, facts)))}"
        f"<br>{escape('; '.join(dict.fromkeys(detail)))}</figcaption></figure>"
    )


def hex_lines(content: bytes) -> str:
    """Lines of eight bytes in hexadecimal, and as ASCII."""
    lines = []
    for start in range(0, len(content), _HEX_COLUMNS):
        part = content[start : start + _HEX_COLUMNS]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{part.hex(' '):<{3 * _HEX_COLUMNS}} {text}")
    return "\n".join(lines)


def _document(image: BadImage, preview: BadPreview) -> dict[str, Any]:
    sample = image.sample
    return {
        "id": sample.id,
        "uri": sample.uri,
        "name": image.name,
        "class": image.class_name or None,
        "reason": sample.reason,
        "detail": sample.detail,
        "bytes": preview.bytes,
        "first_bytes": preview.first.hex(),
        "format": preview.format or None,
        "height": preview.height,
        "width": preview.width,
        "preview": bool(preview.jpeg),
        "note": preview.note,
    }
