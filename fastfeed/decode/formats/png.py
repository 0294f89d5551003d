"""Opens PNGs for Pillow after checking their structure; passes on only chunks that affect pixels.

Texts, profiles and unknown chunks are skipped, or read up to a limit, whatever their content.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image, PngImagePlugin

# byte at which chunks begin, and a limit: each takes memory
_FIRST = 8
_MOST_CHUNKS = 1_000_000
# bits, by color type
_DEPTHS = {
    0: (1, 2, 4, 8, 16),
    2: (8, 16),
    3: (1, 2, 4, 8),
    4: (8, 16),
    6: (8, 16),
}
_PALETTE = 3  # a color type
_KEY_BYTES = {0: 2, 2: 6}  # of a transparent color, by color type
_AROUND = 12  # bytes of a chunk around its content: length, name, checksum
_DECIDE = (b"IHDR", b"PLTE", b"tRNS", b"eXIf")  # over size, kind and orientation
_CRITICAL = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
# unpacked bytes: the rest of a text is cut off, a larger profile ignored
_MOST_TEXT = 1 << 20
_MOST_PROFILE = 4 << 20
# bytes, with the zero behind it
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_MOST_KEYWORD = 80
_EXIF_TEXT = b"Raw profile type exif"
_SRGB = (1, 13, True)

Chunk = tuple[bytes, int, int]  # name, start and end of the content


class PngFile(PngImagePlugin.PngImageFile):
    """A PNG; for an animation, the image shown by readers without animations.

    `info` has "exif" and "icc_profile" as in other formats (b"": a profile that is unreadable or
    too large), and "signal", (primaries, transfer, full range) as in `preprocess.pixels.color`,
    if that describes the colors. A transparent color is in "transparency" until the pixels are
    loaded, then it is alpha; all of its bits are compared.
    """

    def _open(self) -> None:
        assert self.fp is not None
        blob = self.fp.read()
        chunks = list(_chunks(blob))
        essential = _essential(blob, chunks)
        self._essential = essential
        self._key = _key(blob, chunks)
        self.fp = io.BytesIO(essential)
        super()._open()
        self.info |= _metadata(blob, chunks)
        if self._key is not None:
            self.info["transparency"] = self._key

    def getexif(self) -> Image.Exif:
        """EXIF from `info`.

        Pillow's own would load the pixels first, since the chunk may follow them.
        """
        return Image.Image.getexif(self)

    def load_end(self) -> None:
        super().load_end()
        if self._key is None or "transparency" not in self.info:
            return
        del self.info["transparency"]
        depth = self._essential[24]
        key = np.array(self._key)
        if self.mode == "RGB":
            colors = np.asarray(self)
            clear = (colors == (key >> 8 if depth == 16 else key)).all(axis=2)
            if depth == 16:
                clear &= (_low_bytes(self._essential) == (key & 255)).all(axis=2)
        elif depth == 16:
            wide = np.asarray(self)
            colors = (wide >> 8).astype(np.uint8)[..., None]
            clear = wide == key
        else:
            colors = np.asarray(self.convert("L"))[..., None]
            clear = colors[..., 0] == key * 255 // ((1 << depth) - 1)
        alpha = np.where(clear, np.uint8(0), np.uint8(255))[..., None]
        image = Image.fromarray(np.concatenate([colors, alpha], axis=2))
        self.im = image.im
        self._mode = image.mode


def join_pixels(blob: Any) -> dict[int, bytes]:
    """Read a PNG's chunks without its pixels, whose chunks are taken as one.

    Encoders split pixels into chunks of one size, so the last one is found from the first; a file
    with others is read chunk by chunk.

    Returns:
        The length of the joined chunk, by its place in the file.
    """
    at = _FIRST
    joined: dict[int, bytes] = {}
    while len(head := blob[at : at + 8]) == 8:
        name = head[4:]
        end = at + _AROUND + int.from_bytes(head[:4], "big")
        if name in _DECIDE:
            blob[at:end]
        if name == b"IEND" or end > len(blob):
            break
        if name == b"IDAT" and not joined:
            last = _last_pixels(blob, at, end - at)
            if last > end:
                joined[at] = (last - at - _AROUND).to_bytes(4, "big")
                end = last
        at = end
    return joined


def _last_pixels(blob: Any, first: int, step: int) -> int:
    """The last chunk of pixels, each `step` bytes after the previous; `first` if it is not there."""
    count = (len(blob) - first - _AROUND) // step
    for last in range(first + count * step, first, -step)[:2]:
        if blob[last + 4 : last + 8] in (b"IDAT", b"IEND"):
            return last
    return first


def png_names(blob: bytes) -> set[bytes]:
    """The names of a PNG's chunks, as far as they can be read."""
    try:
        return {name for name, _, _ in _chunks(blob)}
    except OSError:
        return set()


