"""Tar shards as WebDataset writes them: members with one name up to a dot are one sample."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.runtime.addresses import FileRanges
from fastfeed.sources.access import parse_allow
from fastfeed.sources.base import StoredFile
from fastfeed.sources.label_values import LabelKind, RequestedLabel
from fastfeed.sources.listing.local_tree import IMAGE_EXTENSIONS
from fastfeed.sources.shards.base import Paths, ShardedSource
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.shards.extra_columns import (
    LARGEST,
    LARGEST_ARRAY,
    Kind,
    ValueLocation,
    add_row,
    bytes_columns,
    column_names,
    read_npy,
)
from fastfeed.sources.shards.index import ScannedLabel, ShardScan, limited
from fastfeed.sources.shards.known_counts import in_record, is_cut, missing
from fastfeed.sources.shards.labels import (
    LARGEST_LABEL,
    json_field,
    pack_label,
    requested_label,
    text_label,
)
from fastfeed.sources.tar.external_indexes import (
    members_from_dali,
    samples_in_dali,
    shards_from_wids,
)
from fastfeed.sources.tar.headers import BLOCK, Member, header_matches, members
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.reads import Stat, Unread
from fastfeed.storage.storage import Storage

_LOOKED_AT = 1000  # members of a shard, for the names in a message
# members whose bytes are no text: images, recordings, files of other libraries; nothing is unpacked
_BINARY = frozenset(extension[1:] for extension in IMAGE_EXTENSIONS)
_BINARY |= {
    *[
        "avi",
        "bin",
        "bytes",
        "dat",
        "flac",
        "gz",
        "mkv",
        "mov",
        "mp3",
        "mp4",
        "npz",
        "ogg",
        "pickle",
        "pkl",
        "pt",
        "pth",
        "pyd",
        "raw",
    ]
}
_BINARY |= {*["safetensors", "ten", "tenbin", "wav", "webm", "zip"]}


@checked_early
class TarShards(ShardedSource):
    """Images in tar files as WebDataset writes them: `0001.jpg`, `0001.cls`, `0002.jpg`, ...

    Members that share a name up to its first dot are one sample. An index is built when the shards
    are first used. Where DALI's `wds2idx` left an `.idx` next to a shard, the shard need not be
    scanned.

    Args:
        shards (str | os.PathLike[str] | Sequence): Path, pattern (`train-{000..099}.tar`, `*.tar`),
            folder, or a list of these, local or remote (`s3://...`). Or a wids index (`.json`).
        label (str | Sequence[str] | None): Extension of the member that holds the label, or a field
            of a JSON member ("json:landmark_id", "json:a.b" for one inside another); several of
            these for label_kind "value" and "multi"; None for none. Default: "cls".
        images (Sequence[str] | None): Extensions of images, in order of preference. Default: None,
            those of ImageFolder, and of several images of a sample the first in the archive.
        columns (Sequence[str]): Extensions of other members that are carried to the batch: "txt",
            "json", "npy". Images, recordings, pickles and the like stay bytes; "caption:bytes"
            leaves the bytes of any other. Default: ().
        label_kind (str | None): "index": integers are labels already, and `classes` names them;
            "name": they are names of classes, sorted and numbered as texts are. "value": numbers,
            or arrays of one shape (.npy, lists in JSON): float32. "multi": lists of
            names, or several fields of 0 and 1: multi-hot, float32 (n, classes). "text": texts.
            "none": no labels. Default: None, "index" in a
            `.cls` member or a field named `label` or `cls`, else "name".
        classes (Sequence[str | int] | None): Names of classes in the order of their labels;
            `train.classes` for validation. Default: None, the sorted names of the data.
        storage (dict[str, Any] | Storage | None): Options for fsspec (key, secret, endpoint_url,
            anon ...), or a Storage that several sources share. Default: None.
        cache (str | os.PathLike[str] | Cache | None): Local folder in which what is read from
            remote storage is kept. Default: None, nothing is kept.
        index (str | os.PathLike[str] | None): File of the index of samples. Default: None, next to
            the shards or, where that cannot be written, in FASTFEED_CACHE (`~/.cache/fastfeed`).
        progress (bool | None): Show how far indexing is. Default: None, on a terminal.
        allow_path (str | os.PathLike[str] | Sequence[str | os.PathLike[str]]): Other folders, or
            addresses, below which a wids index may name shards, as in Table: it may be from
            elsewhere. Default: ().
        allow_host (str | Sequence[str]): As in Table. Default: ().
        allow_scheme (str | Sequence[str]): As in Table. Default: ().

    Raises:
        ConfigError: If an argument is wrong.
        SourceError: If shards cannot be read, or no sample has an image or a label.

    Example:
        >>> ff.TarShards("tar/s-{000..001}.tar")
        TarShards(tar/s-000.tar and 1 more): 8 images
    """

    suffix = ".tar"
    _label_advice = (
        "pass label='json:field' or the extension that holds it, or label=None for images without;"
        " the members of a sample must be adjacent"
    )
    _head = BLOCK

    def __init__(
        self,
        shards: Paths,
        *,
        label: str | Sequence[str] | None = "cls",
        images: Sequence[str] | None = None,
        columns: Sequence[str] = (),
        label_kind: LabelKind | None = None,
        classes: Sequence[str | int] | None = None,
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        index: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        allow_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        allow_host: str | Sequence[str] = (),
        allow_scheme: str | Sequence[str] = (),
    ) -> None:
        if isinstance(images, str):
            raise ConfigError.of(
                "TarShards: images", "a list of extensions", images, f"pass [{images!r}]"
            )
        self._label = requested_label(label, label_kind, "TarShards")
        # (extension, field) of each name
        self._label_fields = [_label_field(name, self._label) for name in self._label.names]
        self._label_extensions = tuple(dict(self._label_fields))
        self._prefers = images is not None  # the first of the list; else the first of the archive
        self._images = tuple(
            e.lower().lstrip(".") for e in (IMAGE_EXTENSIONS if images is None else images)
        )
        self._wids_counts: dict[str, int] = {}  # samples by shard, as a wids index has them
        self._columns, self._raw = bytes_columns(
            tuple(e.lower().lstrip(".") for e in column_names(columns, "TarShards"))
        )
        images_key = ",".join(self._images) if self._prefers else "any"
        kind = f"tar 3 images {images_key} label {self._label.argument}"
        self._allow = parse_allow(allow_path, allow_host, allow_scheme, "TarShards")
        super().__init__(
            shards,
            kind,
            label=self._label,
            as_indices=label_kind == "index",
            classes=classes,
            storage=storage,
            cache=cache,
            index=index,
            progress=progress,
            columns=self._columns,
        )
        checks = self._index.checks
        # of headers listed by DALI: as they are first read
        self._heads = checks if checks.all() else checks.copy()

    def _files(self, shards: Paths, storage: Storage) -> tuple[list[tuple[str, Stat]], Storage]:
        paths, self._wids_counts, storage = shards_from_wids(
            shards, storage, self._allow, "TarShards"
        )
        return super()._files(paths, storage)

    def _scan(self, reader: ForwardReader) -> ShardScan:
        return self._samples(reader).scan

    def _scan_columns(self, reader: ForwardReader) -> ShardScan:
        return self._samples(reader).column_scan

    def _samples(self, reader: ForwardReader) -> _Samples:
        notes: list[str] = []
        samples = _Samples(self, reader)
        for member in members_from_dali(reader, self._is_label, notes) or members(reader, notes):
            samples.add(member)
        samples.end()
        if notes and is_cut(notes[-1]) and (lost := _missing(reader, len(samples.scan.offsets))):
            notes[-1] += f"; {lost}"
        samples.scan.notes = limited(notes) + limited(samples.notes)
        return samples

    def _names_in(self, reader: ForwardReader) -> list[str]:
        extensions: set[str] = set()
        for member in islice(members(reader, []), _LOOKED_AT):
            _, dot, extension = member.name.rpartition("/")[2].partition(".")
            extensions |= {extension.lower()} if dot else set()
        return sorted(extensions)

    def _value(self, name: str, data: bytes) -> Any:
        kind = self._kind(name)
        if kind in ("npy", "bytes"):
            return read_npy(data) if kind == "npy" else data
        text = data.decode().removeprefix("\ufeff")
        return json.loads(text) if kind == "json" else text

    def _kind(self, name: str) -> Kind:
        if name in self._raw or name.rpartition(".")[2] in _BINARY:
            return "bytes"
        if name.endswith("npy"):
            return "npy"
        return "json" if name.endswith("json") else "text"

    def _largest(self, name: str) -> int:
        return LARGEST_ARRAY if self._kind(name) in ("npy", "bytes") else LARGEST

    def _is_label(self, name: str) -> bool:
        return name.lower().endswith(tuple(f".{e}" for e in self._label_extensions))

    def _cuts(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        starts = self._index.offsets[ids]
        return starts - BLOCK, starts, starts + self._index.lengths[ids]

    def addresses(self, ids: np.ndarray) -> FileRanges | None:
        """Local members; None for remote shards."""
        checks = self._heads[ids]
        return self._addresses(ids, checks == 0, head=BLOCK, checks=checks)

    def byte_ranges(self, ids: np.ndarray) -> list[StoredFile | None]:
        """Byte ranges of members in remote shards."""
        return self._byte_ranges(ids)

    def _unwrap(self, i: int, head: bytes, data: bytes) -> bytes | Unread:
        check = int(self._index.checks[i])
        if check:
            same = zlib.crc32(head) == check
        else:  # listed by DALI, header not checked
            same = header_matches(head, self._index.name(i), int(self._index.lengths[i]))
            self._heads[i] = zlib.crc32(head) if same else 0
        if same:
            return data
        # it was made of a shard of this version
        first = f"delete {self.index_file}, then " if self.index_file else ""
        return Unread(
            "changed", f"the shard has changed since it was indexed; {first}create the source again"
        )

    def _notes_on(self, shard: int) -> Sequence[str]:
        notes = super()._notes_on(shard)
        count = int(self.bounds[shard + 1] - self.bounds[shard])
        wids_count = self._wids_counts.get(self.shard(shard), count)
        if wids_count == count:
            return notes
        return (*notes, f"{count} samples, but its wids index says {wids_count}")


class _Samples:
    """Groups the members of a tar into samples, in their order."""

    def __init__(self, tar: TarShards, reader: ForwardReader) -> None:
        self.scan = ShardScan()
        self.column_scan = ShardScan()
        self.notes = []
        self._tar = tar
        self._reader = reader
        self._columns: dict[str, ValueLocation] = {}
        self._key: str | None = None
        self._image: Member | None = None
        self._image_rank = 0  # in the order of preference
        self._labels: dict[str, Any] = {}  # values by name of the label
        self._extensions: set[str] = set()
        self._keys_seen: set[str] = set()
        self._many_images_noted = False

    def add(self, member: Member) -> None:
        """Add a member to the current sample, or begin the next."""
        folder, slash, base = member.name.rpartition("/")
        stem, dot, extension = base.partition(".")
        if not stem or not dot or re.match(r"__[^/]*__(/|$)", member.name):  # as webdataset does
            if not stem:
                why = "hidden"
            else:
                why = "metadata of the shard is not read" if dot else "no extension"
            self.notes.append(f"left out {member.name!r} at {member.offset - BLOCK}: {why}")
            return
        key = folder + slash + stem
        extension = extension.lower()
        if key != self._key or extension in self._extensions:
            self.end()
            if key in self._keys_seen:
                self.notes.append(f"duplicate key {key} at {member.offset}")
            self._keys_seen.add(key)
            self._key = key
        self._extensions.add(extension)
        if extension in self._tar._columns:
            self._columns[extension] = ValueLocation(
                member.offset, member.size, BLOCK, member.check
            )
        if extension in self._tar._images:
            self._take_image(member, extension)
        elif extension in self._tar._label_extensions:
            self._take_label(member, extension)

    def _take_image(self, member: Member, extension: str) -> None:
        rank = self._tar._images.index(extension)
        if self._image is not None:
            preferred = self._tar._prefers and rank < self._image_rank
            image, other = (member, self._image) if preferred else (self._image, member)
            if not self._many_images_noted:
                self._many_images_noted = True  # noted once: all samples will have it
                self.notes.append(
                    f"{other.name} at {other.offset} is not used: the image is {image.name}; pass"
                    " images=[...]"
                )
            if not preferred:
                return
        self._image = member
        self._image_rank = rank

    def _take_label(self, member: Member, extension: str) -> None:
        label = self._tar._label
        try:
            data = _label_bytes(self._reader, member)
            for name, (own, field) in zip(label.names, self._tar._label_fields, strict=True):
                if own != extension:
                    continue
                value = _parse_label(data, extension, field)
                if label.is_class:
                    value = _class_label(value)
                elif label.kind != "text" and not extension.endswith(("json", "npy")):
                    value = float(value)
                self._labels[name] = value
        except (ValueError, RecursionError) as error:
            self._no_label(member.name, member.offset, error)

    def _no_label(self, name: str, offset: int, error: Exception) -> None:
        self.notes.append(f"no label in {name} at {offset}: {error}")

    def _label(self, image: Member) -> ScannedLabel:
        """The label of the current sample."""
        label = self._tar._label
        values = self._labels
        if len(values) < max(1, len(label.names)):
            return None
        if label.is_class:
            return values[label.names[0]]
        try:
            return pack_label(label, [values[name] for name in label.names])
        except ValueError as error:
            self._no_label(image.name, image.offset, error)
            return None

    def end(self) -> None:
        """Complete the current sample; note missing parts."""
        if self._image is not None:
            image = self._image
            name = self._image.name.encode("utf-8", "surrogateescape")
            self.scan.add(image.offset, image.size, self._label(image), name, image.check)
            add_row(self.column_scan, self._tar._columns, self._columns)
            for label in self._tar._label_extensions:
                if label not in self._extensions:
                    self.notes.append(f"no .{label} for {image.name} at {image.offset}")
        elif self._key is not None:
            self.notes.append(
                f"no image for key {self._key}, only {', '.join(sorted(self._extensions))}"
            )
        self._key = None
        self._image = None
        self._labels = {}
        self._extensions = set()
        self._columns = {}


def _label_field(name: str, label: RequestedLabel) -> tuple[str, str]:
    """Extension of the member that holds a label, and the field in it, "" for all. ConfigError."""
    extension, _, field = name.partition(":")
    is_json = extension.lower().endswith("json")
    if (
        not extension.lstrip(".")
        or (field and not is_json)
        or (is_json and label.is_class and not field)
    ):
        raise ConfigError.of(
            "TarShards: label",
            "an extension such as 'cls', a field such as 'json:landmark_id', or None",
            name,
        )
    return extension.lower().lstrip("."), field


def _label_bytes(reader: ForwardReader, member: Member) -> bytes:
    """All bytes of a member. ValueError."""
    if member.size > LARGEST_LABEL:
        raise ValueError(f"{member.size} bytes, too long for a label")
    data = reader.read(member.offset, member.size)
    if len(data) < member.size:
        raise ValueError(f"{len(data)} of {member.size} bytes are there")
    return data


def _parse_label(data: bytes, extension: str, field: str) -> Any:
    """The value of a label: an array, a JSON value or a text. ValueError."""
    if extension.endswith("npy"):
        return read_npy(data)
    value: Any = data.decode("utf-8-sig")
    if not extension.endswith("json"):
        return value
    return json_field(json.loads(value), field)


def _class_label(value: Any) -> int | str:
    """Label as a number or a string. ValueError."""
    value = value.strip() if isinstance(value, str) else value
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    text = "" if isinstance(value, bool) or not isinstance(value, (int, str)) else str(value)
    if not text or re.fullmatch(r"-[0-9]+", text) or re.search("[\0-\x1f\x7f\ud800-\udfff]", text):
        excerpt = printable(repr(value))
        raise ValueError(f"got {excerpt}, must be a number >= 0 or a string")
    return text_label(text)


def _missing(reader: ForwardReader, samples: int) -> str:
    """Text on missing samples from files next to a truncated shard."""
    if listed := samples_in_dali(reader.uri):
        return missing(samples, listed[0], f"{listed[1]} lists them")
    count = in_record(reader.uri, reader.size)
    return "" if count is None else missing(samples, count, "the record of its job lists them")
