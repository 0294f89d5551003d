"""The HTTP client's session: bodies that a server does not announce are read up to a limit."""

from __future__ import annotations

from typing import Any

import aiohttp

from fastfeed.storage.local_file import MAX_BYTES

__all__ = ["new_session"]


class BodyTooLarge(ValueError):
    """A body is larger than the limit. A ValueError: another request would not help."""


def new_session(connector: aiohttp.TCPConnector, limit: int, **more: Any) -> aiohttp.ClientSession:
    """A session whose responses have up to MAX_BYTES, and `limit` where it is not announced how many they have."""

    class Response(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            """The body."""
            if self._body is None:
                try:
                    self._body = await _body(self, limit)
                except BaseException:  # also a cancellation: the connection is not reused; raised again
                    self.close()
                    raise
            return await super().read()

    return aiohttp.ClientSession(**{"connector": connector, "response_class": Response, **more})


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    # one that is compressed in transit says how long it is before it is unpacked
    is_packed = response.headers.get("Content-Encoding", "identity") not in ("", "identity")
    announced = None if is_packed else response.content_length
    most = limit if announced is None else MAX_BYTES
    if announced is not None and announced > most:
        raise BodyTooLarge(f"a body of {announced:,} bytes, the limit is {most:,}")
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            what = "a compressed body" if is_packed else "a body of a length that the server does not say"
            raise BodyTooLarge(
                f"{what} has more than {most:,} bytes; if you trust the server, pass storage={{'max_body': ...}} "
                "(--storage-option max_body=...)"
            )
    return b"".join(pieces)
