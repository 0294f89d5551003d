"""Servers that send more than they announced, or than fits: a limit ends it, and it is said how to
lift that.
"""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fsspec
import pytest

from fastfeed.sources import Storage
from fastfeed.storage import byte_sizes
from fastfeed.storage import s3 as s3_module
from fastfeed.storage.byte_sizes import BodyTooLarge
from fastfeed.storage.reads import ByteRange, Stat, Unread
from fastfeed.storage.s3 import S3Reader

BODY = bytes(3 << 20)
PIECE = bytes(64 << 10)


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sent = 0

    def do_GET(self) -> None:
        self.close_connection = True
        self.send_response(302 if "/to/" in self.path else 200)
        if "/to/" in self.path:
            self.send_header("Location", self.path.partition("/to/")[2])
            self.send_header("Content-Length", "0")
        if self.path == "/gzip":
            content = gzip.compress(BODY)
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(content)))
        if self.path == "/huge":
            self.send_header("Content-Length", str(1 << 40))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.path == "/gzip":
            self.wfile.write(content)
        if self.path in ("/endless", "/huge"):
            try:
                while True:
                    self.wfile.write(PIECE)
                    type(self).sent += len(PIECE)
            except OSError:  # the client has gone
                pass

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Request)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    made.server_close()
    thread.join()


def read(url: str, **options: object) -> bytes | Unread:
    return Storage(options).read([ByteRange(url)])[0]


@pytest.mark.parametrize("path", ["/endless", "/gzip"])
def test_a_body_of_unknown_length(server: str, path: str) -> None:
    _Request.sent = 0
    bad = read(server + path, max_body="1MB")
    assert isinstance(bad, Unread) and bad.reason == "bomb"
    assert "has more than 1,000,000 bytes" in bad.detail and "max_body" in bad.detail
    assert _Request.sent < 64 << 20  # what lies in buffers of sockets


def test_a_body_that_is_announced_too_large(server: str) -> None:
    bad = read(server + "/huge")
    assert isinstance(bad, Unread) and (bad.reason, "1,099,511,627,776 bytes" in bad.detail) == (
        "bomb",
        True,
    )


def test_a_larger_limit(server: str) -> None:
    assert read(server + "/gzip", max_body="4MB") == BODY


@pytest.mark.parametrize("client", ["obstore", "s3fs", "memory"])
def test_objects_whose_size_is_not_known_before(
    client: str, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_sizes, "MAX_BYTES", 1 << 20)
    if client == "memory":
        uri, options = "memory://endless/a.bin", {}
        fsspec.filesystem("memory").pipe("/endless/a.bin", BODY)
    else:
        pytest.importorskip(client)
        pytest.importorskip("s3fs")
        if client == "s3fs":
            monkeypatch.setattr(s3_module, "obstore", None)
        s3 = request.getfixturevalue("s3")
        s3.put("bucket/a.bin", BODY)
        uri, options = "s3://bucket/a.bin", s3.options
    bad = read(uri, **options, max_body="1MB")
    assert isinstance(bad, Unread) and bad.reason == "bomb"
    assert (
        "a body of 3,145,728 bytes, the limit is 1,048,576" in bad.detail
        and "max_body" in bad.detail
    )
    assert read(uri, **options, max_body="4MB") == BODY
    part = ByteRange(uri, 0, len(BODY))
    assert Storage({**options, "max_body": "1MB"}).read([part]) == [BODY]


@pytest.mark.parametrize("client", ["obstore", "s3fs", "memory"])
def test_objects_larger_than_listed_are_not_read(
    client: str, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Stat(10, "")
    if client == "memory":
        asked: list[int] = []
        system = type(fsspec.filesystem("memory"))
        cat_file = system.cat_file

        def counted(self: Any, path: str, start: Any = None, end: Any = None, **how: Any) -> bytes:
            data = cat_file(self, path, start, end, **how)
            asked.append(len(data))
            return data

        fsspec.filesystem("memory").pipe("/grown/a.bin", BODY)
        monkeypatch.setattr(system, "cat_file", counted)
        (bad,) = Storage().read([ByteRange("memory://grown/a.bin", stat=listed)])
        assert bad == Unread("changed", "3145728 bytes, 10 when it was listed") and asked == [11]
        return
    pytest.importorskip(client)
    pytest.importorskip("s3fs")
    if client == "s3fs":
        monkeypatch.setattr(s3_module, "obstore", None)
    s3 = request.getfixturevalue("s3")
    s3.put("bucket/a.bin", BODY)
    (bad,) = Storage(s3.options).read([ByteRange("s3://bucket/a.bin", stat=listed)])
    assert bad == Unread("changed", "it has more than the 10 bytes that were listed")


class _Unannounced:
    """A body and a client of s3fs, whose server says no length."""

    req_kw: dict[str, Any] = {}
    sent = 0

    async def _call_s3(self, verb: str, **options: Any) -> dict[str, Any]:
        return {"Body": self}

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def read(self, amount: int = -1) -> bytes:
        assert 0 < amount <= len(BODY), "never all there is"
        self.sent += amount
        return bytes(amount)

    def split_path(self, path: str) -> tuple[str, str, None]:
        return "bucket", path, None


def test_an_object_without_an_announced_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "obstore", None)
    system = _Unannounced()
    with pytest.raises(BodyTooLarge, match=r"more than 5,000,000 bytes; .* max_body"):
        asyncio.run(S3Reader(system).read("a.bin", limit=5_000_000))
    assert system.sent < 10_000_000


def test_a_client_that_knows_no_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_sizes, "MAX_BYTES", 1 << 20)
    system = fsspec.filesystem("memory")
    system.pipe("/sizeless/a.bin", BODY)
    monkeypatch.setattr(type(system), "info", lambda self, path, **how: {"type": "file"})
    bad = read("memory://sizeless/a.bin", max_body="1MB")
    assert isinstance(bad, Unread) and bad.reason == "bomb" and "max_body" in bad.detail
    assert read("memory://sizeless/a.bin", max_body="4MB") == BODY


@pytest.mark.parametrize(
    "where", ["ftp://127.0.0.1/x", "file:///etc/passwd", "gopher://127.0.0.1/x"]
)
def test_a_redirect_to_another_scheme_fails_at_once(server: str, where: str) -> None:
    bad = read(f"{server}/to/{where}")
    assert isinstance(bad, Unread) and bad.reason == "io_error" and "attempt" not in bad.detail, bad
