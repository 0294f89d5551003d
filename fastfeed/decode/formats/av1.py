"""Reads the colors named in an AV1 stream's sequence header (AV1 bitstream specification, 5.5)."""

from __future__ import annotations

from fastfeed.decode.formats.bits import Bits
from fastfeed.decode.formats.container import UNSPECIFIED, Signal

# of a stream, in which its sequence header begins: as far as libavif looks for it
MOST_BYTES = 4096
_MOST_HEAD = 10  # bytes of a unit's head
_MOST_HEADER = 512  # bytes of a sequence header up to its colors
_SEQUENCE_HEADER = 1  # a type of unit
_SELECTED = 2  # of seq_force_screen_content_tools: every frame says


def av1_signal(stream: bytes) -> Signal:
    """Return color primaries and transfer of the first sequence header.

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
    """Primaries and transfer, after skipping all earlier fields (5.5.1, 5.5.2)."""
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
    return (bits.read(8), bits.read(8)) if bits.read(1) else UNSPECIFIED


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
