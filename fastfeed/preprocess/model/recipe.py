"""Recipes: how images are scaled, encoded, filtered and packed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.condition import parse_condition
from fastfeed.preprocess.model.image_recipe import (
    MAX_SIDE,
    Encoding,
    Scaling,
    check_choice,
    is_int_in,
)
from fastfeed.sources.sides import check_shares
from fastfeed.storage.byte_sizes import in_bytes

# what can be decoded
SOURCE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM", "HEIC")
FORMATS = ("webdataset", "tfrecord", "parquet", "mds", "raw")
EXIF_FIELDS = ("time", "camera", "lens", "gps")


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata of source files, and of a function of yours, that samples carry.

    Args:
        absolute_uri (bool): Write the full path or URL of the source file, not the one relative to
            the source. Default: False.
        exif (tuple[str, ...]): Of "time", "camera", "lens", "gps": written as metadata columns
            `exif_time` and the like. Default: ().
        extras (str): "module:function", called in the workers with a list of Samples. It returns a
            mapping for each: NumPy arrays become arrays of the shards, "text" the caption, all else
            metadata columns. Of a class, an object is created in each worker and called. "" calls
            nothing. Default: "".
        extras_batch (int): Samples per call, at least 1. A process that dies in a call with one
            sample costs that sample, with more the job ends. Default: 16.

    Raises:
        ConfigError: If `exif` names anything else, or `extras` is not a module and function.

    Example:
        >>> from fastfeed.preprocess import Metadata
        >>> Metadata(exif=["time", "camera"]).exif
        ('time', 'camera')
    """

    absolute_uri: bool = False
    exif: tuple[str, ...] = ()
    extras: str = ""
    extras_batch: int = 16

    def __post_init__(self) -> None:
        object.__setattr__(self, "exif", tuple(self.exif))
        for name in self.exif:
            check_choice("exif", name, EXIF_FIELDS)
        parts = self.extras.partition(":") if isinstance(self.extras, str) else ()
        if self.extras and not all(parts or [False]):
            raise ConfigError.of("extras", "'module:function'", self.extras)
        if not is_int_in(self.extras_batch, 1, 1 << 16):
            raise ConfigError.of("extras_batch", "in [1, 65536]", self.extras_batch)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on accepted images; others are listed with the reason.

    Args:
        min_side (int): Pixels of the short side, as displayed, in [1, 65500]. Default: 1.
        max_aspect (float): Long side / short side, at least 1; 0 is any. Default: 0.0.
        formats (tuple[str, ...]): "JPEG", "PNG" and the like, detected from the bytes; () is any.
            Default: ().
        max_pixels (int): Pixels that a file may claim, at least 1. Default: 300_000_000.
        where (str): A condition on columns, sizes and scores, such as "width >= 512 and score >
            0.5". Other samples are dropped, as soon as it is decided; "" keeps all. Default: "".

    Raises:
        ConfigError: If a field is out of range, or `where` is no condition.

    Example:
        >>> from fastfeed.preprocess import Limits
        >>> Limits(min_side=256, formats=("jpeg",)).formats
        ('JPEG',)
    """

    min_side: int = 1
    max_aspect: float = 0.0
    formats: tuple[str, ...] = ()
    max_pixels: int = 300_000_000
    where: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "formats", tuple(name.upper() for name in self.formats))
        for name in self.formats:
            check_choice("formats", name, SOURCE_FORMATS)
        if not is_int_in(self.min_side, 1, MAX_SIDE):
            raise ConfigError.of("min_side", f"in [1, {MAX_SIDE}] pixels", self.min_side)
        if self.max_aspect and self.max_aspect < 1:
            raise ConfigError(
                f"max_aspect is long side / short side, >= 1, or 0 for any, got {self.max_aspect!r}",
                field="max_aspect",
            )
        if not is_int_in(self.max_pixels, 1, 1 << 40):
            raise ConfigError.of("max_pixels", ">= 1", self.max_pixels)
        if self.where:
            parse_condition(self.where)


_SAMPLES = 1000  # per shard
_MDS_BYTES = 3 << 30  # expected ones, less than the format's limit


@dataclass(frozen=True, slots=True)
class Packing:
    """Format and size of shards: each is a fixed slice of the plan, good images or bad.

    Either a number of images or of bytes ends a shard. Bytes are expected ones: the plan is made
    before the images are, from their sizes in the source and a sample that is processed.

    Args:
        format (str): "webdataset", "tfrecord", "parquet", "mds" or "raw". Default: "webdataset".
        samples (int): Planned images per shard, at least 1; bad ones leave gaps. Default:
            1000.
        group_bytes (int): Bytes of a Parquet row group, at least 1. Default: 67_108_864.
        shard_bytes (int | str): Expected bytes of a shard, such as "256MB", in place of `samples`;
            0 for shards of `samples` images. Default: 0.

    Raises:
        ConfigError: If a field is out of range, or both `samples` and `shard_bytes` are given.

    Example:
        >>> from fastfeed.preprocess import Packing
        >>> Packing("tfrecord", samples=500).samples
        500
    """

    format: str = "webdataset"
    samples: int = _SAMPLES
    group_bytes: int = 64 << 20
    shard_bytes: int | str = 0

    def __post_init__(self) -> None:
        check_choice("format", self.format, FORMATS)
        if self.shard_bytes != 0:
            object.__setattr__(self, "shard_bytes", in_bytes(self.shard_bytes, "shard_bytes"))
            if self.samples != _SAMPLES:
                raise ConfigError(
                    f"a shard ends after a number of images or of bytes, got {self.samples} images"
                    f" and {self.shard_bytes} bytes: give samples or shard_bytes",
                    field="shard_bytes",
                )
        if self.format == "mds" and int(self.shard_bytes) > _MDS_BYTES:
            allowed = f"at most {_MDS_BYTES:,} for MDS, whose shards hold at most 4 GiB"
            raise ConfigError.of("shard_bytes", allowed, self.shard_bytes)
        for name in ("samples", "group_bytes"):
            if not is_int_in(getattr(self, name), 1, 1 << 40):
                raise ConfigError.of(name, ">= 1", getattr(self, name))


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection and order of images, decided once, when the plan is made.

    Args:
        shuffle (int | None): Seed of the order. Default: None, the source's order.
        val (float): Fraction that goes to val/, the rest to train/, in [0, 1); 0 is no split.
            Default: 0.0.
        split_seed (int): Seed of the split. Default: 0.
        split_by (str): "looks": similar images stay in one split; "names": no survey needed.
            Default: "looks".
        dedupe (str): "none", "exact" (equal bytes), "near" (also similar images) or "semantic" (also
            similar embeddings). Default: "none".
        distance (int): Bits of 64 in which the dHashes of similar images differ at most, in [0,
            16]. Default: 4.
        split (Mapping[str, float]): Share of each split by the name of its folder, such as
            {"train": 0.8, "val": 0.1, "test": 0.1}; they sum to 1. The first of them have the
            lowest hashes, so `val=0.05` is {"val": 0.05, "train": 0.95}. Default: ().
        group (str): Metadata column whose values are never in two splits, such as "photographer".
            Default: "".
        stratify (bool): Give each class the shares, to within one image or group of images.
            Default: False.
        keep (str): Of duplicates the "largest" stays (most pixels, then most bytes), the "first" in
            the source's order, or the "newest" file on local disks. Default: "largest".
        mirrored (bool): Flipped copies are similar images, too. Default: False.
        embedding (str): Column with the embeddings that "semantic" compares: lists of numbers, all of
            one length. It is not written to shards. Default: "".
        similarity (float): Least cosine of similar embeddings, in (0, 1]. Default: 0.95.

    Raises:
        ConfigError: If a field is out of range, shares do not sum to 1, or a split cannot be the
            name of a folder.

    Example:
        >>> from fastfeed.preprocess import Selection
        >>> Selection(val=0.05, split_by="names").compares
        False
        >>> Selection(split={"train": 0.8, "val": 0.1, "test": 0.1}).shares["test"]
        0.1
    """

    shuffle: int | None = None
    val: float = 0.0
    split_seed: int = 0
    split_by: str = "looks"
    dedupe: str = "none"
    distance: int = 4
    split: Mapping[str, float] | tuple[tuple[str, float], ...] = ()
    group: str = ""
    stratify: bool = False
    keep: str = "largest"
    mirrored: bool = False
    embedding: str = ""
    similarity: float = 0.95

    def __post_init__(self) -> None:
        check_choice("dedupe", self.dedupe, ("none", "exact", "near", "semantic"))
        check_choice("split_by", self.split_by, ("looks", "names"))
        check_choice("keep", self.keep, ("largest", "first", "newest"))
        if not 0 <= self.val < 1:
            raise ConfigError.of("val", "in [0, 1), the fraction of images in val/", self.val)
        if not is_int_in(self.distance, 0, 16):
            raise ConfigError.of("distance", "in [0, 16] bits of 64", self.distance)
        if not 0 < self.similarity <= 1:
            raise ConfigError.of("similarity", "in (0, 1], a cosine", self.similarity)
        if bool(self.embedding) != (self.dedupe == "semantic"):
            raise ConfigError(
                'dedupe="semantic" (--dedupe semantic) needs embedding (--embedding), a column, and'
                f" nothing else uses it; got dedupe={self.dedupe!r}, embedding={self.embedding!r}",
                field="embedding",
            )
        split = _checked_split(self.split, self.val) if self.split else ()
        object.__setattr__(self, "split", split)
        for name in ("group", "stratify"):
            if getattr(self, name) and not self.shares:
                raise ConfigError(
                    f"{name} is for a split, got {name}={getattr(self, name)!r} without one; pass"
                    " split (--split) or val (--val)",
                    field=name,
                )
        if self.keep != "largest" and self.dedupe == "none":
            raise ConfigError(
                f"keep is for duplicates, got keep={self.keep!r} without dedupe; pass dedupe"
                " (--dedupe exact, near or semantic)",
                field="keep",
            )
        if self.mirrored and not self.compares:
            raise ConfigError(
                'mirrored is for images that are compared: pass dedupe="near" (--dedupe near), or a'
                ' split by "looks"',
                field="mirrored",
            )

    @property
    def shares(self) -> dict[str, float]:
        """Share of each split by name, in the order of the hashes; {} without a split."""
        return {"val": self.val, "train": 1 - self.val} if self.val else dict(self.split)

    @property
    def compares(self) -> bool:
        """True if images are compared by their pixels."""
        return self.dedupe == "near" or (bool(self.shares) and self.split_by == "looks")


