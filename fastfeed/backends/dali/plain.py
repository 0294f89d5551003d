"""Selects files that DALI decodes as the cpu backend does; others never reach its decoder.

Asked of whole batches: per file it costs a few microseconds of the interpreter's lock, where
reading through a file in Python took a hundred, which on a GPU was slower than decoding it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np

from fastfeed.backends.dali.imports import CodeStream
from fastfeed.backends.dali.windows import FILTERS
from fastfeed.decode.base import Header
from fastfeed.decode.formats.exif import is_plain_exif, jpeg_exifs
from fastfeed.decode.formats.png import png_names
from fastfeed.ops.program.program import Program
from fastfeed.ops.program.window import Window
from fastfeed.runtime.extension import extension

RGB = 3  # channels that DALI decodes to
_EIGHT_BITS = (b"\x08\x00", b"\x08\x02")  # depth and color type of a PNG: gray, RGB
_NOT_PLAIN = {b"eXIf", b"tRNS", b"acTL"}  # chunks of one that is rotated, transparent or animated


def supports(program: Program) -> bool:
    """True if DALI decodes to these channels, and has the filters of all windows."""
    if program.decode is not None and program.decode.channels != RGB:
        return False
    ops = [op for layer in program.layers for op in layer.ops if isinstance(op, Window)]
    return program.filter in FILTERS and all(op.filter in FILTERS for op in ops)


def plain_rows(program: Program, blobs: Sequence[Any], headers: Sequence[Header]) -> list[bool]:
    """True for each sample that DALI decodes as the cpu backend does."""
    if not supports(program) or program.decode is None:
        return [supports(program)] * len(blobs)
    # the native extension's word: 8-bit JPEGs of one component or three
    by_extension = [header.format == "JPEG" and header.handle is None for header in headers]
    plain = iter(extension().plain_jpegs(list(compress(blobs, by_extension))))
    return [
        (next(plain) if known else _looks_plain(blob, header)) and _parses(blob)
        for known, blob, header in zip(by_extension, blobs, headers, strict=True)
    ]


def _looks_plain(blob: Any, header: Header) -> bool:
    """`plain_rows` for one file that is not a JPEG of the native extension."""
    blob = bytes(blob)  # native threads hand out arrays, in which nothing can be searched for
    if header.handle is None:  # the native extension's word: a PNG without interlacing
        return (
            header.format == "PNG"
            and blob[24:26] in _EIGHT_BITS
            and not _NOT_PLAIN & png_names(blob)
        )
    if header.format not in PLAIN:
        return False
    return PLAIN[header.format](blob, header.handle.look(blob), header.handle.orientation)


def _plain_jpeg(blob: bytes, image: Any, orientation: int) -> bool:
    """8-bit gray or YCbCr whose last scan ends and holds only entropy-coded data.

    DALI would accept broken or truncated scans and fill them with gray.
    """
    if image.bits != 8 or image.mode not in ("L", "RGB"):
        return False
    if image.mode == "RGB" and (
        image.info.get("adobe_transform") == 0 or [c[0] for c in image.layer] == [*b"RGB"]
    ):
        return False  # stored as RGB: rare, and decoders have to guess
    return extension().last_scans_end([blob])[0] and is_plain_exif(jpeg_exifs(blob))


def _plain_png(blob: bytes, image: Any, orientation: int) -> bool:
    """8-bit gray or RGB without transparency or animation."""
    return (
        blob[24:26] in _EIGHT_BITS
        and image.mode in ("L", "RGB")
        and not _NOT_PLAIN & png_names(blob)
    )


def _plain_webp(blob: bytes, image: Any, orientation: int) -> bool:
    """One frame without transparency, in the simple file layout."""
    return (
        blob[12:16] in (b"VP8 ", b"VP8L")
        and orientation == 1
        and image.mode == "RGB"
        and _opaque(image)
    )


def _opaque(image: Any) -> bool:
    return "transparency" not in image.info and getattr(image, "n_frames", 1) == 1


PLAIN: dict[str, Callable[[bytes, Any, int], bool]] = {
    "JPEG": _plain_jpeg,
    "PNG": _plain_png,
    "WEBP": _plain_webp,
}


def _parses(blob: Any) -> bool:
    """True if the parser inside DALI's decoder accepts the file.

    DALI 2.4 crashes on one it rejects, in batches of dozens.

    Segmentation fault in `run()`, nearly every time. A refusal while decoding, after parsing, is an
    ordinary error.
    """
    file = blob if isinstance(blob, (bytes, np.ndarray)) else bytes(blob)
    try:
        return CodeStream(file).height > 0  # it parses when it is asked
    except RuntimeError:
        return False
