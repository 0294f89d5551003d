"""Photographs in folders, one folder per class."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.spec import ENCODED

__all__ = ["IMAGE_EXTENSIONS", "ImageFolder"]

IMAGE_EXTENSIONS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".jp2", ".j2k", ".avif", ".heic", ".heif"),  # HEIF is listed so that it is reported, not overlooked
)
_MAX_BYTES = 1 << 30  # of one file; a photograph is far below
_DEPTH = 100  # folders inside folders


class ImageFolder:
    """Every image below `root`, its class being the first folder on the way: root/daisy/2019/a.jpg is a daisy.

    Classes and files are sorted, so ids mean the same on every machine. Symbolic links are followed, and a file that
    can be reached twice is taken once. Files without an image's extension, hidden ones, and images beside the class
    folders are left out and counted in `left_out`. Pass `classes=train.classes` for a validation folder, so that labels
    agree; `labeled=False` takes all images anywhere below root, with label -1.
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
        if isinstance(classes, str):
            raise ConfigError(f"ImageFolder: classes must be a list of names, got {classes!r}")
        self._extensions = frozenset(e.lower() for e in extensions)
        self._seen: set[tuple[int, int]] = set()  # (device, inode) of the folders walked
        self._inside = os.path.join(os.path.realpath(self.root), "")
        found = self._labeled(classes, min_per_class) if labeled else self._anything()
        del self._seen
        if not found:
            raise SourceError(f"ImageFolder: no images below {self.root}{self._left_out_text()}")
        paths, labels = zip(*found, strict=True)
        self._paths = b"".join(paths)  # one blob and offsets: 2 million Python strings would take 300 MB
        self._ends = np.cumsum([len(p) for p in paths], dtype=np.int64)
        self._labels = np.array(labels, np.int32)
        self._fingerprint = ""

    def _labeled(self, classes: Sequence[str] | None, least: int) -> list[tuple[bytes, int]]:
        folders, loose = {}, 0
        for entry in self._scan(str(self.root)):
            if _is_folder(entry):
                folders[entry.name] = entry
            elif self._is_image(entry.name):
                loose += 1
            else:
                self._leave_out(entry.name)
        if not folders:
            hint = (
                f"{loose} images lie in it directly; move them into one folder per class, or pass labeled=False"
                if loose
                else "expected one folder per class"
            )
            raise SourceError(f"ImageFolder: no class folders in {self.root}: {hint}")
        if loose:
            self.left_out["(no class)"] = loose
        names = tuple(classes) if classes is not None else tuple(sorted(folders))
        if extra := sorted(set(folders) - set(names)):
            raise SourceError(f"ImageFolder: {self.root} has folders that are not in classes: {', '.join(extra[:5])}")
        self.classes = names
        self._enter(str(self.root))  # a link to it, or to a folder around it, must not bring all classes into one
        walked = [
            (path, linked, label)
            for label, name in enumerate(names)
            if name in folders  # given in classes: a split may lack one
            for path, linked in self._walk(folders[name].path, folders[name].is_symlink())
        ]
        self._seen.remove(_identity(str(self.root)))  # it was not walked: links to its own files count
        found = self._once(walked)
        counts = Counter(label for _, label in found)
        for label, name in enumerate(names):
            if name in folders and counts[label] < least:
                raise SourceError(
                    f"ImageFolder: class {name!r} has {counts[label]} image{'' if counts[label] == 1 else 's'}, "
                    f"a class needs at least {least}; add images, remove the folder, or pass min_per_class=1"
                    f"{self._left_out_text()}"
                )
        return found

    def _anything(self) -> list[tuple[bytes, int]]:
        self.classes = ()
        return self._once([(path, linked, -1) for path, linked in self._walk(str(self.root), False)])

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                everything = sorted(entries, key=lambda e: os.fsencode(e.name))
        except OSError as error:
            raise SourceError(f"ImageFolder: cannot list {folder}: {error.strerror}") from error
        shown = [e for e in everything if not e.name.startswith(".")]
        if len(shown) < len(everything):
            self.left_out["(hidden)"] += len(everything) - len(shown)
        return shown

    def _is_image(self, name: str) -> bool:
        return os.path.splitext(name)[1].lower() in self._extensions

    def _leave_out(self, name: str) -> None:
        self.left_out[os.path.splitext(name)[1].lower() or "(none)"] += 1

    def _enter(self, folder: str) -> bool:
        """Note that a folder is walked; False if it has been already."""
        key = _identity(folder)
        fresh = key not in self._seen
        self._seen.add(key)
        return fresh

    def _walk(self, folder: str, linked: bool, depth: int = 0) -> Iterator[tuple[str, bool]]:
        """Images below a folder, sorted, and whether each is a link; every real folder once, so loops of links end."""
        if depth > _DEPTH:
            raise SourceError(f"ImageFolder: folders are nested more than {_DEPTH} deep at {folder}; is that meant?")
        if (linked and self._is_below(os.path.realpath(folder))) or not self._enter(folder):
            self.left_out["(link)"] += 1
            return
        for entry in self._scan(folder):
            if _is_folder(entry):
                yield from self._walk(entry.path, entry.is_symlink(), depth + 1)
            elif self._is_image(entry.name):
                yield entry.path, entry.is_symlink()
            else:
                self._leave_out(entry.name)

    def _is_below(self, real: str) -> bool:
        """A folder at this resolved path is walked without any link."""
        parts = real[len(self._inside) :].split(os.sep)
        return real.startswith(self._inside) and not any(part.startswith(".") for part in parts)

    def _once(self, walked: list[tuple[str, bool, int]]) -> list[tuple[bytes, int]]:
        """Drop links to files that are in the list by themselves or by an earlier link; paths relative to root."""
        found, start, taken = [], len(os.path.join(self.root, "")), set()
        for path, linked, label in walked:
            if linked and os.path.exists(path):  # one that leads nowhere is a bad sample, not a missing one
                real = os.path.realpath(path)
                if real in taken or self._is_walked(real):
                    self.left_out["(link)"] += 1
                    continue
                taken.add(real)
            found.append((os.fsencode(path[start:]), label))
        return found

    def _is_walked(self, real: str) -> bool:
        folder, name = os.path.split(real)
        return _identity(folder) in self._seen and self._is_image(name) and not name.startswith(".")

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


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a place that may not be looked at: read() will say what is wrong
        return False
