"""An HTTP client for addresses that a file from elsewhere names.

What they redirect and resolve to is checked before connecting, and the caller's headers go to hosts that the caller
named, and to no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.resolver import DefaultResolver

from fastfeed.sources.access import REFUSED, Access, Refusal, is_public
from fastfeed.storage.http_client import new_session

__all__ = ["GuardedClient"]

# what a request says of itself; anything else may be a secret: Authorization, Cookie, X-Api-Key, Private-Token ...
_PLAIN_HEADERS = frozenset({"host", "accept", "accept-encoding", "user-agent", "range", "connection", "content-length"})


@dataclass(frozen=True, slots=True)
class GuardedClient:
    """Makes aiohttp's session: `get_client` of fsspec's HTTP file system. Pickles."""

    access: Access
    limit: int  # bytes of a body whose length the server does not say

    async def __call__(self, loop: Any = None, **more: Any) -> aiohttp.ClientSession:
        """A session without aiohttp's own limit of 100 connections."""
        return new_session(_Connector(self.access), self.limit, **more)


class _Connector(aiohttp.TCPConnector):
    """Checks the address of every request, of redirects too, and what hosts resolve to."""

    def __init__(self, access: Access) -> None:
        super().__init__(limit=0, resolver=_Resolver(access))
        self._fastfeed_access = access

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        refusal = self._fastfeed_access.refusal(str(req.url))
        if refusal is not None:
            raise _error(str(req.url), refusal)
        if not self._fastfeed_access.names(req.url.host or "", req.url.port or 0):
            for name in [name for name in req.headers if name.lower() not in _PLAIN_HEADERS]:
                del req.headers[name]
        return await super().connect(req, traces, timeout)


class _Resolver(AbstractResolver):
    def __init__(self, access: Access) -> None:
        self._access, self._resolver = access, DefaultResolver()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[Any]:
        """As aiohttp's. aiohttp connects to these very addresses: they cannot change in between."""
        addresses = await self._resolver.resolve(host, port, family)
        if not self._access.names(host, port):
            private = [address["host"] for address in addresses if not is_public(address["host"])]
            if private:
                raise _error(host, Refusal(f"{host} is {private[0]}, a private address", host=host))
        return addresses

    async def close(self) -> None:
        await self._resolver.close()


def _error(url: str, refusal: Refusal) -> aiohttp.InvalidURL:
    """A ValueError of aiohttp's: requests that end with it are not repeated."""
    return aiohttp.InvalidURL(url, REFUSED + refusal.detail)
