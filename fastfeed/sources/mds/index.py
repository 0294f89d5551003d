"""The `index.json` of MosaicML's streaming: which shards of a folder it lists."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from fastfeed.errors import SourceError
from fastfeed.sources.access import Allow
from fastfeed.sources.shards.base import Paths
from fastfeed.sources.shards.index_names import IndexNames, shard_paths
from fastfeed.storage.byte_range import ByteRange, is_local
from fastfeed.storage.local_file import read_file
from fastfeed.storage.retry import Unread
from fastfeed.storage.storage import Storage

__all__ = ["expand_indexes"]

_INDEX = "index.json"


def expand_indexes(shards: Paths, storage: Storage, allow: Allow) -> tuple[list[Any], Storage]:
    """Replace folders and index.json files by the shards they list; also return the storage."""
    items = shard_paths(shards)
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
    data = read_file(uri) if is_local(uri) else storage.read([ByteRange(uri)])[0]
    if isinstance(data, Unread):
        if uri == path or data.reason != "not_found":
            raise SourceError(f"MDSShards: cannot read {uri}: {data.detail or data.reason}")
        return None
    return uri, data


def _listed(uri: str, data: bytes, names: IndexNames) -> Iterator[str]:
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
                    f"MDSShards: the shards of {uri} are compressed with"
                    f" {shard.get('compression')}: samples in them cannot be found without"
                    " unpacking all; unpack them, or write them without compression"
                )
            yield names.resolve(uri, uri, shard["raw_data"]["basename"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(
            f"MDSShards: {uri} is not an index of MDS shards: {type(error).__name__} {error}"
        ) from error
