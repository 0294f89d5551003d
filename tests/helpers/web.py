"""A web server on this machine, for tests of remote sources."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """What it serves, by path, and what was asked for."""

    def __init__(self, files: Mapping[str, bytes], url: str) -> None:
        self.files, self.url = dict(files), url
        self.redirects: dict[str, str] = {}  # addresses by path
        self.refused: dict[str, int] = {}  # statuses by path
        self.answer: Callable[[str], bytes | None] = lambda path: None  # to what is no file
        self.asked: Counter[str] = Counter()  # "GET /a.jpg" -> how often
        self.parts: set[tuple[str, int, int]] = set()  # (path, start, stop) of ranges asked for
        self.headers: list[dict[str, str]] = []  # of each request, names in lower case
        self.bytes = 0  # of bodies
        self.versions: Counter[str] = Counter()  # of files that were replaced

    def replace(self, path: str, content: bytes) -> None:
        self.files[path] = content
        self.versions[path] += 1


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # they end with the server: no test leaves one behind
    web: Web


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5  # of a connection that is kept open
    server: _Server

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        web = self.server.web
        web.asked[f"{self.command} {self.path}"] += 1
        web.headers.append({name.lower(): value for name, value in self.headers.items()})
        content = web.files.get(self.path)
        if content is None:
            content = web.answer(self.path)
        status, range_ = 200 if content is not None else 404, self.headers.get("Range", "")
        status = web.refused.get(self.path, status)
        data = content if content is not None else b"nothing here"
        self.close_connection = True
        if self.path in web.redirects:
            status, data = 302, b""
        if content is not None and range_.startswith("bytes="):
            first, _, last = range_.removeprefix("bytes=").partition("-")
            start, stop = int(first), int(last) + 1 if last else len(content)
            status, data = 206, content[start:stop]
            web.parts.add((self.path, start, stop))
        self.send_response(status)
        if self.path in web.redirects:
            self.send_header("Location", web.redirects[self.path])
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content or b'')}")
        if content is not None:
            self.send_header(
                "Last-Modified", formatdate(1e9 + web.versions[self.path], usegmt=True)
            )
            self.send_header("ETag", f'"{hash(content):x}-{web.versions[self.path]}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        if body:
            web.bytes += len(data)
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def web(files: Mapping[str, bytes]) -> Iterator[Web]:
    """Serve these while inside."""
    server = _Server(("127.0.0.1", 0), _Request)
    server.web = Web(files, f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="web-server")
    thread.start()
    try:
        yield server.web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
