"""Objects for the cache of remote bytes, and what really lies in its folder."""

from __future__ import annotations

import fcntl
import os
import random
from pathlib import Path
from typing import NamedTuple

from fastfeed.storage.disk_cache import Cache

BLOCK = 4096  # bytes; files are counted in whole ones


def content(uri: str, size: int) -> bytes:
    return random.Random(uri).randbytes(size)


def fill(cache: Cache, uri: str, size: int, version: str = "1") -> bytes:
    """Put a whole object."""
    blob = content(uri, size)
    for number, start, stop in cache.missing(uri, version, 0, size, size):
        cache.put(uri, version, number, blob[start:stop], size)
    return blob


def whole(cache: Cache, uri: str, size: int, version: str = "1") -> bytes | None:
    return cache.get(uri, version, 0, size, size)


class Audit(NamedTuple):
    counted: int  # bytes, by the file `usage`
    found: int  # bytes, by looking
    chunks: int
    drafts: int


def audit(folder: str | os.PathLike[str]) -> Audit:
    """Look into the folder while no one can change it."""
    with open(os.path.join(folder, "usage"), "r+b") as usage:
        fcntl.flock(usage, fcntl.LOCK_EX)
        try:
            files = [path for path in Path(folder).glob("??/*") if "-" in path.name]
            found = sum(-(-path.stat().st_size // BLOCK) * BLOCK for path in files)
            drafts = sum("." in path.name for path in files)
            return Audit(int(usage.read().split()[0]), found, len(files) - drafts, drafts)
        finally:
            fcntl.flock(usage, fcntl.LOCK_UN)
