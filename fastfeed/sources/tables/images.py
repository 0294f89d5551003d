"""Protocol of readers of a table's images: files or row groups."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.storage.byte_range import is_local
from fastfeed.storage.disk_cache import in_bytes
from fastfeed.storage.pending import Pending
from fastfeed.storage.retry import Unread

__all__ = ["Images", "folder_of", "memory_of"]


class Images(Protocol):
    """Random access to the images of a table's rows."""

    remote: bool

    @property
    def bounds(self) -> np.ndarray: ...
    def uri(self, i: int) -> str: ...
    def read(self, i: int) -> bytes | Unread: ...
    def fetch(self, i: int) -> Pending: ...
    def sizes(self, ids: np.ndarray) -> np.ndarray: ...
    def shard(self, unit: int) -> str: ...


def memory_of(memory: int | str) -> int:
    """Bytes that row groups may take. ConfigError."""
    try:
        return in_bytes(memory)
    except ConfigError as error:
        raise ConfigError(
            f'Table: memory must be bytes > 0, or a string such as "2GB", got {memory!r}'
        ) from error


def folder_of(uri: str) -> str:
    """Folder of a table, at which its paths begin."""
    return os.path.dirname(uri) if is_local(uri) else uri.partition("?")[0].rpartition("/")[0]
