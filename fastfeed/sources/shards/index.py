"""The index of all samples in shards: built once by scanning these, then loaded.

The file: magic, length of the header, CRC-32 of the header, CRC-32 of all behind it; the header
(JSON: the texts that labels count; the shards with size and version, their samples, notes); zeros
up to a multiple of 64; then for all samples the columns of _COLUMNS, one after another, all names,
and all labels that are bytes. It is committed by atomic rename.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.runtime.atomic_write import atomic_write
from fastfeed.storage.reads import Stat
from fastfeed.storage.shard_files import LazyBytes, OpenFile, budget, iter_chunks, open_count
from fastfeed.system.descriptors import open_regular

_FAMILY = b"fastfeed index "
_MAGIC = _FAMILY + b"1\n"
_START = struct.Struct(f"<{len(_MAGIC)}sQII")
_COLUMNS = (
    ("offsets", np.int64),  # of each sample's bytes in its shard
    ("lengths", np.uint32),
    ("checks", np.uint32),  # of what shows at a read that the shard is still the same; 0: nothing
    ("labels", np.int32),  # -1: none; of labels that are bytes their length
    # of each name, in the names of its shard; like names and bytes, it stays in the file
    ("ends", np.uint32),
)
_READ = 4 << 20  # bytes
NOWHERE = 1 << 62  # an offset that no shard has

ScannedLabel = int | str | bytes | None  # bytes: what `pack_label` makes of a value


@dataclass(slots=True)
class ShardScan:
    """The result of scanning one shard."""

    offsets: list[int] = field(default_factory=list)  # of each sample's bytes
    lengths: list[int] = field(default_factory=list)
    labels: list[ScannedLabel] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    # what is damaged or was left out, with its offset
    notes: list[str] = field(default_factory=list)
    checks: list[int] = field(default_factory=list)  # 32 bits that identify a sample's content

    def add(
        self, offset: int, length: int, label: ScannedLabel, name: bytes, check: int = 0
    ) -> None:
        """Append one sample to the scan."""
        self.offsets.append(offset)
        self.lengths.append(length)
        self.labels.append(label)
        self.names.append(name)
        self.checks.append(check)


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """One shard's part of an index."""

    uri: str
    stat: Stat
    columns: dict[str, np.ndarray]  # by the names of _COLUMNS, n entries each
    names: bytes  # of all samples, one after another
    texts: tuple[str, ...] | None  # what the labels count, where they are texts
    notes: tuple[str, ...] = ()
    values: bytes = b""  # labels that are bytes, one after another

    @classmethod
    def of(cls, uri: str, stat: Stat, scan: ShardScan) -> Section:
        """Pack the result of a scan."""
        texts: tuple[str, ...] | None = None
        labels: Sequence[Any] = scan.labels
        values = [label for label in labels if isinstance(label, bytes)]
        if values:
            labels = [len(label) if isinstance(label, bytes) else None for label in labels]
        if any(isinstance(label, str) for label in labels):
            texts = tuple(sorted({str(label) for label in labels if label is not None}))
            code = {text: i for i, text in enumerate(texts)}
            labels = [None if label is None else code[str(label)] for label in labels]
        arrays = (
            scan.offsets,
            scan.lengths,
            scan.checks,
            [-1 if label is None else label for label in labels],
            np.cumsum([len(name) for name in scan.names], dtype=np.int64),
        )
        columns = {
            name: np.array(v, kind) for (name, kind), v in zip(_COLUMNS, arrays, strict=True)
        }
        names = b"".join(scan.names)
        notes = tuple(scan.notes)
        return cls(uri, stat, columns, names, texts, notes, b"".join(values))

    def __len__(self) -> int:
        return len(self.columns["offsets"])


