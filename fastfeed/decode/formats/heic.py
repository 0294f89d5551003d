"""Opens HEIC images with libheif, from pillow-heif or pi-heif, imported for the first such file.

No plugin is registered with Pillow, and no option of these packages is changed.
"""

from __future__ import annotations

import importlib
import struct
from typing import Any

from PIL import ImageFile

from fastfeed.decode.formats.container import UNSPECIFIED, Container, Signal, content_of, signal_in
from fastfeed.decode.formats.hevc import hevc_signal
from fastfeed.errors import MissingExtra

_PACKAGES = ("pillow_heif", "pi_heif")  # the first is the one that still gets updates of libheif
# boxes of an image; cameras append private data, which looks like another box that is cut off
_KNOWN = (b"ftyp", b"meta", b"mdat", b"moov")
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
        library, blob = _library(), self.fp.read()  # type: ignore[union-attr]
        if _ends_early(blob):  # libheif shows a photograph without the tiles that are missing
            raise OSError("truncated: image data extends past the end of the file")
        pictures = library.open_heif(blob, convert_hdr_to_8bit=True, remove_stride=False)
        picture = next((one for one in pictures if one.info["primary"]), None)
        if picture is None:
            raise OSError("unsupported or damaged: libheif cannot open the primary image")
        self._size = picture.size
        self._mode = picture.mode
        self.info = {
            key: picture.info[key]
            for key in ("bit_depth", "exif", "icc_profile")
            if picture.info.get(key)
        }
        if "icc_profile" not in self.info:
            # libheif applies matrix and range
            self.info["signal"] = (
                *_signal(Container(blob)),
                True,
            )
        self._picture = picture

    def load(self) -> Any:
        if self._picture is not None:
            picture, self._picture = self._picture, None
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
    from importlib import metadata

    for package in _PACKAGES:
        try:
            return f"{package.replace('_', '-')} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            continue
    return None


def _library() -> Any:
    for package in _PACKAGES:
        try:
            return importlib.import_module(package)
        except ModuleNotFoundError:
            continue
    raise MissingExtra.of("HEIC", "pi-heif", "heic")


def _signal(container: Container) -> Signal:
    """Colors as numbers: of the primary image, else of a grid's first tile, else of its stream.

    libheif does the same.
    """
    tile = container.tile_properties()
    signals = map(signal_in, (container.properties(), tile))
    named = next((signal for signal in signals if signal != UNSPECIFIED), None)
    return named or hevc_signal(content_of(b"hvcC", tile))


def _ends_early(blob: bytes) -> bool:
    """True if a box extends beyond the file's end, or none holds pictures.

    Boxes are those of ISO/IEC 14496-12, 4.2.
    """
    at, has_pictures = 0, False
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
