"""What one photograph becomes, and what a shard is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Entry", "ProcessedImage"]


@dataclass(frozen=True, slots=True)
class ProcessedImage:
    """One photograph, ready to be packed."""

    image: bytes  # the encoded file
    extension: str  # of it: jpg, webp, png, npy
    height: int  # pixels
    width: int
    # what is written beside it, and counted; values as JSON has them: "format" (of the source, "JPEG"),
    # "source_height", "source_width" (as displayed), "source_bytes", "sha256" (of the source's bytes), "orientation"
    # (1..8), "icc" (a short name such as "sRGB", "Display P3", "none"), "mode" (such as "RGB", "CMYK", "I;16"), "box"
    # (top, left, height, width of what was cut out, pixels as displayed), "kept" (the source's bytes as they are)
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by stage: decode, encode; in no file, only in statistics


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample of a shard."""

    key: str  # unique in the job: the id in the source with leading zeros; no dot, so that every reader splits it right
    image: bytes
    extension: str
    height: int
    width: int
    label: int | None = None  # number of the class
    text: str | None = None  # a caption
    meta: dict[str, Any] = field(default_factory=dict)  # "uri", "class", "label", the facts, further columns; JSON
