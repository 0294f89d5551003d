"""The interface of decoders: probe headers, then decode windows, with one result per sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from fastfeed.ops.program.compile import Windows
from fastfeed.runtime.thread_pool import Stop

# reasons specific to one engine: another may support the file
DECLINED = (
    "unsupported_format",
    "not_image",
)

NEVER_SHRUNK = 1e9  # in ENLARGE: no window is that much larger than its target
# The window, shrunk in the DCT domain, stays this much larger than the target. A box takes pixels
# or leaves them, so at 1.5x it comes to SSIM 0.970 (mean 0.988) against full decoding; 3x costs it
# a fifth of its speed on whole photographs.
ENLARGE = {
    "bilinear": 1.5,
    "bicubic": 1.5,
    "lanczos": 2.0,
    "box": 3.0,
    "nearest": NEVER_SHRUNK,
    "linear": NEVER_SHRUNK,
}


class DecodeFailure(NamedTuple):
    """Reason for a failure to decode a sample."""

    # a key of faults.REASONS, or "oom": there was no memory to decode it, which is not its fault
    reason: str
    detail: str = ""


class FunctionFailed(DecodeFailure):
    """Failure of a user's function on a sample; `error` is the exception it raised."""

    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """Properties of an image, known before any pixel is allocated."""

    height: int  # pixels, as displayed (after EXIF orientation)
    width: int
    format: str  # "JPEG", "PNG", ...; "array" for pixels that need no decoding
    handle: Any = None  # private state of the engine, to continue from
    # the file's uri, for messages; None: unknown
    name: Callable[[], str] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to decode one window of each of n samples."""

    blobs: Sequence[Any]  # from the source: a file's bytes (any buffer), or pixels
    headers: Sequence[Header]  # of the same engine
    windows: Windows  # in displayed coordinates
    filter: str  # resampling filter

    def __len__(self) -> int:
        return len(self.blobs)

    def __getitem__(self, rows: slice | Sequence[int]) -> Request:
        if isinstance(rows, slice):
            return Request(self.blobs[rows], self.headers[rows], self.windows[rows], self.filter)
        blobs = [self.blobs[i] for i in rows]
        headers = [self.headers[i] for i in rows]
        return Request(blobs, headers, self.windows[list(rows)], self.filter)


class DecodeEngine(Protocol):
    """Turns blobs into pixels. No content of a blob makes either call raise."""

    name: str

    def probe(self, blobs: Sequence[Any]) -> list[Header | DecodeFailure]:
        """Read the headers; a failure per blob that is not an image, unknown or too large."""
        ...

    def decode(self, request: Request, out: np.ndarray, stop: Stop) -> list[DecodeFailure | None]:
        """Cut, scale and flip each window into `out` (uint8 (n, height, width, channels)).

        The slot of a bad sample is zeroed.

        Once `stop` is set the call returns early, and its result is meaningless.
        """
        ...


def dct_denominator(
    window: tuple[float, float], target: tuple[int, int], filter: str = "bilinear"
) -> int:
    """The largest of 8, 4, 2, 1 by which a JPEG may be shrunk in the DCT domain.

    Lengths are in pixels, (height, width).

    The shrunk window stays >= ENLARGE[filter] times the target on both axes, so that the resampling
    filter, not the DCT's box, decides what is kept (at 1x SSIM falls to 0.95). Odd eighths are left
    out: they take longer than full decoding.
    """
    room = min(window[0] / target[0], window[1] / target[1]) / ENLARGE[filter]
    return next((d for d in (8, 4, 2) if room >= d), 1)
