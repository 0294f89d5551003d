"""One processed image, one sample of a shard, and the JSON record of a shard.

A shard counts as done when its record is there and matches the plan and the files.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.faults import REASONS as FILE_REASONS
from fastfeed.preprocess.model.condition import DROPPED
from fastfeed.preprocess.model.layout import record_name
from fastfeed.printable import printable
from fastfeed.sources.tables.column_types import ColumnType

Histogram = dict[str, int]
# of a sample: the number of its class, or those of its classes in ascending order
Label = int | tuple[int, ...] | None

_SUM = 8  # hexadecimal digits of an image's sha256

# why an image is not in the shards: the reasons of the feed, and those of a job
REASONS = FILE_REASONS | {
    "too_small": "smaller than the minimum side",
    "aspect": "aspect ratio above the maximum",
    "policy": "a format that is not allowed",
    "oom": "needs more memory than allowed",
    "worker_crash": "the process that decoded it died, twice",
    DROPPED: "left out by where (--where), or by the function of --with",
    "duplicate_exact": "the same bytes as another",
    "duplicate_near": "looks like another",
    "duplicate_semantic": "its embedding is similar to another's",
}
# reasons that a recipe asks for: no sign of a fault
EXCLUDED = frozenset({"too_small", "aspect", "policy", DROPPED})


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One file of a shard."""

    name: str  # below the target: "train/shard-000012.tar"
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BadSample:
    """One image that could not be put into a shard, and why."""

    id: int  # in the source
    uri: str
    reason: str  # a key of REASONS
    detail: str = ""

    @property
    def is_dropped(self) -> bool:
        """True if `Limits.where` or the user's function left it out: it is no fault."""
        return self.reason == DROPPED

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return printable(f"{self.uri}: {self.reason}{detail}", None)


@dataclass(slots=True)
class Counts:
    """Sums over the images in shards; histogram keys are lower bin edges."""

    samples: int = 0
    bytes_in: int = 0
    bytes_out: int = 0  # of the images alone, without the shard format's overhead
    pixels_in: int = 0
    pixels_out: int = 0
    kept: int = 0  # files passed through unchanged
    enlarged: int = 0
    formats: Histogram = field(default_factory=dict)
    modes: Histogram = field(default_factory=dict)
    icc: Histogram = field(default_factory=dict)
    orientations: Histogram = field(default_factory=dict)
    # of the source, in powers of two: "4" is [4, 8)
    megapixels: Histogram = field(default_factory=dict)
    aspects: Histogram = field(default_factory=dict)  # width / height, in quarter octaves
    sizes: Histogram = field(default_factory=dict)  # "512x768": height x width of the results

    @classmethod
    def of(cls, image: ProcessedImage | Entry) -> Counts:
        """Counts of one sample; bytes and pixels of all its images, the rest of the first."""
        facts = image.facts if isinstance(image, ProcessedImage) else image.meta
        height = facts["source_height"]
        width = facts["source_width"]
        counts = cls(
            samples=1,
            bytes_in=facts["source_bytes"],
            bytes_out=len(image.image),
            pixels_in=height * width,
            pixels_out=image.height * image.width,
            kept=int(bool(facts.get("kept"))),
            enlarged=int(image.height * image.width > height * width),
            formats={facts["format"]: 1},
            modes={facts.get("mode", "RGB"): 1},
            icc={facts.get("icc", "none"): 1},
            orientations={str(facts.get("orientation", 1)): 1},
            megapixels={f"{2.0 ** math.floor(math.log2(height * width / 1e6)):g}": 1},
            aspects={f"{2 ** (math.floor(4 * math.log2(width / height) + 0.5) / 4):.2f}": 1},
            sizes={f"{image.height}x{image.width}": 1},
        )
        for other in image.others.values():
            counts.bytes_in += other.facts["source_bytes"]
            counts.bytes_out += len(other.image)
            counts.pixels_in += other.facts["source_height"] * other.facts["source_width"]
            counts.pixels_out += other.height * other.width
        return counts

    def add(self, more: Counts, sign: int = 1) -> None:
        """Count the images of `more` as well, or no longer with a sign of -1."""
        for counted in _COUNTED:
            value = getattr(self, counted)
            added = getattr(more, counted)
            if isinstance(value, dict):
                for name, n in added.items():
                    value[name] = value.get(name, 0) + sign * n
                    if not value[name]:
                        del value[name]
            else:
                setattr(self, counted, value + sign * added)

    @classmethod
    def sum(cls, parts: Iterable[Counts]) -> Counts:
        """Counts of several shards together."""
        total = cls()
        for part in parts:
            total.add(part)
        return total


