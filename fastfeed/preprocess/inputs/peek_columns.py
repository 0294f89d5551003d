"""Reads the column names of shards or a table from their first samples."""

from __future__ import annotations

import csv
import io
import json
from contextlib import suppress
from itertools import islice
from typing import Any

from fastfeed.errors import SourceError
from fastfeed.sources.access import Allow
from fastfeed.sources.mds.shard import column_encodings
from fastfeed.sources.mds.source import expand_indexes
from fastfeed.sources.shards.base import Paths
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.shards.index import Notes
from fastfeed.sources.tables.read_files import find_table, partition_columns
from fastfeed.sources.tar.external_indexes import shards_from_wids
from fastfeed.sources.tar.headers import members
from fastfeed.sources.tfrecord.example import Example, FeatureNames
from fastfeed.sources.tfrecord.protobuf import LazyMessage, Malformed
from fastfeed.sources.tfrecord.source import records
from fastfeed.storage.expand import SPLIT, find_files
from fastfeed.storage.reads import Stat, Unread
from fastfeed.storage.shard_files import ShardReader
from fastfeed.storage.storage import Storage

__all__ = ["peek_columns"]

_BLOCK = 1 << 20  # bytes
_SAMPLES = 32  # samples to read: some may lack a label
_MEMBERS = 1000  # tar members to read at most
_LINES = 100  # JSON lines to read


def peek_columns(kind: str, paths: Paths, storage: Storage, allow: Allow) -> list[str]:
    """Names of columns, features, or member extensions; of TFRecords and tars, those of the first
    samples.

    SourceError, ConfigError: nothing is there, or it is of another kind.
    """
    if kind == "table":
        uri, stat = find_table(paths, storage)[0][0]
        return list(dict.fromkeys([*_columns(uri, stat, storage), *partition_columns(uri)]))
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
        yield ForwardReader(
            uri, stat.size, lambda start, count, k=k: _read(shards, k, start, count), _BLOCK
        )


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
    for offset, length in islice(records(reader, Notes()), _SAMPLES):
        start, stop = offset + 12, offset + length - 4  # a record's frame
        with suppress(Malformed):
            features |= dict.fromkeys(
                Example(LazyMessage(reader.read, stop), start, stop, FeatureNames(b"\0")).names()
            )
    return list(features)


def _columns(uri: str, stat: Stat, storage: Storage) -> list[str]:
    """Column names of a table, from its header, its first lines or its footer."""
    shards, name = ShardReader([uri], [stat], storage), uri.lower().partition("?")[0]
    if name.endswith(".parquet"):
        from fastfeed.sources.tables.parquet import read_footer  # loads PyArrow

        return list(read_footer(shards, 0).schema.names)
    text = _read(shards, 0, 0, _BLOCK).decode("utf-8-sig", "replace")
    if name.endswith((".csv", ".tsv")):
        return next(
            csv.reader(io.StringIO(text), delimiter="\t" if name.endswith(".tsv") else ","), []
        )
    keys: dict[str, None] = {}
    for line in text.split("\n")[:_LINES]:
        try:
            row = json.loads(line)
        except ValueError:  # reported when the whole table is read
            continue
        keys |= dict.fromkeys(row) if isinstance(row, dict) else {}
    return list(keys)
