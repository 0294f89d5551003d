"""Photographs in folders, one folder per class."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.spec import ENCODED

__all__ = ["IMAGE_EXTENSIONS", "ImageFolder"]

IMAGE_EXTENSIONS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".jp2", ".j2k", ".avif", ".heic", ".heif"),  # HEIF is listed so that it is reported, not overlooked
)
_MAX_BYTES = 1 << 30  # of one file; a photograph is far below


class ImageFolder:
    """Every image below `root`, its class being the first folder on the way: root/daisy/2019/a.jpg is a daisy.

    Classes and files are sorted, so ids mean the same on every machine. Symbolic links are followed, and a file that
    can be reached twice is taken once. Files without an image's extension and hidden files are left out and counted in
    `left_out`. Pass `classes=train.classes` for a validation folder, so that labels agree; `labeled=False` takes all
    images anywhere below root, with label -1.
    """

    spec = ENCODED

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        classes: Sequence[str] | None = None,
        labeled: bool = True,
        min_per_class: int = 2,
        extensions: Sequence[str] = IMAGE_EXTENSIONS,
    ) -> None:
        self.root = Path(root)
        self.left_out: Counter[str] = Counter()  # by extension
        if not self.root.is_dir():
            what = "is not a folder" if self.root.exists() else "does not exist"
            raise SourceError(f"ImageFolder: {self.root} {what}; pass the folder that holds the images")
        self._extensions = frozenset(e.lower() for e in extensions)
        self._seen: set[tuple[int, int]] = set()  # (device, inode) of folders on the way
        self._links: set[str] = set()  # what the links taken so far point to
        self._inside = os.path.join(os.path.realpath(self.root), "")
        found = self._labeled(classes, min_per_class) if labeled else self._anything()
        del self._seen, self._links
        if not found:
            raise SourceError(f"ImageFolder: no images below {self.root}{self._left_out_text()}")
        paths, labels = zip(*found, strict=True)
        self._paths = b"".join(paths)  # one blob and offsets: 2 million Python strings would take 300 MB
        self._ends = np.cumsum([len(p) for p in paths], dtype=np.int64)
        self._labels = np.array(labels, np.int32)
        self._fingerprint = ""

    def _labeled(self, classes: Sequence[str] | None, least: int) -> list[tuple[bytes, int]]:
        folders = {e.name: e for e in self._scan(self.root) if e.is_dir()}
        if not folders:
            loose = sum(self._is_image(e.name) for e in self._scan(self.root))
            hint = (
                f"{loose} images lie in it directly; move them into one folder per class, or pass labeled=False"
                if loose
                else "expected one folder per class"
            )
            raise SourceError(f"ImageFolder: no class folders in {self.root}: {hint}")
        names = tuple(classes) if classes is not None else tuple(sorted(folders))
        if extra := sorted(set(folders) - set(names)):
            raise SourceError(f"ImageFolder: {self.root} has folders that are not in classes: {', '.join(extra[:5])}")
        self.classes = names
        found: list[tuple[bytes, int]] = []
        for label, name in enumerate(names):
            if name not in folders:  # given in classes: a split may lack one
                continue
            images = [(path, label) for path in self._once(self._walk(folders[name].path))]
            if len(images) < least:
                raise SourceError(
                    f"ImageFolder: class {name!r} has {len(images)} image{'' if len(images) == 1 else 's'}, "
                    f"a class needs at least {least}; add images, remove the folder, or pass min_per_class=1"
                    f"{self._left_out_text()}"
                )
            found += images
        return found

    def _anything(self) -> list[tuple[bytes, int]]:
        self.classes = ()
        return [(path, -1) for path in self._once(self._walk(str(self.root)))]

    def _scan(self, folder: str | Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: os.fsencode(e.name))
        except OSError as error:
            raise SourceError(f"ImageFolder: cannot list {folder}: {error.strerror}") from error

    def _is_image(self, name: str) -> bool:
        return os.path.splitext(name)[1].lower() in self._extensions

    def _walk(self, folder: str) -> Iterator[str]:
        """Paths of the images below a folder, sorted; each real folder once, so loops of links end."""
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in self._seen:
            return
        self._seen.add((status.st_dev, status.st_ino))
        for entry in self._scan(folder):
            if entry.is_dir():
                yield from self._walk(entry.path)
            elif self._is_image(entry.name):
                yield entry.path
            else:
                self.left_out[os.path.splitext(entry.name)[1].lower() or "(none)"] += 1

    def _once(self, paths: Iterator[str]) -> list[bytes]:
        """Drop links to files that are in the list by themselves or by an earlier link; paths relative to root."""
        taken = []
        for path in paths:
            if os.path.islink(path):
                real = os.path.realpath(path)
                if real in self._links or self._is_listed(real):
                    self.left_out["(link)"] += 1
                    continue
                self._links.add(real)
            taken.append(os.fsencode(os.path.relpath(path, self.root)))
        return taken

    def _is_listed(self, real: str) -> bool:
        """A file at this resolved path is met on the walk without any link."""
        inside = real.startswith(self._inside) and self._is_image(real)
        return inside and not any(part.startswith(".") for part in real[len(self._inside) :].split(os.sep))

    def _left_out_text(self) -> str:
        if not self.left_out:
            return ""
        return "; left out: " + ", ".join(f"{n} {extension}" for extension, n in self.left_out.most_common(5))

    def __len__(self) -> int:
        return len(self._ends)

    def path(self, i: int) -> Path:
        """The file of sample i."""
        return Path(self.uri(i))

    def uri(self, i: int) -> str:
        """The file of sample i, as text."""
        start = int(self._ends[i - 1]) if i else 0
        return os.path.join(self.root, os.fsdecode(self._paths[start : int(self._ends[i])]))

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Class numbers: int64, shape (len(ids),)."""
        return self._labels[ids].astype(np.int64)

    def read(self, ids: Sequence[int]) -> list[bytes | Failure]:
        """The files' bytes."""
        return [self._read(int(i)) for i in ids]

    def _read(self, i: int) -> bytes | Failure:
        uri = self.uri(i)
        try:
            # O_NONBLOCK: a named pipe called photo.jpg must not stop the thread for ever
            fd = os.open(uri, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(fd, "rb", buffering=0) as file:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    return Failure(i, uri, "read", "not_image", "not a regular file")
                if status.st_size > _MAX_BYTES:
                    return Failure(i, uri, "read", "bomb", f"{status.st_size} bytes, the limit is {_MAX_BYTES}")
                blob = file.readall()
        except FileNotFoundError:
            return Failure(i, uri, "read", "not_found")
        except OSError as error:
            return Failure(i, uri, "read", "io_error", error.strerror or str(error))
        return blob or Failure(i, uri, "read", "empty")

    @property
    def fingerprint(self) -> str:
        """Of names, classes and sizes; computed when first asked for."""
        if not self._fingerprint:
            digest = hashlib.sha256("\0".join(self.classes).encode("utf-8", "surrogateescape"))
            for array in (self._ends, self._labels):
                digest.update(array.tobytes())
            digest.update(self._paths)
            for i in range(len(self)):
                try:
                    digest.update(os.stat(self.uri(i)).st_size.to_bytes(8, "little"))
                except OSError:
                    digest.update(b"missing.")
            self._fingerprint = digest.hexdigest()[:32]
        return self._fingerprint

    def __repr__(self) -> str:
        kinds = f" of {len(self.classes)} classes" if self.classes else ""
        return f"ImageFolder({str(self.root)!r}): {len(self)} images{kinds}{self._left_out_text()}"
