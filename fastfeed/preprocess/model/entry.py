"""One processed image, and one sample of a shard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Entry", "ProcessedImage", "entry_of"]

# of the file that the first of several jobs read
_ORIGINAL = (
    "uri",
    "format",
    "source_height",
    "source_width",
    "source_bytes",
    "sha256",
    "orientation",
    "icc",
    "mode",
)


@dataclass(frozen=True, slots=True)
class ProcessedImage:
    """One photograph, ready to be packed into a shard."""

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
    label: int | None = None  # class number
    text: str | None = None  # a caption
    # JSON: "uri", "class", "label", facts, metadata columns
    meta: dict[str, Any] = field(default_factory=dict)
    # of `extras`: little endian, C order
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def entry_of(
    i: int,
    image: ProcessedImage,
    uri: str,
    label: int,
    classes: tuple[str, ...],
    note: dict[str, Any],
) -> Entry:
    """The sample of photograph `i`, of label `label` (below 0: none), with its caption and columns
    in `note`.
    """
    meta: dict[str, Any] = {"uri": uri, **image.facts}
    if earlier := note.get("earlier"):
        meta = _of_both(earlier, meta)
    if label >= 0:
        meta["label"] = label
        if label < len(classes):
            meta["class"] = classes[label]
    if columns := note.get("columns"):
        meta["columns"] = meta.get("columns", {}) | columns
    number = label if label >= 0 else None
    size = image.height, image.width
    return Entry(f"{i:09d}", image.image, image.extension, *size, number, note.get("text"), meta)


def _of_both(earlier: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    """The metadata of an image that an earlier job made and this one has processed again."""
    merged = meta | {name: earlier[name] for name in _ORIGINAL if earlier.get(name) is not None}
    merged["kept"] = bool(earlier.get("kept")) and bool(meta.get("kept"))
    if meta.get("box") == [0, 0, meta.get("source_height"), meta.get("source_width")]:
        merged["box"] = earlier.get("box")
    else:
        merged.pop("box", None)  # not known of a crop of a crop
    columns, own = dict(earlier.get("columns") or {}), meta.get("columns") or {}
    columns |= {
        name: value for name, value in own.items() if value is not None or name not in columns
    }
    return merged | ({"columns": columns} if columns else {})
