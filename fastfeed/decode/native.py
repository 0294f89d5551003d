"""Decodes JPEGs, PNGs, WebPs and TIFFs with the native extension, without the GIL.

Only the window is decoded, JPEGs and lossy WebPs are shrunk meanwhile; it is scaled, rotated and
flipped in one pass, directly into the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastfeed.decode.base import ENLARGE, NEVER_SHRUNK, DecodeFailure, Header, Request, Stop
from fastfeed.decode.formats.exif import ORIENTATION
from fastfeed.decode.sniff import sniff
from fastfeed.errors import ConfigError
from fastfeed.ops.base import FILTERS
from fastfeed.ops.decode import Decode
from fastfeed.runtime.extension import extension, is_built

# as native/image/header.h
_STATUS = (
    "",
    "truncated",
    "corrupt",
    "unsupported_format",
    "bomb",
    "not_image",
    "cancelled",
    "oom",
)
_DETAIL = {
    "truncated": "the file ends before the image does",
    "corrupt": "libjpeg met damaged data",
    "unsupported_format": (
        "a kind of JPEG that libjpeg does not decode to 8-bit RGB, or a file that is left to Pillow"
    ),
    "bomb": "more pixels, pixels per byte or scans than allowed",
    "oom": "the system has no more memory",
}
_AT_ONCE = 16_000_000  # pixels per call, so that a stop takes effect soon
_ANY = 1 << 40  # pixels
# times as many per thread if there are several, since they wait for each other at the end of a call
_MORE = 4


class Markers(NamedTuple):
    """Properties of a JPEG from the markers before its first scan."""

    height: int  # pixels, as displayed
    width: int
    orientation: int  # EXIF, 1..8
    components: int
    sof: int  # second byte of the frame's marker: 0xC0 baseline, 0xC2 progressive, ...
    precision: int  # bits
    restart_interval: int
    icc: int  # 0: no profile, 1: one that names sRGB, 2: another


def markers(blob: Any, max_pixels: int) -> Markers | DecodeFailure:
    """Read the markers alone; a failure if the native extension cannot decode the file.

    The native extension must be built.
    """
    info = np.empty((1, 9), np.int32)
    extension().probe([blob], info, max_pixels)
    status, *rest = info[0].tolist()
    return failure_from_status(status) if status else Markers(*rest)


def orientation(blob: Any, header: Header | None) -> int:
    """EXIF orientation of a good file, 1..8.

    header: from Pillow; None for a file of the native extension.
    """
    if header is not None and header.handle is not None:
        if header.format != "TIFF":  # which Pillow turns itself
            return int(header.handle.orientation)
        value = header.handle.look(blob).getexif().get(ORIENTATION, 1)
        return value if isinstance(value, int) and 1 <= value <= 8 else 1
    found = None if header is not None and header.format == "array" else markers(blob, _ANY)
    return found.orientation if isinstance(found, Markers) else 1


def held_bytes(blob: Any) -> tuple[int, int, int, int]:
    """Bytes that the native extension keeps at once to decode a file, shrunk by 1, 2, 4 and 8.

    The native extension must be built.
    """
    result: tuple[int, int, int, int] = tuple(extension().held_bytes(blob))
    return result


def need_extension() -> None:
    """ConfigError that says what to install, where the native extension is not built."""
    if not is_built():
        raise ConfigError(
            "decoding needs the native extension, which this installation lacks: install a wheel of"
            " fastfeed, or a C++ compiler and the headers of libjpeg-turbo, libwebp, Highway and"
            " Python (Debian: g++ libjpeg-dev libwebp-dev libhwy-dev python3-dev), then fastfeed"
            " again; `fastfeed doctor` says what is missing",
            field="decode",
        )


class NativeEngine:
    """8-bit gray and YCbCr JPEGs, sound non-interlaced PNGs, still WebPs, gray and RGB TIFFs.

    Anything else is `unsupported_format` or `not_image`.
    """

    name = "native"

    def __init__(self, op: Decode, threads: int = 1, *, full: bool = False) -> None:
        """`full`: nothing is shrunk during decoding."""
        need_extension()
        self._native: Any = extension()
        self._op = op
        self._full = full
        # with one, the call runs in its caller: feeds have their own threads
        self._pool = self._native.Pool(threads)

    def probe(self, blobs: Sequence[bytes]) -> list[Header | DecodeFailure]:
        info = np.empty((len(blobs), 9), np.int32)
        self._native.probe(list(blobs), info, self._op.max_pixels)
        return [
            failure_from_status(status) if status else Header(height, width, sniff(blob) or "")
            for blob, (status, height, width) in zip(blobs, info[:, :3].tolist(), strict=True)
        ]

    def decode(
        self, request: Request, out: np.ndarray, stop: Stop, times: np.ndarray | None = None
    ) -> list[DecodeFailure | None]:
        """Decode windows, as DecodeEngine describes.

        `times`: int64 (n, 2), set to the nanoseconds of resizing, and of encoding, of each.
        """
        codes = np.zeros(len(request), np.int8)
        for rows in self._parts([h.height * h.width for h in request.headers], stop):
            spent = None if times is None else times[rows]
            self._pool.decode(
                *self._samples(request[rows]), out[rows], codes[rows], *self._rules(request), spent
            )
        return [failure_from_status(code) if code else None for code in codes.tolist()]

    def recode(
        self,
        request: Request,
        quality: int,
        subsampled: bool,
        optimize: bool,
        stop: Stop,
        times: np.ndarray | None = None,
    ) -> list[bytes | DecodeFailure]:
        """Encode each window, scaled to its target size, as a new JPEG of quality 1..100.

        subsampled: 4:2:0, else 4:4:4. optimize: with Huffman tables for each image. times: as for
        `decode`.
        """
        results: list[bytes | DecodeFailure] = []
        target_pixels = request.windows.sizes.prod(axis=1).tolist()
        pixels = [
            max(h.height * h.width, n) for h, n in zip(request.headers, target_pixels, strict=True)
        ]
        for rows in self._parts(pixels, stop):
            part = request[rows]
            spent = None if times is None else times[rows]
            codes = np.empty(len(part), np.int8)
            sizes = np.ascontiguousarray(part.windows.sizes)
            how = (*self._rules(request), quality, subsampled, optimize)
            files = self._pool.recode(*self._samples(part), sizes, codes, *how, spent)
            results += [
                failure_from_status(code) if code else file
                for code, file in zip(codes.tolist(), files, strict=True)
            ]
        return results + [DecodeFailure("cancelled")] * (len(request) - len(results))

    @staticmethod
    def _samples(request: Request) -> tuple[Any, ...]:
        """A call's first arguments: the samples."""
        windows = request.windows
        return (
            list(request.blobs),
            np.ascontiguousarray(windows.boxes),
            np.ascontiguousarray(windows.flips),
        )

    def _rules(self, request: Request) -> tuple[Any, ...]:
        enlarge = NEVER_SHRUNK if self._full else ENLARGE[request.filter]
        return FILTERS.index(request.filter), self._op.max_pixels, enlarge, self._op.matte

    def _parts(self, pixels: Sequence[int], stop: Stop) -> Iterator[slice]:
        """Slices of samples to pass per call; `pixels`: of each sample."""
        threads = self._pool.threads
        limit = _AT_ONCE * (_MORE * threads if threads > 1 else 1)
        first = 0
        while first < len(pixels) and not stop.is_set():
            last = first
            total = 0
            while last < len(pixels) and (last == first or total < limit):
                total += pixels[last]
                last += 1
            yield slice(first, last)
            first = last


def failure_from_status(code: int) -> DecodeFailure:
    """A status of the native extension as a result."""
    return DecodeFailure(_STATUS[code], _DETAIL.get(_STATUS[code], ""))
