"""Opens HEIC images with libheif, from pillow-heif or pi-heif, imported for the first such file.

No plugin is registered with Pillow, and no option of these packages is changed.
"""

from __future__ import annotations

import functools
import importlib
import struct
from typing import Any

from PIL import ImageFile

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
from fastfeed.errors import MissingExtra

_PACKAGES = ("pillow_heif", "pi_heif")  # the first is the one that still gets updates of libheif
# boxes of an image; cameras append private data, which looks like another box that is cut off
_KNOWN = (b"ftyp", b"meta", b"mdat", b"moov")
_NUMBERS = (b"nclx", b"nclc")  # forms of `colr`; the second is QuickTime's
_MAX_BOXES = 1000  # of a file; photographs have three


class HeicFile(ImageFile.ImageFile):
    """The primary image of a HEIC file.

    libheif turns it upright; EXIF's orientation repeats the same turn.

    `info` has "icc_profile", or else "signal", (primaries, transfer, full range) as in
    `preprocess.pixels.color`.
    """

    format = "HEIC"
    format_description = "HEIC photograph"
    _picture: Any = None  # of libheif, until it is loaded

    def _open(self) -> None:
        # type: ignore[union-attr]
        library = _library()
        blob = self.fp.read()
        if ends_early(blob):  # libheif shows a photograph without the tiles that are missing
            raise OSError("truncated: image data extends past the end of the file")
        pictures = library.open_heif(blob, convert_hdr_to_8bit=True, remove_stride=False)
        picture = next((one for one in pictures if one.info["primary"]), None)
        if picture is None:
            raise OSError("unsupported or damaged: libheif cannot open the primary image")
        self._size = picture.size
        self._mode = picture.mode
        self.info = {
            key: picture.info[key] for key in ("bit_depth", "exif") if picture.info.get(key)
        }
        self.info |= _colors(Container(blob), picture.info.get("icc_profile"))
        self._picture = picture

    def load(self) -> Any:
        if self._picture is not None:
            picture = self._picture
            self._picture = None
            try:
                pixels = picture.data
            except EOFError as error:  # in the picture's own data: no box is cut off
                raise OSError("damaged pixel data") from error
            if picture.size != self._size:
                raise OSError(
                    f"its header says {self._size}, its picture has {picture.size} pixels"
                )
            self.load_prepare()
            self.frombytes(pixels, "raw", (picture.mode, picture.stride))
        return super().load()


def installed() -> str | None:
    """The package that decodes HEIC here, such as "pi-heif 1.4.0", or None; it is not imported."""
    for package in _PACKAGES:
        if version := _version(package):
            return f"{package.replace('_', '-')} {version}"
    return None


@functools.cache
def _version(package: str) -> str | None:
    """To read it takes two milliseconds, a tenth of a small job."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _library() -> Any:
    for package in _PACKAGES:
        try:
            return importlib.import_module(package)
        except ModuleNotFoundError:
            continue
    raise MissingExtra.of("HEIC", "pi-heif", "heic")


def _colors(container: Container, icc: bytes | None) -> dict[str, Any]:
    """Colors in the order of libheif: a profile, numbers of the image, those in its coded data.

    Of each the primary image's, else those of the first coded image that it is derived from.
    OSError for a matrix that libheif cannot undo.
    """
    tile = container.tile_properties()
    stream = hevc_signal(box_content(b"hvcC", tile))
    own, source = (signal_in(each, *_NUMBERS) for each in (container.properties(), tile))
    signals = [own, source, stream]
    check_matrix(signals)
    profile = icc or profile_in(tile)
    # libheif applies matrix and range
    return {"icc_profile": profile} if profile else {"signal": (*first_named(signals), True)}


def ends_early(blob: Any) -> bool:
    """True if a box extends beyond the file's end, or none holds pictures.

    Boxes are those of ISO/IEC 14496-12, 4.2.
    """
    at = 0
    has_pictures = False
    for _ in range(_MAX_BOXES):
        if at + 8 > len(blob):
            break
        size, kind = struct.unpack(">I4s", blob[at : at + 8])
        if size == 1:
            size = int.from_bytes(blob[at + 8 : at + 16], "big")
        end = at + max(size, 8) if size else len(blob)
        if end > len(blob):
            return kind in _KNOWN or not has_pictures
        has_pictures |= kind in (b"mdat", b"moov") or (kind == b"meta" and b"idat" in blob[at:end])
        at = end
    return not has_pictures


# byte of an `hvcC` box at which the count of its arrays stands (ISO/IEC 14496-15, 8.3.3.1)
_ARRAYS = 22


_SEQUENCE = 33  # a type of unit: sequence parameters


_MOST_BYTES = 4096  # of sequence parameters


_PROFILE_BITS = 88


_LEVEL_BITS = 8


_FULL_CHROMA = 3  # a chroma format


_OWN_RATIO = 255  # an aspect ratio


def hevc_signal(configuration: bytes) -> Signal:
    """Primaries, transfer and matrix of the first parameters (ITU-T H.265, 7.3.2.2, annex E).

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
    """Primaries, transfer and matrix in the usability information of E.2.1."""
    if bits.read(1) and bits.read(8) == _OWN_RATIO:  # aspect_ratio_info_present_flag
        bits.read(32)
    if bits.read(1):  # overscan_info_present_flag
        bits.read(1)
    if not bits.read(1):  # video_signal_type_present_flag
        return UNSPECIFIED
    bits.read(4)  # format, range
    return (bits.read(8), bits.read(8), bits.read(8)) if bits.read(1) else UNSPECIFIED
