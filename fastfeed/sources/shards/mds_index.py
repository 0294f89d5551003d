"""The `index.json` of MosaicML's streaming: which shards of a folder it lists."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from fastfeed.errors import SourceError
from fastfeed.sources.shards.base import Paths
from fastfeed.storage.byte_range import ByteRange, is_local
from fastfeed.storage.local_file import read_file
from fastfeed.storage.retry import Unread
from fastfeed.storage.storage import Storage

__all__ = ["expand_indexes"]

_INDEX = "index.json"


def expand_indexes(shards: Paths, storage: Storage) -> list[Any]:
    """With each folder that has an index.json, and each index.json, replaced by the shards that it lists."""
    items = [shards] if isinstance(shards, (str, os.PathLike)) else list(shards)
    return [uri for item in items for uri in (_listed(os.fspath(item), storage) or [item])]


def _listed(item: str, storage: Storage) -> list[str]:
    item = item.removeprefix("file://")
    if item.endswith(".mds") or any(c in item for c in "*?[{"):
        return []
    uri = item if item.endswith(_INDEX) else f"{item.rstrip('/')}/{_INDEX}"
    data = read_file(uri) if is_local(uri) else storage.read([ByteRange(uri)])[0]
    if isinstance(data, Unread):
        if uri == item or data.reason != "not_found":
            raise SourceError(f"MDSShards: cannot read {uri}: {data.detail or data.reason}")
        return []
    return list(_names(uri, data))


def _names(uri: str, data: bytes) -> Iterator[str]:
    """Addresses of the shards that an index.json lists. SourceError."""
    try:
        index = json.loads(data)
        if index["version"] != 2:
            raise ValueError(f"version {index['version']!r}, 2 can be read")
        for shard in index["shards"]:
            if shard["format"] != "mds":
                raise ValueError(f"a shard of format {shard['format']!r}; mds can be read")
            if shard.get("zip_data") is not None or shard.get("compression"):
                raise SourceError(
                    f"MDSShards: the shards of {uri} are compressed with {shard.get('compression')}: samples in them "
                    "cannot be found without unpacking all; unpack them, or write them without compression"
                )
            name = shard["raw_data"]["basename"]
            if name.startswith("/") or "://" in name or ".." in name.split("/"):
                raise ValueError(f"a shard outside its folder: {name!r}")
            yield uri.removesuffix(_INDEX) + name
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"MDSShards: {uri} is not an index of MDS shards: {type(error).__name__} {error}") from error
