"""One processed image, and one sample of a shard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Entry", "ProcessedImage"]


@dataclass(frozen=True, slots=True)
class ProcessedImage:
    """One photograph, ready to be packed into a shard."""

    image: bytes  # the encoded file
    extension: str  # jpg, webp, png, npy
    height: int  # pixels
    width: int
    # metadata written next to the image and counted; JSON values: "format" (of the source, "JPEG"),
    # "source_height", "source_width" (as displayed), "source_bytes", "sha256" (of the source's bytes), "orientation"
    # (1..8), "icc" (a short name such as "sRGB", "Display P3", "none"), "mode" (such as "RGB", "CMYK", "I;16"), "box"
    # (top, left, height, width of the crop, pixels as displayed), "kept" (the source's bytes were passed through)
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by stage (decode, encode); for statistics only


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample of a shard."""

    key: str  # unique in the job: the source id with leading zeros; no dot, so that every reader splits it correctly
    image: bytes
    extension: str
    height: int
    width: int
    label: int | None = None  # class number
    text: str | None = None  # a caption
    meta: dict[str, Any] = field(default_factory=dict)  # JSON: "uri", "class", "label", facts, metadata columns
