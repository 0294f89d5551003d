"""A web server that fails, and sends the whole where a part was asked for, as it is told; it counts
connections.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT_S = 20  # for the others; a wait that gets this far has failed


@dataclass(slots=True)
class Site:
    """What a server has, does and did."""

    files: dict[str, bytes]  # by path, as "/a/b.bin"
    ranges: bool = True  # False: the whole file is sent whatever is asked for
    # of the next replies for a path; then all is well
    statuses: dict[str, list[int]] = field(default_factory=dict)
    gather: int = 1  # replies begin when so many requests are there
    url: str = ""
    connections: int = 0
    asked: Counter[str] = field(default_factory=Counter)  # "GET /a/b.bin"
    lock: Any = field(default_factory=threading.Lock)


@contextmanager
def served(site: Site) -> Iterator[Site]:
    """The site on a free port; `site.url` says where."""
    together = threading.Barrier(site.gather)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            with site.lock:
                site.connections += 1
            super().setup()

        def do_GET(self) -> None:
            together.wait(WAIT_S)
            self._reply(site.files.get(self.path))

        do_HEAD = do_GET

        def _reply(self, data: bytes | None) -> None:
            with site.lock:
                site.asked[f"{self.command} {self.path}"] += 1
                statuses = site.statuses.get(self.path)
                status = statuses.pop(0) if statuses else 200 if data is not None else 404
            body = data if data is not None and status == 200 else b"no"
            headers = {}
            span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if status == 200 and span and site.ranges:
                start, stop = (
                    int(span[1]),
                    min(int(span[2]) + 1 if span[2] else len(body), len(body)),
                )
                if start < len(body):
                    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
                    status, body = 206, body[start:stop]
                else:
                    status, body = 416, b""
            elif status == 200:
                headers["ETag"] = f'"{zlib.crc32(body):x}"'
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, *_: object) -> None:
            """A client that breaks off is none of the server's business."""

    server = Server(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="site", daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
