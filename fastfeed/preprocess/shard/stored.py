"""Samples of a shard that was built before, read back as the entries that its writer was given."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from fastfeed.decode.base import DecodeFailure
from fastfeed.errors import SourceError
from fastfeed.preprocess.model.layout import SUFFIXES
from fastfeed.preprocess.model.plan import JobPlan
from fastfeed.preprocess.model.record import (
    BadSample,
    Counts,
    Entry,
    ProcessedImage,
    ShardFile,
    ShardRecord,
    content_sum,
    label_in,
    part_of_sum,
)
from fastfeed.preprocess.pixels.image_info import image_info
from fastfeed.preprocess.shard.array_files import ArrayFiles
from fastfeed.preprocess.targets.ranges import HashedFile, RangeFile, Read, reader
from fastfeed.preprocess.targets.target import Target
from fastfeed.preprocess.writers.tar import iter_members
from fastfeed.sources.mds.shard import column_locations, header
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.tables.column_types import ColumnType
from fastfeed.sources.tar.headers import BLOCK, members
from fastfeed.sources.tfrecord.example import Example, FeatureNames, to_python
from fastfeed.sources.tfrecord.protobuf import LazyMessage
from fastfeed.sources.tfrecord.records import records

_BLOCK = 8 << 20  # bytes read at once
_RUN = 1 << 20  # bytes of samples that are passed through at once, unless one has more
_ROW = 1 << 16  # bytes read at once of rows of pixels, unless one has more
_ROWS = 64  # of a table that are converted at once


class DamagedShard(SourceError):
    """A shard whose files are neither those of its record nor newer ones."""


@dataclass(frozen=True, slots=True)
class ContiguousSamples:
    """Samples next to each other, as they are in the main file."""

    ids: tuple[int, ...]
    data: bytes
    starts: list[int]  # of each sample in the data
    # by suffix: what the other files of a raw shard have of them, and a header of the pixels
    others: dict[str, bytes]


_Samples = tuple[Callable[[int, int], Entry], Callable[[int, int], dict[str, bytes]]]


@dataclass(frozen=True, eq=False)
class StoredShard:
    """The files of a shard's record, or newer ones that an interrupted run has left there."""

    target: Target
    record: ShardRecord
    format: str
    gone: frozenset[int]  # ids that newer files lack
    types: dict[str, ColumnType] = field(default_factory=dict)  # of metadata columns
    # False: files of the size that is recorded are taken for the record's, until `check`
    careful: bool = False
    images: tuple[str, ...] = ()  # names of the images of a sample, if it has several

    def entries(self) -> Iterator[Entry]:
        """All samples in order, of newer files maybe without those that are gone. DamagedShard."""
        with self._reading():
            yield from _ENTRIES[self.format](self)

    def pieces(self, edited: Container[int]) -> Iterator[ContiguousSamples | Entry]:
        """The samples that are not gone, in order, in runs where they are not `edited`.

        There are no runs if the files are newer ones, or if samples must be counted. DamagedShard.
        """
        if self.tally is None or not self._is_intact:
            id_of = self.record.sample_id
            yield from (entry for entry in self.entries() if id_of(entry) not in self.gone)
            return
        ids: list[int] = []
        starts: list[int] = []
        with self._reading():
            parse, _ = self._samples
            for i, (start, stop) in self._bounds.items():
                is_edited = i in edited or i in self.gone
                if ids and (is_edited or stop - starts[0] > _RUN):
                    yield self._run(ids, starts, start)
                    ids = []
                    starts = []
                if not is_edited:
                    ids.append(i)
                    starts.append(start)
                elif i not in self.gone:
                    yield parse(start, stop)
            if ids:
                yield self._run(ids, starts, self._bounds[ids[-1]][1])

    def _run(self, ids: list[int], starts: list[int], stop: int) -> ContiguousSamples:
        """Samples that begin at `starts` in the main file, and end at `stop`."""
        first = starts[0]
        data = self._main.read(first, stop - first)
        places = [start - first for start in starts]
        return ContiguousSamples(tuple(ids), data, places, self._samples[1](first, stop))

    def metas(self, ids: Container[int]) -> dict[int, dict[str, Any]]:
        """Metadata of these samples; of formats with byte ranges nothing else is read. DamagedShard."""
        record = self.record
        with self._reading():
            if self.format == "parquet":
                rows = _table(self).read(["key", "meta"]).to_pylist()
                metas = {record.start + int(row["key"]): row["meta"] for row in rows}
                return {i: json.loads(meta) for i, meta in metas.items() if i in ids}
            if self.format == "raw":
                lines = map(json.loads, self.array_files.lines)
                metas = {record.start + int(line["key"]): line["meta"] for line in lines}
                return {i: meta for i, meta in metas.items() if i in ids}
            entries = self.entries()
            if len(record.offsets) == len(record.ids):
                entries = (self._sample(*self._bounds[i]) for i in record.ids if i in ids)
            return {i: entry.meta for entry in entries if (i := record.sample_id(entry)) in ids}

    @cached_property
    def tally(self) -> Counts | None:
        """Counts over the samples that are not gone, if they follow from the record's.

        DamagedShard.
        """
        record = self.record
        if self.gone.isdisjoint(record.ids):
            return record.tally
        if not self._is_intact:
            return None
        tally = Counts.sum([record.tally])
        with self._reading():
            for part, (i, bounds) in zip(record.parts_of_sums, self._bounds.items(), strict=True):
                if i not in self.gone:
                    continue
                entry = self._sample(*bounds)
                if part_of_sum(content_sum(entry.meta)) != part:
                    return None  # these are facts of the file before this one's
                tally.add(Counts.of(_measured(entry)), -1)
        return tally

    @cached_property
    def _is_intact(self) -> bool:
        """True if the files are those of the record, and samples can be found by it."""
        record = self.record
        counts = {len(record.offsets), len(record.parts_of_sums), record.tally.samples}
        if self.format not in _SAMPLES or counts != {len(record.ids)}:
            return False
        with self._reading():
            if any(self._files[file.name].size != file.bytes for file in self._read_files):
                return False
            return not self.careful or all(
                self._files[file.name].sha256() == file.sha256 for file in self._read_files
            )

    def _sample(self, start: int, stop: int) -> Entry:
        """The sample in a byte range of the main file, of which nothing else is read."""
        file = ForwardReader(self.main, stop, self._read, stop - start)
        return _SAMPLES[self.format](self, file)[0](start, stop)

    @cached_property
    def array_files(self) -> ArrayFiles:
        """Files of a raw shard; its pixels are read row by row."""
        pixels = ForwardReader(self.main, self._main.size, self._read, _ROW)
        return ArrayFiles(pixels, self.open, self.record.arrays, self.binary)

    @cached_property
    def _read(self) -> Read:
        """Reads ranges of the main file."""
        return reader(self.target, self.main)

    @cached_property
    def _main(self) -> ForwardReader:
        return self.open()

    @cached_property
    def _samples(self) -> _Samples:
        """Functions of byte ranges: the sample in one, and `ContiguousSamples.others`."""
        return _SAMPLES[self.format](self, self._main)

    @cached_property
    def _bounds(self) -> dict[int, tuple[int, int]]:
        """Start and end of the samples in the main file."""
        offsets = list(self.record.offsets)
        size = self._main.size
        if self.format == "webdataset" and offsets:  # zeros follow
            read = reader(self.target, self.main)
            last = read(offsets[-1], size - offsets[-1])
            size = offsets[-1] + max(at + -(-n // BLOCK) * BLOCK for _, at, n in iter_members(last))
        return dict(zip(self.record.ids, pairwise([*offsets, size]), strict=True))

    @property
    def _read_files(self) -> list[ShardFile]:
        return [file for file in self.record.files if not file.name.endswith(".idx")]

    @cached_property
    def _files(self) -> dict[str, HashedFile]:
        return {file.name: HashedFile(self.target, file.name) for file in self._read_files}

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Convert errors of damaged files to DamagedShard."""
        try:
            yield
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise DamagedShard(f"{self.record.shard} cannot be read: {error}") from error

    def check(self, written: Sequence[ShardFile] = ()) -> None:
        """DamagedShard if a file is neither as recorded nor, if careful, as it is `written` again."""
        again = {file.name: file.sha256 for file in written if self.careful}
        for file in self._read_files:
            with self._reading():
                found = self._files[file.name].sha256()
            if found not in (file.sha256, again.get(file.name)):
                raise DamagedShard(f"{file.name} has another content than was written")

    def make_way(self, written: Sequence[ShardFile]) -> None:
        """Remove files that the shard will have no more, before those that are `written` replace it.

        DamagedShard as of `check`.
        """
        self.check(written)
        names = {file.name for file in self.record.files}
        for name in names - {file.name for file in written}:
            self.target.remove(name)

    @property
    def bad(self) -> tuple[BadSample, ...]:
        """Bad images of the record, without those that are gone."""
        return tuple(bad for bad in self.record.bad if bad.id not in self.gone)

    @property
    def main(self) -> str:
        """Name of the main file."""
        return self.record.shard + SUFFIXES[self.format]

    def open(self, suffix: str | None = None) -> ForwardReader:
        """A reader of the main file, or of another one of the shard. OSError."""
        name = self.main if suffix is None else self.record.shard + suffix
        file = self._files[name]
        return ForwardReader(name, file.size, file.read, _BLOCK)

    @property
    def binary(self) -> list[str]:
        """Names of the metadata columns of bytes."""
        return [name for name, kind in self.types.items() if kind == "bytes"]

    @property
    def image(self) -> str:
        """Column of the first image."""
        return self.images[0] if self.images else "image"

    def entry(self, row: Mapping[str, Any]) -> Entry:
        """A sample from its parts by name; texts may be bytes."""
        meta = json.loads(row["meta"])
        others: dict[str, ProcessedImage] = {}
        for name in self.images[1:]:
            facts = meta["images"][name]
            size = facts["height"], facts["width"]
            others[name] = ProcessedImage(row[name], facts["extension"], *size, facts)
        return Entry(
            _text(row["key"]),
            row[self.image],
            _text(row["extension"]),
            row["height"],
            row["width"],
            label_in(meta),
            None if row["text"] is None else _text(row["text"]),
            meta,
            {
                name: np.asarray(row[name]).astype(dtype).reshape(shape)
                for name, (dtype, shape) in self.record.arrays.items()
            },
            {name: blob for name in self.binary if (blob := row.get(name))},
            others,
        )


def stored_shard(
    target: Target, plan: JobPlan, record: ShardRecord, gone: frozenset[int] = frozenset()
) -> StoredShard:
    """A shard of a job, to be read."""
    format = plan.recipe.packing.format
    return StoredShard(target, record, format, gone, plan.columns, images=plan.images)


def _text(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode()


def _in_tar(shard: StoredShard) -> Iterator[Entry]:
    notes: list[str] = []
    file = shard.open()
    for key, group in groupby(members(file, notes), lambda member: member.name.partition(".")[0]):
        parts = {
            member.name.partition(".")[2]: file.read(member.offset, member.size) for member in group
        }
        yield _measured(_of_members(shard, key, parts))
    if notes:
        raise ValueError("; ".join(notes[:3]))


def _of_members(shard: StoredShard, key: str, parts: Mapping[str, bytes]) -> Entry:
    """A sample of its members by extension, with the image first, not yet `_measured`."""
    row: dict[str, Any] = {"key": key, "height": 0, "width": 0, "text": parts.get("txt")}
    for member, content in parts.items():
        name, _, kind = member.rpartition(".")
        row[name or kind] = np.load(io.BytesIO(content)) if name in shard.record.arrays else content
    member, image = next(iter(parts.items()))
    row |= {shard.image: image, "extension": member.rpartition(".")[2], "meta": parts["json"]}
    return shard.entry(row)


def _tar_sample(shard: StoredShard, file: ForwardReader) -> Callable[[int, int], Entry]:
    def sample(start: int, stop: int) -> Entry:
        data = file.read(start, stop - start)
        key = ""
        parts: dict[str, bytes] = {}
        for name, at, size in iter_members(data):
            key, _, extension = name.partition(".")
            parts[extension] = data[at : at + size]
        return _of_members(shard, key, parts)

    return sample


def _measured(entry: Entry) -> Entry:
    """The sample with height and width, which tars do not record and only counts need."""
    if entry.height:
        return entry
    if entry.extension == "npy":
        height, width, _ = np.load(io.BytesIO(entry.image), mmap_mode=None).shape
        return replace(entry, height=height, width=width)
    info = image_info(entry.image)
    if isinstance(info, DecodeFailure):
        raise ValueError(f"an image of it is {info.reason}")
    return replace(entry, height=info.height, width=info.width)


def _in_tfrecord(shard: StoredShard) -> Iterator[Entry]:
    notes: list[str] = []
    file = shard.open()
    sample = _record_sample(shard, file)
    if not file.size:
        return
    for offset, length in records(file, notes):
        yield sample(offset, offset + length)
    if notes:
        raise ValueError("; ".join(notes[:3]))


def _record_sample(shard: StoredShard, file: ForwardReader) -> Callable[[int, int], Entry]:
    features = {name: f"image/{name}" for name in ("height", "key", "meta", "width")}
    features |= {"extension": "image/filename", "text": "image/caption"}
    features |= {name: f"image/{name}/encoded" for name in shard.images}
    features |= {} if shard.images else {"image": "image/encoded"}
    features |= {name: name for name in (*shard.record.arrays, *shard.binary)}
    names = FeatureNames(*map(str.encode, features.values()))

    def sample(start: int, stop: int) -> Entry:
        size = stop - start - 16
        message = LazyMessage.of(file.read(start + 12, size))
        example = Example(message, 0, size, names)
        row: dict[str, Any] = {}
        for name, feature in features.items():
            bounds = example.feature(feature.encode())
            row[name] = None if bounds is None else to_python(message.bytes(*bounds), text=False)
        row |= {name: int(row[name]) for name in ("height", "width")}
        return shard.entry(row | {"extension": _text(row["extension"]).partition(".")[2]})

    return sample


def _table(shard: StoredShard) -> Any:
    import pyarrow.parquet as pq

    file = shard.open()
    return pq.ParquetFile(RangeFile(file.read, file.size))


def _in_parquet(shard: StoredShard) -> Iterator[Entry]:
    own = ("key", "extension", "height", "width", "text", "meta")
    names = [*own, *(shard.images or ("image",)), *shard.record.arrays, *shard.binary]
    for batch in _table(shard).iter_batches(_ROWS, columns=names):
        for row in batch.to_pylist():
            yield shard.entry(row)


def _in_mds(shard: StoredShard) -> Iterator[Entry]:
    file = shard.open()
    sample = _mds_sample(shard, file)
    for start, stop in pairwise(header(file)[0].tolist()):
        yield sample(start, stop)


def _mds_sample(shard: StoredShard, file: ForwardReader) -> Callable[[int, int], Entry]:
    columns = header(file)[1]

    def sample(start: int, stop: int) -> Entry:
        places = column_locations(file, columns, start, stop)
        row: dict[str, Any] = {
            name: file.read(place.offset, place.size) for name, place in places.items()
        }
        row |= {name: int.from_bytes(row[name], "little") for name in ("height", "width")}
        row["text"] = row["text"] or None
        for name, (kind, _) in shard.record.arrays.items():
            row[name] = np.frombuffer(row[name], np.dtype(kind).newbyteorder("<"))
        return shard.entry(row)

    return sample


_ENTRIES: dict[str, Callable[[StoredShard], Iterator[Entry]]] = {
    "webdataset": _in_tar,
    "tfrecord": _in_tfrecord,
    "parquet": _in_parquet,
    "mds": _in_mds,
    "raw": lambda shard: shard.array_files.entries(shard.record.start, shard.gone),
}


def _alone(
    of: Callable[[StoredShard, ForwardReader], Callable[[int, int], Entry]],
) -> Callable[[StoredShard, ForwardReader], _Samples]:
    """Functions of a format whose samples are in the main file alone."""
    return lambda shard, file: (of(shard, file), lambda start, stop: {})


# formats whose samples are bytes next to each other
_SAMPLES: dict[str, Callable[[StoredShard, ForwardReader], _Samples]] = {
    "webdataset": _alone(_tar_sample),
    "tfrecord": _alone(_record_sample),
    "mds": _alone(_mds_sample),
    "raw": lambda shard, _: (shard.array_files.sample, shard.array_files.others),
}
