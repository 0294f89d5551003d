"""Progress of a listing, in memory or in an append-only file that can be resumed.

The file: magic, then records of length of the head, length of the body, checksum of both, head
(JSON), body (the columns of some rows). Where a process did not live to finish a record, the next
one resumes before it; the rows of folders without an end are not used.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import threading
import zlib
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.sources.listing.file_table import ROWS, FileTable, unpacked
from fastfeed.sources.listing.skipped_files import SkippedFiles
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.system.descriptors import CREATE, open_file, open_regular, pread, pwrite
from fastfeed.system.locks import lock

_MAGIC = b"fastfeed listing 2\n"
_RECORD = struct.Struct("<III")


@dataclass(slots=True)
class End:
    """The summary of a folder that is fully listed."""

    images: int
    ordered: bool  # as a walk from folder to folder meets them
    skipped: SkippedFiles = field(default_factory=SkippedFiles)
    more: dict[str, Any] = field(default_factory=dict)  # plain values


class Journal(ABC):
    """Takes rows from several threads, those of a folder in order.

    Images directly in the root belong to folder "".
    """

    def __init__(self) -> None:
        self.ends: dict[str, End] = {}
        # of each folder so far: images, True if they are in order, the last one
        self._seen: dict[str, tuple[int, bool, bytes]] = {}

    def add(self, folder: str, rows: FileTable) -> None:
        """Add images of a folder."""
        images, ordered, last = self._seen.get(folder, (0, True, b""))
        for path in unpacked(rows.paths):
            key = path.replace(b"/", b"\0")  # a/ comes before a-b/, as in FileTable.in_order
            ordered = ordered and last <= key
            last = key
        self._seen[folder] = images + len(rows), ordered, last
        self._keep(folder, rows)

    def end(self, folder: str, skipped: SkippedFiles, **more: Any) -> None:
        """Mark a folder as fully listed."""
        images, ordered, _ = self._seen.pop(folder, (0, True, b""))
        end = End(images, ordered, skipped, more)
        self._finish(folder, end)
        self.ends[folder] = end

    def rows(self, folder: str) -> Iterator[FileTable]:
        """The images of a folder that has ended, in order, in pieces. To be asked for once."""
        parts = self._pieces(folder)
        yield from parts if self.ends[folder].ordered else [FileTable.joined([*parts]).in_order()]

    @abstractmethod
    def _keep(self, folder: str, rows: FileTable) -> None: ...

    @abstractmethod
    def _finish(self, folder: str, end: End) -> None: ...

    @abstractmethod
    def _pieces(self, folder: str) -> Iterable[FileTable]: ...


class MemoryJournal(Journal):
    """A listing held in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._parts = defaultdict[str, list[FileTable]](list)

    def _keep(self, folder: str, rows: FileTable) -> None:
        self._parts[folder].append(rows)

    def _finish(self, folder: str, end: End) -> None: ...

    def _pieces(self, folder: str) -> Iterable[FileTable]:
        return self._parts.pop(folder, [])


@dataclass(frozen=True, slots=True)
class _JournalEntry:
    """Location of a record in the file."""

    start: int
    head: int  # bytes
    body: int

    @property
    def stop(self) -> int:
        return self.start + _RECORD.size + self.head + self.body


