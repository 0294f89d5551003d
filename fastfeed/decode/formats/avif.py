"""Opens AVIF images with one thread each, as each thread already decodes an image of its batch.

libavif returns pixels as they are coded. The clean aperture is cut out here, before the container's
rotation; colors are passed on. EXIF and XMP are hidden from libavif, which refuses a file for
damage in them.
"""

from __future__ import annotations

from fractions import Fraction

from PIL import AvifImagePlugin, ImageFile

from fastfeed.decode.formats.container import (
    UNSPECIFIED,
    Bits,
    Container,
    Signal,
    box_content,
    check_matrix,
    first_named,
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
        part = _clean_aperture(box_content(b"clap", container.properties()), (width, height))
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
    colors. OSError for a matrix that libavif cannot undo.
    """
    tile = container.tile_properties()
    own = signal_in(container.properties(), b"nclx")
    signals = [own, av1_signal(container.coded(MOST_BYTES))]
    check_matrix(signals)
    if not icc and first_named(signals) == UNSPECIFIED[:2]:
        icc = profile_in(tile)
    if icc:
        return {"icc_profile": icc}
    # libavif has applied matrix and range
    return {"signal": (*first_named([*signals, signal_in(tile, b"nclx")]), True)}


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
    left = across + (size[0] - width) / 2
    top = down + (size[1] - height) / 2
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


# of a stream, in which its sequence header begins: as far as libavif looks for it
MOST_BYTES = 4096


_MOST_HEAD = 10  # bytes of a unit's head


_MOST_HEADER = 512  # bytes of a sequence header up to its colors


_SEQUENCE_HEADER = 1  # a type of unit


_SELECTED = 2  # of seq_force_screen_content_tools: every frame says


def av1_signal(stream: bytes) -> Signal:
    """Color primaries, transfer and matrix of the first sequence header (AV1 specification, 5.5).

    `UNSPECIFIED` if it names none or is damaged.

    Args:
        stream: the first `MOST_BYTES` of a temporal unit.
    """
    try:
        return _color_config(_sequence_header(stream))
    except EOFError:
        return UNSPECIFIED


def _leb128(bits: Bits) -> int:
    """A number in bytes, the lowest first (4.10.5)."""
    value = 0
    for k in range(8):
        byte = bits.read(8)
        value |= (byte & 127) << 7 * k
        if byte < 128:
            break
    return value


def _sequence_header(stream: bytes) -> Bits:
    """The content of the first sequence header (5.3)."""
    at = 0
    while True:
        head = Bits(stream[at : at + _MOST_HEAD])
        is_forbidden = head.read(1)
        kind = head.read(4)
        is_extended = head.read(1)
        is_sized = head.read(1)
        head.read(1 + 8 * is_extended)
        size = _leb128(head) if is_sized else len(stream)
        at += head.at // 8
        if is_forbidden:
            raise EOFError
        if kind == _SEQUENCE_HEADER:
            return Bits(stream[at : at + min(size, _MOST_HEADER)])
        at += size


def _color_config(bits: Bits) -> Signal:
    """Primaries, transfer and matrix, after skipping all earlier fields (5.5.1, 5.5.2)."""
    profile = bits.read(3)
    bits.read(1)  # still_picture
    is_reduced = bits.read(1)
    if is_reduced:
        bits.read(5)
    else:
        _skip_operating_points(bits)
    size_bits = bits.read(4) + bits.read(4) + 2
    bits.read(size_bits)
    if not is_reduced and bits.read(1):  # frame_id_numbers_present_flag
        bits.read(7)
    bits.read(3)  # superblocks, intra filters
    if not is_reduced:
        _skip_tools(bits)
    bits.read(3)  # superres, cdef, restoration
    is_deep = bits.read(1)
    if profile == 2 and is_deep:
        bits.read(1)  # twelve_bit
    if profile != 1:
        bits.read(1)  # mono_chrome
    return (bits.read(8), bits.read(8), bits.read(8)) if bits.read(1) else UNSPECIFIED


def _skip_operating_points(bits: Bits) -> None:
    delay_bits = 0
    if bits.read(1):  # timing_info_present_flag
        bits.read(64)
        if bits.read(1):  # equal_picture_interval
            bits.read_exp_golomb()
        if bits.read(1):  # decoder_model_info_present_flag
            delay_bits = bits.read(5) + 1
            bits.read(42)
    has_delay = bits.read(1)
    for _ in range(bits.read(5) + 1):
        bits.read(12)
        if bits.read(5) > 7:  # seq_level_idx: levels with two tiers
            bits.read(1)
        if delay_bits and bits.read(1):
            bits.read(2 * delay_bits + 1)
        if has_delay and bits.read(1):
            bits.read(4)


def _skip_tools(bits: Bits) -> None:
    bits.read(4)  # compound prediction, warped motion, dual filter
    has_order = bits.read(1)
    if has_order:
        bits.read(2)
    chosen = _SELECTED if bits.read(1) else bits.read(1)
    if chosen and not bits.read(1):  # seq_choose_integer_mv
        bits.read(1)
    if has_order:
        bits.read(3)
