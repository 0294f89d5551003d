"""PNGs made by hand: every depth, filter and way of compressing."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_ALL = [(0, 0, 1, 1)]  # first row, first column, every so many rows, columns
_ADAM7 = [
    (0, 0, 8, 8),
    (0, 4, 8, 8),
    (4, 0, 8, 4),
    (0, 2, 4, 4),
    (2, 0, 4, 2),
    (0, 1, 2, 2),
    (1, 0, 2, 1),
]


def chunk(name: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
    )


def chunks(blob: bytes) -> list[tuple[bytes, bytes]]:
    """Name and content of each."""
    found, at = [], 8
    while at < len(blob):
        size = int.from_bytes(blob[at : at + 4], "big")
        found.append((blob[at + 4 : at + 8], blob[at + 8 : at + 8 + size]))
        at += 12 + size
    return found


def png(
    samples: np.ndarray,
    depth: int = 8,
    key: Sequence[int] = (),
    interlaced: bool = False,
    *,
    palette: np.ndarray | None = None,
    filters: Sequence[int] = (0,),
    level: int = 6,
    strategy: int = 0,
    piece: int = 1 << 30,
    before: bytes = b"",
    behind: bytes = b"",
) -> bytes:
    """Of (height, width, channels) whole numbers.

    Args:
        key: the transparent color.
        palette: uint8 (colors, 3); samples are its indexes.
        filters: of the rows, over and over.
        level: zlib's; 0 stores.
        strategy: zlib's.
        piece: bytes per IDAT.
        before: chunks in front of the pixels.
        behind: chunks that follow them.
    """
    height, width, channels = samples.shape
    color = 3 if palette is not None else {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    parts = [
        samples[top::down, left::right]
        for top, left, down, right in (_ADAM7 if interlaced else _ALL)
    ]
    rows = b"".join(_filtered(part, depth, filters) for part in parts if part.size)
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    colors = b"" if palette is None else chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    trns = chunk(b"tRNS", struct.pack(f">{len(key)}H", *key)) if key else b""
    packer = zlib.compressobj(level, strategy=strategy)
    data = packer.compress(rows) + packer.flush()
    pixels = b"".join(chunk(b"IDAT", data[at : at + piece]) for at in range(0, len(data), piece))
    return (
        SIGNATURE
        + chunk(b"IHDR", head)
        + colors
        + trns
        + before
        + pixels
        + behind
        + chunk(b"IEND", b"")
    )


def _packed(row: np.ndarray, depth: int) -> bytes:
    if depth >= 8:
        return row.astype(f">u{depth // 8}").tobytes()
    return np.packbits(
        (row[..., None] >> np.arange(depth - 1, -1, -1) & 1).astype(np.uint8).ravel()
    ).tobytes()


def _filtered(samples: np.ndarray, depth: int, filters: Sequence[int]) -> bytes:
    """Rows with their filters applied: ISO/IEC 15948, clause 9."""
    pixel = max(1, samples.shape[2] * depth // 8)
    rows = np.stack([np.frombuffer(_packed(row, depth), np.uint8) for row in samples])
    if set(filters) == {0}:
        return b"".join(b"\0" + row.tobytes() for row in rows)
    result, rows = b"", rows.astype(int)
    for y, row in enumerate(rows):
        kind = filters[y % len(filters)]
        above = rows[y - 1] if y else np.zeros_like(row)
        left, corner = (
            np.concatenate([np.zeros(pixel, int), line])[: len(row)] for line in (row, above)
        )
        guess = left + above - corner
        distances = np.stack([np.abs(guess - other) for other in (left, above, corner)])
        nearest = np.choose(np.argmin(distances, axis=0), [left, above, corner])
        prediction = [np.zeros_like(row), left, above, (left + above) // 2, nearest][min(kind, 4)]
        result += bytes([kind]) + ((row - prediction) % 256).astype(np.uint8).tobytes()
    return result
