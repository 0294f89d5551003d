"""Reads images from folders, one folder per class, local or in remote storage."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.runtime.addresses import WholeFiles
from fastfeed.sources.base import with_notes
from fastfeed.sources.listing.file_table import FileTable
from fastfeed.sources.listing.listing import gather
from fastfeed.sources.listing.listing_file import read_listing
from fastfeed.sources.listing.local_tree import IMAGE_EXTENSIONS, LocalTree
from fastfeed.sources.listing.remote_tree import RemoteTree, trimmed
from fastfeed.sources.shards.base import cache_of
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.spec import ENCODED
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.fingerprint import fingerprint
from fastfeed.storage.local_file import MAX_BYTES, read_file
from fastfeed.storage.pending import Pending
from fastfeed.storage.retry import Unread
from fastfeed.storage.shard_files import Completed, MappedRead
from fastfeed.storage.storage import ByteRange, Stat, Storage, is_local

__all__ = ["IMAGE_EXTENSIONS", "ImageFolder"]


class ImageFolder:
    """Every image below `root`, its class being the first folder on the way: root/daisy/2019/a.jpg is a daisy.

    Classes and files are sorted, so ids mean the same on every machine. Symbolic links are followed, and every path
    counts: a file that is linked into two folders is two samples. Only a link to a folder that it lies in is not
    followed. Files without an image's extension, hidden ones, and images outside the class folders are left out:
    `print` and `notes` say how many, with an example of each kind, and `left_out` has the counts. Pass
    `classes=train.classes` for a validation folder, so that labels agree; `labeled=False` takes all images anywhere
    below root, with label -1.

    `root` may be remote, `s3://bucket/train`. It is then listed whenever a source is made, which takes minutes for
    millions of images: `fastfeed index s3://bucket/train` does it once, and `listing="train.parquet"` is what it wrote.
    An image that has another size than was listed is a bad sample ("changed"). `storage` is options for fsspec;
    `cache` a local folder in which images are kept.
    """

    spec = ENCODED

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        classes: Sequence[str] | None = None,
        labeled: bool = True,
        min_per_class: int = 2,
        extensions: Sequence[str] = IMAGE_EXTENSIONS,  # of a listing that is made now
        listing: str | os.PathLike[str] | None = None,
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        progress: bool | None = None,  # of listing; None: shown on a terminal
    ) -> None:
        if isinstance(classes, str):
            raise ConfigError(f"ImageFolder: classes must be a list of names, got {classes!r}")
        uri = os.fspath(root).removeprefix("file://")
        self.remote = not is_local(uri)
        self.root = trimmed(uri) if self.remote else Path(uri)
        self._storage = storage if isinstance(storage, Storage) else Storage(storage, cache=cache_of(cache))
        self._requested_classes = None if classes is None else tuple(classes)
        if listing is not None:
            versions = self.remote and self._storage.cache is not None
            rows, folders, self._left_out = read_listing(os.fspath(listing), self._storage, versions, "ImageFolder")
        else:
            if self.remote:
                tree = RemoteTree(str(self.root), self._storage, extensions, "ImageFolder")
            else:
                tree = LocalTree(str(self.root), extensions, "ImageFolder")
            choose = self._choose if labeled else lambda folders, _: folders
            rows, folders, self._left_out = gather(tree, choose, not labeled, progress, f"listing {self.root}")
        self.classes: tuple[str, ...] = ()
        self._labels = np.full(len(rows), -1, np.int32)
        if labeled:
            rows, self._labels = self._label(rows, folders, min_per_class)
        if not len(rows):
            raise SourceError(f"ImageFolder: no images below {self.root}{self._left_out_text()}")
        self._paths = rows.paths
        self._sizes = rows.sizes if rows.sizes is not None and bool(np.any(rows.sizes >= 0)) else None
        self._versions = rows.versions if self.remote and self._storage.cache is not None else None
        self._fingerprint = ""

    def _choose(self, folders: Sequence[str], loose: int) -> Sequence[str]:
        """The folders that are classes, in the order of the classes. `loose` counts images outside of all folders."""
        if not folders:
            hint = (
                f"{loose} images lie in it directly; move them into one folder per class, or pass labeled=False"
                if loose
                else "expected one folder per class"
            )
            raise SourceError(f"ImageFolder: no class folders in {self.root}: {hint}")
        existing = set(folders)
        names = sorted(existing) if self._requested_classes is None else self._requested_classes
        if extra := sorted(existing.difference(names)):
            raise SourceError(f"ImageFolder: {self.root} has folders that are not in classes: {', '.join(extra[:5])}")
        return [name for name in names if name in existing]  # given in classes: a split may lack one

    def _label(self, rows: FileTable, folders: Sequence[str], minimum: int) -> tuple[FileTable, np.ndarray]:
        """Sort images by class. Those in no folder are dropped."""
        assert rows.labels is not None
        labeled = np.flatnonzero(rows.labels >= 0)
        loose = len(rows) - len(labeled)
        chosen = self._choose(folders, loose)
        self.classes = tuple(chosen) if self._requested_classes is None else self._requested_classes
        number = {name: label for label, name in enumerate(self.classes)}
        labels = np.array([number[folder] for folder in folders], np.int32)[rows.labels[labeled]]
        if loose:  # of a listing: others have none of them
            self._left_out.add("(no class)", rows.paths[int(np.argmax(rows.labels < 0))], loose)
        if loose or np.any(np.diff(labels) < 0):
            order = np.argsort(labels, kind="stable")
            rows, labels = rows.take(labeled[order]), labels[order]
        counts = np.bincount(labels, minlength=len(self.classes))
        for name in chosen:
            if (count := int(counts[number[name]])) < minimum:
                raise SourceError(
                    f"ImageFolder: class {name!r} has {count} image{'' if count == 1 else 's'}, "
                    f"a class needs at least {minimum}; add images, remove the folder, or pass min_per_class=1"
                    f"{self._left_out_text()}"
                )
        return rows, labels

    def _left_out_text(self) -> str:
        return f"; left out: {self._left_out.summary()}" if self._left_out.counts else ""

    @property
    def left_out(self) -> Counter[str]:
        """Counts of files below the root that are not samples, by extension, `(hidden)`, `(no class)` and so on."""
        return self._left_out.counts

    @property
    def notes(self) -> list[str]:
        """What is left out, with an example of each kind, and classes without images."""
        empty = np.flatnonzero(np.bincount(self._labels[self._labels >= 0], minlength=len(self.classes)) == 0).tolist()
        without = f"{len(empty)} class{'' if len(empty) == 1 else 'es'} without images"
        return self._left_out.notes() + ([f"{without}, such as {self.classes[empty[0]]}"] if empty else [])

    def __len__(self) -> int:
        return len(self._paths)

    def path(self, i: int) -> Path:
        """The local file of sample i. ConfigError for remote images."""
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
        """The files' bytes."""
        if self.remote:
            return [pending.result() for pending in self.fetch(ids)]
        return [self._look(int(i), read_file(self.uri(i))) for i in ids]

    def addresses(self, ids: np.ndarray) -> WholeFiles | None:
        """Local files; None for remote ones."""
        if self.remote:
            return None
        sizes = None if self._sizes is None else self._sizes[ids]
        return WholeFiles(os.fsencode(os.path.join(self.root, "")), self._paths.blob, self._paths.ends, ids, sizes)

    def fetch(self, ids: Sequence[int]) -> list[Pending]:
        """Begin to read, from remote storage."""
        if not self.remote:
            return [Completed(data) for data in self.read(ids)]
        return [self._fetch(int(i)) for i in ids]

    def _fetch(self, i: int) -> Pending:
        uri, size = self.uri(i), self._size(i)
        if size > MAX_BYTES:
            return Completed(self._look(i, Unread("bomb", f"{size} bytes, the limit is {MAX_BYTES}")))
        version = "" if self._versions is None else self._versions[i]
        span = ByteRange(uri, stat=Stat(size, version) if version and size >= 0 else None)
        return MappedRead(self._storage.fetch([span])[0], lambda data: self._look(i, data))

    def _size(self, i: int) -> int:
        """As listed, bytes; -1: not known."""
        return -1 if self._sizes is None else int(self._sizes[i])

    def _look(self, i: int, data: bytes | Unread) -> bytes | Failure:
        size = self._size(i)
        if not data:
            data = Unread("empty")
        elif isinstance(data, bytes) and size not in (-1, len(data)):
            data = Unread("changed", f"{len(data)} bytes, {size} when it was listed")
        return Failure(i, self.uri(i), "read", data.reason, data.detail) if isinstance(data, Unread) else data

    @property
    def fingerprint(self) -> str:
        """Hash of names, classes and sizes, computed on first use. Equal for a copy elsewhere."""
        if not self._fingerprint:
            classes = "\0".join(self.classes).encode("utf-8", "surrogateescape")
            names, labels = (self._paths.ends, self._paths.blob), self._labels
            self._fingerprint = fingerprint(
                len(self),
                (np.ascontiguousarray(array).data for array in names),
                (classes, np.ascontiguousarray(labels).data),
                self._content,
            )
        return self._fingerprint

    def _content(self, first: int, last: int) -> Iterator[memoryview]:
        """Sizes, -1 for a file that is missing, as a fingerprint takes them."""
        for begin in range(first, last, 1 << 16):
            yield np.maximum(self._measured(begin, min(begin + (1 << 16), last)), -1).astype("<i8").data

    def _measured(self, first: int, last: int) -> np.ndarray:
        """Sizes of samples [first, last)."""
        if self._sizes is not None:
            return self._sizes[first:last]
        return np.array([-1 if self.remote else _size_of(self.uri(i)) for i in range(first, last)], np.int64)

    def __str__(self) -> str:
        return with_notes(self._summary(), self.notes)

    def __repr__(self) -> str:
        return self._summary() + self._left_out_text()

    def _summary(self) -> str:
        kinds = f" of {len(self.classes)} classes" if self.classes else ""
        return f"ImageFolder({str(self.root)!r}): {len(self)} images{kinds}"


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