class Index:
    """All shards' samples, numbered in the order of the shards."""

    def __init__(
        self,
        header: dict[str, Any],
        columns: dict[str, np.ndarray],  # without ends
        ends: bytes | LazyBytes,
        names: bytes | LazyBytes,
        values: bytes | LazyBytes,
        path: Path | None = None,
    ) -> None:
        shards = header["shards"]
        self.path = path  # of its file; None: in memory only
        self.kind: str = header["kind"]
        self.uris = [shard["uri"] for shard in shards]
        self.stats = [Stat(shard["size"], shard["version"]) for shard in shards]
        self.texts: tuple[str, ...] = tuple(header["texts"])  # sorted
        # labels count texts; else: are numbers
        self.has_texts: list[bool] = [shard["worded"] for shard in shards]
        self.notes = [tuple(shard["notes"]) for shard in shards]
        self.bounds = np.cumsum([0] + [shard["samples"] for shard in shards], dtype=np.int64)
        self.offsets = columns["offsets"]
        self.lengths = columns["lengths"]
        self.checks = columns["checks"]
        self.labels = columns["labels"]
        self._ends = ends
        self._names = names
        self.values = values  # labels that are bytes, one after another
        # of the shards' names
        self._starts = np.cumsum([0] + [shard["names"] for shard in shards], dtype=np.int64)
        sizes = [shard.get("values", 0) for shard in shards]
        self._value_starts = np.cumsum([0, *sizes], dtype=np.int64)

    @classmethod
    def of(cls, kind: str, parts: Sequence[Section]) -> Index:
        """Index in memory, without a file."""
        header, parts = _header(kind, parts)
        columns = {
            name: np.concatenate([part.columns[name] for part in parts]) for name, _ in _COLUMNS
        }
        ends = columns.pop("ends").tobytes()
        names = (part.names for part in parts)
        values = (part.values for part in parts)
        return cls(header, columns, ends, b"".join(names), b"".join(values))

    def __len__(self) -> int:
        return len(self.offsets)

    def find_shard(self, i: int) -> int:
        """Number of the shard that holds sample i."""
        return int(self.find_shards(i))

    def find_shards(self, ids: Any) -> np.ndarray:
        """Numbers of the shards that hold these samples."""
        return np.searchsorted(self.bounds, ids, side="right") - 1

    def name(self, i: int) -> str:
        """The sample's name in its shard."""
        shard = self.find_shard(i)
        ends = self._name_ends(max(i - 1, 0), i + 1)
        first = 0 if i == self.bounds[shard] else int(ends[0])
        start = int(self._starts[shard])
        return self._names[start + first : start + int(ends[-1])].decode("utf-8", "surrogateescape")

    def read_names(self, ids: np.ndarray) -> list[str]:
        """Names of samples, which are read shard by shard."""
        names = [""] * len(ids)
        shards = self.find_shards(ids)
        order = np.argsort(shards, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(shards[order])) + 1):
            if not len(rows):
                continue
            shard = int(shards[rows[0]])
            first, last = self.bounds[shard : shard + 2].tolist()
            start, stop = self._starts[shard : shard + 2].tolist()
            text = self._names[start:stop]
            ends = [0, *self._name_ends(first, last).tolist()]
            for row, k in zip(rows.tolist(), (ids[rows] - first).tolist(), strict=True):
                names[row] = text[ends[k] : ends[k + 1]].decode("utf-8", "surrogateescape")
        return names

    def names(self) -> Iterable[bytes]:
        """All names and their ends, the input of a fingerprint."""
        return chain(iter_chunks(self._names), iter_chunks(self._ends))

    def _name_ends(self, first: int, last: int) -> np.ndarray:
        return np.frombuffer(self._ends[4 * first : 4 * last], np.uint32)

    def section(self, shard: int) -> Section:
        """Part of the index for one shard."""
        first = int(self.bounds[shard])
        last = int(self.bounds[shard + 1])
        arrays = (
            array[first:last] for array in (self.offsets, self.lengths, self.checks, self.labels)
        )
        columns = {
            name: array
            for (name, _), array in zip(
                _COLUMNS, (*arrays, self._name_ends(first, last)), strict=True
            )
        }
        names = self._names[int(self._starts[shard]) : int(self._starts[shard + 1])]
        texts = self.texts if self.has_texts[shard] else None
        values = self.values[int(self._value_starts[shard]) : int(self._value_starts[shard + 1])]
        return Section(
            self.uris[shard], self.stats[shard], columns, names, texts, self.notes[shard], values
        )


def save(path: Path, kind: str, parts: Sequence[Section]) -> None:
    """Write an index atomically. OSError."""
    content, parts = _header(kind, parts)
    header = json.dumps(content).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(bytes(_START.size) + header)
        check = 0
        for piece in _body(-file.tell() % 64, parts):
            file.write(piece)
            check = zlib.crc32(piece, check)
        file.seek(0)
        file.write(_START.pack(_MAGIC, len(header), zlib.crc32(header), check))


def _header(kind: str, parts: Sequence[Section]) -> tuple[dict[str, Any], list[Section]]:
    """Header, and the sections with labels that refer to common texts."""
    worded = [
        (part.texts, np.unique(part.columns["labels"]).tolist())
        for part in parts
        if part.texts is not None
    ]
    texts = tuple(sorted({own[i] for own, used in worded for i in used if i >= 0}))
    code = {text: i for i, text in enumerate(texts)}
    tables: dict[int, np.ndarray] = {}
    aligned: list[Section] = []
    for part in parts:
        if part.texts is None:
            aligned.append(part)
        else:
            table = tables.get(id(part.texts))
            if table is None:  # -1, no label, takes the last
                table = tables[id(part.texts)] = np.array(
                    [code.get(text, -1) for text in part.texts] + [-1], np.int32
                )
            columns = part.columns | {"labels": table[part.columns["labels"]]}
            aligned.append(replace(part, columns=columns, texts=texts))
    shards = [
        {
            "uri": p.uri,
            "size": p.stat.size,
            "version": p.stat.version,
            "samples": len(p),
            "names": len(p.names),
            "worded": p.texts is not None,
            "notes": p.notes,
            "values": len(p.values),
        }
        for p in aligned
    ]
    return {"kind": kind, "texts": texts, "shards": shards}, aligned


def _body(padding: int, parts: Sequence[Section]) -> Iterator[bytes]:
    yield bytes(padding)
    for name, _ in _COLUMNS:
        for part in parts:
            yield part.columns[name].tobytes()
    for part in parts:
        yield part.names
    for part in parts:
        yield part.values


