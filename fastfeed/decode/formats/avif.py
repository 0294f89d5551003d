"""Opens AVIF images with one thread each, as each thread already decodes an image of its batch.

libavif returns pixels as they are coded. The clean aperture is cut out here, before the container's
rotation; colors are passed on. EXIF and XMP are hidden from libavif, which refuses a file for
damage in them.
"""

from __future__ import annotations

from fractions import Fraction

from PIL import AvifImagePlugin, ImageFile

from fastfeed.decode.formats.av1 import MOST_BYTES, av1_signal
from fastfeed.decode.formats.container import (
    UNSPECIFIED,
    Container,
    content_of,
    profile_in,
    signal_in,
)

_MOST_EXIF = 1 << 20  # bytes
Part = tuple[int, int, int, int]  # left, top, width, height, in pixels


class AvifFile(AvifImagePlugin.AvifImageFile):
    """The first frame of an AVIF file, cut to its clean aperture.

    `info` has "icc_profile", or else "signal", (primaries, transfer, full range) as in
    `preprocess.pixels.color`, if that describes the colors; "orientation", as EXIF counts them,
    of the container; and "exif", which never turns.
    """

    coded_pixels = 0  # before cutting

    def _open(self) -> None:
        if not AvifImagePlugin.SUPPORTED:
            raise OSError("unsupported: Pillow was built without AVIF")
        assert self.fp is not None
        container = Container(self.fp.read())
        codec = AvifImagePlugin.DECODE_CODEC_CHOICE
        threads = AvifImagePlugin.DEFAULT_MAX_THREADS or 1  # Pillow's default is a thread per core
        self._decoder = AvifImagePlugin._avif.AvifDecoder(
            container.without_metadata(), codec, threads
        )
        size, frames, mode, icc, _exif, turn, _xmp = self._decoder.get_info()
        self._size = size
        self.n_frames = frames
        self._mode = mode
        self.is_animated = self.n_frames > 1
        width, height = self.size
        self.coded_pixels = width * height
        self.info = _colors(container, icc) | {
            "orientation": turn,
            "exif": container.exif(_MOST_EXIF),
        }
        self.seek(0)
        part = _clean_aperture(content_of(b"clap", container.properties()), (width, height))
        if part is not None:
            self._cut(part)

    def load_seek(self, pos: int) -> None:
        """Seek to the start of the aperture; Pillow's own method stays at the beginning."""
        assert self.fp is not None
        self.fp.seek(pos)

    def _cut(self, part: Part) -> None:
        left, top, *size = part
        samples = len(self.getbands())
        stride = samples * self.width
        self._size = (size[0], size[1])
        place = (0, 0, *self._size)
        self.tile = [
            ImageFile._Tile("raw", place, top * stride + left * samples, (self.mode, stride, 1))
        ]


def _colors(container: Container, icc: bytes | None) -> dict[str, object]:
    """Colors in the order of libavif: the image's profile, its numbers, those in its coded data.

    libavif ignores colors that only a grid's tiles have; here they count if nothing else defines
    colors.
    """
    if icc:
        return {"icc_profile": icc}
    tile = container.tile_properties()
    signal = signal_in(container.properties())
    if signal == UNSPECIFIED:
        signal = av1_signal(container.coded(MOST_BYTES))
    if signal == UNSPECIFIED and (profile := profile_in(tile)):
        return {"icc_profile": profile}
    if signal == UNSPECIFIED:
        signal = signal_in(tile)
    return {"signal": (*signal, True)}  # libavif has applied matrix and range


def _clean_aperture(content: bytes, size: tuple[int, int]) -> Part | None:
    """The part of a picture of `size` (width, height) to show.

    None: all of it, or a part that is not of whole pixels inside the picture.

    The box has width, height, and how far its center is from the picture's (ISO/IEC 14496-12,
    12.1.4).
    """
    numbers = [
        int.from_bytes(content[at : at + 4], "big", signed=at in (16, 24)) for at in range(0, 32, 4)
    ]
    if len(content) < 32 or not all(numbers[1::2]):
        return None
    width, height, across, down = (Fraction(*numbers[k : k + 2]) for k in (0, 2, 4, 6))
    left, top = across + (size[0] - width) / 2, down + (size[1] - height) / 2
    whole = all(value.denominator == 1 for value in (left, top, width, height))
    inside = (
        left >= 0
        and top >= 0
        and width > 0
        and height > 0
        and left + width <= size[0]
        and top + height <= size[1]
    )
    return (int(left), int(top), int(width), int(height)) if whole and inside else None
