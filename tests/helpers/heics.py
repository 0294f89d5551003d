"""HEIC files made by hand: pictures whose samples are stored as they are, in containers of every
kind.

Each block of 32x32 is a slice of PCM samples (ITU-T H.265, 7.3.8.7), so its arithmetic code is
constant.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

_BLOCK = 32
# part_mode 1, pcm_flag 1; end_of_slice_segment_flag 1
_BEFORE_PCM, _AFTER_PCM = (
    b"\x86\x80",
    b"\xfe\x80",
)
_PLANAR = {0: (1, 0, 0), 1: (3, 2, 2), 3: (3, 1, 1)}  # planes, and how much smaller chroma is
# primaries, transfer, matrix (0: the planes are G, B, R), full range
_COLORS = {
    1: (1, 13, 6, 1),
    3: (1, 13, 0, 1),
}
_ALPHA = "urn:mpeg:hevc:2015:auxid:1"

# properties that turn a picture as EXIF's orientations do: quarter turns counterclockwise, then a
# mirror's axis
TURNS: dict[int, tuple[int, int | None]] = {
    1: (0, None),
    2: (0, 1),
    3: (2, None),
    4: (0, 0),
    5: (1, 0),
    6: (3, None),
    7: (3, 0),
    8: (1, None),
}


class _Bits:
    def __init__(self) -> None:
        self._bits: list[str] = []

    def u(self, count: int, value: int) -> _Bits:
        self._bits.append(format(value, f"0{count}b"))
        return self

    def ue(self, *values: int) -> _Bits:
        for value in values:
            code = format(value + 1, "b")
            self._bits.append("0" * (len(code) - 1) + code)
        return self

    def flags(self, bits: str) -> _Bits:
        self._bits.append(bits.replace(" ", ""))
        return self

    def stopped(self) -> bytes:
        """With a one and zeros up to a whole byte."""
        bits = "".join(self._bits) + "1"
        bits += "0" * (-len(bits) % 8)
        return int(bits, 2).to_bytes(len(bits) // 8, "big")


def _nal(kind: int, payload: bytes) -> bytes:
    escaped, zeros = bytearray(), 0
    for byte in payload:
        if zeros == 2 and byte <= 3:
            escaped.append(3)
            zeros = 0
        escaped.append(byte)
        zeros = zeros + 1 if byte == 0 else 0
    return bytes([kind << 1, 1]) + bytes(escaped)


# format range extensions, level 6.2
_PROFILE = struct.pack(">BI6sB", 4, 1 << 27, b"\x90\0\0\0\0\0", 186)


def _profile(bits: _Bits) -> _Bits:
    return bits.u(8 * len(_PROFILE), int.from_bytes(_PROFILE, "big"))


@dataclass
class Picture:
    """A coded picture and what describes it; `properties` are boxes of the container."""

    width: int
    height: int
    chroma: int  # 0 gray, 1 4:2:0, 3 4:4:4
    depth: int
    headers: list[bytes] = field(repr=False)
    slices: bytes = field(repr=False)
    properties: list[bytes] = field(default_factory=list, repr=False)

    def configuration(self) -> bytes:
        """The hvcC box."""
        head = (
            b"\1"
            + _PROFILE
            + b"\xf0\0\xfc"
            + bytes([0xFC | self.chroma])
            + bytes([0xF8 | self.depth - 8]) * 2
        )
        arrays = b"".join(
            struct.pack(">BHH", 0x80 | (nal[0] >> 1), 1, len(nal)) + nal for nal in self.headers
        )
        return boxed(b"hvcC", head + b"\0\0\x0f\3" + arrays)


def picture(
    samples: np.ndarray,
    depth: int = 8,
    chroma: int | None = None,
    claims: tuple[int, int] | None = None,
    signal: tuple[int, int] | None = None,
) -> Picture:
    """Of RGB (height, width, 3) as 4:4:4, of Y, Cb and Cr where chroma is 1, or of gray (height,
    width). All are exact.

    claims: (height, width) of the coded picture, where they are to differ from the samples'.
    signal: primaries and transfer that the stream names, in its video usability information.
    """
    chroma = chroma if chroma is not None else (0 if samples.ndim == 2 else 3)
    count, down, across = _PLANAR[chroma]
    planes = (
        [samples]
        if count == 1
        else [samples[..., k] for k in ((1, 2, 0) if chroma == 3 else (0, 1, 2))]
    )
    height, width = claims or samples.shape[:2]
    rows, columns = -(-height // _BLOCK), -(-width // _BLOCK)
    sps = _profile(_Bits().u(4, 0).u(3, 0).u(1, 1)).ue(0, chroma)
    sps.flags("0" if chroma == 3 else "").ue(columns * _BLOCK, rows * _BLOCK).flags("1")
    unit_x, unit_y = (across or 1, down or 1)
    sps.ue(0, (columns * _BLOCK - width) // unit_x, 0, (rows * _BLOCK - height) // unit_y)
    sps.ue(depth - 8, depth - 8, 0).flags("1").ue(0, 0, 0)
    sps.ue(2, 0, 0, 3, 0, 0).flags("0 0 0 1").u(4, depth - 1).u(4, depth - 1).ue(2, 0).flags("1")
    sps.ue(0).flags("0 0 0")
    if signal is None:
        sps.flags("0 0")
    else:
        sps.flags("1 0 0 1 101 1 1").u(8, signal[0]).u(8, signal[1]).u(8, 0).flags("0 000 0 0 0 0")
    vps = (
        _profile(_Bits().u(4, 0).flags("11").u(6, 0).u(3, 0).u(1, 1).u(16, 0xFFFF))
        .flags("1")
        .ue(0, 0, 0)
    )
    vps.u(6, 0).ue(0).flags("0 0")
    pps = (
        _Bits()
        .ue(0, 0)
        .flags("0 0 000 0 0")
        .ue(0, 0, 0)
        .flags("0 0 0")
        .ue(0, 0)
        .flags("0 0 0 0 0 0 0 1 0 1 0 0")
    )
    pps.ue(0).flags("0 0")
    headers = [_nal(32, vps.stopped()), _nal(33, sps.stopped()), _nal(34, pps.stopped())]
    blocks = range(rows * columns) if claims is None else range(1)
    nals = [
        _nal(20, _slice(planes, depth, block, rows * columns, columns, (down, across)))
        for block in blocks
    ]
    found = Picture(
        width,
        height,
        chroma,
        depth,
        headers,
        b"".join(struct.pack(">I", len(nal)) + nal for nal in nals),
    )
    found.properties = [found.configuration(), ispe(*(claims or samples.shape[:2]))]
    if count == 3:
        found.properties.append(_nclx(*_COLORS[chroma]))
    return found


def _slice(
    planes: Sequence[np.ndarray],
    depth: int,
    block: int,
    blocks: int,
    columns: int,
    smaller: tuple[int, int],
) -> bytes:
    header = _Bits().flags("1 0" if block == 0 else "0 0").ue(0)
    if block:
        header.u((blocks - 1).bit_length(), block)
    header.ue(2, 0)  # type I, no change of the quantizer
    samples = b""
    for k, plane in enumerate(planes):
        down, across = smaller if k else (1, 1)
        top, left = block // columns * _BLOCK, block % columns * _BLOCK
        part = plane[top : top + _BLOCK : down, left : left + _BLOCK : across]
        tall, wide = _BLOCK // down, _BLOCK // across
        part = np.pad(part, ((0, tall - part.shape[0]), (0, wide - part.shape[1])), mode="edge")
        bits = (part.ravel()[:, None].astype(np.int64) >> np.arange(depth - 1, -1, -1)) & 1
        samples += np.packbits(bits.astype(np.uint8).ravel()).tobytes()
    return header.stopped() + _BEFORE_PCM + samples + _AFTER_PCM


def boxed(kind: bytes, content: bytes, version: int | None = None, flags: int = 0) -> bytes:
    """A box of ISO/IEC 14496-12; with a version, a full one."""
    if version is not None:
        content = struct.pack(">I", version << 24 | flags) + content
    return struct.pack(">I", 8 + len(content)) + kind + content


def ispe(height: int, width: int) -> bytes:
    """The size that the container states."""
    return boxed(b"ispe", struct.pack(">II", width, height), 0)


def _nclx(primaries: int, transfer: int, matrix: int, full_range: int) -> bytes:
    return boxed(
        b"colr", b"nclx" + struct.pack(">HHHB", primaries, transfer, matrix, full_range << 7)
    )


def icc(profile: bytes) -> bytes:
    return boxed(b"colr", b"prof" + profile)


def turns(orientation: int) -> list[bytes]:
    """Properties that turn as EXIF's orientation does."""
    quarters, axis = TURNS[orientation]
    return [boxed(b"irot", bytes([quarters]))] * bool(quarters) + (
        [boxed(b"imir", bytes([axis]))] if axis is not None else []
    )


