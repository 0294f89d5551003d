"""How photographs are scaled, encoded, filtered and packed: frozen values that print, compare and convert to JSON."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fastfeed.errors import ConfigError

__all__ = ["FILTERS", "FORMATS", "IMAGES", "MODES", "Choice", "Encoding", "Limits", "Packing", "Recipe", "Scaling"]

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
SOURCE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM")  # formats that can be decoded
FORMATS = ("webdataset", "tfrecord", "parquet", "mds", "raw")
SUBSAMPLINGS = ("4:2:0", "4:4:4")

Size = tuple[int, int]  # (height, width), pixels
Color = tuple[int, int, int]  # red, green, blue, 0..255


@dataclass(frozen=True, slots=True)
class Scaling:
    """`Scaling(512)`: the short side becomes 512 pixels; smaller photographs keep their size."""

    size: int | Size | None = 512  # pixels; (height, width) or a square's side for cover, contain and exact
    mode: str = "short"  # a key of MODES
    filter: str = "lanczos"  # of FILTERS
    enlarge: bool = False  # whether small photographs are enlarged
    buckets: tuple[Size, ...] = ()  # (height, width) each
    matte: Color = (255, 255, 255)  # behind transparent pixels
    fill: Color = (0, 0, 0)  # color of the borders in "contain"

    def __post_init__(self) -> None:
        _check_choice("mode", self.mode, MODES)
        _check_choice("filter", self.filter, FILTERS)
        for name in ("matte", "fill"):
            color = tuple(getattr(self, name))
            object.__setattr__(self, name, color)
            if len(color) != 3 or any(not _is_int_in(c, 0, 255) for c in color):
                raise ConfigError(f"{name} must be three numbers in [0, 255], red, green, blue, got {color!r}")
        object.__setattr__(self, "buckets", tuple(tuple(bucket) for bucket in self.buckets))
        for bucket in self.buckets:
            if len(bucket) != 2 or any(not _is_int_in(n, 1, MAX_SIDE) for n in bucket):
                raise ConfigError(f"buckets must be (height, width) in [1, {MAX_SIDE}] pixels each, got {bucket!r}")
        if (self.mode == "buckets") != bool(self.buckets):
            raise ConfigError(
                'mode "buckets" needs buckets, a list of (height, width), and no other mode accepts them; '
                f"got mode {self.mode!r} and {len(self.buckets)} buckets"
            )
        if self.mode in ("none", "buckets"):
            return
        sides = self.size if isinstance(self.size, (tuple, list)) else (self.size,)
        if len(sides) > 2 or not sides or any(not _is_int_in(n, 1, MAX_SIDE) for n in sides):
            raise ConfigError(f"size must be in [1, {MAX_SIDE}] pixels, a side or (height, width), got {self.size!r}")
        if len(sides) == 2:
            if self.mode in ("short", "long"):
                raise ConfigError(f"size must be one length for mode {self.mode!r}, got {self.size!r}")
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
    """How an image is written. `raw` is a `.npy` file: uint8 (height, width, 3)."""

    image: str = "jpeg"  # of IMAGES
    quality: int = 90  # JPEG: libjpeg's scale; WebP: its own, 100 is lossless
    subsampling: str = "4:2:0"  # JPEG chroma; "4:4:4" keeps full color resolution
    keep_small: bool = False  # pass files that need no change through, after decoding them completely

    def __post_init__(self) -> None:
        _check_choice("image", self.image, IMAGES)
        _check_choice("subsampling", self.subsampling, SUBSAMPLINGS)
        if not _is_int_in(self.quality, 1, 100):
            raise ConfigError(f"quality must be an integer in [1, 100], got {self.quality!r}")

    @property
    def extension(self) -> str:
        """File extension without a dot."""
        return {"jpeg": "jpg", "raw": "npy"}.get(self.image, self.image)


@dataclass(frozen=True, slots=True)
class Limits:
    """Which photographs are accepted; the others are listed with the reason."""

    min_side: int = 1  # pixels of the short side, as displayed
    max_aspect: float = 0.0  # long side / short side; 0: any
    formats: tuple[str, ...] = ()  # "JPEG", "PNG", ...: detected from the bytes; (): any
    max_pixels: int = 300_000_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "formats", tuple(name.upper() for name in self.formats))
        for name in self.formats:
            _check_choice("formats", name, SOURCE_FORMATS)
        if not _is_int_in(self.min_side, 1, MAX_SIDE):
            raise ConfigError(f"min_side must be in [1, {MAX_SIDE}] pixels, got {self.min_side!r}")
        if self.max_aspect and self.max_aspect < 1:
            raise ConfigError(f"max_aspect is long side / short side, >= 1, or 0 for any, got {self.max_aspect!r}")
        if not _is_int_in(self.max_pixels, 1, 1 << 40):
            raise ConfigError(f"max_pixels must be >= 1, got {self.max_pixels!r}")


@dataclass(frozen=True, slots=True)
class Packing:
    """How samples are packed: a shard is a fixed slice of the plan, whether or not its photographs are good."""

    format: str = "webdataset"  # of FORMATS
    samples: int = 1000  # planned photographs per shard; bad ones leave gaps
    group_bytes: int = 64 << 20  # of a Parquet row group

    def __post_init__(self) -> None:
        _check_choice("format", self.format, FORMATS)
        for name in ("samples", "group_bytes"):
            if not _is_int_in(getattr(self, name), 1, 1 << 40):
                raise ConfigError(f"{name} must be >= 1, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which photographs, in which order: decided once, when the plan is made."""

    shuffle: int | None = None  # seed; None: the source's order
    val: float = 0.0  # fraction that goes to val/, the rest to train/; 0: no split
    split_seed: int = 0
    split_by: str = "looks"  # similar photographs stay on one side; "names": no survey needed
    dedupe: str = "none"  # "exact": equal bytes; "near": also similar images
    distance: int = 4  # maximum number of differing dHash bits, of 64, for "near"

    def __post_init__(self) -> None:
        _check_choice("dedupe", self.dedupe, ("none", "exact", "near"))
        _check_choice("split_by", self.split_by, ("looks", "names"))
        if not 0 <= self.val < 1:
            raise ConfigError(f"val must be in [0, 1), the fraction of photographs in val/, got {self.val!r}")
        if not _is_int_in(self.distance, 0, 16):
            raise ConfigError(f"distance must be in [0, 16] bits of 64, got {self.distance!r}")

    @property
    def compares(self) -> bool:
        """Whether photographs are compared by their pixels."""
        return self.dedupe == "near" or (self.val > 0 and self.split_by == "looks")


