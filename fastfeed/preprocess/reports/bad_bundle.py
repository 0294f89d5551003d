"""A zip file about bad images: a page with small previews, and a line of JSON for each of them.

Previews are decoded as far as possible in supervised worker processes.
"""

from __future__ import annotations

import base64
import io
import json
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from PIL import GifImagePlugin, ImageFile, JpegImagePlugin, PngImagePlugin, TiffImagePlugin

from fastfeed import html_page
from fastfeed.decode.base import DecodeFailure
from fastfeed.decode.pillow import OPEN, unwarned
from fastfeed.decode.pillow_warnings import named
from fastfeed.decode.sniff import sniff
from fastfeed.faults import Failure
from fastfeed.html_page import escape
from fastfeed.preprocess.engines import Engine, collect_summaries
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.readahead import known_sizes, read_each
from fastfeed.preprocess.model.bad_filter import BadImage
from fastfeed.preprocess.model.record import REASONS
from fastfeed.preprocess.model.task import MemoryLimitError, TaskContext, to_decode_failure
from fastfeed.preprocess.reports.statistics import ranked
from fastfeed.printable import format_size
from fastfeed.runtime.atomic_write import atomic_write

_TIME = (1980, 1, 1, 0, 0, 0)  # of the files in it: the same images make the same bytes
_HEX_COLUMNS = 8


# Pillow's own classes, which show a part of a file; those in OPEN refuse it
_OPEN: dict[str, Any] = OPEN | {
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
}
AT_ONCE = 8  # images per piece
_FIRST_BYTES = 64
_MAX_BYTES = 64_000_000  # of a file that is read for its preview
_MAX_PIXELS = 50_000_000  # of an image that is decoded
_BYTES_PER_PIXEL = 8  # while an image is decoded and converted
_QUALITY = 80
_UNDECODED = frozenset(
    {"worker_crash", "timeout", "oom", "bomb"}
)  # failures that decoding would repeat


@dataclass(frozen=True, slots=True)
class BadPreview:
    """The parts of a bad image that can be shown."""

    bytes: int | None = None  # of the file; None: it cannot be read
    first: bytes = b""  # of the file
    format: str = ""  # by content; "": unknown
    height: int | None = None  # pixels, as its header says
    width: int | None = None
    jpeg: bytes = b""  # b"": nothing was decoded
    note: str = ""  # why there is no picture


@dataclass(frozen=True, eq=False)
class PreviewTask:
    """Makes previews; piece k is of the images [8k, 8k + 8)."""

    input: Input
    ids: Sequence[int]
    reasons: Sequence[str]  # of each image
    side: int  # pixels, of a preview

    def run(
        self, piece: int, context: TaskContext, poison: Mapping[int, DecodeFailure]
    ) -> dict[str, Any]:
        """As in Task; the summary has "samples" and "previews"."""
        part = slice(piece * AT_ONCE, (piece + 1) * AT_ONCE)
        previews = []
        for i, reason in zip(self.ids[part], self.reasons[part], strict=True):
            if i in poison:
                previews.append(BadPreview(note=f"{poison[i].reason}: {poison[i].detail}"))
            else:
                previews.append(self._preview(i, reason, context))
        context.begin(-1)
        return {"samples": len(previews), "previews": previews}

    def alone(self, sample: int, context: TaskContext) -> None:
        """Run one sample and discard the result, as in Task."""
        self._preview(sample, self.reasons[list(self.ids).index(sample)], context)

    def _preview(self, i: int, reason: str, context: TaskContext) -> BadPreview:
        context.begin(i)
        source = self.input.source
        try:
            size = known_sizes(source, [i])[0]
            if size > _MAX_BYTES:
                return BadPreview(size, note="too large a file for a preview")
            with context.room(size):
                (blob,) = read_each(source, [i])
                if isinstance(blob, Failure):
                    return BadPreview(note=blob.detail or blob.reason)
                format = sniff(blob) or ""
                about = BadPreview(len(blob), bytes(blob[:_FIRST_BYTES]), format)
                if format not in _OPEN:
                    return about
                if reason in _UNDECODED:
                    return replace(about, note=f"not decoded again, because of {reason}")
                with named(partial(source.uri, i)):
                    return self._decoded(blob, about, context)
        except MemoryLimitError as error:
            return BadPreview(note=str(error))
        # decoders of hostile bytes raise anything
        except Exception as error:
            return BadPreview(note=to_decode_failure(error).detail)

    def _decoded(self, blob: bytes, about: BadPreview, context: TaskContext) -> BadPreview:
        try:
            with _truncated_files_pass():
                image = unwarned(lambda: _OPEN[about.format](io.BytesIO(blob), ""))
                about = replace(about, height=image.height, width=image.width)
                pixels = image.height * image.width
                if pixels > _MAX_PIXELS:
                    return replace(about, note="too many pixels for a preview")
                with context.room(pixels * _BYTES_PER_PIXEL):
                    file = io.BytesIO()
                    unwarned(partial(self._draw, image, file))
        except MemoryLimitError:
            raise
        except Exception as error:
            return replace(about, note=str(error) or type(error).__name__)
        return replace(about, jpeg=file.getvalue())

    def _draw(self, image: Any, file: io.BytesIO) -> None:
        image.draft("RGB", (self.side, self.side))
        picture = image.convert("RGB")
        picture.thumbnail((self.side, self.side))
        picture.save(file, "JPEG", quality=_QUALITY)


@contextmanager
def _truncated_files_pass() -> Iterator[None]:
    """Let Pillow decode the intact part of a truncated file."""
    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def write_bundle(
    path: str | os.PathLike[str],
    input: Input,
    images: Sequence[BadImage],
    engine: Engine,
    *,
    count: int = 200,
    side: int = 160,
    title: str = "",
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
    """
    chosen = spread(images, count)
    ids = [image.sample.id for image in chosen]
    task = PreviewTask(input, ids, [image.sample.reason for image in chosen], side)
    summaries = collect_summaries(engine, task, range(-(-len(chosen) // AT_ONCE)))
    shown: list[BadPreview] = [own for summary in summaries for own in summary["previews"]]
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
    return asdict(image.sample) | {
        "name": image.name,
        "class": image.class_name or None,
        "bytes": preview.bytes,
        "first_bytes": preview.first.hex(),
        "format": preview.format or None,
        "height": preview.height,
        "width": preview.width,
        "preview": bool(preview.jpeg),
        "note": preview.note,
    }
