"""As much of HTTP/1.1 as `s3_front` needs: requests read, replies written, ranges cut from a whole
object's reply.
"""

from __future__ import annotations

import asyncio
import http.client
import re
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

# not passed on
_FRAMING = {
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "transfer-encoding",
}
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_MOTOS_PART = {"if-none-match", "if-modified-since", "if-unmodified-since"}
_PRESIGNED = {"AWSAccessKeyId", "Expires", "Signature"}


@dataclass(frozen=True, slots=True)
class Request:
    at_s: float  # time.monotonic() when it came
    method: str  # "": not a request, the client has closed the connection
    target: str = ""  # /bucket/key?query, quoted
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    def reads_object(self) -> bool:
        """It is a signed GET of an object, and asks for nothing that only moto understands."""
        names = {name for name, _ in parse_qsl(urlsplit(self.target).query, keep_blank_values=True)}
        presigned = bool(names & {"Signature", "X-Amz-Signature"})
        return (
            self.method == "GET"
            and self.path.strip("/").count("/") > 0
            and (presigned or "authorization" in self.headers)
            and all(name.startswith("X-Amz-") or name in _PRESIGNED for name in names)
            and not _MOTOS_PART & self.headers.keys()
        )


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: list[tuple[str, str]]
    body: bytes | memoryview = b""

    def part(self, request: Request) -> Reply | None:
        """From a whole object's reply, the one to a request for some of it.

        None where that takes more than cutting.
        """
        etag = next(value for name, value in self.headers if name.lower() == "etag")
        if request.headers.get("if-match", etag).strip('"') != etag.strip('"'):
            return None
        size, start, stop = len(self.body), 0, len(self.body)
        if "range" in request.headers:
            asked = _RANGE.fullmatch(request.headers["range"])
            if not asked:
                return None
            first, last = asked.groups()
            if first:
                start, stop = int(first), min(size, int(last) + 1) if last else size
            elif last:
                start = max(0, size - int(last))
            else:
                return None
            if start >= stop:
                return None
        headers = self.headers
        if (
            stop - start < size
            or request.headers.get("x-amz-checksum-mode", "").upper() != "ENABLED"
        ):
            headers = [
                header for header in headers if not header[0].lower().startswith("x-amz-checksum-")
            ]
        if "range" not in request.headers:
            return Reply(200, headers, self.body)
        span = ("content-range", f"bytes {start}-{stop - 1}/{size}")
        return Reply(206, [*headers, span], memoryview(self.body)[start:stop])


async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    """The next request of a connection."""
    try:
        return await _receive(reader, writer)
    except (ConnectionError, asyncio.IncompleteReadError):
        return Request(time.monotonic(), "")


async def _receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    at_s = time.monotonic()
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise ValueError(
            f"s3_front takes bodies with a Content-Length, got {method} {target} in chunks"
        )
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return Request(
        at_s,
        method,
        target,
        headers,
        await reader.readexactly(int(headers.get("content-length", 0))),
    )


async def send(
    writer: asyncio.StreamWriter, request: Request, reply: Reply, part: float = 1.0
) -> int:
    """Write a reply, or the first part of its body; the bytes of body written."""
    lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    bare = request.method == "HEAD" or reply.status in (204, 304)
    if not bare:
        lines.append(f"content-length: {len(reply.body)}")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    sent = memoryview(b"" if bare else reply.body)[: int(len(reply.body) * part)]
    writer.write(sent)
    await writer.drain()
    return len(sent)


def ask(address: tuple[str, int], request: Request) -> Reply:
    """Another server's reply to this request."""
    connection = http.client.HTTPConnection(*address)
    try:
        connection.putrequest(
            request.method, request.target, skip_host=True, skip_accept_encoding=True
        )
        for name, value in request.headers.items():
            if name not in _FRAMING:
                connection.putheader(name, value)
        connection.putheader("content-length", str(len(request.body)))
        connection.putheader("connection", "close")
        connection.endheaders(request.body)
        reply = connection.getresponse()
        # there, of the body that is not sent
        length = {"content-length"} if request.method == "HEAD" else set()
        headers = [
            header for header in reply.getheaders() if header[0].lower() not in _FRAMING - length
        ]
        return Reply(reply.status, headers, reply.read())
    finally:
        connection.close()
