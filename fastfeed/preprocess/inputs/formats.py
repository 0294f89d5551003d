"""Opens shards and tables, with default names for the image, label and caption columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.access import Allow, parse_allow
from fastfeed.sources.base import Source
from fastfeed.sources.label_values import LabelKind
from fastfeed.sources.mds.shard import column_encodings
from fastfeed.sources.mds.source import expand_indexes
from fastfeed.sources.shards.base import Paths
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.tables.read_files import find_table, partitioned
from fastfeed.sources.tar.external_indexes import shards_from_wids
from fastfeed.sources.tar.headers import members
from fastfeed.sources.tfrecord.example import Example, FeatureNames
from fastfeed.sources.tfrecord.protobuf import LazyMessage, Malformed
from fastfeed.sources.tfrecord.records import records
from fastfeed.storage.expand import SPLIT, find_files
from fastfeed.storage.reads import Stat, Unread
from fastfeed.storage.shard_files import ShardReader
from fastfeed.storage.storage import Storage

# default names by kind of source: the first that exists is used
_IMAGES = {
    "tfrecord": ("image/encoded", "image", "image_raw", "jpg", "jpeg"),
    "mds": ("image", "jpg", "jpeg", "png"),
    "table": ("path", "image", "file_name", "filename", "file", "image_path", "url"),
}
_LABELS = {
    "tar": ("cls",),
    "tfrecord": ("image/class/label", "label", "class"),
    "mds": ("label", "cls"),
    "table": ("label",),
    "hugging_face": (),  # found by its description of the columns
}
_CAPTIONS = {
    "tar": ("txt", "caption"),
    "tfrecord": ("image/caption", "caption", "text"),
    "mds": ("caption", "text"),
    "table": ("caption", "text"),
    "hugging_face": ("caption", "text"),
}
_ALLOW = ("allow_path", "allow_host", "allow_scheme")
_SOURCES = {  # module, class, and optional arguments, by kind
    "tar": ("tar.source", "TarShards", (*_ALLOW, "progress", "index", "images")),
    "tfrecord": ("tfrecord.source", "TFRecords", ("image", "progress", "index")),
    "mds": ("mds.source", "MDSShards", (*_ALLOW, "image", "progress", "index")),
    "table": ("table", "Table", (*_ALLOW, "image")),
    "hugging_face": ("hugging_face.source", "HuggingFace", (*_ALLOW, "image")),
}


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Names of columns, tar members or features. None: the default name; "": no such column."""

    label: str | None = None
    image: str | None = None
    caption: str | None = None


def default_labels(kind: str) -> tuple[str, ...]:
    """Default names of the label in sources of this kind."""
    return _LABELS.get(kind, ())


def resolve_columns(
    kind: str,
    paths: Paths,
    requested: ColumnNames,
    storage: Storage,
    allow: Mapping[str, Any] | None = None,
) -> ColumnNames:
    """Fill in default names of columns; "" if the source has none of them."""
    if None not in (requested.label, requested.image, requested.caption):
        return requested
    folders, hosts, schemes = ((allow or {}).get(name, ()) for name in _ALLOW)
    available = peek_columns(
        kind, paths, storage, parse_allow(folders, hosts, schemes, "preprocess")
    )
    image = requested.image or _first(_IMAGES.get(kind, ()), available)
    if not image and kind in _IMAGES:
        place = paths if isinstance(paths, str) else f"{len(list(paths))} files"  # type: ignore[arg-type]
        raise ConfigError(
            f"cannot tell which column of {place} holds the images, got"
            f" {', '.join(available) or 'none'}; name it with image (--image)",
            field="image",
        )
    label = _first(_LABELS[kind], available) if requested.label is None else requested.label
    caption = _first(_CAPTIONS[kind], available) if requested.caption is None else requested.caption
    return ColumnNames(label, image, (*normalize_names(kind, [caption]), "")[0])


def open_shards(
    kind: str,
    paths: Paths,
    requested: ColumnNames,
    columns: Sequence[str],
    storage: Storage,
    progress: bool | None = None,
    classes: Sequence[str] | None = None,
    allow: Mapping[str, Any] | None = None,
    label_kind: LabelKind | None = None,
    more: Mapping[str, Any] | None = None,
    binary: Collection[str] = (),
) -> tuple[Source, ColumnNames]:
    """Open shards or a table; also returns the column names that were used.

    `more`: further arguments of the source, such as `index`. `binary`: columns of bytes.
    """
    if kind == "raw":
        from fastfeed.sources.raw import RawShards

        return RawShards(paths, classes=classes or (), storage=storage), ColumnNames()
    resolved = resolve_columns(kind, paths, requested, storage, allow)
    check_label_named(resolved, label_kind)
    module, name, accepted = _SOURCES[kind]
    source_class = getattr(import_module(f"fastfeed.sources.{module}"), name)
    given = {"progress": progress, "image": resolved.image, **(allow or {}), **(more or {})}
    options = {name: value for name, value in given.items() if name in accepted}
    carried = normalize_names(kind, [name for name in (resolved.caption, *columns) if name])
    options["columns"] = list(dict.fromkeys(_field_column(kind, name, binary) for name in carried))
    options["label_kind"] = label_kind or ("name" if kind in ("table", "hugging_face") else None)

    def opened(label: str | None) -> Source:
        own = {"label": label, "classes": classes if label else None, "storage": storage}
        return source_class(paths, **own, **options)

    if requested.label is None and resolved.label and label_kind != "multi":
        try:
            source = opened(resolved.label)
            if bool(np.any(source.label(np.arange(len(source))) >= 0)):
                return source, resolved
        except SourceError:  # no sample has a label; any other error is raised again below
            pass
        resolved = replace(resolved, label="")
    return opened(resolved.label or None), resolved


