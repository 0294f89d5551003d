"""The images below a folder of this machine: which files count, in what order, and each only once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Protocol

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.sources.listing.file_table import ROWS, Rows, packed

__all__ = ["IMAGE_EXTENSIONS", "LocalTree", "Tree", "is_image"]

IMAGE_EXTENSIONS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".jp2", ".j2k", ".avif", ".heic", ".heif"),  # HEIF is listed so that it is reported, not overlooked
)
_DEPTH = 100  # folders inside folders
_STATS, _STATS_AT_ONCE = 256, 16  # files that one thread asks for in a row; threads

_Id = tuple[int, int]  # device, inode


class Tree(Protocol):
    """A root with folders in it, and images below them. What is left out is counted by extension."""

    at_once: int  # folders that may be walked at the same time

    def top(self, left_out: Counter[str]) -> Iterator[tuple[list[str], Rows]]:
        """The first level, in pieces: names of folders, and the images beside them. To be called first."""
        ...

    def below(self, folder: str, left_out: Counter[str]) -> Iterator[Rows]:
        """The images below one of these folders, in pieces."""
        ...

    def once(self, rows: Rows, left_out: Counter[str]) -> Rows:
        """Less what has been there already, all folders having been walked."""
        ...

    def stop(self) -> None:
        """Walks that are under way are to end with an error."""
        ...

    def marks(self) -> list[Any]:
        """What a later process must `recall` of the walks since the last call; plain values."""
        ...

    def recall(self, marks: list[Any]) -> None:
        """Go on from where another one ended."""
        ...


class LocalTree:
    """Links are followed. A folder that can be reached twice is walked once, the first time; a link to a file counts
    only where that file is in no folder that is walked, and is no other link's.

    `beside`: images beside the folders are samples, so that links to them are not. `stats`: sizes and versions, the
    times of the last change, are wanted.
    """

    at_once = 1  # which folder a link's target belongs to depends on the order

    def __init__(
        self, root: str, extensions: Collection[str], who: str, *, beside: bool = True, stats: bool = False
    ) -> None:
        self.root, self._extensions, self._who = root, frozenset(e.lower() for e in extensions), who
        self._beside, self._stats = beside, stats
        if not os.path.isdir(root):
            what = "is not a folder" if os.path.exists(root) else "does not exist"
            raise SourceError(f"{who}: {root} {what}; pass the folder that holds the images")
        self._inside = os.path.join(os.path.realpath(root), "")
        self._start = len(os.path.join(root, ""))
        self._id = _identity(root)
        self._walked: set[_Id] = set()  # folders
        self._marks: list[_Id] = []  # those that were walked lately
        self._taken: set[str] = set()  # files that links led to

    def top(self, left_out: Counter[str]) -> Iterator[tuple[list[str], Rows]]:
        """The first level."""
        folders: list[str] = []
        images: list[os.DirEntry[str]] = []
        for entry in self._scan(self.root, left_out):
            if _is_folder(entry):
                folders.append(entry.name)
            elif is_image(entry.name, self._extensions, left_out):
                images.append(entry)
        yield folders, self._rows([(entry.path, entry.is_symlink()) for entry in images])

    def below(self, folder: str, left_out: Counter[str]) -> Iterator[Rows]:
        """The images below a folder, sorted."""
        path = os.path.join(self.root, folder)
        walk = self._walk(path, os.path.islink(path), left_out)
        while found := list(islice(walk, ROWS)):
            yield self._rows(found)

    def _walk(self, folder: str, linked: bool, left_out: Counter[str], depth: int = 0) -> Iterator[tuple[str, bool]]:
        """Paths, and whether each is a link; every real folder once, so loops of links end."""
        if depth > _DEPTH:
            raise SourceError(f"{self._who}: folders are nested more than {_DEPTH} deep at {folder}; is that meant?")
        if (linked and self._is_below(os.path.realpath(folder))) or not self._enter(folder):
            left_out["(link)"] += 1
            return
        for entry in self._scan(folder, left_out):
            if _is_folder(entry):
                yield from self._walk(entry.path, entry.is_symlink(), left_out, depth + 1)
            elif is_image(entry.name, self._extensions, left_out):
                yield entry.path, entry.is_symlink()

    def _scan(self, folder: str, left_out: Counter[str]) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                everything = sorted(entries, key=lambda e: os.fsencode(e.name))
        except OSError as error:
            raise SourceError(f"{self._who}: cannot list {folder}: {error.strerror}") from error
        shown = [e for e in everything if not e.name.startswith(".")]
        if len(shown) < len(everything):
            left_out["(hidden)"] += len(everything) - len(shown)
        return shown

    def _is_below(self, real: str) -> bool:
        """A folder at this resolved path is walked without any link."""
        parts = real[len(self._inside) :].split(os.sep)
        return real.startswith(self._inside) and not any(part.startswith(".") for part in parts)

    def _enter(self, folder: str) -> bool:
        """Note that a folder is walked; False if it has been already."""
        key = _identity(folder)
        if (
            key in self._walked or key == self._id
        ):  # a link to the root, or to a folder around it, must not bring in all
            return False
        self._walked.add(key)
        self._marks.append(key)
        return True

    def once(self, rows: Rows, left_out: Counter[str]) -> Rows:
        """Less the links to files that are there by themselves, or by an earlier link."""
        dropped = []
        for row, real in rows.links.items():
            if real in self._taken or self._is_walked(real):
                dropped.append(row)
            self._taken.add(real)
        left_out.update({"(link)": len(dropped)} if dropped else {})
        return rows.take(np.delete(np.arange(len(rows)), dropped)) if dropped else rows

    def _is_walked(self, real: str) -> bool:
        folder, name = os.path.split(real)
        key = _identity(folder)
        walked = key in self._walked or (self._beside and key == self._id)
        return walked and is_image(name, self._extensions, Counter()) and not name.startswith(".")

    def stop(self) -> None:
        """There is one walk at a time, in the thread that would stop it."""

    def marks(self) -> list[Any]:
        """The folders that were walked."""
        marks, self._marks = self._marks, []
        return marks

    def recall(self, marks: list[Any]) -> None:
        """These were walked as well."""
        self._walked.update((device, inode) for device, inode in marks)

    def _rows(self, found: list[tuple[str, bool]]) -> Rows:
        paths = packed([os.fsencode(path[self._start :]) for path, _ in found])
        # a link that leads nowhere is a bad sample, not a missing one
        links = {
            row: os.path.realpath(path) for row, (path, linked) in enumerate(found) if linked and os.path.exists(path)
        }
        if not self._stats:
            return Rows(paths, links=links)
        groups = [found[i : i + _STATS] for i in range(0, len(found), _STATS)]
        with ThreadPoolExecutor(
            _STATS_AT_ONCE, thread_name_prefix="fastfeed-stat"
        ) as pool:  # where the disk is a network's
            stats = [stat for group in pool.map(_stat_all, groups) for stat in group]
        sizes = np.array([size for size, _ in stats], np.int64)
        return Rows(paths, sizes, packed([version for _, version in stats]), links)


def is_image(name: str, extensions: Collection[str], left_out: Counter[str]) -> bool:
    """By its extension; what is none is counted."""
    extension = os.path.splitext(name)[1].lower()
    if extension in extensions:
        return True
    left_out[extension or "(none)"] += 1
    return False


def _stat_all(found: Iterable[tuple[str, bool]]) -> list[tuple[int, bytes]]:
    stats = []
    for path, _ in found:
        try:
            status = os.stat(path)
            stats.append((status.st_size, b"%d" % status.st_mtime_ns))
        except OSError:
            stats.append((-1, b""))
    return stats


def _identity(path: str) -> _Id:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a place that may not be looked at: read() will say what is wrong
        return False
