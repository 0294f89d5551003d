"""Segmentation masks: pixels or PNGs in memory, or PNG files, local or remote."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.sources.tables.columns import RowLocator
from fastfeed.sources.tables.image_files import ImageFiles
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.event_loop import results
from fastfeed.storage.storage import Storage


class Masks(Protocol):
    """One segmentation mask per image."""

    def __len__(self) -> int: ...

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Read masks of samples: bytes, pixels, None if nothing is known, or Unread."""
        ...

    def content(self, first: int, last: int) -> Iterator[Any]:
        """Buffers that change with the masks of images [first, last)."""
        ...


def masks_of(candidates: Any, where: Callable[[int], str], storage: Storage) -> Masks:
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
    """Masks held in memory."""

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
