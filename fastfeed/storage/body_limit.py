"""Upper bound on what a server may send in one answer."""

from __future__ import annotations

from typing import Any

from fastfeed.storage.byte_sizes import in_bytes
from fastfeed.storage.local_file import MAX_BYTES

__all__ = ["BodyTooLarge", "check_announced", "max_announced", "max_body"]

_MORE = "if you trust the server, pass storage={'max_body': ...} (--storage-option max_body=...)"


class BodyTooLarge(ValueError):
    """A body is larger than the limit. A ValueError: another request would not help."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; {_MORE}")


def max_body(options: dict[str, Any]) -> int:
    """Bytes of a body whose length the server does not say, or that it compresses. ConfigError."""
    return in_bytes(options.get("max_body", "256MB"), "storage: max_body")


def max_announced(options: dict[str, Any]) -> int:
    """Bytes of a body whose length is known before it is read. ConfigError."""
    return max(max_body(options), MAX_BYTES)


def check_announced(size: int | None, limit: int | None) -> None:
    """Raise BodyTooLarge if a body is known to exceed the limit."""
    if size is not None and limit is not None and size > limit:
        raise BodyTooLarge(f"a body of {size:,} bytes, the limit is {limit:,}")
