"""Names and modification times of a disk cache's files."""

from __future__ import annotations

import hashlib
import zlib
from functools import lru_cache

__all__ = ["mark_ns_of", "prefix_of"]


@lru_cache(
    4096
)  # a large object is asked for many times, a small one by `missing` and then by `get`
def prefix_of(folder: str, chunk: int, uri: str, version: str, size: int) -> str:
    """The path of an object's chunks, up to their number.

    No other object, and no other way to cut it, has the same.
    """
    text = f"{chunk} {size} {len(uri)} {uri}{version}"  # the length says where the uri ends
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{folder}/{key[:2]}/{key}-"


def mark_ns_of(boot: str) -> int:
    """Modification time of chunks checked since this boot of the machine.

    Times themselves could not be compared with the machine's start: clocks are wrong at times, and
    then set right. Even seconds, and between 1980 and 1997: every file system can hold them, and
    none takes them to be in the future.
    """
    seconds = zlib.crc32(boot.encode()) >> 4
    return (315532800 + 2 * seconds) * 10**9
