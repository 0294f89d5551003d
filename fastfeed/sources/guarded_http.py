"""An HTTP client for addresses that a file from elsewhere names.

What they redirect and resolve to is checked before connecting, and the caller's headers go to hosts
that the caller named, and to no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.resolver import DefaultResolver

from fastfeed.sources.access import REFUSED, Access, Refusal, is_public
from fastfeed.storage.http_client import Connector, new_session, withhold_headers

__all__ = ["GuardedClient"]


@dataclass(frozen=True, slots=True)
class GuardedClient:
    """Makes aiohttp's session: `get_client` of fsspec's HTTP file system. Pickles."""

    access: Access
    limit: int  # bytes of a body whose length the server does not say

    async def __call__(self, loop: Any = None, **more: Any) -> aiohttp.ClientSession:
        """Create the session."""
        return new_session(_Connector(self.access), self.limit, **more)


class _Connector(Connector):
    """Checks the address of every request, of redirects too, and what hosts resolve to."""

    def __init__(self, access: Access) -> None:
        super().__init__(resolver=_Resolver(access))
        self._fastfeed_access = access

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        refusal = self._fastfeed_access.refusal(str(req.url))
        if refusal is not None:
            raise _error(str(req.url), refusal)
        if not self._fastfeed_access.names(req.url.host or "", req.url.port or 0):
            withhold_headers(req)
        return await super().connect(req, traces, timeout)


class _Resolver(AbstractResolver):
    def __init__(self, access: Access) -> None:
        self._access = access
        self._resolver = DefaultResolver()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[Any]:
        """Resolve a host and check its addresses, which aiohttp then connects to."""
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