def load(
    path: Path, kind: str | None = None, of: Set[tuple[str, Stat]] | None = None
) -> Index | None:
    """Load an index; None if missing, damaged, of another kind, or without shards `of` these."""
    try:
        with open(open_regular(path), "rb") as file:
            magic, length, header_check, check = _START.unpack(file.read(_START.size))
            size = os.fstat(file.fileno()).st_size
            if magic != _MAGIC or length > size:
                return None
            text = file.read(length)
            if zlib.crc32(text) != header_check:
                return None
            header = json.loads(text)
            _check_header(header, size)
            own = {
                (shard["uri"], Stat(shard["size"], shard["version"])) for shard in header["shards"]
            }
            if (kind is not None and header["kind"] != kind) or (of is not None and not own & of):
                return None
            crc = zlib.crc32(file.read(-file.tell() % 64))
            samples = sum(s["samples"] for s in header["shards"])
            if samples > size:
                return None
            columns = {name: np.empty(samples, dtype) for name, dtype in _COLUMNS if name != "ends"}
            for column in columns.values():
                file.readinto(column.data)
                crc = zlib.crc32(column.data, crc)
            begin = file.tell()
            kept = b""
            while piece := file.read(_READ):
                crc = zlib.crc32(piece, crc)
                kept = piece if size - begin <= _READ else b""
            names = begin + 4 * samples
            if crc != check or names > size or not _fit(header, columns, size - names):
                return None
            values = names + sum(shard["names"] for shard in header["shards"])
            if kept and open_count() * 2 >= budget():
                # of very many sources: their files do not stay open
                cuts = names - begin, values - begin
                pieces = kept[: cuts[0]], kept[slice(*cuts)], kept[cuts[1] :]
                return Index(header, columns, *pieces, path)
            data = OpenFile(path)
            if not os.path.samestat(os.fstat(data.fd), os.fstat(file.fileno())):
                # replaced meanwhile
                return load(path, kind, of)
            return Index(
                header,
                columns,
                LazyBytes(data, begin, 4 * samples),
                LazyBytes(data, names, values - names),
                LazyBytes(data, values, size - values),
                path,
            )
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        struct.error,
    ):
        return None


def _check_header(header: dict[str, Any], size: int) -> None:
    """Raise ValueError for types or numbers that `save` does not write."""
    for shard in header["shards"]:
        numbers = (shard["size"], shard["samples"], shard["names"], shard.get("values", 0))
        texts = (shard["uri"], shard["version"])
        if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
            raise ValueError("a number is none, or out of range")
        if max(numbers[1:]) > size or type(shard["worded"]) is not bool:
            raise ValueError("more samples than bytes")
        if not all(type(text) is str for text in (*texts, *shard["notes"])):
            raise ValueError("a text is something else")
    if type(header["kind"]) is not str or not all(type(text) is str for text in header["texts"]):
        raise ValueError("a text is something else")


def _fit(header: dict[str, Any], columns: dict[str, np.ndarray], texts: int) -> bool:
    """Return True if labels and the length of names and labels that are bytes fit the header.

    A sample with an invalid offset is one bad sample: it gets NOWHERE as its offset.
    """
    first = 0
    labels = columns["labels"]
    offsets = columns["offsets"]
    for shard in header["shards"]:
        own = labels[first : first + shard["samples"]]
        first += shard["samples"]
        if len(own) and (
            int(own.min()) < -1 or (shard["worded"] and int(own.max()) >= len(header["texts"]))
        ):
            return False
        values = shard.get("values", 0)
        if values and int(np.maximum(own, 0).sum(dtype=np.int64)) != values:
            return False
    offsets[(offsets < 0) | (offsets > NOWHERE)] = NOWHERE
    return sum(shard["names"] + shard.get("values", 0) for shard in header["shards"]) == texts


def sections(
    files: Iterable[Path], kind: str, of: Set[tuple[str, Stat]]
) -> dict[tuple[str, Stat], tuple[Index, int]]:
    """Locations of shards in indexes of this kind, by shard and version."""
    matches: dict[tuple[str, Stat], tuple[Index, int]] = {}
    for file in files:
        index = load(file, kind, of)
        if index is not None:
            matches |= {
                key: (index, i)
                for i, key in enumerate(zip(index.uris, index.stats, strict=True))
                if key in of
            }
    return matches


def is_index(path: Path) -> bool:
    """Return True if the file is missing or an index, of any version: it may be overwritten."""
    try:
        with open(open_regular(path), "rb") as file:
            return _FAMILY.startswith(file.read(len(_FAMILY)))
    except OSError as error:
        return isinstance(error, (FileNotFoundError, NotADirectoryError))


_NOTES = 50  # kept per shard


def limited(notes: list[str]) -> list[str]:
    """The first notes, and the last: it says how far a shard could be read."""
    more = len(notes) - _NOTES
    return [*notes[: _NOTES - 1], f"and {more} more", notes[-1]] if more > 0 else notes