_COUNTED = [item.name for item in fields(Counts)]


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """Content of one shard: files, samples, bad images and counts."""

    shard: str  # its name without suffix: "train/shard-000012"
    index: int  # in the plan
    plan: str  # hash of the plan that it belongs to
    files: tuple[ShardFile, ...]  # the main one first
    ids: tuple[int, ...]  # source ids of its samples, in order
    # of each sample in the main file, bytes; () for formats without offsets
    offsets: tuple[int, ...]
    bad: tuple[BadSample, ...]
    tally: Counts = field(default_factory=Counts)  # counts over the good ones
    # `part_of_sum` of what each sample was made of; "": not known, in records of earlier versions
    sums: str = ""
    arrays: dict[str, list[Any]] = field(default_factory=dict)  # of `extras`, by name: dtype, shape
    start: int = 0  # of its ids in a merged job: keys in its files count from there

    @property
    def base(self) -> str:
        """Hash of the plan that it belongs to, without edits."""
        return self.plan.partition(".")[0]

    @property
    def parts_of_sums(self) -> list[str]:
        """`part_of_sum` of each sample's source file; [] if unknown."""
        return [self.sums[at : at + _SUM] for at in range(0, len(self.sums), _SUM)]

    def sample_id(self, entry: Entry) -> int:
        """The id of a sample in its files."""
        return self.start + int(entry.key)

    @property
    def name(self) -> str:
        """Name of this record's file."""
        return record_name(self.shard)

    @property
    def bytes(self) -> int:
        """Total size of the shard's files, bytes."""
        return sum(part.bytes for part in self.files)

    def summary(self, seconds: dict[str, float]) -> dict[str, Any]:
        """The summary of the piece of work that built the shard, in these seconds by stage."""
        return {
            "samples": len(self.ids) + len(self.bad),
            "bad": dict(Counter(bad.reason for bad in self.bad)),
            "bytes_in": self.tally.bytes_in,
            "bytes_out": self.bytes,
            "seconds": dict(seconds),
        }

    def dump(self) -> bytes:
        """Serialize to JSON; equal records give equal bytes."""
        document = {name: getattr(self, name) for name in _RECORD}
        document["files"] = list(map(asdict, self.files))
        document["bad"] = list(map(asdict, self.bad))
        document["tally"] = asdict(self.tally)
        for name in ("sums", "arrays", "start"):
            if not document[name]:
                del document[name]
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def load(cls, content: bytes, name: str) -> ShardRecord:
        """Parse a record file; `name` is for the error. SourceError if it is not a record."""
        try:
            document: dict[str, Any] = json.loads(content)
            document["files"] = tuple(ShardFile(**part) for part in document["files"])
            document["bad"] = tuple(BadSample(**bad) for bad in document["bad"])
            document["ids"] = tuple(document["ids"])
            document["offsets"] = tuple(document["offsets"])
            document["tally"] = Counts(**document["tally"])
            return cls(**document)
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"{name} is not a shard record: {error}") from error


_RECORD = [item.name for item in fields(ShardRecord)]


def part_of_sum(sha256: str) -> str:
    """The part of a file's sha256 (hexadecimal) that a record keeps."""
    return sha256[:_SUM]


def combined_sum(first: str, others: Mapping[str, str]) -> str:
    """One sha256 of the images of a sample, by theirs; "" if one is unknown."""
    if not others or not all((first, *others.values())):
        return "" if others else first
    sums = (first, *(f"{name} {sum}" for name, sum in sorted(others.items())))
    return hashlib.sha256(" ".join(sums).encode()).hexdigest()


def content_sum(facts: Mapping[str, Any]) -> str:
    """The sha256 of what a sample was made of, from its metadata."""
    others = facts.get("images", {}).items()
    return combined_sum(facts["sha256"], {name: own["sha256"] for name, own in others})


# of the file that the first of several jobs read
_ORIGINAL = ("uri", "format", "sha256", "orientation", "icc", "mode")
_ORIGINAL += ("source_height", "source_width", "source_bytes")


