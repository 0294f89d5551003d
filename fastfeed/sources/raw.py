"""Pixels in .npy files, one array per shard, as `fastfeed preprocess --format raw` writes them."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.runtime.addresses import FileRanges
from fastfeed.sources.base import sample_or_failure
from fastfeed.sources.column_arrays import as_array
from fastfeed.sources.label_values import MOST_CLASSES, LabelArray, LabelValues, MultiHot
from fastfeed.sources.methods import SourceMethods
from fastfeed.sources.notes import summary, with_notes
from fastfeed.sources.shards.base import Paths
from fastfeed.sources.shards.extra_columns import column_names, npy_header, npy_start
from fastfeed.sources.shards.labels import checked_classes
from fastfeed.spec import Spec
from fastfeed.storage.expand import find_files, stat_file
from fastfeed.storage.fingerprint import fingerprint
from fastfeed.storage.reads import Unread, readable
from fastfeed.storage.shard_files import ShardReader
from fastfeed.storage.storage import Storage, open_storage

_LABELS = ".labels.npy"
_HEAD = 64 << 10  # bytes: a header is far shorter
_META = ".meta.jsonl"
_PARTS = ("text", "meta")  # the caption, and all metadata


@checked_early
class RawShards(SourceMethods):
    """Images as decoded pixels: `.npy` files of uint8 (n, height, width, 3 or 1), all of one size.

    As `fastfeed preprocess --format raw` writes them. Labels are in `NAME.labels.npy` next to
    `NAME.npy`, int64 (n,), -1 for none; without that file no image of the shard has one. Those of
    several classes per image are int64 (n, most), with -1 after the last, and are read as multi-hot
    vectors: float32 (n, classes). Other arrays next to it, `NAME.*.npy`, are not read.

    Args:
        shards (str | os.PathLike[str] | Sequence): A folder, a file, a pattern, or a list of these,
            local or remote (`s3://...`).
        classes (Sequence[str | int]): Names by label. Default: ().
        columns (Sequence[str]): Metadata columns that are carried to the batch, by name, from
            `NAME.meta.jsonl`; "text" is the caption, "meta" all metadata. Default: ().
        storage (dict[str, Any] | Storage | None): Options for fsspec (key, secret, endpoint_url,
            anon ...), or a Storage that several sources share. Default: None.

    Raises:
        ConfigError: If an argument is wrong.
        SourceError: If shards cannot be read, differ in size, or have a label without a name.

    Example:
        >>> ff.RawShards("raw")
        RawShards(raw/shard-000000.npy and 1 more): 8 images, HWC uint8[20, 30, 3]
    """

    def __init__(
        self,
        shards: Paths,
        *,
        classes: Sequence[str | int] = (),
        columns: Sequence[str] = (),
        storage: dict[str, Any] | Storage | None = None,
    ) -> None:
        self.classes = checked_classes(classes, "RawShards") or ()
        own = open_storage(storage)
        self.notes: list[str] = []  # on what folders hold besides shards
        found = find_files(shards, ".npy", own, "RawShards", self.notes)
        names = {uri for uri, _ in found}
        own_files = [(uri, stat) for uri, stat in found if not uri.endswith(_LABELS)]
        files = [(uri, stat) for uri, stat in own_files if _main_shard(uri) not in names]
        others = [uri for uri, _ in own_files if _main_shard(uri) in names]
        self.notes += [f"left out {uri}: an array of {_main_shard(uri)}" for uri in others]
        if not files:
            raise SourceError(f"RawShards: no images in {shards}, only {_LABELS}")
        self._shards = ShardReader([uri for uri, _ in files], [stat for _, stat in files], own)
        heads = [_header(self._shards, k) for k in range(len(files))]
        full = [head for head in heads if head[1][0]] or heads[:1]
        self._size = full[0][1][1:]
        for (uri, _), (_, shape) in zip(files, heads, strict=True):
            if shape[0] and shape[1:] != self._size:
                raise SourceError(
                    f"RawShards: images of {uri} are {_text(shape[1:])}, those before"
                    f" {_text(self._size)}; all must have one size"
                )
        self._starts = np.array([start for start, _ in heads], np.int64)
        self._bounds = np.cumsum([0] + [shape[0] for _, shape in heads], dtype=np.int64)
        self._bytes = int(np.prod(self._size))
        self.spec = Spec(self._size, "uint8", "HWC")
        self._labels = _joined(
            [_labels(uri, shape[0], own) for (uri, _), (_, shape) in zip(files, heads, strict=True)]
        )
        self._targets: LabelValues = LabelArray(self._labels)
        if self._labels.ndim == 2:
            held = self._labels >= 0
            most = len(self.classes) or int(self._labels.max(initial=-1)) + 1
            self._targets = MultiHot(self._labels[held], np.cumsum(held.sum(axis=1)), most)
        self.label_spec = self._targets.spec
        if self.classes and int(self._labels.max(initial=-1)) >= len(self.classes):
            raise SourceError(
                f"RawShards: label {self._labels.max()}, but there are {len(self.classes)} classes"
            )
        if int(self._labels.min(initial=-1)) < -1:
            raise SourceError(
                f"RawShards: label {self._labels.min()}; labels are >= 0, or -1 for none"
            )
        if int(self._labels.max(initial=-1)) >= MOST_CLASSES:
            raise SourceError(
                f"RawShards: label {self._labels.max()}; class numbers are below {MOST_CLASSES:,}"
            )
        if not len(self):
            raise SourceError(
                f"RawShards: no images in {len(files)} shards, the first is {files[0][0]}"
            )
        names = column_names(columns, "RawShards")
        self._columns = RawColumns(self._shards.uris, names, own) if names else None
        self._fingerprint = ""

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def uri(self, i: int) -> str:
        """Shard and row of a sample: `shard-000002.npy#17`."""
        shard = self._shard_index(int(i))
        return f"{self._shards.uris[shard]}#{int(i) - int(self._bounds[shard])}"

    def _shard_index(self, i: int) -> int:
        return int(np.searchsorted(self._bounds, i, side="right")) - 1

    def _byte_range(self, i: int) -> tuple[int, int, int]:
        shard = self._shard_index(i)
        start = int(self._starts[shard]) + (i - int(self._bounds[shard])) * self._bytes
        return shard, start, start + self._bytes

    def read(self, ids: Sequence[int]) -> list[Any]:
        """The images: uint8 (height, width, 3 or 1)."""
        ranges = [self._byte_range(int(i)) for i in ids]
        if self._shards.remote:
            results: list[Any] = [pending.result() for pending in self._shards.fetch_all(ranges)]
        else:
            results = [self._shards.read(*bounds) for bounds in ranges]
        return [self._to_sample(int(i), data) for i, data in zip(ids, results, strict=True)]

    def addresses(self, ids: np.ndarray) -> FileRanges | None:
        """Pixels in local shards; None for remote ones."""
        shards = np.searchsorted(self._bounds, ids, side="right") - 1
        firsts = self._starts[shards] + (ids - self._bounds[shards]) * self._bytes
        height, width, _ = self._size
        return self._shards.ranges(shards, firsts, firsts + self._bytes, size=(height, width))

    def _to_sample(self, i: int, data: bytes | Unread) -> np.ndarray | Failure:
        if isinstance(data, Unread):
            return Failure(i, self.uri(i), "read", data.reason, data.detail, self._byte_range(i)[1])
        return np.frombuffer(data, np.uint8).reshape(self._size)

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Labels: int64, shape (len(ids),), -1 for none; or multi-hot, as `label_spec` says."""
        return self._targets.take(ids)

    @property
    def fingerprint(self) -> str:
        """Hash of labels, file names, sizes and some pixels; computed on first use."""
        if not self._fingerprint:
            names = [
                os.path.basename(uri).encode("utf-8", "surrogateescape") + b"\0"
                for uri in self._shards.uris
            ]
            classes = "\0".join(self.classes).encode("utf-8", "surrogateescape")
            labels = (classes, repr(self._size).encode(), np.ascontiguousarray(self._labels).data)
            self._fingerprint = fingerprint(len(self), names, labels, self._content)
        return self._fingerprint

    def _content(self, first: int, last: int) -> list[Any]:
        rows = sorted(
            {first, *range(first, last, max(1, (last - first) // 16)), last - 1}
            if last > first
            else ()
        )
        return [x.data if isinstance(x, np.ndarray) else x.reason.encode() for x in self.read(rows)]

    # -- Annotated

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Columns by name: objects, "" for a missing value."""
        if self._columns is None:
            return {}
        rows = self._column_rows(np.asarray(ids).tolist())
        return {name: as_array([row[name] for row in rows]) for name in self._columns.names}

    def column_values(self, ids: Sequence[int]) -> list[dict[str, Any]] | None:
        """Columns by name; None or a Failure for a missing value.

        None in place of the list: there are no columns.
        """
        if self._columns is None:
            return None
        rows = self._column_rows(ids)
        return [
            {name: sample_or_failure(self, int(i), value) for name, value in row.items()}
            for i, row in zip(ids, rows, strict=True)
        ]

    def _column_rows(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        assert self._columns is not None
        shards = [self._shard_index(int(i)) for i in ids]
        return [
            self._columns.values(shard, int(i) - int(self._bounds[shard]))
            for i, shard in zip(ids, shards, strict=True)
        ]

    # -- Sharded

    @property
    def bounds(self) -> np.ndarray:
        """First id of every shard, and the number of samples last: int64, shape (shards + 1,)."""
        return self._bounds

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Bytes of each sample: int64, shape (len(ids),)."""
        return np.full(len(ids), self._bytes, np.int64)

    def shard(self, unit: int) -> str:
        """Path or address of a shard."""
        return self._shards.uris[unit]

    def __str__(self) -> str:
        return with_notes(repr(self), self.notes)

    def __repr__(self) -> str:
        return f"{summary('RawShards', self._shards.uris, len(self), self.classes)}, {self.spec}"


def _text(size: tuple[int, ...]) -> str:
    return " x ".join(map(str, size))


def _header(shards: ShardReader, k: int) -> tuple[int, tuple[int, ...]]:
    """Offset of the pixels, and the shape (n, height, width, channels). SourceError."""
    uri = shards.uris[k]
    size = shards.stats[k].size
    start, shape, kind = _npy(shards.read(k, 0, min(size, _HEAD)), uri)
    if kind != "|u1" or len(shape) != 4 or shape[3] not in (1, 3) or (shape[0] and 0 in shape):
        raise SourceError(
            f"RawShards: {uri} holds {kind} {shape}; uint8 (n, height, width, 3 or 1) is needed"
        )
    if start + int(np.prod(shape, dtype=object)) != size:
        raise SourceError(
            f"RawShards: {uri} has {size} bytes, its header announces {start} + {_text(shape)}"
        )
    return start, shape


def _npy(data: bytes | Unread, uri: str) -> tuple[int, tuple[int, ...], str]:
    """Offset of the content, shape and dtype of a file of NumPy. SourceError."""
    content = readable(data, uri, "RawShards")
    try:
        if not content.startswith(b"\x93NUMPY") or content[6:7] not in (b"\1", b"\2", b"\3"):
            raise ValueError("not NumPy's format")
        start = npy_start(content)
        shape, is_fortran, dtype = npy_header(content[:start])
        if (is_fortran and len(shape) > 1) or min(shape, default=0) < 0:
            raise ValueError("columns first" if is_fortran else f"shape {shape}")
        return start, shape, dtype.str
    except (ValueError, IndexError, MemoryError, RecursionError) as error:
        raise SourceError(f"RawShards: {uri} is not an array: {error}") from error


def _main_shard(uri: str) -> str:
    """The shard that an array `NAME.clip.npy` belongs to."""
    return uri.removesuffix(".npy").rpartition(".")[0] + ".npy"


def _labels(uri: str, count: int, storage: Storage) -> np.ndarray:
    """Labels: int64 (count,) or (count, most), -1 for none, or without a file. SourceError."""
    path = uri.removesuffix(".npy") + _LABELS
    found = stat_file(path, storage)
    if isinstance(found, Unread) and found.reason == "not_found":
        return np.full(count, -1, np.int64)
    stat = readable(found, path, "RawShards")
    data = ShardReader([path], [stat], storage).read(0, 0, stat.size)
    start, shape, kind = _npy(data, path)
    is_labels = shape[:1] == (count,) and len(shape) in (1, 2)
    if not is_labels or kind not in ("<i8", "<i4", "|u1", "<u1") or isinstance(data, Unread):
        raise SourceError(
            f"RawShards: {path} holds {kind} {shape}; int64 ({count},) is needed, a label per image,"
            f" or ({count}, most), several per image"
        )
    labels = np.frombuffer(data, np.dtype(kind), offset=start)
    if len(labels) != np.prod(shape):
        raise SourceError(f"RawShards: {path} is cut off")
    return labels.astype(np.int64).reshape(shape)


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Labels of all shards: int64 (n,), or (n, most), -1 for none. SourceError."""
    if {part.ndim for part in parts if len(part)} == {1, 2}:
        raise SourceError(
            "RawShards: some shards have one label per image, others several; open them one by one"
        )
    if all(part.ndim == 1 for part in parts if len(part)):
        return np.concatenate([part.reshape(-1) for part in parts])
    most = max(part.shape[-1] for part in parts if part.ndim == 2)
    widened = [
        np.pad(part, ((0, 0), (0, most - part.shape[1])), constant_values=-1)
        for part in parts
        if part.ndim == 2
    ]
    return np.concatenate(widened)


class RawColumns:
    """Values of samples, read on demand. SourceError, ConfigError."""

    def __init__(self, arrays: Sequence[str], names: Sequence[str], storage: Storage) -> None:
        self.names = tuple(names)
        uris = [uri.removesuffix(".npy") + _META for uri in arrays]
        stats = [readable(stat_file(uri, storage), uri, "RawShards") for uri in uris]
        self._shards = ShardReader(uris, stats, storage)
        self._bounds: dict[int, np.ndarray] = {}  # int64 (n + 1,): where lines begin, by shard
        shard = next(k for k, stat in enumerate(stats) if stat.size)
        first = readable(self.read(shard, 0), uris[shard], "RawShards")
        has = [*_PARTS, *first["meta"].get("columns", {}), *first.get("bytes", {})]
        for name in self.names:
            if name not in has:
                raise ConfigError(
                    f"RawShards: no column {name!r} in {uris[shard]}; it has {', '.join(has)}",
                    field="columns",
                )

    def read(self, shard: int, row: int) -> dict[str, Any] | Unread:
        """The line of a sample."""
        if shard not in self._bounds:
            content = self._shards.read(shard, 0, self._shards.stats[shard].size)
            if isinstance(content, Unread):
                return content
            ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) + 1
            self._bounds[shard] = np.concatenate([[0], ends])
        bounds = self._bounds[shard]
        if row + 1 >= len(bounds):
            return Unread("corrupt", f"{self._shards.uris[shard]} has {len(bounds) - 1} lines")
        line = self._shards.read(shard, int(bounds[row]), int(bounds[row + 1]))
        if isinstance(line, Unread):
            return line
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            return Unread("corrupt", f"{self._shards.uris[shard]}, line {row + 1}: {error}")

    def values(self, shard: int, row: int) -> dict[str, Any]:
        """Columns of a sample by name; None for a missing value, or an Unread."""
        line = self.read(shard, row)
        if isinstance(line, Unread):
            return dict.fromkeys(self.names, line)
        return {name: _value(line, name) for name in self.names}


def _value(line: dict[str, Any], name: str) -> Any:
    try:
        if name in _PARTS:
            return line.get(name)
        blob = line.get("bytes", {}).get(name)
        if blob is not None:
            return base64.b64decode(blob, validate=True)
        return line["meta"].get("columns", {}).get(name)
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        return Unread("corrupt", f"{name}: {error}")