def png_intact(blob: bytes) -> bool:
    """True if the checksums of a PNG's pixel data hold.

    Pillow skips them and can decode damage to a black image.
    """
    return all(_sound(blob, chunk) for chunk in _chunks(blob) if chunk[0] == b"IDAT")


def _chunks(blob: bytes) -> Iterator[Chunk]:
    """Yield the chunks to IEND; OSError where the file ends early."""
    at = _FIRST
    name = b""
    count = 0
    while name != b"IEND":
        count += 1
        if count > _MOST_CHUNKS:
            raise OSError(f"it has more than {_MOST_CHUNKS} chunks")
        name = bytes(blob[at + 4 : at + 8])
        begin = at + 8
        end = begin + int.from_bytes(blob[at : at + 4], "big")
        if len(name) == 4 and not (name.isalpha() and name.isascii()):
            raise OSError(f"a chunk is named {name!r}")
        if len(name) < 4 or end + 4 > len(blob):
            raise OSError(
                f"truncated: the file ends in {name.decode('ascii')}"
                if name
                else "truncated before IEND"
            )
        yield name, begin, end
        at = end + 4


def _sound(blob: bytes, chunk: Chunk) -> bool:
    _, begin, end = chunk
    return zlib.crc32(memoryview(blob)[begin - 4 : end]) == int.from_bytes(
        blob[end : end + 4], "big"
    )


def _essential(blob: bytes, chunks: list[Chunk]) -> bytes:
    """A file of only the chunks that decide pixels.

    OSError if one is missing, damaged or misplaced.
    """
    names = [name for name, _, _ in chunks]
    if names[0] == b"CgBI":
        raise OSError("unsupported: a PNG rewritten for iPhones (CgBI)")
    unknown = next((name for name in names if name[:1].isupper() and name not in _CRITICAL), None)
    if unknown:
        raise OSError(f"unsupported: a critical chunk that PNG does not define, {unknown!r}")
    _, begin, end = chunks[0]
    if names[0] != b"IHDR" or end - begin != 13 or names.count(b"IHDR") > 1:
        raise OSError("its first chunk is not IHDR of 13 bytes, or there are two")
    depth, color, compression, filtering, interlacing = blob[begin + 8 : end]
    if depth not in _DEPTHS.get(color, ()) or compression or filtering or interlacing > 1:
        raise OSError(
            f"IHDR has color type {color}, depth {depth}, methods {compression}, {filtering},"
            f" {interlacing}"
        )
    if b"IDAT" not in names:
        raise OSError("it has no IDAT: no pixels")
    pixels = names.index(b"IDAT")
    if set(names[pixels : pixels + names.count(b"IDAT")]) != {b"IDAT"}:
        raise OSError("other chunks lie between its IDAT")
    kept = [chunks[0]]
    colors = 0
    for chunk in chunks[1:pixels]:
        name, begin, end = chunk
        if name == b"PLTE" and color == _PALETTE:
            if colors or (end - begin) % 3 or not 0 < end - begin <= 768:
                raise OSError("its PLTE is not of 1 to 256 colors, or there are two")
            colors = (end - begin) // 3
            kept.append(chunk)
        elif (
            name == b"tRNS"
            and color == _PALETTE
            and kept[-1][0] == b"PLTE"
            and 0 < end - begin <= colors
        ):
            kept.append(chunk)  # others are ignored, as by libpng
    if color == _PALETTE and not colors:
        raise OSError("it has a palette's indexes, but no PLTE before IDAT")
    damaged = next((chunk[0] for chunk in kept if not _sound(blob, chunk)), None)
    if damaged:
        raise OSError(f"the checksum of {damaged.decode('ascii')} is wrong")
    kept += [chunk for chunk in chunks[pixels:] if chunk[0] in (b"IDAT", b"IEND")]
    if len(kept) == len(chunks) and chunks[-1][2] + 4 == len(blob):
        return blob
    view = memoryview(blob)
    return b"".join([view[:_FIRST], *(view[begin - 8 : end + 4] for _, begin, end in kept)])