@dataclass(frozen=True, slots=True)
class Recipe:
    """`Recipe(Scaling(512), Encoding("jpeg", 90), packing=Packing("webdataset"))`"""

    scaling: Scaling = field(default_factory=Scaling)
    encoding: Encoding = field(default_factory=Encoding)
    limits: Limits = field(default_factory=Limits)
    packing: Packing = field(default_factory=Packing)
    choice: Choice = field(default_factory=Choice)

    def __post_init__(self) -> None:
        if self.packing.format == "raw":
            if self.scaling.fixed is None:
                raise ConfigError(
                    'format "raw" holds one array per shard, so all images must have one size: use mode "contain", or '
                    '"cover" or "exact" with enlarge=True'
                )
            if self.encoding.image != "raw":
                raise ConfigError(f'format "raw" holds pixels: use Encoding("raw"), got {self.encoding.image!r}')

    def document(self) -> dict[str, Any]:
        """JSON values, as `of` reads them."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def of(cls, document: dict[str, Any]) -> Recipe:
        """From `document()`."""
        kinds = {"scaling": Scaling, "encoding": Encoding, "limits": Limits, "packing": Packing, "choice": Choice}
        return cls(**{name: kind(**document[name]) for name, kind in kinds.items()})

    @property
    def looks(self) -> bool:
        """Whether the plan needs a survey of all photographs."""
        return self.choice.dedupe != "none" or self.choice.compares or self.scaling.mode == "buckets"

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that identify the recipe."""
        return digest(self.document())

    def difference(self, other: Recipe) -> list[str]:
        """`scaling.size: 512 -> 256`, one line for each field that differs."""
        lines = []
        for group in fields(self):
            section, other_section = getattr(self, group.name), getattr(other, group.name)
            for item in fields(section):
                value, other_value = getattr(section, item.name), getattr(other_section, item.name)
                if value != other_value:
                    lines.append(f"{group.name}.{item.name}: {value!r} -> {other_value!r}")
        return lines


MAX_SIDE = 65_500  # pixels: libjpeg's maximum


def digest(document: Any) -> str:
    """16 hexadecimal digits: a hash of JSON values."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_int_in(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _check_choice(name: str, value: object, allowed: Any) -> None:
    if value not in tuple(allowed):
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
