"""Where every sample lies in its shard: built once by looking through the shards, then mapped into memory.

The file: magic, length of the header, header (JSON: the shards with size and version, their samples, notes), then for
all samples offset (int64), length (uint32), label (int32) and the end of the name (uint32), then all names. It is
written under another name first; nobody sees half of one.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.sources.storage import Stat

__all__ = ["Found", "Index", "Section", "load", "save", "sections"]

_MAGIC = b"fastfeed index 1\n"
_COLUMNS = (("offsets", np.int64), ("lengths", np.uint32), ("labels", np.int32), ("ends", np.uint32))


@dataclass(slots=True)
class Found:
    """What a look through one shard finds."""

    offsets: list[int] = field(default_factory=list)  # of each sample's bytes
    lengths: list[int] = field(default_factory=list)
    labels: list[int | str | None] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what is damaged or was left out, with its offset

    def add(self, offset: int, length: int, label: int | str | None, name: bytes) -> None:
        """One sample."""
        self.offsets.append(offset)
        self.lengths.append(length)
        self.labels.append(label)
        self.names.append(name)


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """One shard's part of an index."""

    uri: str
    stat: Stat
    columns: dict[str, np.ndarray]  # by the names of _COLUMNS, n entries each; label -1: none
    names: bytes  # of all samples, one after another
    texts: tuple[str, ...] | None  # what the labels count, where they are texts
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, uri: str, stat: Stat, found: Found) -> Section:
        """Pack what was found."""
        texts: tuple[str, ...] | None = None
        labels: Sequence[Any] = found.labels
        if any(isinstance(label, str) for label in labels):
            texts = tuple(sorted({str(label) for label in labels if label is not None}))
            code = {text: i for i, text in enumerate(texts)}
            labels = [None if label is None else code[str(label)] for label in labels]
        values = (
            found.offsets,
            found.lengths,
            [-1 if label is None else label for label in labels],
            np.cumsum([len(name) for name in found.names], dtype=np.int64),
        )
        columns = {name: np.array(v, kind) for (name, kind), v in zip(_COLUMNS, values, strict=True)}
        return cls(uri, stat, columns, b"".join(found.names), texts, tuple(found.notes))

    def __len__(self) -> int:
        return len(self.columns["offsets"])


class Index:
    """All shards' samples, numbered in the order of the shards. Arrays lie in the file until they are touched."""

    def __init__(self, header: dict[str, Any], columns: dict[str, np.ndarray], names: np.ndarray) -> None:
        shards = header["shards"]
        self.kind: str = header["kind"]
        self.uris = [shard["uri"] for shard in shards]
        self.stats = [Stat(shard["size"], shard["version"]) for shard in shards]
        self.texts = [None if shard["texts"] is None else tuple(shard["texts"]) for shard in shards]
        self.notes = [tuple(shard["notes"]) for shard in shards]
        self.bounds = np.cumsum([0] + [shard["samples"] for shard in shards], dtype=np.int64)
        self.offsets, self.lengths = columns["offsets"], columns["lengths"]
        self.labels, self._ends = columns["labels"], columns["ends"]
        self._names = names
        self._starts = np.cumsum([0] + [shard["names"] for shard in shards], dtype=np.int64)  # of the shards' names

    def __len__(self) -> int:
        return len(self.offsets)

    def shard_of(self, i: int) -> int:
        """The shard that sample i lies in."""
        return int(np.searchsorted(self.bounds, i, side="right")) - 1

    def name(self, i: int) -> str:
        """The sample's name in its shard."""
        shard = self.shard_of(i)
        first = 0 if i == self.bounds[shard] else int(self._ends[i - 1])
        start = int(self._starts[shard])
        return self._names[start + first : start + int(self._ends[i])].tobytes().decode("utf-8", "surrogateescape")

    def names(self) -> Iterable[np.ndarray]:
        """All names, and where each ends, to compute a fingerprint of."""
        return (self._names, self._ends)

    def section(self, shard: int) -> Section:
        """One shard's part."""
        rows = slice(int(self.bounds[shard]), int(self.bounds[shard + 1]))
        arrays = (self.offsets, self.lengths, self.labels, self._ends)
        columns = {name: array[rows] for (name, _), array in zip(_COLUMNS, arrays, strict=True)}
        names = self._names[int(self._starts[shard]) : int(self._starts[shard + 1])].tobytes()
        return Section(self.uris[shard], self.stats[shard], columns, names, self.texts[shard], self.notes[shard])


def save(path: Path, kind: str, parts: Sequence[Section]) -> None:
    """Write an index, whole or not at all. OSError."""
    shards = [
        {"uri": p.uri, "size": p.stat.size, "version": p.stat.version, "samples": len(p), "names": len(p.names),
         "texts": p.texts, "notes": p.notes} for p in parts
    ]  # fmt: skip
    header = json.dumps({"kind": kind, "shards": shards}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(prefix=path.name + ".", suffix=".new", dir=path.parent)
    try:
        with open(fd, "wb") as file:
            file.write(_MAGIC + len(header).to_bytes(8, "little") + zlib.crc32(header).to_bytes(4, "little") + header)
            file.write(bytes(-file.tell() % 64))
            for name, _ in _COLUMNS:
                for part in parts:
                    file.write(np.ascontiguousarray(part.columns[name]).data)
            for part in parts:
                file.write(part.names)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes it the owner's alone
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: Path) -> Index | None:
    """An index from its file; None where there is none, or the file is damaged."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC) + 12)
            length = int.from_bytes(start[-12:-4], "little")
            size = os.fstat(file.fileno()).st_size
            if not start.startswith(_MAGIC) or len(start) < len(_MAGIC) + 12 or length > size:
                return None
            text = file.read(length)
            if zlib.crc32(text) != int.from_bytes(start[-4:], "little"):
                return None
            header = json.loads(text)
            at = file.tell() + -file.tell() % 64
            samples = sum(shard["samples"] for shard in header["shards"])
            names = sum(shard["names"] for shard in header["shards"])
            if size != at + samples * sum(np.dtype(kind).itemsize for _, kind in _COLUMNS) + names:
                return None
            whole = np.memmap(file, np.uint8, "r") if size > at else np.empty(0, np.uint8)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    columns: dict[str, np.ndarray] = {}
    for name, kind in _COLUMNS:
        end = at + samples * np.dtype(kind).itemsize
        columns[name] = np.asarray(whole[at:end]).view(kind)
        at = end
    return Index(header, columns, np.asarray(whole[at:]))


def sections(folder: Path, kind: str) -> dict[tuple[str, Stat], tuple[Index, int]]:
    """What the indexes of this kind in a folder know, by shard and version."""
    known: dict[tuple[str, Stat], tuple[Index, int]] = {}
    try:
        files = sorted(folder.glob("*.ffindex"), key=lambda file: file.stat().st_mtime)
    except OSError:
        return known
    for file in files:
        index = load(file)
        if index is not None and index.kind == kind:
            known |= {key: (index, i) for i, key in enumerate(zip(index.uris, index.stats, strict=True))}
    return known
