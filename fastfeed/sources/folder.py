"""Reads images from folders, one folder per class, local or in remote storage."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.printable import log, printable, warn
from fastfeed.runtime.addresses import WholeFiles
from fastfeed.sources.base import StoredFile, sample_or_failure
from fastfeed.sources.class_names import (
    AmbiguousClasses,
    class_folders,
    class_numbers,
    nfc,
    order_text,
    parts_text,
)
from fastfeed.sources.listing.file_table import FileTable
from fastfeed.sources.listing.listing import gather
from fastfeed.sources.listing.listing_file import read_listing
from fastfeed.sources.listing.local_tree import IMAGE_EXTENSIONS, LocalTree
from fastfeed.sources.listing.remote_tree import RemoteTree, trimmed
from fastfeed.sources.methods import SourceMethods
from fastfeed.sources.notes import with_notes
from fastfeed.sources.shards.labels import checked_classes
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.spec import ENCODED
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.fingerprint import fingerprint
from fastfeed.storage.local_file import MAX_BYTES, file_size, over_files, read_file
from fastfeed.storage.reads import ByteRange, Completed, MappedRead, Pending, Stat, Unread, is_local
from fastfeed.storage.storage import Storage, open_storage
from fastfeed.system.within import Within

# files of which sizes are asked before it is looked at how long that takes
_SIZES_AT_ONCE = 1 << 13
# of waiting, before the log says why
_FIRST_WORD_S = 5.0
_NEXT_WORD_S = 30.0
_clock = time.monotonic


@checked_early
class ImageFolder(SourceMethods):
    """Images below a folder, with their first folder as class: root/daisy/a.jpg is a daisy.

    Classes and files are sorted, so ids mean the same on every machine. Symbolic links are
    followed, and every path counts: a file that is linked twice into a class is two samples, and
    into two classes an error. Files without an image's extension, hidden ones, folders of the
    system (`__MACOSX`, `@eaDir`, `lost+found`, `$RECYCLE.BIN` and the like), and images outside the
    class folders are left out: `print`, `notes` and `skipped` say how many. Classes are compared
    in Unicode's NFC with `classes`; two folders equal in it are an error.

    A remote root is listed whenever a source is made, which takes minutes for millions of images:
    `fastfeed index s3://bucket/train` does it once, for `listing`. An image of another size than
    was listed is a bad sample ("changed").

    Args:
        root (str | os.PathLike[str]): Folder, local or remote (`s3://bucket/train`).
        classes (Sequence[str | int] | None): Names of classes in the order of their labels;
            `train.classes` for validation. Default: None, the sorted names of the data.
        labeled (bool): False takes all images anywhere below root, with label -1. Default: True.
        min_per_class (int): Fewer images of a class are an error. Default: 1.
        extensions (Sequence[str]): What an image's name ends in, of a listing that is made now.
            Default: IMAGE_EXTENSIONS.
        listing (str | os.PathLike[str] | None): What `fastfeed index` wrote. Default: None, list
            now.
        storage (dict[str, Any] | Storage | None): Options for fsspec (key, secret, endpoint_url,
            anon ...), or a Storage that several sources share. Default: None.
        cache (str | os.PathLike[str] | Cache | None): Local folder in which what is read from
            remote storage is kept. Default: None, nothing is kept.
        progress (bool | None): Show how far the listing is. Default: None, on a terminal.
        allow_links (Sequence[str] | None): Folders other than root that links may lead to. Default:
            None, anywhere.

    Raises:
        ConfigError: If an argument is wrong.
        SourceError: If there are no images, a class has too few, or the folder cannot be listed.

    Example:
        >>> photos = ff.ImageFolder("photos")
        >>> photos
        ImageFolder('photos'): 6 images of 2 classes
        >>> photos.classes, photos.label(np.array([0, 5]))
        (('cat', 'dog'), array([0, 1]))
        >>> photos.path(0).name, photos.file_sizes(0, 2).shape
        ('0000.jpg', (2,))
    """

    spec = ENCODED

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        classes: Sequence[str | int] | None = None,
        labeled: bool = True,
        min_per_class: int = 1,
        extensions: Sequence[str] = IMAGE_EXTENSIONS,
        listing: str | os.PathLike[str] | None = None,
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        progress: bool | None = None,
        allow_links: Sequence[str] | None = None,
    ) -> None:
        uri = os.fspath(root).removeprefix("file://")
        self.remote = not is_local(uri)
        self.root = trimmed(uri) if self.remote else Path(uri)
        self._storage = open_storage(storage, cache)
        self._within = (
            None if self.remote or allow_links is None else Within([str(self.root), *allow_links])
        )
        self._requested_classes = checked_classes(classes, "ImageFolder")
        linked = False  # through links one file may have several paths
        if listing is not None:
            versions = self.remote and self._storage.cache is not None
            rows, folders, self._skipped = read_listing(
                os.fspath(listing), self._storage, versions, "ImageFolder"
            )
        else:
            if self.remote:
                tree = RemoteTree(str(self.root), self._storage, extensions, "ImageFolder")
            else:
                tree = LocalTree(str(self.root), extensions, "ImageFolder", allow_links=allow_links)
            choose = self._choose if labeled else lambda folders, _: folders
            rows, folders, self._skipped = gather(
                tree, choose, not labeled, progress, f"listing {self.root}"
            )
            if isinstance(tree, LocalTree):
                linked = tree.has_links
        if links := self._skipped.links():
            warn(f"ImageFolder: {self.root}: {'; '.join(links)}", UserWarning, stacklevel=3)
        self.classes: tuple[str, ...] = ()
        self._labels = np.full(len(rows), -1, np.int32)
        if labeled:
            rows, self._labels = self._label(rows, folders, min_per_class)
        if classes is None and (order := order_text(self.classes)):
            warn(f"ImageFolder: {self.root}: {order}", UserWarning, stacklevel=3)
        if not len(rows):
            left_out = self._skipped_text() + self._skipped.hint()
            raise SourceError(f"ImageFolder: no images below {self.root}{left_out}")
        self._paths = rows.paths
        if (
            labeled
            and linked
            and (twice := file_in_two_classes(str(self.root), self._paths, self._labels))
        ):
            raise AmbiguousClasses(
                f"ImageFolder: {twice[0]} and {twice[1]} in {self.root} are one file, reached"
                " through links from two classes, and an image has one label: remove one of them,"
                " or pass labeled=False"
            )
        self._sizes = (
            rows.sizes if rows.sizes is not None and bool(np.any(rows.sizes >= 0)) else None
        )
        self._versions = rows.versions if self.remote and self._storage.cache is not None else None
        self._fingerprint = ""

    def _choose(self, folders: Sequence[str], loose: int) -> Sequence[str]:
        return class_folders(self.root, folders, loose, self._requested_classes)

    def _label(
        self, rows: FileTable, folders: Sequence[str], minimum: int
    ) -> tuple[FileTable, np.ndarray]:
        """Sort images by class. Those in no folder are dropped."""
        assert rows.labels is not None
        labeled = np.flatnonzero(rows.labels >= 0)
        loose = len(rows) - len(labeled)
        chosen = self._choose(folders, loose)
        self.classes = tuple(chosen) if self._requested_classes is None else self._requested_classes
        number = class_numbers(self.classes)
        labels = np.array([number[nfc(folder)] for folder in folders], np.int32)[
            rows.labels[labeled]
        ]
        if loose:  # of a listing: others have none of them
            self._skipped.add("(no class)", rows.paths[int(np.argmax(rows.labels < 0))], loose)
        if loose or np.any(np.diff(labels) < 0):
            order = np.argsort(labels, kind="stable")
            rows = rows.take(labeled[order])
            labels = labels[order]
        counts = np.bincount(labels, minlength=len(self.classes))
        for name in chosen:
            if (count := int(counts[number[nfc(name)]])) < minimum:
                raise SourceError(
                    f"ImageFolder: class {name!r} has {count} image{'' if count == 1 else 's'}, a"
                    f" class needs at least {minimum}; add images, remove the folder, or pass"
                    f" min_per_class={count}{self._skipped_text()}{self._skipped.hint()}"
                )
        return rows, labels

    def _skipped_text(self) -> str:
        return f"; left out: {self._skipped.summary()}" if self._skipped.counts else ""

    @property
    def skipped(self) -> Counter[str]:
        """Counts of skipped files below the root, by extension, `(hidden)`, `(no class)` etc."""
        return self._skipped.counts

    @property
    def left_out(self) -> Counter[str]:
        """The deprecated former name of `skipped`."""
        warn("ImageFolder.left_out is now called skipped", DeprecationWarning, stacklevel=2)
        return self.skipped

    @property
    def notes(self) -> list[str]:
        """Skipped files, with an example of each kind, and classes without images."""
        empty = np.flatnonzero(
            np.bincount(self._labels[self._labels >= 0], minlength=len(self.classes)) == 0
        ).tolist()
        without = f"{len(empty)} class{'' if len(empty) == 1 else 'es'} without images"
        notes = self._skipped.notes() + (
            [f"{without}, such as {self.classes[empty[0]]}"] if empty else []
        )
        return notes + ([self._splits] if self._splits else [])

    @property
    def _splits(self) -> str:
        return parts_text(self.root, self.classes) if self._requested_classes is None else ""

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, i: int) -> Path:
        """The local file of a sample.

        Args:
            i (int): Sample id, in [0, len(source)).

        Returns:
            The path, as `root` was given.

        Raises:
            ConfigError: If the images are remote.
        """
        if self.remote:
            raise ConfigError(f"ImageFolder: {self.uri(i)} is not a local file; use uri({i})")
        return Path(self.uri(i))

    @property
    def paths(self) -> StringColumn:
        """Paths relative to the root, one per sample."""
        return self._paths

    def uri(self, i: int) -> str:
        """The address of sample i, or its file, as text."""
        name = self._paths[int(i)]
        return f"{self.root}/{name}" if self.remote else os.path.join(self.root, name)

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Class numbers: int64, shape (len(ids),)."""
        return self._labels[ids].astype(np.int64)

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Read the bytes of files."""
        if self.remote:
            return [pending.result() for pending in self.fetch(ids)]
        return [self._look(int(i), read_file(self.uri(i), self._within)) for i in ids]

    def addresses(self, ids: np.ndarray) -> WholeFiles | None:
        """Local files; None for remote ones."""
        if self.remote:
            return None
        sizes = None if self._sizes is None else self._sizes[ids]
        root = os.path.join(self.root, "")
        within = self._within
        folders = () if within is None else within.native(str(self.root))
        return WholeFiles(
            os.fsencode(root), self._paths.blob, self._paths.ends, ids, sizes, folders, within
        )

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Bytes of each sample as listed or on disk; -1 if unknown: int64, shape (len(ids),)."""
        ids = np.asarray(ids, np.int64)
        return self._sizes[ids] if self._sizes is not None else self._sizes_now(ids.tolist())

    def fetch(self, ids: Sequence[int]) -> list[Pending]:
        """Begin to read, from remote storage."""
        if not self.remote:
            return [Completed(data) for data in self.read(ids)]
        return [self._fetch(int(i)) for i in ids]

    def _fetch(self, i: int) -> Pending:
        uri = self.uri(i)
        size = self._size(i)
        if size > MAX_BYTES:
            return Completed(
                self._look(i, Unread("bomb", f"{size:,} bytes, the limit is {MAX_BYTES:,}"))
            )
        version = "" if self._versions is None else self._versions[i]
        span = ByteRange(uri, stat=Stat(size, version) if version and size >= 0 else None)
        return MappedRead(self._storage.fetch([span])[0], lambda data: self._look(i, data))

    def byte_ranges(self, ids: np.ndarray) -> list[StoredFile | None]:
        """Byte ranges of files in remote storage."""
        return [self._byte_range(i) for i in ids.tolist()]

    def _byte_range(self, i: int) -> StoredFile | None:
        size = self._size(i)
        if not self.remote or not 0 < size <= MAX_BYTES:
            return None
        version = "" if self._versions is None else self._versions[i]
        stat = Stat(size, version) if version else None
        return self._storage, ByteRange(self.uri(i), 0, size, stat)

    def _size(self, i: int) -> int:
        """Listed size in bytes; -1 if unknown."""
        return -1 if self._sizes is None else int(self._sizes[i])

    def _look(self, i: int, data: bytes | Unread) -> bytes | Failure:
        size = self._size(i)
        if not data:
            data = Unread("empty")
        elif isinstance(data, bytes) and size not in (-1, len(data)):
            data = Unread("changed", f"{len(data)} bytes, {size} when it was listed")
        return sample_or_failure(self, i, data)

    @property
    def fingerprint(self) -> str:
        """Hash of names, classes and sizes, computed on first use. Equal for a copy elsewhere."""
        if not self._fingerprint:
            classes = "\0".join(self.classes).encode("utf-8", "surrogateescape")
            names = (self._paths.ends, self._paths.blob)
            labels = self._labels
            self._fingerprint = fingerprint(
                len(self),
                (np.ascontiguousarray(array).data for array in names),
                (classes, np.ascontiguousarray(labels).data),
                partial(self._content, _clock(), [_FIRST_WORD_S]),
            )
        return self._fingerprint

    def _content(
        self, since: float, due: list[float], first: int, last: int
    ) -> Iterator[memoryview]:
        """Sizes, -1 for a file that is missing, as a fingerprint takes them.

        due: seconds of waiting after which the log says why; the next ones are added.
        """
        for begin in range(first, last, _SIZES_AT_ONCE):
            seconds = _clock() - since
            if seconds >= due[-1]:
                due.append(due[-1] + _NEXT_WORD_S)
                root = printable(self.root)
                log.warning(
                    f"ImageFolder: {root}: saving a position takes the sizes of all files, and this"
                    f" disk is slow: {begin:,} of {len(self):,} after {seconds:.0f} s; `fastfeed"
                    f" index {root}` lists them for listing="
                )
            yield (
                np.maximum(self.file_sizes(begin, min(begin + _SIZES_AT_ONCE, last)), -1)
                .astype("<i8")
                .data
            )

    def file_sizes(self, first: int, last: int) -> np.ndarray:
        """Sizes of a range of files.

        Args:
            first (int): First sample id.
            last (int): Sample id after the last one.

        Returns:
            Bytes, int64 (last - first,); -1 for a file that is missing or of unknown size.
        """
        if self._sizes is not None:
            return self._sizes[first:last]
        return self._sizes_now(range(first, last))

    def _sizes_now(self, ids: Sequence[int]) -> np.ndarray:
        if self.remote:
            return np.full(len(ids), -1, np.int64)
        return np.array(over_files(file_size, [self.uri(i) for i in ids]), np.int64)

    def __str__(self) -> str:
        return with_notes(self._summary(), self.notes)

    def __repr__(self) -> str:
        return (
            self._summary() + self._skipped_text() + (f"; {self._splits}" if self._splits else "")
        )

    def _summary(self) -> str:
        kinds = f" of {len(self.classes)} classes" if self.classes else ""
        return f"ImageFolder({str(self.root)!r}): {len(self)} images{kinds}"


def file_in_two_classes(
    root: str, paths: StringColumn, labels: np.ndarray
) -> tuple[str, str] | None:
    """Two paths below `root` that are one file with two labels; None if there is no conflict.

    Asks for each file.
    """
    first: dict[tuple[int, int], int] = {}
    for i in range(len(paths)):
        try:
            stat = os.stat(os.path.join(root, paths[i]))
        except OSError:  # reading it will say so
            continue
        other = first.setdefault((stat.st_dev, stat.st_ino), i)
        if labels[other] != labels[i]:
            return paths[other], paths[i]
    return None
