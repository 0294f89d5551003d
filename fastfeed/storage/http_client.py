"""HTTP sessions that limit bodies, withhold headers from other hosts and check addresses."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.resolver import DefaultResolver

from fastfeed.storage.byte_sizes import BodyTooLarge, check_announced
from fastfeed.storage.local_file import MAX_BYTES

# headers about the request itself; any other may be a secret: Authorization, Cookie, X-Api-Key,
# Private-Token ...
_PLAIN_HEADERS = frozenset(
    {"host", "accept", "accept-encoding", "user-agent", "range", "connection", "content-length"}
)

# of this task's request, before any redirect
_origin: ContextVar[object] = ContextVar("origin", default=None)


class Connector(aiohttp.TCPConnector):
    """Unlimited connections; redirects to another origin get none of the caller's headers.

    Args:
        **more (Any): As of aiohttp's connector.
    """

    def __init__(self, **more: Any) -> None:
        super().__init__(limit=0, **more)

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        """Connect for a request or a redirect."""
        if req.url.origin() != _origin.get():
            _withhold_headers(req)
        return await super().connect(req, traces, timeout)


def _withhold_headers(request: Any) -> None:
    """Remove all headers but those without which no request is understood."""
    for name in [name for name in request.headers if name.lower() not in _PLAIN_HEADERS]:
        del request.headers[name]


async def _note_origin(session: Any, context: Any, params: aiohttp.TraceRequestStartParams) -> None:
    _origin.set(params.url.origin())


def new_session(connector: Connector, limit: int, **more: Any) -> aiohttp.ClientSession:
    """A session whose responses are limited."""
    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(_note_origin)
    traces = [trace, *more.pop("trace_configs", ())]
    own: dict[str, Any] = {"connector": connector, "response_class": limited_response(limit)}
    return aiohttp.ClientSession(**own | more, trace_configs=traces)


def limited_response(limit: int) -> type[aiohttp.ClientResponse]:
    """Response class that limits bodies: to `limit` bytes if their length is not announced."""

    class Response(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            """Read the body up to the size limit."""
            if self._body is None:
                try:
                    self._body = await _body(self, limit)
                except BaseException:
                    # also a cancellation: the connection is not reused; raised again
                    self.close()
                    raise
            return await super().read()

    return Response


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    # one that is compressed in transit says how long it is before it is unpacked
    is_packed = response.headers.get("Content-Encoding", "identity") not in ("", "identity")
    announced = None if is_packed else response.content_length
    most = limit if announced is None else max(limit, MAX_BYTES)
    check_announced(announced, most)
    pieces = []
    size = 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            if is_packed:
                what = "a compressed body"
            else:
                what = "a body of a length that the server does not say"
            raise BodyTooLarge(f"{what} has more than {most:,} bytes")
    return b"".join(pieces)


class Guard(Protocol):
    """Rules for addresses from elsewhere. Errors are texts; None if allowed."""

    def names(self, host: str, port: int) -> bool: ...
    def url_error(self, url: str) -> str | None: ...
    def resolved_error(self, host: str, addresses: list[str]) -> str | None: ...


@dataclass(frozen=True, slots=True)
class GuardedClient:
    """Makes aiohttp's session: `get_client` of fsspec's HTTP file system. Pickles.

    Redirects and resolved addresses are checked before connecting, and the caller's headers go only
    to hosts that the caller named.
    """

    guard: Guard
    limit: int  # bytes of a body whose length the server does not say

    async def __call__(self, loop: Any = None, **more: Any) -> aiohttp.ClientSession:
        """Create a session with guarded connections."""
        return new_session(_GuardedConnector(self.guard), self.limit, **more)


class _GuardedConnector(Connector):
    def __init__(self, guard: Guard) -> None:
        super().__init__(resolver=_GuardedResolver(guard))
        self._guard = guard

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        if error := self._guard.url_error(str(req.url)):
            raise aiohttp.InvalidURL(str(req.url), error)  # a ValueError: it is not repeated
        if not self._guard.names(req.url.host or "", req.url.port or 0):
            _withhold_headers(req)
        return await super().connect(req, traces, timeout)


class _GuardedResolver(AbstractResolver):
    """aiohttp connects to the addresses that are checked here: they cannot change in between."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._resolver = DefaultResolver()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[Any]:
        addresses = await self._resolver.resolve(host, port, family)
        error = self._guard.resolved_error(host, [address["host"] for address in addresses])
        if error and not self._guard.names(host, port):
            raise aiohttp.InvalidURL(host, error)
        return addresses

    async def close(self) -> None:
        await self._resolver.close()