def exif(orientation: int) -> bytes:
    """An item with EXIF that says so."""
    return b"\0\0\0\6Exif\0\0MM\0*\0\0\0\x08\0\1" + struct.pack(
        ">HHIHHI", 0x0112, 3, 1, orientation, 0, 0
    )


def heic(
    pictures: Sequence[Picture],
    *,
    primary: int = 0,
    alpha: Picture | None = None,
    is_premultiplied: bool = False,
    grid: tuple[int, int, int, int] | None = None,
    more: Sequence[bytes] = (),
    metadata: bytes = b"",
    brands: Sequence[bytes] = (b"heic", b"mif1", b"heic"),
) -> bytes:
    """A file of pictures.

    Args:
        pictures: top-level images, or the tiles of one.
        primary: which of them is shown.
        alpha: of the primary picture.
        is_premultiplied: its colors were multiplied by it.
        grid: (rows, columns, height, width) of the image that the pictures are tiles of.
        more: properties of the primary image, such as `turns(6)`; the last ones.
        metadata: an Exif item of the primary image.
        brands: major brand, then the compatible ones.
    """
    items: list[tuple[bytes, bytes, list[bytes]]] = [
        (b"hvc1", one.slices, one.properties) for one in pictures
    ]
    references, shown = [], primary + 1
    if grid is not None:
        rows, columns, height, width = grid
        tiles = range(1, len(items) + 1)
        items.append(
            (
                b"grid",
                struct.pack(">BBBBHH", 0, 0, rows - 1, columns - 1, width, height),
                [ispe(height, width)],
            )
        )
        shown = len(items)
        references.append((b"dimg", shown, list(tiles)))
    kind, data, properties = items[shown - 1]
    items[shown - 1] = (kind, data, [*properties, *more])
    if alpha is not None:
        items.append(
            (b"hvc1", alpha.slices, [*alpha.properties, boxed(b"auxC", _ALPHA.encode() + b"\0", 0)])
        )
        references.append((b"auxl", len(items), [shown]))
        if is_premultiplied:
            references.append((b"prem", shown, [len(items)]))
    if metadata:
        items.append((b"Exif", metadata, []))
        references.append((b"cdsc", len(items), [shown]))
    return container(items, references, shown, brands, hidden=len(pictures) if grid else 0)


