"""The images below a local folder: which files count, and their order."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.printable import printable
from fastfeed.sources.listing.file_table import ROWS, FileTable
from fastfeed.sources.listing.skipped_files import SkippedFiles, file_extension, is_hidden
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.local_file import over_files

IMAGE_EXTENSIONS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
    # HEIC is listed everywhere: where it is not decoded, it is reported
    *(".jp2", ".j2k", ".avif", ".heic", ".heif"),
)
_DEPTH = 100  # folders inside folders
_LINKED = 10_000  # paths through links to one folder: links that cross multiply

_Id = tuple[int, int]  # device, inode


class LocalTree:
    """A local folder; links are followed, except loops, and every path counts.

    `stats`: list sizes and versions, which are the times of the last change. `allow_links`: folders
    that links may lead to besides the root; None: anywhere.
    """

    at_once = 1

    def __init__(
        self,
        root: str,
        extensions: Collection[str],
        who: str,
        *,
        stats: bool = False,
        allow_links: Sequence[str] | None = None,
    ) -> None:
        self.root = root
        self._extensions = frozenset(e.lower() for e in extensions)
        self._who = who
        self._stats = stats
        self._within: tuple[str, ...] | None = None
        if allow_links is not None:
            within = (os.path.realpath(folder) for folder in (root, *allow_links))
            self._within = tuple(os.path.join(folder, "") for folder in within)
        if not os.path.isdir(root):
            what = "is not a folder" if os.path.exists(root) else "does not exist"
            raise SourceError(
                f"{who}: {printable(root)} {what}; pass the folder that holds the images"
            )
        self.has_links = False  # any so far
        self._start = len(os.path.join(root, ""))
        self._id = _identity(root)
        self._linked = Counter[_Id]()  # walks through links, by the folder that they lead to

    def top(self, skipped: SkippedFiles) -> Iterator[tuple[list[str], FileTable]]:
        """The first level, in pieces: names of folders, and the images directly in the root.

        To be called first.
        """
        folders: list[str] = []
        images: list[os.DirEntry[str]] = []
        for entry in self._scan(self.root, skipped):
            if _is_folder(entry):
                folders.append(entry.name)
            elif self._is_image(entry, skipped):
                images.append(entry)
        yield folders, self._rows([entry.path for entry in images])

    def groups(self, folders: Sequence[str]) -> list[list[str]]:
        """Return each folder as a separate group."""
        return [[folder] for folder in folders]

    def below(
        self, folders: Sequence[str], skipped_by_folder: Mapping[str, SkippedFiles]
    ) -> Iterator[tuple[str, FileTable]]:
        """The images below folders, sorted."""
        for folder in folders:
            path = os.path.join(self.root, folder)
            walk = self._walk(path, os.path.islink(path), skipped_by_folder[folder], (self._id,))
            while paths := list(islice(walk, ROWS)):
                yield folder, self._rows(paths)

    def _walk(
        self, folder: str, linked: bool, skipped: SkippedFiles, parents: tuple[_Id, ...]
    ) -> Iterator[str]:
        """Paths of images. `parents` are the folders that the walk came through, the root first."""
        if len(parents) > _DEPTH + 1:
            raise SourceError(
                f"{self._who}: folders are nested more than {_DEPTH} deep at {folder}; is this"
                " intended?"
            )
        try:
            key = _identity(folder)
        except OSError as error:
            raise SourceError(f"{self._who}: cannot list {folder}: {error.strerror}") from error
        if key in parents:  # through a link, here or further up
            skipped.add("(loop)", folder[self._start :])
            return
        if linked:
            self._linked[key] += 1
            if self._linked[key] > _LINKED:
                raise SourceError(
                    f"{self._who}: more than {_LINKED:,} paths lead through links to one folder,"
                    f" the last of them is {folder}; remove some of the links"
                )
        for entry in self._scan(folder, skipped):
            if _is_folder(entry):
                yield from self._walk(entry.path, entry.is_symlink(), skipped, (*parents, key))
            elif self._is_image(entry, skipped):
                yield entry.path

    def _scan(self, folder: str, skipped: SkippedFiles) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                everything = sorted(entries, key=lambda e: os.fsencode(e.name))
        except OSError as error:
            raise SourceError(f"{self._who}: cannot list {folder}: {error.strerror}") from error
        hidden = [e for e in everything if is_hidden(e.name)]
        if hidden:
            skipped.add("(hidden)", hidden[0].path[self._start :], len(hidden))
        shown = [e for e in everything if not is_hidden(e.name)]
        self.has_links = self.has_links or any(e.is_symlink() for e in shown)
        if self._within is None:
            return shown
        within = [
            e
            for e in shown
            if not e.is_symlink()
            or os.path.join(os.path.realpath(e.path), "").startswith(self._within)
        ]
        if len(within) < len(shown):
            first = next(e for e in shown if e not in within)
            skipped.add("(link outside)", first.path[self._start :], len(shown) - len(within))
        return within

    def _is_image(self, entry: os.DirEntry[str], skipped: SkippedFiles) -> bool:
        """True for an image's extension, even of a dangling link: that is a bad sample."""
        kind = file_extension(entry.name)
        if kind in self._extensions:
            return True
        broken = entry.is_symlink() and not os.path.exists(entry.path)
        skipped.add("(broken link)" if broken else kind, entry.path[self._start :])
        return False

    def stop(self) -> None:
        """Do nothing: the only walk runs in the thread that would stop it."""

    def _rows(self, paths: list[str]) -> FileTable:
        names = StringColumn.of_bytes([os.fsencode(path[self._start :]) for path in paths])
        if not self._stats:
            return FileTable(names)
        stats = over_files(_stat, paths)
        sizes = np.array([size for size, _ in stats], np.int64)
        return FileTable(names, sizes, StringColumn.of_bytes([version for _, version in stats]))


def _stat(path: str) -> tuple[int, bytes]:
    """Size and version of a file; (-1, b"") for a broken link, which becomes a bad sample."""
    try:
        status = os.stat(path)
    except OSError:
        return -1, b""
    return status.st_size, b"%d" % status.st_mtime_ns


def _identity(path: str) -> _Id:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # a link to itself, or into a place that may not be looked at: read() will say what is wrong
        return False