def check_label_named(names: ColumnNames, label_kind: LabelKind | None) -> None:
    """ConfigError if labels are lists of classes, and no column has them."""
    if label_kind == "multi" and not names.label:
        raise ConfigError(
            "preprocess: label_kind='multi' needs the name of a label; name the lists of classes with"
            " label (--label)",
            field="label",
        )


def normalize_names(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """Tar members as lower-case extensions without a dot; "json:a.b" is a JSON field."""
    if kind != "tar":
        return tuple(names)
    parts = [name.partition(":") for name in names]
    return tuple(extension.lower().lstrip(".") + colon + path for extension, colon, path in parts)


def _field_column(kind: str, name: str, binary: Collection[str]) -> str:
    """The column that contains this field."""
    if kind in ("tar", "tfrecord") and name in binary:
        return f"{name}:bytes"
    return name.partition(":")[0] if kind in ("tar", "mds") else name


def _first(candidates: Sequence[str], available: Sequence[str]) -> str:
    return next((name for name in candidates if name in available), "")


_BLOCK = 1 << 20  # bytes
_SAMPLES = 32  # samples to read: some may lack a label
_MEMBERS = 1000  # tar members to read at most
_LINES = 100  # JSON lines to read


def peek_columns(kind: str, paths: Paths, storage: Storage, allow: Allow) -> list[str]:
    """Names of columns, features, or member extensions in the first samples. SourceError."""
    if kind == "table":
        uri, stat = find_table(paths, storage)[0][0]
        return list(dict.fromkeys([*_columns(uri, stat, storage), *partitioned(uri, {})[0]]))
    if kind == "hugging_face":
        from fastfeed.sources.hugging_face.source import column_names

        return column_names(str(paths), storage)
    if kind == "mds":
        named, storage = expand_indexes(paths, storage, allow)
        return list(column_encodings(*find_files(named, ".mds", storage, "MDSShards")[0], storage))
    if kind == "tar":
        named, _, storage = shards_from_wids(paths, storage, allow, "TarShards")
        files = find_files(named, ".tar", storage, "TarShards")
        return next(filter(None, map(_members, _peeks(files, storage))), [])
    files = find_files(paths, ".tfrecord", storage, "TFRecords", also=SPLIT)
    return next(filter(None, map(_features, _peeks(files, storage))), [])


def _peeks(files: list[tuple[str, Stat]], storage: Storage) -> Any:
    """The first shards: some may be empty."""
    shards = ShardReader([uri for uri, _ in files], [stat for _, stat in files], storage)
    for k, (uri, stat) in enumerate(files[:10]):
        yield ForwardReader(uri, stat.size, partial(_read, shards, k), _BLOCK)


def _read(shards: ShardReader, k: int, start: int, count: int) -> bytes:
    data = shards.read(k, start, min(start + count, shards.stats[k].size))
    if isinstance(data, Unread):
        raise SourceError(f"cannot read {shards.uris[k]}: {data.detail or data.reason}")
    return data


def _members(reader: ForwardReader) -> list[str]:
    """Extensions of the members of the first samples."""
    keys: set[str] = set()
    extensions: dict[str, None] = {}
    for member in islice(members(reader, []), _MEMBERS):
        folder, _, base = member.name.rpartition("/")
        stem, dot, extension = base.partition(".")
        if stem and dot:
            keys.add(f"{folder}/{stem}")
            extensions[extension.lower()] = None
        if len(keys) > _SAMPLES:
            break
    return list(extensions)


def _features(reader: ForwardReader) -> list[str]:
    """Features of the first records."""
    features: dict[str, None] = {}
    for offset, length in islice(records(reader, []), _SAMPLES):
        # a record's frame
        start = offset + 12
        stop = offset + length - 4
        with suppress(Malformed):
            message = LazyMessage(reader.read, stop)
            features |= dict.fromkeys(Example(message, start, stop, FeatureNames(b"\0")).names())
    return list(features)


def _columns(uri: str, stat: Stat, storage: Storage) -> list[str]:
    """Column names of a table, from its header, its first lines or its footer."""
    shards = ShardReader([uri], [stat], storage)
    name = uri.lower().partition("?")[0]
    if name.endswith(".parquet"):
        from fastfeed.sources.tables.parquet import read_footer  # loads PyArrow

        return list(read_footer(shards, 0).schema.names)
    text = _read(shards, 0, 0, _BLOCK).decode("utf-8-sig", "replace")
    if name.endswith((".csv", ".tsv")):
        delimiter = "\t" if name.endswith(".tsv") else ","
        return next(csv.reader(io.StringIO(text), delimiter=delimiter), [])
    keys: dict[str, None] = {}
    for line in text.split("\n")[:_LINES]:
        try:
            row = json.loads(line)
        except ValueError:  # reported when the whole table is read
            continue
        keys |= dict.fromkeys(row) if isinstance(row, dict) else {}
    return list(keys)