def _key(blob: bytes, chunks: list[Chunk]) -> tuple[int, ...] | None:
    """The transparent color of gray or RGB, in bits of the file's depth; others do not count."""
    depth = blob[24]
    color = blob[25]
    for chunk in chunks:
        name, begin, end = chunk
        if name == b"IDAT":
            break
        if name == b"tRNS" and end - begin == _KEY_BYTES.get(color):
            if not _sound(blob, chunk):
                raise OSError("the checksum of tRNS is wrong")
            values = (int.from_bytes(blob[at : at + 2], "big") for at in range(begin, end, 2))
            return tuple(value & ((1 << depth) - 1) for value in values)
    return None


def _low_bytes(essential: bytes) -> np.ndarray:
    """Lower bytes of 16-bit RGB: uint8 (height, width, 3)."""
    image = PngImagePlugin.PngImageFile(io.BytesIO(essential))
    image.tile = [image.tile[0]._replace(args="RGB;16L")]  # as if it were little-endian
    return np.asarray(image)


def _metadata(blob: bytes, chunks: list[Chunk]) -> dict[str, Any]:
    """Entries of `info` from chunks outside the pixels; the first of each kind counts."""
    info: dict[str, Any] = {}
    found: dict[bytes, bytes] = {}
    for name, begin, end in chunks:
        if name in (b"cICP", b"iCCP", b"sRGB", b"gAMA", b"cHRM", b"eXIf"):
            found.setdefault(name, blob[begin:end])
        elif name in _TEXTS:
            keyword = blob[begin : begin + _MOST_KEYWORD].partition(b"\0")[0]
            if keyword == _EXIF_TEXT:
                found.setdefault(keyword, _text(name, blob[begin + len(keyword) + 1 : end]))
    if _EXIF_TEXT in found:
        info[_EXIF_TEXT.decode()] = found[_EXIF_TEXT].decode("latin-1")
    if b"eXIf" in found:
        info["exif"] = b"Exif\0\0" + found[b"eXIf"].removeprefix(b"Exif\0\0")
    if b"iCCP" in found:
        _, _, packed = found[b"iCCP"].partition(b"\0")
        info["icc_profile"] = (
            _unpacked(packed[1:], _MOST_PROFILE, exact=True) if packed[:1] == b"\0" else b""
        )
    return info | _signal(found)


def _signal(chunks: dict[bytes, bytes]) -> dict[str, Any]:
    """PNG, third edition: cICP counts before iCCP, then sRGB, then gAMA with cHRM."""
    cicp = chunks.get(b"cICP", b"")
    if len(cicp) == 4 and not cicp[2] and cicp[3] <= 1:  # RGB, not luma and chroma
        return {"signal": (cicp[0], cicp[1], bool(cicp[3]))}
    if b"iCCP" in chunks:
        return {}
    if b"sRGB" in chunks:
        return {"signal": _SRGB}
    gamma, points = (chunks.get(name, b"") for name in (b"gAMA", b"cHRM"))
    numbers = (
        [int.from_bytes(points[at : at + 4], "big") / 100_000 for at in range(0, 32, 4)]
        if len(points) >= 32
        else []
    )
    if len(gamma) >= 4:
        value = int.from_bytes(gamma[:4], "big")
        return {"signal": (tuple(numbers), 100_000 / value if value else 0.0)}
    if numbers:
        return {"signal": (tuple(numbers), _SRGB[1])}
    return {"icc_profile": b""} if cicp or gamma or points else {}


def _text(name: bytes, content: bytes) -> bytes:
    """The beginning of a chunk's text."""
    if name == b"tEXt":
        return content[:_MOST_TEXT]
    packed = name == b"zTXt"
    if name == b"iTXt":
        # a language, a translated keyword, the text
        packed = content[:1] == b"\1"
        parts = content[2:].split(b"\0", 2)
        content = b"\0" + parts[2] if len(parts) == 3 else b"\0"
    return _unpacked(content[1:], _MOST_TEXT) if packed else content[1 : _MOST_TEXT + 1]


def _unpacked(packed: bytes, most: int, exact: bool = False) -> bytes:
    """At most `most` bytes of a zlib stream; b"" if it is damaged.

    `exact`: also b"" if there are more bytes.
    """
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(packed, most)
    except zlib.error:
        return b""
    return b"" if exact and stream.unconsumed_tail else content