class FileJournal(Journal):
    """A listing appended to a file.

    `kind` says what is listed; a file about something else is left as it is, with a SourceError.
    """

    def __init__(self, path: str, kind: dict[str, Any]) -> None:
        super().__init__()
        self.path = path
        self._at: dict[str, list[_JournalEntry]] = {}  # the pieces of each folder
        self._waiting: dict[str, list[FileTable]] = {}  # too few for a piece
        self._lock = threading.Lock()
        self._fd = open_file(path, CREATE)
        try:
            _lock(self._fd)
            self._size = self._recall(kind)
            os.ftruncate(self._fd, self._size)
            if not self._size:
                self._size = pwrite(self._fd, _MAGIC, 0)
            # when resuming, too: earlier rows of unfinished folders no longer count
            self._write(kind)
        except BlockingIOError:
            os.close(self._fd)
            raise SourceError(
                f"{path} is being written by another process; write to another place"
            ) from None
        except BaseException:  # Ctrl-C, too: no one else closes the descriptor; raised again
            os.close(self._fd)
            raise

    def _recall(self, kind: dict[str, Any]) -> int:
        """Read what earlier processes wrote; returns the size up to which the file is valid."""
        unfinished: dict[str, list[_JournalEntry]] = {}
        with open(open_regular(self.path), "rb") as file:
            magic = file.read(len(_MAGIC))
            if magic != _MAGIC:
                if not _MAGIC.startswith(magic):
                    raise SourceError(
                        f"{self.path} is not an unfinished listing of this version; "
                        "move it away, or write to another place"
                    )
                return 0
            valid_size = file.tell()
            for entry, head in _records(file):
                if "rows" in head:
                    unfinished.setdefault(head["folder"], []).append(entry)
                elif "images" in head:
                    skipped = SkippedFiles(Counter(head["left_out"]), head["examples"])
                    end = End(head["images"], head["ordered"], skipped, head["more"])
                    self.ends[head["folder"]] = end
                    self._at[head["folder"]] = unfinished.pop(head["folder"], [])
                elif head == kind:
                    unfinished.clear()
                else:
                    raise SourceError(
                        f"{self.path} holds an unfinished listing of something else:"
                        f" {json.dumps(head)}, this one is {json.dumps(kind)}; write to another"
                        " place, or delete it"
                    )
                valid_size = entry.stop
        return valid_size

    def _keep(self, folder: str, rows: FileTable) -> None:
        waiting = self._waiting.setdefault(folder, [])
        waiting.append(rows)
        if sum(map(len, waiting)) >= ROWS:
            self._flush(folder)

    def _finish(self, folder: str, end: End) -> None:
        self._flush(folder)
        self._write(
            {
                "folder": folder,
                "images": end.images,
                "ordered": end.ordered,
                "more": end.more,
                "left_out": end.skipped.counts,
                "examples": end.skipped.examples,
            }
        )

    def _pieces(self, folder: str) -> Iterable[FileTable]:
        return (self._read(entry) for entry in self._at.pop(folder, []))

    def close(self, done: bool = False) -> None:
        """Let go of the file; `done`: it is not needed any more."""
        if done:
            os.unlink(self.path)
        os.close(self._fd)

    def _flush(self, folder: str) -> None:
        rows = FileTable.joined(self._waiting.pop(folder, []))
        if not len(rows):
            return
        assert rows.sizes is not None and rows.versions is not None
        arrays = (rows.paths.ends, rows.sizes, rows.versions.ends)
        body = b"".join(array.tobytes() for array in (*arrays, rows.paths.blob, rows.versions.blob))
        head = {"folder": folder, "rows": len(rows), "paths": len(rows.paths.blob)}
        entry = self._write(head, body)
        self._at.setdefault(folder, []).append(entry)

    def _write(self, head: dict[str, Any], body: bytes = b"") -> _JournalEntry:
        text = json.dumps(head).encode()
        data = memoryview(
            _RECORD.pack(len(text), len(body), zlib.crc32(body, zlib.crc32(text))) + text + body
        )
        with self._lock:
            entry = _JournalEntry(self._size, len(text), len(body))
            while data:
                written = pwrite(self._fd, data, self._size)
                self._size += written
                data = data[written:]
        return entry

    def _read(self, entry: _JournalEntry) -> FileTable:
        data = pread(self._fd, entry.head + entry.body, entry.start + _RECORD.size)
        head = json.loads(data[: entry.head])
        body = data[entry.head :]
        n = head["rows"]
        ends, sizes, version_ends = (np.frombuffer(body, np.int64, n, 8 * n * i) for i in range(3))
        paths, versions = np.split(np.frombuffer(body, np.uint8, offset=24 * n), [head["paths"]])
        return FileTable(StringColumn(paths, ends), sizes, StringColumn(versions, version_ends))


def folders_listed(path: str) -> tuple[int, int]:
    """Folders listed so far and folders in all; 0, 0 without an unfinished listing."""
    listed = -1
    folders = 0
    try:
        with open(open_regular(path), "rb") as file:
            file.seek(len(_MAGIC))
            for _, head in _records(file):
                listed += "images" in head
                folders = (
                    len(head["more"].get("folders", ())) or folders if "images" in head else folders
                )
    except OSError:
        pass
    return max(listed, 0), folders


def _records(file: BinaryIO) -> Iterator[tuple[_JournalEntry, dict[str, Any]]]:
    """Read records up to the first damaged one."""
    size = os.fstat(file.fileno()).st_size
    while len(lengths := file.read(_RECORD.size)) == _RECORD.size:
        head, body, checksum = _RECORD.unpack(lengths)
        entry = _JournalEntry(file.tell() - _RECORD.size, head, body)
        if entry.stop > size or zlib.crc32(data := file.read(head + body)) != checksum:
            return
        yield entry, json.loads(data[:head])


def _lock(fd: int) -> None:
    """BlockingIOError if another process writes the file."""
    try:
        lock(fd, wait=False)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
