"""Small previews of bad images, decoded as far as possible in supervised worker processes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from PIL import GifImagePlugin, ImageFile, JpegImagePlugin, PngImagePlugin, TiffImagePlugin

from fastfeed.decode.base import DecodeFailure
from fastfeed.decode.pillow import OPEN, unwarned
from fastfeed.decode.pillow_warnings import named
from fastfeed.decode.sniff import sniff
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.readahead import known_sizes, read_each
from fastfeed.preprocess.model.task import MemoryLimitError, TaskContext, fault_of

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
        """As in Task."""
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
            return BadPreview(note=fault_of(error).detail)

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
