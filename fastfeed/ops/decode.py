"""Decoding as an op: encoded bytes to pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import FrozenOp, Kind, check_fill, check_integer
from fastfeed.spec import Spec

__all__ = ["Decode"]


@dataclass(frozen=True, slots=True)
class Decode(FrozenOp):
    """Decode files to pixels, upright by their EXIF orientation.

    Added at the front of the list if it is missing; leave it out for arrays.

    Args:
        matte (tuple[int, int, int]): RGB background of transparent pixels, in [0, 255]. Default:
            (255, 255, 255).
        max_pixels (int): Height times width, at least 1; a larger image is a bad sample and no
            pixel of it is allocated. Default: 300_000_000.
        channels (int): 3 for RGB; 1 for gray, of a JPEG its luma and of other files Pillow's mode
            L, decoded faster; 4 for RGB and alpha, which is 255 in files without it. Default: 3.
        dtype (str): "uint8"; 16 bits become their upper 8. "uint16" for files of 16 bits, and
            "float32" for the numbers, unscaled, of PNG, TIFF, OpenEXR, .npy and other files of 8
            bits, except AVIF and JPEG 2000 in color, whose depth is not known. With these two, an
            image is bad unless it has the channels, except that gray becomes RGB. Default: "uint8".

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> print(ff.Decode(max_pixels=10_000_000, channels=1))
        Decode(matte=(255, 255, 255), max_pixels=10000000, channels=1, dtype='uint8')
    """

    matte: tuple[int, int, int] = (255, 255, 255)
    max_pixels: int = 300_000_000
    channels: Literal[1, 3, 4] = 3
    dtype: Literal["uint8", "uint16", "float32"] = "uint8"

    kind: ClassVar[Kind] = "decode"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        check_fill("Decode matte", self.matte, "three integers in [0, 255]")
        check_integer("Decode max_pixels", self.max_pixels, 1)
        if isinstance(self.channels, bool) or self.channels not in (1, 3, 4):
            raise ConfigError.of("Decode channels", "1, 3 or 4", self.channels)
        if self.dtype not in ("uint8", "uint16", "float32"):
            raise ConfigError.of("Decode dtype", "uint8, uint16 or float32", self.dtype)

    def out(self, spec: Spec) -> Spec:
        if not spec.encoded:
            raise SpecError(
                f"Decode needs encoded bytes, got {spec}; put it first, once, and leave it out for"
                " arrays"
            )
        return Spec((None, None, self.channels), self.dtype, "HWC")
