"""Masks of samples: pixels, PNGs, their files, or maps of classes that are drawn of outlines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.sources.annotations.boxes import BoxLists
from fastfeed.sources.annotations.shapes import Rings, Shape, ShapeLists
from fastfeed.sources.tables.columns import RowLocator
from fastfeed.sources.tables.image_files import ImageFiles
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.event_loop import results
from fastfeed.storage.storage import Storage

_UNKNOWN = 255

Part = Literal["instances", "classes", "polygons"]
Draw = Part | Literal["both"] | Sequence[Part]

_PARTS = ("instances", "classes", "polygons")


def make_masks(candidates: Any, where: Callable[[int], str], storage: Storage) -> Masks:
    """Masks from uint8 (height, width) arrays, bytes or paths of PNGs; None for an image without.

    ConfigError names it.
    """
    if isinstance(candidates, (str, bytes, os.PathLike)):
        raise ConfigError.of("Objects: masks", "one per sample", candidates, "pass a list")
    masks = [os.fspath(mask) if isinstance(mask, os.PathLike) else mask for mask in candidates]
    for i, mask in enumerate(masks):
        pixels = isinstance(mask, np.ndarray)
        if pixels and (mask.dtype != np.uint8 or mask.ndim != 2):
            raise ConfigError(
                f"Objects: the mask of {where(i)} must be uint8 (height, width), got"
                f" {mask.dtype}{list(mask.shape)}; its values are class ids, 255 for unknown",
                field="masks",
            )
        if not (pixels or mask is None or isinstance(mask, (str, bytes))):
            raise ConfigError(
                f"Objects: the mask of {where(i)} must be a uint8 array, the bytes or the path of a"
                f" PNG, or None, got {type(mask).__name__}",
                field="masks",
            )
    if any(isinstance(mask, str) for mask in masks):
        if all(mask is None or isinstance(mask, str) for mask in masks):
            return _MaskFiles(StringColumn.of([mask or "" for mask in masks]), storage)
        raise ConfigError(
            "Objects: masks must be all paths, or none of them; read some, or write the others to"
            " files",
            field="masks",
        )
    return _MasksInMemory(masks)


class _MasksInMemory:
    """Masks as arrays or bytes in memory."""

    def __init__(self, masks: list[Any]) -> None:
        self._masks = masks

    def __len__(self) -> int:
        return len(self._masks)

    def read(self, ids: Sequence[int]) -> list[Any]:
        return [self._masks[int(i)] for i in ids]

    def content(self, first: int, last: int) -> Iterator[Any]:
        for mask in self._masks[first:last]:
            yield repr(getattr(mask, "shape", None)).encode()
            yield (
                b""
                if mask is None
                else np.ascontiguousarray(mask).data
                if isinstance(mask, np.ndarray)
                else mask
            )


class _MaskFiles:
    """Masks in files. Their paths are fingerprinted by name, not by content."""

    def __init__(self, paths: StringColumn, storage: Storage) -> None:
        self._paths = paths
        remote = b"://" in paths.blob.tobytes()
        self._files = ImageFiles(
            paths, None, RowLocator(["masks"], [len(paths)]), [""], storage, remote
        )

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, ids: Sequence[int]) -> list[Any]:
        present = [int(i) for i in ids if self._paths[int(i)]]
        if not self._files.remote:
            contents = iter([self._files.read(i) for i in present])
        else:
            contents = iter(results([self._files.fetch(i) for i in present]))
        return [next(contents) if self._paths[int(i)] else None for i in ids]

    def content(self, first: int, last: int) -> Iterator[Any]:
        for i in range(first, last):
            yield self._paths[i].encode("utf-8", "surrogateescape") + b"\0"


def drawn_parts(
    who: str, draw: Any, *, has_outlines: bool = True, has_masks: bool = False
) -> frozenset[str]:
    """The parts that `draw` names. ConfigError for one that outlines cannot become."""
    parts = [draw] if isinstance(draw, str) else draw
    if draw == "both":
        parts = ["instances", "classes"]
    is_list = isinstance(parts, (list, tuple)) and len(parts) > 0
    if not is_list or any(part not in _PARTS for part in parts):
        must = '"instances", "classes", "polygons", a list of these, or "both" for the first two'
        raise ConfigError.of(f"{who}: draw", must, draw)
    if "classes" in parts and (has_masks or not has_outlines):
        raise ConfigError(
            f"{who}: draw={draw!r} makes masks of instance_masks; pass these, and no masks",
            field="draw",
        )
    if "polygons" in parts and not has_outlines:
        raise ConfigError(
            f"{who}: draw={draw!r} makes polygons of instance_masks; pass instance_masks=, too",
            field="draw",
        )
    return frozenset(parts)


def polygon_notes(shapes: ShapeLists) -> list[str]:
    """A note on objects whose outlines are no polygons. ConfigError if that is all of them."""
    objects = len(shapes.heights)
    without = int((shapes.heights > 0).sum())
    if not without:
        return []
    if without == objects:
        raise ConfigError(
            f"Objects: draw must be without polygons for runs and pixels, which have none, got"
            f' {objects:,} of them and no rings; pass draw="instances", or trace them, for instance'
            " by cv2.findContours",
            field="draw",
        )
    return [f"{without:,} of {objects:,} objects have runs or pixels, and so no polygons"]


@dataclass(frozen=True, slots=True, eq=False)
class ClassMap:
    """The class of each pixel of an image: `np.asarray` draws it.

    0 where no object is, a label + 1 inside of one; 255 in crowds, and where objects of several
    classes overlap.
    """

    shape: tuple[int, int]  # height, width
    outlines: Sequence[Shape]
    values: Sequence[int]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        drawn = np.zeros(self.shape, np.uint8)
        for outline, value in zip(self.outlines, self.values, strict=True):
            inside = outline.pixels(self.shape) != 0
            unknown = inside & (drawn != 0) & (drawn != value)
            drawn[inside] = value
            drawn[unknown] = _UNKNOWN
        return drawn


@dataclass(frozen=True, slots=True, eq=False)
class ClassMaps:
    """Maps of classes of n images."""

    # outlines, of each the value in the map, uint8 (m,), and ends as of `BoxLists`
    parts: Sequence[tuple[ShapeLists, np.ndarray, np.ndarray]]
    sizes: np.ndarray  # float32 (n, 2): height, width of the annotated images
    normalized: bool  # rings are in shares of the image's sides

    @classmethod
    def of(
        cls,
        lists: BoxLists,
        normalized: bool = False,
        crowds: tuple[ShapeLists, np.ndarray] | None = None,
    ) -> ClassMaps:
        """Maps of the labels of these objects.

        crowds: outlines of what is not known, and ends. ConfigError for an image of unknown size,
        and a label that has no place in a map.
        """
        assert lists.shapes is not None
        if lists.sizes is None or np.isnan(lists.sizes).any():
            raise ConfigError(
                'Objects: draw="classes" needs the size of each image, got images of unknown size;'
                " pass sizes=, or width and height in a COCO file",
                field="draw",
            )
        most = int(lists.labels.max(initial=0))
        if most >= _UNKNOWN - 1:
            raise ConfigError.of(
                "Objects: labels", f'below {_UNKNOWN - 1} with draw="classes"', most
            )
        parts = [(lists.shapes, (lists.labels + 1).astype(np.uint8), lists.ends)]
        if crowds is not None:
            shapes, ends = crowds
            parts.append((shapes, np.full(len(shapes.heights), _UNKNOWN, np.uint8), ends))
        return cls(parts, lists.sizes, normalized)

    def __len__(self) -> int:
        return len(self.sizes)

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Maps of images, which are not drawn yet."""
        return [self._map(int(i)) for i in ids]

    def _map(self, i: int) -> ClassMap:
        outlines: list[Shape] = []
        values: list[int] = []
        for shapes, own, ends in self.parts:
            rows = np.arange(ends[i], ends[i + 1])
            outlines += shapes.take(rows).tolist()
            values += own[rows].tolist()
        height, width = map(int, self.sizes[i].tolist())
        if self.normalized:
            sides = np.array([width, height])
            outlines = [o.scaled(sides) if isinstance(o, Rings) else o for o in outlines]
        return ClassMap((height, width), outlines, values)

    def content(self, first: int, last: int) -> Iterator[Any]:
        """Buffers that change with the maps of images [first, last)."""
        for shapes, values, ends in self.parts:
            own = slice(int(ends[first]), int(ends[last]))
            yield np.diff(ends[first : last + 1]).data
            yield values[own].data
            yield from shapes.content(own.start, own.stop)


Masks = _MasksInMemory | _MaskFiles | ClassMaps  # one per sample
