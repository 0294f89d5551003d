"""Metadata columns of shards of pixels: `NAME.meta.jsonl`, a line of JSON per sample."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.storage.expand import stat_file
from fastfeed.storage.reads import Unread
from fastfeed.storage.shard_files import ShardReader
from fastfeed.storage.storage import Storage

_META = ".meta.jsonl"
_PARTS = ("text", "meta")  # the caption, and all metadata


class RawColumns:
    """Values of samples, read on demand. SourceError, ConfigError."""

    def __init__(self, arrays: Sequence[str], names: Sequence[str], storage: Storage) -> None:
        self.names = tuple(names)
        uris = [uri.removesuffix(".npy") + _META for uri in arrays]
        stats = [stat_file(uri, storage) for uri in uris]
        for uri, stat in zip(uris, stats, strict=True):
            if isinstance(stat, Unread):
                raise SourceError(f"RawShards: cannot read {uri}: {stat.detail or stat.reason}")
        known = [stat for stat in stats if not isinstance(stat, Unread)]
        self._shards = ShardReader(uris, known, storage)
        self._bounds: dict[int, np.ndarray] = {}  # int64 (n + 1,): where lines begin, by shard
        shard = next(k for k, stat in enumerate(known) if stat.size)
        first = self.read(shard, 0)
        if isinstance(first, Unread):
            raise SourceError(f"RawShards: cannot read {uris[shard]}: {first.detail}")
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
