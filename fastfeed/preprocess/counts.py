"""What photographs a job met, as counts that add up: the same whatever order they come in."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from fastfeed.preprocess.entry import Made

__all__ = ["Tally"]

Counts = dict[str, int]


@dataclass(slots=True)
class Tally:
    """Over the photographs that are in the shards. Histograms count by the lower edge of a bin, as text."""

    samples: int = 0
    bytes_in: int = 0
    bytes_out: int = 0  # of images, without what the format adds
    pixels_in: int = 0
    pixels_out: int = 0
    kept: int = 0  # whose bytes were passed on
    enlarged: int = 0
    formats: Counts = field(default_factory=dict)
    modes: Counts = field(default_factory=dict)
    icc: Counts = field(default_factory=dict)
    orientations: Counts = field(default_factory=dict)
    megapixels: Counts = field(default_factory=dict)  # of the source, bins of powers of two: "4" is 4 up to 8
    aspects: Counts = field(default_factory=dict)  # width / height, bins of a quarter octave
    sizes: Counts = field(default_factory=dict)  # "512x768": height x width of results

    def add(self, made: Made) -> None:
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
    def sum(cls, tallies: Iterable[Tally]) -> Tally:
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


def _count(counts: Counts, name: str) -> None:
    counts[name] = counts.get(name, 0) + 1