@dataclass(frozen=True, slots=True)
class ProcessedImage:
    """One image, ready to be packed into a shard."""

    image: bytes  # the encoded file
    extension: str  # jpg, webp, png, npy
    height: int  # pixels
    width: int
    # metadata written next to the image and counted; JSON values: "format" (of the source, "JPEG"),
    # "source_height", "source_width" (as displayed), "source_bytes", "sha256" (of the source's
    # bytes), "orientation" (1..8), "icc" (a short name such as "sRGB", "Display P3", "none"),
    # "mode" (such as "RGB", "CMYK", "I;16"), "box" (top, left, height, width of the crop, pixels as
    # displayed), "kept" (the source's bytes were passed through)
    facts: dict[str, Any] = field(default_factory=dict)
    # by stage (decode, resize, encode); for statistics only
    seconds: dict[str, float] = field(default_factory=dict)
    # further images of the sample by name; "images" of its facts has theirs
    others: dict[str, ProcessedImage] = field(default_factory=dict)


def with_others(
    first: ProcessedImage, others: Mapping[str, tuple[str, ProcessedImage]]
) -> ProcessedImage:
    """The first image of a sample with the URI and image of each other, by name."""
    seconds = Counter(first.seconds)
    about: dict[str, Any] = {}
    for name, (uri, image) in others.items():
        seconds.update(image.seconds)
        size = {"height": image.height, "width": image.width}
        about[name] = {"uri": uri, "extension": image.extension, **size, **image.facts}
    images = {name: image for name, (_, image) in others.items()}
    facts = first.facts | {"images": about}
    return replace(first, facts=facts, seconds=dict(seconds), others=images)


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample of a shard."""

    # unique in the job: the source id with leading zeros; no dot, so that every reader splits it
    # correctly
    key: str
    image: bytes
    extension: str
    height: int
    width: int
    label: Label = None
    text: str | None = None  # a caption
    # JSON: "uri", "class", "label", facts, metadata columns
    meta: dict[str, Any] = field(default_factory=dict)
    # of `extras`: little endian, C order
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)  # metadata columns of bytes
    others: dict[str, ProcessedImage] = field(default_factory=dict)  # further images by name

    def columns(self, types: Mapping[str, ColumnType]) -> list[tuple[str, ColumnType, Any]]:
        """Name, type and value of these metadata columns; None for a missing value."""
        values = self.meta.get("columns", {})
        return [
            (name, kind, (self.blobs if kind == "bytes" else values).get(name))
            for name, kind in types.items()
        ]


def make_entry(
    i: int,
    image: ProcessedImage,
    uri: str,
    label: Label,
    classes: tuple[str, ...],
    note: dict[str, Any],
) -> Entry:
    """The sample of image `i`; `note` has caption and columns."""
    meta: dict[str, Any] = {"uri": uri, **image.facts}
    if earlier := note.get("earlier"):
        meta = _merge_metadata(earlier, meta)
    if columns := note.get("columns"):
        meta["columns"] = meta.get("columns", {}) | columns
    size = image.height, image.width
    entry = Entry(
        f"{i:09d}",
        image.image,
        image.extension,
        *size,
        text=note.get("text"),
        meta=meta,
        blobs=note.get("blobs", {}),
        others=image.others,
    )
    return labeled(entry, label, classes)


def labeled(entry: Entry, label: Label, classes: tuple[str, ...]) -> Entry:
    """The entry with another label."""
    meta = {name: value for name, value in entry.meta.items() if name not in ("label", "class")}
    if isinstance(label, tuple):
        meta["label"] = list(label)
        meta["class"] = [classes[k] for k in label]
    elif label is not None:
        meta["label"] = label
        if label < len(classes):
            meta["class"] = classes[label]
    return replace(entry, label=label, meta=meta)


def label_in(meta: dict[str, Any]) -> Label:
    """The label in the metadata of a sample."""
    label = meta.get("label")
    return tuple(label) if isinstance(label, list) else label


def _merge_metadata(earlier: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    """Metadata of an image that an earlier job made and this one has processed again."""
    merged = meta | {name: earlier[name] for name in _ORIGINAL if earlier.get(name) is not None}
    merged["kept"] = bool(earlier.get("kept")) and bool(meta.get("kept"))
    if meta.get("box") == [0, 0, meta.get("source_height"), meta.get("source_width")]:
        merged["box"] = earlier.get("box")
    else:
        merged.pop("box", None)  # not known of a crop of a crop
    before = earlier.get("columns") or {}
    own = meta.get("columns") or {}
    columns = own | before | {name: value for name, value in own.items() if value is not None}
    return merged | ({"columns": columns} if columns else {})
