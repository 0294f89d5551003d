"""The contract of a read in progress."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Pending"]


class Pending(Protocol):
    """A read that has begun. `concurrent.futures.Future` is one."""

    def done(self) -> bool:
        """`result` will not wait."""
        ...

    def result(self, timeout: float | None = None) -> Any:
        """Result of the read; TimeoutError after `timeout` seconds."""
        ...

    def cancel(self) -> object:
        """The result is no longer needed."""
        ...
