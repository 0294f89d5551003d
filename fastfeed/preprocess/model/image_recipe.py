"""Scaling and encoding of one image: frozen values that convert to JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastfeed.errors import ConfigError

MODES = {
    "short": "the short side becomes `size`",
    "long": "the long side becomes `size`",
    "cover": "fills `size`; the overhang is cropped evenly on both sides",
    "contain": "fits into `size`; the borders are `fill`",
    "exact": "is stretched to `size`",
    "none": "keeps its size",
    "buckets": "covers the bucket with the nearest aspect ratio",
}
FILTERS = ("lanczos", "bicubic", "area")  # always antialiased
IMAGES = ("jpeg", "webp", "png", "raw")
SUBSAMPLINGS = ("4:2:0", "4:4:4")
MAX_SIDE = 65_500  # pixels: libjpeg's maximum

Size = tuple[int, int]  # (height, width), pixels
Color = tuple[int, int, int]  # red, green, blue, 0..255


@dataclass(frozen=True, slots=True)
class Scaling:
    """Scaling of images; smaller ones keep their size unless `enlarge` is given.

    Args:
        size (int | tuple[int, int] | None): In [1, 65500] pixels: a side, or (height, width) for
            "cover", "contain" and "exact", where a side means a square. Not used by "none" and
            "buckets". Default: 512.
        mode (str): "short" or "long" (that side becomes `size`), "cover" (fills `size`, cropped
            evenly on both sides), "contain" (fits into it, with borders), "exact" (is stretched to
            it), "none" (keeps its size) or "buckets" (covers the bucket with the nearest aspect
            ratio). Default: "short".
        filter (str): "lanczos", "bicubic" or "area", always antialiased. Default: "lanczos".
        enlarge (bool): Whether small images are enlarged. Default: False.
        buckets (tuple[tuple[int, int], ...]): (height, width) in pixels of each bucket. Default:
            ().
        matte (tuple[int, int, int]): RGB behind transparent pixels, in [0, 255]. Default: (255,
            255, 255).
        fill (tuple[int, int, int]): RGB of the borders of "contain", in [0, 255]. Default: (0, 0,
            0).
        full_decode (bool): Decode JPEGs at full size before scaling, not shrunk as far as can
            hardly be seen: the mean of saturated colors shifts less, for more CPU time. Default:
            False.

    Raises:
        ConfigError: If a field is out of range or does not fit the mode.

    Example:
        >>> from fastfeed.preprocess import Scaling
        >>> Scaling(256, mode="contain").fixed
        (256, 256)
    """

    size: int | Size | None = 512
    mode: str = "short"
    filter: str = "lanczos"
    enlarge: bool = False
    buckets: tuple[Size, ...] = ()
    matte: Color = (255, 255, 255)
    fill: Color = (0, 0, 0)
    full_decode: bool = False

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_choice("filter", self.filter, FILTERS)
        for name in ("matte", "fill"):
            color = tuple(getattr(self, name))
            object.__setattr__(self, name, color)
            if len(color) != 3 or any(not is_int_in(c, 0, 255) for c in color):
                raise ConfigError.of(name, "three numbers in [0, 255], red, green, blue", color)
        object.__setattr__(self, "buckets", tuple(tuple(bucket) for bucket in self.buckets))
        for bucket in self.buckets:
            if len(bucket) != 2 or any(not is_int_in(n, 1, MAX_SIDE) for n in bucket):
                raise ConfigError.of(
                    "buckets", f"(height, width) in [1, {MAX_SIDE}] pixels each", bucket
                )
        if (self.mode == "buckets") != bool(self.buckets):
            raise ConfigError(
                'mode "buckets" needs buckets, a list of (height, width), and no other mode'
                f" accepts them; got mode {self.mode!r} and {len(self.buckets)} buckets",
                field="mode",
            )
        if self.mode in ("none", "buckets"):
            return
        sides = self.size if isinstance(self.size, (tuple, list)) else (self.size,)
        if len(sides) > 2 or not sides or any(not is_int_in(n, 1, MAX_SIDE) for n in sides):
            raise ConfigError.of(
                "size", f"in [1, {MAX_SIDE}] pixels, a side or (height, width)", self.size
            )
        if len(sides) == 2:
            if self.mode in ("short", "long"):
                raise ConfigError.of("size", f"one length for mode {self.mode!r}", self.size)
            object.__setattr__(self, "size", tuple(sides))

    @property
    def fixed(self) -> Size | None:
        """(height, width) of all results, if they share one."""
        if self.mode == "contain" or (self.mode in ("cover", "exact") and self.enlarge):
            assert self.size is not None
            return (self.size, self.size) if isinstance(self.size, int) else self.size
        return None


@dataclass(frozen=True, slots=True)
class Encoding:
    """File format of the written images, and its options.

    Args:
        image (str): "jpeg", "webp", "png", or "raw", a `.npy` file: uint8 (height, width, 3).
            Default: "jpeg".
        quality (int): In [1, 100]: libjpeg's scale, or WebP's, where 100 is lossless. Default: 90.
        subsampling (str): Of JPEG's chroma: "4:2:0", or "4:4:4", which keeps full color resolution.
            Default: "4:2:0".
        keep_small (bool): Pass files that need no change through, after decoding them completely.
            Default: False.
        optimize (bool): Huffman tables made for each JPEG: the same pixels in fewer bytes, more
            slowly. Default: False.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> from fastfeed.preprocess import Encoding
        >>> Encoding("webp", quality=80).extension
        'webp'
    """

    image: str = "jpeg"
    quality: int = 90
    subsampling: str = "4:2:0"
    keep_small: bool = False
    optimize: bool = False

    def __post_init__(self) -> None:
        check_choice("image", self.image, IMAGES, "image_format")
        check_choice("subsampling", self.subsampling, SUBSAMPLINGS)
        if not is_int_in(self.quality, 1, 100):
            raise ConfigError.of("quality", "an integer in [1, 100]", self.quality)

    @property
    def extension(self) -> str:
        """File extension without a dot."""
        return {"jpeg": "jpg", "raw": "npy"}.get(self.image, self.image)


def is_int_in(value: object, low: int, high: int) -> bool:
    """An integer in [low, high], and no bool."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def check_choice(name: str, value: object, allowed: Any, field: str = "") -> None:
    """Raise ConfigError if `value` is not among the allowed ones."""
    if value not in tuple(allowed):
        text = f"{name} must be one of {', '.join(allowed)}, got {value!r}"
        raise ConfigError(text, field=field or name)
