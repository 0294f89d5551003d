"""TIFFs of any layout, written by hand."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

_TYPES = {1: "B", 3: "H", 4: "I", 7: "B"}


def tiff(
    samples: np.ndarray,
    *,
    big: bool = False,
    compression: int = 1,
    predictor: int = 1,
    strip: int | None = None,
    tile: tuple[int, int] | None = None,
    orientation: int | None = None,
    extra: int = 2,
    tags: Mapping[int, tuple[int, Sequence[int]] | None] | None = None,
    damage=lambda number, piece: piece,
) -> bytes:
    """One image of uint8 or uint16 samples (height, width, channels): gray or RGB, and alpha if
    there is one more.

    Args:
        big: big-endian.
        strip: rows of a strip; all by default.
        tile: (height, width) of tiles, in place of strips.
        extra: what the channel behind the colors means.
        tags: number -> (type, values) of more, or other ones; None: without it.
        damage: what becomes of a piece, by its number.
    """
    order = ">" if big else "<"
    height, width, channels = samples.shape
    stored = samples.astype(samples.dtype.newbyteorder(order))
    pieces = [
        _packed(block, compression, predictor, order) for block in _blocks(stored, strip, tile)
    ]
    pieces = [damage(k, piece) for k, piece in enumerate(pieces)]
    colors = 3 if channels >= 3 else 1
    entries: dict[int, tuple[int, Sequence[int]] | None] = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [8 * samples.dtype.itemsize] * channels),
        259: (3, [compression]),
        262: (3, [2 if colors == 3 else 1]),
        277: (3, [channels]),
    }
    if channels > colors:
        entries[338] = (3, [extra])
    if orientation is not None:
        entries[274] = (3, [orientation])
    if predictor != 1:
        entries[317] = (3, [predictor])
    starts, at = [], 8
    for piece in pieces:
        starts.append(at)
        at += len(piece)
    counts = [len(piece) for piece in pieces]
    if tile is None:
        entries |= {278: (4, [strip or height]), 273: (4, starts), 279: (4, counts)}
    else:
        entries |= {322: (4, [tile[1]]), 323: (4, [tile[0]]), 324: (4, starts), 325: (4, counts)}
    entries |= tags or {}
    body = b"".join(pieces)
    body += b"\0" * (len(body) % 2)
    return _with_directory(body, {k: v for k, v in sorted(entries.items()) if v is not None}, order)


def _with_directory(
    body: bytes, entries: Mapping[int, tuple[int, Sequence[int]]], order: str
) -> bytes:
    at = 8 + len(body)
    after = at + 2 + 12 * len(entries) + 4
    directory, outside = struct.pack(order + "H", len(entries)), b""
    for tag, (kind, values) in entries.items():
        packed = struct.pack(f"{order}{len(values)}{_TYPES[kind]}", *values)
        if len(packed) > 4:
            place = struct.pack(order + "I", after + len(outside))
            outside += packed + b"\0" * (len(packed) % 2)
        else:
            place = packed.ljust(4, b"\0")
        directory += struct.pack(order + "HHI", tag, kind, len(values)) + place
    head = (b"MM\0*" if order == ">" else b"II*\0") + struct.pack(order + "I", at)
    return head + body + directory + bytes(4) + outside


def _blocks(
    samples: np.ndarray, strip: int | None, tile: tuple[int, int] | None
) -> list[np.ndarray]:
    if tile is None:
        step = strip or len(samples)
        return [samples[y : y + step] for y in range(0, len(samples), step)]
    blocks = []
    for y in range(0, samples.shape[0], tile[0]):
        for x in range(0, samples.shape[1], tile[1]):
            block = np.full((*tile, samples.shape[2]), 77, samples.dtype)
            part = samples[y : y + tile[0], x : x + tile[1]]
            block[: part.shape[0], : part.shape[1]] = part
            blocks.append(block)
    return blocks


def _packed(block: np.ndarray, compression: int, predictor: int, order: str) -> bytes:
    if predictor == 2:
        wide = block.astype(np.int64)
        wide[:, 1:] -= block[:, :-1].astype(np.int64)
        block = (wide % (1 << 8 * block.dtype.itemsize)).astype(block.dtype)
    raw = block.astype(block.dtype.newbyteorder(order)).tobytes()
    return {1: lambda b: b, 5: lzw, 8: zlib.compress, 32946: zlib.compress, 32773: pack_bits}[
        compression
    ](raw)


def lzw(data: bytes, *, clear_at: int = 4094) -> bytes:
    """As TIFF 6.0, section 13: a clear code first, and whenever the table holds `clear_at`
    strings.
    """
    codes: list[tuple[int, int]] = []
    table: dict[bytes, int] = {}
    free, bits = 258, 9

    def reset() -> None:
        nonlocal table, free, bits
        codes.append((256, bits))
        table, free, bits = {bytes([k]): k for k in range(256)}, 258, 9

    reset()
    text = b""
    for k in range(len(data)):
        longer = text + data[k : k + 1]
        if longer in table:
            text = longer
            continue
        codes.append((table[text], bits))
        table[longer] = free
        free += 1
        if free + 1 > 1 << bits:  # the decoder is one string behind
            bits += 1
        if free >= clear_at:
            reset()
        text = data[k : k + 1]
    if text:
        codes.append((table[text], bits))
        free += 1
        if free + 1 > 1 << bits:
            bits = min(bits + 1, 12)
    codes.append((257, bits))
    value = "".join(format(code, f"0{n}b") for code, n in codes)
    value += "0" * (-len(value) % 8)
    return int(value, 2).to_bytes(len(value) // 8, "big")


def pack_bits(data: bytes) -> bytes:
    """Runs of the same byte, and of others; with a code that means nothing in between."""
    out, at = bytearray(b"\x80"), 0
    while at < len(data):
        run = 1
        while run < 128 and at + run < len(data) and data[at + run] == data[at]:
            run += 1
        if run > 1:
            out += bytes([257 - run, data[at]])
            at += run
            continue
        end = at + 1
        while (
            end - at < 128
            and end < len(data)
            and (end + 1 == len(data) or data[end] != data[end + 1])
        ):
            end += 1
        out += bytes([end - at - 1]) + data[at:end]
        at = end
    return bytes(out)


def any_tiff(
    samples: np.ndarray,
    bits: int,
    photometric: int,
    *,
    format: int = 1,
    planar: int = 1,
    big: bool = False,
    compression: int = 1,
    predictor: int = 1,
    extra: Sequence[int] = (),
    strip: int | None = None,
    tile: tuple[int, int] | None = None,
    tags: Mapping[int, tuple[int, Sequence[int]] | None] | None = None,
) -> bytes:
    """One image of numbers (height, width, channels) with any bits per sample, whatever they mean.

    Args:
        format: 1 unsigned, 2 signed, 3 floating point.
        planar: 2: each channel in strips or tiles of its own.
        predictor: 2 differences; 3 those of the bytes of floating-point numbers.
    """
    order = ">" if big else "<"
    height, width, channels = samples.shape
    planes = [samples] if planar == 1 else [samples[..., c : c + 1] for c in range(channels)]
    blocks = [block for plane in planes for block in _blocks(plane, strip, tile)]
    packers = {1: bytes, 5: lzw, 8: zlib.compress, 32946: zlib.compress, 32773: pack_bits}
    pieces = [
        packers[compression](_numbers(block, bits, format, predictor, order)) for block in blocks
    ]
    starts, at = [], 8
    for piece in pieces:
        starts.append(at)
        at += len(piece)
    entries: dict[int, tuple[int, Sequence[int]] | None] = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [bits] * channels),
        259: (3, [compression]),
        262: (3, [photometric]),
        277: (3, [channels]),
        284: (3, [planar]),
        317: (3, [predictor]),
        339: (3, [format] * channels),
    }
    counts = [len(piece) for piece in pieces]
    if tile is None:
        entries |= {278: (4, [strip or height]), 273: (4, starts), 279: (4, counts)}
    else:
        entries |= {322: (4, [tile[1]]), 323: (4, [tile[0]]), 324: (4, starts), 325: (4, counts)}
    if extra:
        entries[338] = (3, extra)
    entries |= tags or {}
    body = b"".join(pieces)
    body += b"\0" * (len(body) % 2)
    return _with_directory(body, {k: v for k, v in sorted(entries.items()) if v is not None}, order)


def _numbers(block: np.ndarray, bits: int, format: int, predictor: int, order: str) -> bytes:
    rows = block.reshape(len(block), -1)
    step = block.shape[2]
    if format == 3:
        values = rows.astype(f">f{bits // 8}")
        if predictor != 3:
            return values.astype(f"{order}f{bits // 8}").tobytes()
        shuffled = (
            values.view(np.uint8)
            .reshape(*rows.shape, bits // 8)
            .swapaxes(1, 2)
            .reshape(len(rows), -1)
        )
        shuffled[:, step:] -= shuffled[:, :-step].copy()
        return shuffled.tobytes()
    whole = rows.astype(np.int64)
    if predictor == 2:
        whole[:, step:] -= whole[:, :-step].copy()
    whole &= (1 << bits) - 1 if bits < 63 else -1
    if bits in (8, 16, 32, 64):
        return whole.astype(f"{order}u{bits // 8}").tobytes()
    return b"".join(
        np.packbits(
            (row[:, None] >> np.arange(bits - 1, -1, -1) & 1).astype(np.uint8).ravel()
        ).tobytes()
        for row in whole
    )
