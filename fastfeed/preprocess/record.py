"""The JSON record next to each shard: its files, its samples, the images that failed and why, and counts.

A shard counts as done when its record is there and matches the plan and the files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fastfeed.errors import SourceError
from fastfeed.faults import REASONS as FILE_REASONS
from fastfeed.preprocess.entry import ProcessedImage

__all__ = ["REASONS", "BadSample", "Counts", "Record", "ShardFile"]

Histogram = dict[str, int]

# why an image is not in the shards: the reasons of the feed, and those of a job
REASONS = FILE_REASONS | {
    "too_small": "fewer pixels than wanted",
    "aspect": "longer than wanted for its width",
    "policy": "of a format that is not wanted",
    "oom": "needs more memory than allowed",
    "worker_crash": "the process that decoded it died, twice",
    "duplicate_exact": "the same bytes as another",
    "duplicate_near": "looks like another",
}


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One file of a shard."""

    name: str  # below the target: "train/shard-000012.tar"
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BadSample:
    """One photograph that is not in a shard, and why."""

    id: int  # in the source
    uri: str
    reason: str  # a key of REASONS
    detail: str = ""

    def __str__(self) -> str:
        return _visible(f"{self.uri}: {self.reason}" + (f" ({self.detail})" if self.detail else ""))


@dataclass(slots=True)
class Counts:
    """Over the photographs that are in the shards. Histograms count by the lower edge of a bin, as text."""

    samples: int = 0
    bytes_in: int = 0
    bytes_out: int = 0  # of images, without what the format adds
    pixels_in: int = 0
    pixels_out: int = 0
    kept: int = 0  # whose bytes were passed on
    enlarged: int = 0
    formats: Histogram = field(default_factory=dict)
    modes: Histogram = field(default_factory=dict)
    icc: Histogram = field(default_factory=dict)
    orientations: Histogram = field(default_factory=dict)
    megapixels: Histogram = field(default_factory=dict)  # of the source, bins of powers of two: "4" is 4 up to 8
    aspects: Histogram = field(default_factory=dict)  # width / height, bins of a quarter octave
    sizes: Histogram = field(default_factory=dict)  # "512x768": height x width of results

    def add(self, made: ProcessedImage) -> None:
        """One more photograph."""
        facts = made.facts
        height, width = facts["source_height"], facts["source_width"]
        self.samples += 1
        self.bytes_in += facts["source_bytes"]
        self.bytes_out += len(made.image)
        self.pixels_in += height * width
        self.pixels_out += made.height * made.width
        self.kept += bool(facts.get("kept"))
        self.enlarged += made.height * made.width > height * width
        _count(self.formats, facts["format"])
        _count(self.modes, facts.get("mode", "RGB"))
        _count(self.icc, facts.get("icc", "none"))
        _count(self.orientations, str(facts.get("orientation", 1)))
        _count(self.megapixels, f"{2.0 ** math.floor(math.log2(height * width / 1e6)):g}")
        _count(self.aspects, f"{2 ** (math.floor(4 * math.log2(width / height) + 0.5) / 4):.2f}")
        _count(self.sizes, f"{made.height}x{made.width}")

    @classmethod
    def sum(cls, tallies: Iterable[Counts]) -> Counts:
        """Of several shards."""
        total = cls()
        for tally in tallies:
            for item in fields(cls):
                value, more = getattr(total, item.name), getattr(tally, item.name)
                if isinstance(value, dict):
                    for name, n in more.items():
                        value[name] = value.get(name, 0) + n
                else:
                    setattr(total, item.name, value + more)
        return total


@dataclass(frozen=True, slots=True)
class Record:
    """What one shard holds."""

    shard: str  # its name without suffix: "train/shard-000012"
    index: int  # in the plan
    plan: str  # hash of the plan that it is a piece of
    files: tuple[ShardFile, ...]  # the main one first
    ids: tuple[int, ...]  # in the source, of what is in it, in its order
    offsets: tuple[int, ...]  # of each in the main file, bytes; () where that means nothing
    bad: tuple[BadSample, ...]
    tally: Counts = field(default_factory=Counts)  # counts over the good ones

    @property
    def name(self) -> str:
        """Of this record's file."""
        return f"{self.shard}.json"

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(part.bytes for part in self.files)

    def dump(self) -> bytes:
        """The file's content; the same for the same record."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def load(cls, content: bytes, name: str) -> Record:
        """From a file of this name. SourceError where it is not one."""
        try:
            document: dict[str, Any] = json.loads(content)
            return cls(
                **document
                | {
                    "files": tuple(ShardFile(**part) for part in document["files"]),
                    "bad": tuple(BadSample(**bad) for bad in document["bad"]),
                    "ids": tuple(document["ids"]),
                    "offsets": tuple(document["offsets"]),
                    "tally": Counts(**document["tally"]),
                }
            )
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"{name} is no record of a shard: {error}") from error


def _visible(text: str) -> str:
    """One line, safe for a terminal: names come from strangers, and may hold what moves cursors or paints."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _count(histogram: Histogram, name: str) -> None:
    histogram[name] = histogram.get(name, 0) + 1
