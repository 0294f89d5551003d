"""Shards of MosaicML's streaming (MDS): random access, without its package.

A shard is `u32 n, u32 offsets[n + 1], configuration as JSON, samples`; a sample the sizes (u32) of
those columns that vary, then all columns, sorted by name: streaming/base/format/mds/writer.py.
Little endian. The folder's `index.json` lists the shards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError, SourceError
from fastfeed.printable import printable
from fastfeed.runtime.addresses import FileRanges
from fastfeed.runtime.json_file import parse_json
from fastfeed.sources.access import Allow, IndexNames, parse_allow
from fastfeed.sources.base import StoredFile
from fastfeed.sources.label_values import LabelKind
from fastfeed.sources.mds.shard import (
    IMAGES,
    KINDS,
    LABELS,
    VALUES,
    DamagedSample,
    column_encodings,
    column_locations,
    decode_value,
    header,
    image_file,
    is_image,
    is_label,
    is_value,
    short_value,
)
from fastfeed.sources.shards.base import Paths, ShardedSource
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.shards.extra_columns import (
    LARGEST,
    LARGEST_ARRAY,
    Kind,
    ValueLocation,
    add_row,
    column_names,
)
from fastfeed.sources.shards.index import ScannedLabel, ShardScan, limited
from fastfeed.sources.shards.labels import (
    LARGEST_LABEL,
    json_field,
    label_fields,
    pack_label,
    requested_label,
)
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.expand import find_files, listed_paths, read_whole
from fastfeed.storage.reads import Stat, Unread
from fastfeed.storage.storage import Storage

_NAMES = ("uri", "key", "filename", "id")  # columns that name a sample, where they are texts
_LONGEST_CLASS = 1000  # bytes of a class's name
_DAMAGED = 1  # in place of a check
_WHY = {
    "pkl": " (pickles are not loaded: they can run any code)",
    "jpeg_array": " (a sample of it holds several images)",
    "jpegarray": " (a sample of it holds several images)",
}


@checked_early
class MDSShards(ShardedSource):
    """Images in the shards of MosaicML's streaming, without its package.

    Compressed shards cannot be read at random and are refused.

    Args:
        shards (str | os.PathLike[str] | Sequence): A folder with its `index.json`, such a file,
            `.mds` files, a pattern, or a list of these, local or remote (`s3://...`).
        image (str): Column with the image: of the encoding jpeg, png, pil, or bytes of a file.
            Default: "image".
        label (str | Sequence[str] | None): Column with an integer (below 0: none) or a text, or
            what label_kind says, also in a field of JSON ("meta:price"); several for label_kind
            "value" and "multi"; None for none. Default: "label".
        columns (Sequence[str]): Other columns that are carried to the batch: texts, numbers, bytes,
            arrays, JSON; all but pickles and lists of images. Default: ().
        label_kind (str | None): "index": integers are labels already, and `classes` names them;
            "name": they are names of classes, sorted and numbered as texts are. "value": numbers,
            or arrays of one shape (`ndarray`, lists in `json`): float32. "multi": lists of
            names, or several columns of 0 and 1: multi-hot, float32 (n, classes). "text": texts.
            "none": no labels. Default: None, "index" in a
            column named `label` or `cls`, else "name".
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
            addresses, below which an `index.json` may name shards, as in Table: it may be from
            elsewhere. Default: ().
        allow_host (str | Sequence[str]): As in Table. Default: ().
        allow_scheme (str | Sequence[str]): As in Table. Default: ().

    Raises:
        ConfigError: If an argument is wrong.
        SourceError: If shards cannot be read, or no sample has an image or a label.

    Example:
        >>> ff.MDSShards("mds")
        MDSShards(mds/shard.00000.mds and 1 more): 8 images
    """

    suffix = ".mds"
    _label_advice = "pass label='the column that holds it', or label=None for images without"

    def __init__(
        self,
        shards: Paths,
        *,
        image: str = "image",
        label: str | Sequence[str] | None = "label",
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
        self._label = requested_label(label, label_kind, "MDSShards")
        for option, name in (("image", image), *(("label", name) for name in self._label.names)):
            if not isinstance(name, str) or not name:
                raise ConfigError.of(f"MDSShards: {option}", "the name of a column", name)
        self._image = image
        self._label_fields = label_fields(self._label)
        self._names = column_names(columns, "MDSShards")
        self._kinds: dict[str, str] = {}
        self._allow = parse_allow(allow_path, allow_host, allow_scheme, "MDSShards")
        super().__init__(
            shards,
            f"mds 1 image {image!r} label {self._label.argument!r}",
            label=self._label,
            as_indices=label_kind == "index",
            classes=classes,
            storage=storage,
            cache=cache,
            index=index,
            progress=progress,
            columns=self._names,
        )

    def _files(self, shards: Paths, storage: Storage) -> tuple[list[tuple[str, Stat]], Storage]:
        paths, storage = expand_indexes(shards, storage, self._allow)
        files = find_files(paths, self.suffix, storage, "MDSShards", self._folder_notes)
        encodings = column_encodings(*files[0], storage)
        fits_label, label_kinds = (is_label, LABELS) if self._label.is_class else (is_value, VALUES)
        for field, names, fits, held, advice in (
            ("image", [self._image], is_image, IMAGES, "pass image='its name'"),
            (
                "label",
                list(dict(self._label_fields)),
                fits_label,
                label_kinds,
                "pass label='its name'",
            ),
            ("columns", self._names, is_value, VALUES, "leave it out of columns"),
        ):
            for name in names:
                kind = encodings.get(name)
                if kind is None:
                    raise ConfigError(
                        f"MDSShards: no column {name!r} in {files[0][0]}; it has"
                        f" {', '.join(encodings)}",
                        field=field,
                    )
                if not fits(kind):
                    who = field if field == "columns" else f"the {field} column"
                    raise ConfigError(
                        f"MDSShards: {who} must hold {', '.join(held)}, got {name!r} with {kind!r};"
                        f" {advice}{_WHY.get(kind, '')}",
                        field=field,
                    )
        self._kinds = encodings
        return files, storage

    def _scan(self, reader: ForwardReader) -> ShardScan:
        return self._scan_samples(reader)[0]

    def _scan_columns(self, reader: ForwardReader) -> ShardScan:
        return self._scan_samples(reader)[1]

    def _scan_samples(self, reader: ForwardReader) -> tuple[ShardScan, ShardScan]:
        scan = ShardScan()
        column_scan = ShardScan()
        offsets, columns = header(reader)
        kinds = dict(zip(columns.names, columns.encodings, strict=True))
        for name in (self._image, *dict(self._label_fields), *self._names):
            if len(offsets) == 1:
                continue
            kind = kinds.get(name, "missing")
            needed = self._kinds[name]
            if kind != needed and not (
                name == self._image and is_image(kind) and "pil" not in (kind, needed)
            ):
                raise SourceError(
                    f"MDSShards: column {name!r} is {kind} in {reader.uri}, {needed} in the first"
                    " shard"
                )
        name_column = next((name for name in _NAMES if kinds.get(name) == "str"), None)
        notes: list[str] = []
        for k, (start, stop) in enumerate(
            zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        ):
            try:
                locations = column_locations(reader, columns, start, stop)
                image = locations[self._image]
                label = None
                if self._label.names:
                    label = self._label_in(reader, locations, k, notes)
                name = short_value(reader, locations[name_column]) if name_column else b""
                scan.add(image.offset, image.size, label, name or b"%06d" % k)
            except DamagedSample as error:
                locations = {}
                notes.append(f"sample {k} at {start} is damaged: {error}")
                scan.add(min(start, reader.size), 0, None, b"%06d" % k, _DAMAGED)
            add_row(column_scan, self._names, locations)
        scan.notes = limited(notes)
        return scan, column_scan

    def _label_in(
        self, reader: ForwardReader, locations: dict[str, ValueLocation], k: int, notes: list[str]
    ) -> ScannedLabel:
        try:
            values = [
                json_field(self._label_value(reader, name, locations[name]), field)
                for name, field in self._label_fields
            ]
            if self._label.is_class:
                return _class_label(values[0])
            return pack_label(self._label, values)
        except (ValueError, RecursionError) as error:
            notes.append(f"no label in sample {k}: {error}")
            return None

    def _label_value(self, reader: ForwardReader, name: str, location: ValueLocation) -> Any:
        if location.size > (_LONGEST_CLASS if self._label.is_class else LARGEST_LABEL):
            raise ValueError(f"{location.size} bytes, too long for a label")
        value = self._value(name, reader.read(location.offset, location.size))
        value = value.item() if isinstance(value, np.generic) else value
        return value.decode() if isinstance(value, bytes) else value

    def _check_columns(
        self, missing: Sequence[str], first: tuple[str, Any], storage: Storage
    ) -> None:
        """Do nothing: the first shard's header has been checked."""

    def _names_in(self, reader: ForwardReader) -> list[str]:
        return list(header(reader)[1].names)

    def _value(self, name: str, data: bytes) -> Any:
        return decode_value(self._kinds[name], data)

    def _kind(self, name: str) -> Kind:
        return KINDS.get(self._kinds[name], "bytes")

    def _largest(self, name: str) -> int:
        return LARGEST if self._kinds[name].startswith(("str", "json")) else LARGEST_ARRAY

    def _cuts(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        starts = self._index.offsets[ids]
        return starts, starts, starts + self._index.lengths[ids]

    def addresses(self, ids: np.ndarray) -> FileRanges | None:
        """Local images; None for remote shards, and for images that have to be converted."""
        if self._kinds[self._image] == "pil":
            return None
        return self._addresses(ids, self._index.checks[ids] == _DAMAGED)

    def byte_ranges(self, ids: np.ndarray) -> Sequence[StoredFile | None]:
        """Images in remote shards, unless they have to be converted."""
        if self._kinds[self._image] == "pil" or (self._index.checks[ids] == _DAMAGED).any():
            return [None] * len(ids)
        return self._byte_ranges(ids)

    def _unwrap(self, i: int, head: bytes, data: bytes) -> bytes | Unread:
        if self._index.checks[i] == _DAMAGED:
            return Unread("corrupt", "the sizes in the sample are invalid")
        try:
            return image_file(self._kinds[self._image], data)
        except ValueError as error:
            return Unread("corrupt", f"{self._image}: {error}")


def _class_label(value: Any) -> int | str | None:
    """A class's number or name; None for none. ValueError."""
    if isinstance(value, str) and value.isprintable():
        return value or None
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(value, bool) or not isinstance(value, int) or value >= 1 << 31:
        raise ValueError(f"got {printable(repr(value), 80)}, must be an integer or a string")
    return value if value >= 0 else None


_INDEX = "index.json"


def expand_indexes(shards: Paths, storage: Storage, allow: Allow) -> tuple[list[Any], Storage]:
    """Replace folders and index.json files by the shards they list; also return the storage."""
    items = listed_paths(shards)
    contents = [
        _content(item, storage) if isinstance(item, (str, os.PathLike)) else None for item in items
    ]
    names = IndexNames(
        items, [content[0] for content in contents if content], allow, storage, "MDSShards"
    )
    paths: list[Any] = []
    for item, content in zip(items, contents, strict=True):
        paths += [item] if content is None else _listed(*content, names)
    return paths, names.storage


def _content(item: Any, storage: Storage) -> tuple[str, bytes] | None:
    """The index that an item is, or has: its address and its content."""
    path = os.fspath(item).removeprefix("file://")
    if path.endswith(".mds") or any(c in path for c in "*?[{"):
        return None
    uri = path if path.endswith(_INDEX) else f"{path.rstrip('/')}/{_INDEX}"
    data = read_whole(uri, storage)
    if isinstance(data, Unread):
        if uri == path or data.reason != "not_found":
            raise SourceError(f"MDSShards: cannot read {uri}: {data.detail or data.reason}")
        return None
    return uri, data


def _listed(uri: str, data: bytes, names: IndexNames) -> Iterator[str]:
    """Addresses of the shards that an index.json lists. SourceError."""
    try:
        index = parse_json(data)
        if index["version"] != 2:
            raise ValueError(f"version {index['version']!r}, 2 can be read")
        for shard in index["shards"]:
            if shard["format"] != "mds":
                raise ValueError(f"a shard of format {shard['format']!r}; mds can be read")
            if shard.get("zip_data") is not None or shard.get("compression"):
                raise SourceError(
                    f"MDSShards: the shards of {uri} are compressed with"
                    f" {shard.get('compression')}: samples in them cannot be found without"
                    " unpacking all; unpack them, or write them without compression"
                )
            yield names.resolve(uri, uri, shard["raw_data"]["basename"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(
            f"MDSShards: {uri} is not an index of MDS shards: {type(error).__name__} {error}"
        ) from error