def _essential(box: bytes) -> int:
    """The bit of a property without which the picture must not be shown."""
    return 0x80 if box[4:8] in (b"clap", b"irot", b"imir") else 0


def container(
    items: Sequence[tuple[bytes, bytes, list[bytes]]],
    references: Sequence[tuple[bytes, int, list[int]]],
    primary: int,
    brands: Sequence[bytes],
    hidden: int,
    alternatives: Sequence[int] = (),
) -> bytes:
    every = list(dict.fromkeys(one for *_, properties in items for one in properties))
    associations = [
        struct.pack(">HB", number, len(properties))
        + bytes(every.index(one) + 1 | _essential(one) for one in properties)
        for number, (*_, properties) in enumerate(items, 1)
        if properties
    ]
    entries = b"".join(
        boxed(b"infe", struct.pack(">HH4s", number, 0, kind) + b"\0", 2, int(number <= hidden))
        for number, (kind, _, _) in enumerate(items, 1)
    )
    joined = b"".join(
        boxed(kind, struct.pack(f">HH{len(to)}H", start, len(to), *to))
        for kind, start, to in references
    )
    fixed = boxed(b"hdlr", b"\0\0\0\0pict" + bytes(13), 0) + boxed(
        b"pitm", struct.pack(">H", primary), 0
    )
    fixed += boxed(b"iinf", struct.pack(">H", len(items)) + entries, 0)
    fixed += boxed(b"iref", joined, 0) if joined else b""
    if alternatives:
        group = (0, len(alternatives), *alternatives)
        fixed += boxed(b"grpl", boxed(b"altr", struct.pack(f">{len(group)}I", *group), 0))
    associated = struct.pack(">I", len(associations)) + b"".join(associations)
    fixed += boxed(b"iprp", boxed(b"ipco", b"".join(every)) + boxed(b"ipma", associated, 0))
    head = boxed(b"ftyp", brands[0] + bytes(4) + b"".join(brands[1:]))
    iloc_bytes = 8 + 4 + 2 + 2 + 14 * len(items)
    at = len(head) + 12 + len(fixed) + iloc_bytes + 8
    places = b""
    for number, (_, data, _) in enumerate(items, 1):
        places += struct.pack(">HHHII", number, 0, 1, at, len(data))
        at += len(data)
    iloc = boxed(b"iloc", b"\x44\0" + struct.pack(">H", len(items)) + places, 0)
    assert len(iloc) == iloc_bytes
    return (
        head
        + boxed(b"meta", fixed + iloc, 0)
        + boxed(b"mdat", b"".join(data for _, data, _ in items))
    )
