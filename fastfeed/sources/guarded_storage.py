"""The storage in which files are read that a file from elsewhere names."""

from __future__ import annotations

from fastfeed.sources.access import Access
from fastfeed.storage.body_limit import max_body
from fastfeed.storage.storage import Storage

__all__ = ["guarded"]


def guarded(storage: Storage, access: Access) -> Storage:
    """The same storage with a client that checks what web addresses redirect and resolve to.

    The caller's headers go to hosts that the caller named, and to no other. A client of the
    caller's own stays.
    """
    if "get_client" in storage.options:
        return storage
    try:
        from fastfeed.sources.guarded_http import GuardedClient  # loads aiohttp
    except ImportError:  # the storage says what is missing
        return storage
    options = storage.options | {"get_client": GuardedClient(access, max_body(storage.options))}
    return Storage(options, cache=storage.cache, in_flight=storage.in_flight, policy=storage.policy)
