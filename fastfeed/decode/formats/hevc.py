"""Reads the colors named in an HEVC stream's parameters (ITU-T H.265, 7.3.2.2 and annex E)."""

from __future__ import annotations

from fastfeed.decode.formats.bits import Bits
from fastfeed.decode.formats.container import UNSPECIFIED, Signal

# byte of an `hvcC` box at which the count of its arrays stands (ISO/IEC 14496-15, 8.3.3.1)
_ARRAYS = 22
_SEQUENCE = 33  # a type of unit: sequence parameters
_MOST_BYTES = 4096  # of sequence parameters
_PROFILE_BITS = 88
_LEVEL_BITS = 8
_FULL_CHROMA = 3  # a chroma format
_OWN_RATIO = 255  # an aspect ratio


def hevc_signal(configuration: bytes) -> Signal:
    """Return color primaries and transfer of the first sequence parameters.

    `UNSPECIFIED` if they name none.

    Args:
        configuration: the content of an `hvcC` box; one that is damaged names none, nor do
            parameters whose sets of reference pictures are predicted from each other, as those of
            videos may be.
    """
    try:
        bits = Bits(_sequence_parameters(configuration))
        _skip_to_usability(bits)
        return _usability(bits) if bits.read(1) else UNSPECIFIED
    except EOFError:
        return UNSPECIFIED


def _sequence_parameters(configuration: bytes) -> bytes:
    """The first sequence parameters, without the bytes that prevent start codes (7.3.1.1)."""
    at = _ARRAYS + 1
    for _ in range(int.from_bytes(configuration[_ARRAYS:at], "big")):
        kind = int.from_bytes(configuration[at : at + 1], "big") & 63
        count = int.from_bytes(configuration[at + 1 : at + 3], "big")
        at += 3
        for _ in range(count):
            size = int.from_bytes(configuration[at : at + 2], "big")
            at += 2
            if kind == _SEQUENCE:
                return configuration[at + 2 : at + min(size, _MOST_BYTES)].replace(
                    b"\0\0\3", b"\0\0"
                )
            at += size
            if at > len(configuration):
                raise EOFError
    raise EOFError


def _skip_to_usability(bits: Bits) -> None:
    bits.read(4)
    layers = bits.read(3)
    bits.read(1 + _PROFILE_BITS + _LEVEL_BITS)
    _skip_layers(bits, layers)
    bits.read_exp_golomb()
    if bits.read_exp_golomb() == _FULL_CHROMA:
        bits.read(1)
    _skip_numbers(bits, 2)  # width, height
    if bits.read(1):  # conformance_window_flag
        _skip_numbers(bits, 4)
    _skip_numbers(bits, 2)  # bit depths
    order_bits = bits.read_exp_golomb() + 4
    _skip_numbers(bits, 3 * (layers + 1 if bits.read(1) else 1))
    _skip_numbers(bits, 6)  # sizes of blocks
    if bits.read(1) and bits.read(
        1
    ):  # scaling_list_enabled_flag, sps_scaling_list_data_present_flag
        _skip_scaling(bits)
    bits.read(2)
    if bits.read(1):  # pcm_enabled_flag
        bits.read(8)
        _skip_numbers(bits, 2)
        bits.read(1)
    for k in range(bits.read_exp_golomb()):
        _skip_references(bits, k)
    if bits.read(1):  # long_term_ref_pics_present_flag
        for _ in range(bits.read_exp_golomb()):
            bits.read(order_bits + 1)
    bits.read(2)


def _skip_numbers(bits: Bits, count: int) -> None:
    for _ in range(count):
        bits.read_exp_golomb()


def _skip_layers(bits: Bits, layers: int) -> None:
    present = [(bits.read(1), bits.read(1)) for _ in range(layers)]
    if layers:
        bits.read(2 * (8 - layers))
    for has_profile, has_level in present:
        bits.read(_PROFILE_BITS * has_profile + _LEVEL_BITS * has_level)


def _skip_scaling(bits: Bits) -> None:
    """Skip the scaling lists of 7.3.4."""
    for size in range(4):
        for _ in range(2 if size == 3 else 6):
            is_listed = bits.read(1)
            _skip_numbers(bits, min(64, 16 << 2 * size) + (size > 1) if is_listed else 1)


def _skip_references(bits: Bits, k: int) -> None:
    """Skip a set of reference pictures, 7.3.7."""
    if k and bits.read(1):  # inter_ref_pic_set_prediction_flag
        raise EOFError
    for _ in range(bits.read_exp_golomb() + bits.read_exp_golomb()):
        bits.read_exp_golomb()
        bits.read(1)


def _usability(bits: Bits) -> Signal:
    """Primaries and transfer in the usability information of E.2.1."""
    if bits.read(1) and bits.read(8) == _OWN_RATIO:  # aspect_ratio_info_present_flag
        bits.read(32)
    if bits.read(1):  # overscan_info_present_flag
        bits.read(1)
    if not bits.read(1):  # video_signal_type_present_flag
        return UNSPECIFIED
    bits.read(4)  # format, range
    return (bits.read(8), bits.read(8)) if bits.read(1) else UNSPECIFIED