SPLIT_NAME = r"(?![0-9]+x[0-9]+(?:/|$)|shard-)[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?"


def _checked_split(split: Any, val: float) -> tuple[tuple[str, float], ...]:
    """The shares of a split as pairs. ConfigError."""
    if val:
        raise ConfigError(
            f"val={val:g} is short for a split into val and train; pass either val or split",
            field="split",
        )
    is_pairs = isinstance(split, (tuple, list)) and all(
        isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in split
    )
    shares: Any = dict(split) if is_pairs else split
    check_shares(shares)
    for name in shares:
        if not isinstance(name, str) or not re.fullmatch(SPLIT_NAME, name):
            allowed = (
                "names of folders: ASCII letters, digits, - and _, not such as 512x768 or shard-1"
            )
            raise ConfigError.of("split", allowed, name)
    if len({name.lower() for name in shares}) < len(shares):
        raise ConfigError.of("split", "names that differ in more than case", list(shares))
    return tuple((name, float(share)) for name, share in shares.items())


_FULL_URIS = Metadata(absolute_uri=True)  # documents leave it out
# fields of later versions, which a document has only if they differ from their defaults
_ADDED: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("scaling", Scaling(), ("full_decode",)),
    ("encoding", Encoding(), ("optimize",)),
    ("limits", Limits(), ("where",)),
    ("packing", Packing(), ("shard_bytes",)),
    (
        "choice",
        Selection(),
        ("split", "group", "stratify", "keep", "mirrored", "embedding", "similarity"),
    ),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides the content of a job's shards, except for its source.

    Args:
        scaling (Scaling): Default: Scaling().
        encoding (Encoding): Default: Encoding().
        limits (Limits): Default: Limits().
        packing (Packing): Default: Packing().
        choice (Selection): Default: Selection().
        metadata (Metadata): Default: Metadata().

    Raises:
        ConfigError: If the parts do not fit together: shards of pixels need images of one size.

    Example:
        >>> from fastfeed.preprocess import Encoding, Recipe, Scaling
        >>> recipe = Recipe(Scaling(512), Encoding("jpeg", 90))
        >>> recipe.difference(Recipe(Scaling(256), Encoding("jpeg", 90)))
        ['scaling.size: 512 -> 256']
        >>> Recipe.of(recipe.document()) == recipe
        True
    """

    scaling: Scaling = field(default_factory=Scaling)
    encoding: Encoding = field(default_factory=Encoding)
    limits: Limits = field(default_factory=Limits)
    packing: Packing = field(default_factory=Packing)
    choice: Selection = field(default_factory=Selection)
    metadata: Metadata = field(default_factory=Metadata)

    def __post_init__(self) -> None:
        if self.packing.format != "raw":
            return
        if self.scaling.fixed is None:
            raise ConfigError(
                'format "raw" holds one array per shard, so all images must have one size: use'
                ' mode "contain", or "cover" or "exact" with enlarge',
                field="format",
            )
        image = self.encoding.image
        if image != "raw":
            text = f'format "raw" holds pixels: the image format must be raw, got {image!r}'
            raise ConfigError(text, field="image_format")

    def document(self) -> dict[str, Any]:
        """The recipe as JSON values.

        Returns:
            What `of` reads.
        """
        document = json.loads(json.dumps(asdict(self)))
        # the hashes of earlier plans stay valid
        if self.metadata == _FULL_URIS:
            del document["metadata"]
        elif not self.metadata.extras:
            del document["metadata"]["extras"], document["metadata"]["extras_batch"]
        for section, default, names in _ADDED:
            for name in names:
                if getattr(getattr(self, section), name) == getattr(default, name):
                    del document[section][name]
        return document

    @classmethod
    def of(cls, document: dict[str, Any]) -> Recipe:
        """The recipe of a document.

        Args:
            document (dict[str, Any]): What `document` returned.

        Returns:
            An equal recipe.
        """
        metadata = Metadata(**document["metadata"]) if "metadata" in document else _FULL_URIS
        return cls(
            Scaling(**document["scaling"]),
            Encoding(**document["encoding"]),
            Limits(**document["limits"]),
            Packing(**document["packing"]),
            Selection(**document["choice"]),
            metadata,
        )

    @property
    def looks(self) -> bool:
        """True if the plan needs a survey of all images."""
        choice = self.choice
        return choice.dedupe != "none" or choice.compares or self.scaling.mode == "buckets"

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that identify the recipe."""
        return digest(self.document())

    def difference(self, other: Recipe) -> list[str]:
        """Differences from another recipe.

        Args:
            other (Recipe): The other one.

        Returns:
            One line for each field that differs: `scaling.size: 512 -> 256`.
        """
        lines = []
        for group in fields(self):
            section = getattr(self, group.name)
            other_section = getattr(other, group.name)
            for item in fields(section):
                value = getattr(section, item.name)
                new = getattr(other_section, item.name)
                if value != new:
                    lines.append(f"{group.name}.{item.name}: {value!r} -> {new!r}")
        return lines


def digest(document: Any) -> str:
    """16 hexadecimal digits: a hash of JSON values."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
