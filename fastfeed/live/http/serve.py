"""Serves the newest view over HTTP: metrics, the page, its JSON.

It binds to the loopback by default, and answers GET alone.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.html_page import asset, page
from fastfeed.live.document import document
from fastfeed.live.watch import FeedTable

CONNECTIONS = 32  # at once; a browser has a few, Prometheus one
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    " img-src data:"
)


def parse_address(text: str, option: str) -> tuple[str, int]:
    """(host, port) of `:9400` (the loopback), `127.0.0.1:9400`, `[::1]:9400`, `0.0.0.0:9400`."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    try:
        number = int(port)
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 16:
        raise ConfigError.of(
            option, "like :9400 or 127.0.0.1:9400 (0.0.0.0:9400 for all networks)", text
        )
    return host, number


class Server:
    """Server that answers from the last `view`; requests never look at a feed or a GPU."""

    def __init__(self, host: str, port: int, option: str) -> None:
        """Port 0 takes any that is free.

        ConfigError if the port is in use, or not allowed; MissingExtra for metrics without the
        client of Prometheus.
        """
        self.view: FeedTable | None = None
        self.metrics = _metrics(option)
        self.paths = ("/data.json",) if self.metrics is None else ("/data.json", "/metrics")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        kind = type("_Server", (_Http,), {"address_family": family})
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
        try:
            self._http = kind((host, port), _handler(self, loopback))
        except OSError as error:
            raise ConfigError(
                f"{option} cannot listen on {host}:{port}: {error.strerror}; choose another port",
                field=option,
            ) from error
        self.port: int = self._http.server_address[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self.warning = (
            ""
            if loopback
            else "anyone who can reach this machine can read it; :PORT alone is the loopback"
        )
        self._thread = threading.Thread(
            target=self._http.serve_forever, name="fastfeed-watch", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the server and join its thread."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _metrics(option: str) -> Any:
    try:
        from fastfeed.live.http.prometheus import metrics
    except ImportError:
        if option == "--prometheus":
            raise MissingExtra.of(option, "prometheus-client", "watch") from None
        return None  # the page works without it
    return metrics


def _handler(server: Server, loopback: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds for a request that does not come

        def do_GET(self) -> None:
            if loopback and not _is_loopback(
                self.headers.get("Host", "")
            ):  # of a page whose name was made to point here
                self._answer(
                    403, "text/plain", "this server answers to its loopback address alone\n"
                )
                return
            view = server.view
            path = _path(self.path)
            if path == "/":
                self._answer(200, "text/html; charset=utf-8", live_page())
            elif view is None or path not in server.paths:
                self._answer(
                    503 if view is None else 404,
                    "text/plain",
                    "not there: /, /data.json, /metrics\n",
                )
            elif path == "/metrics":
                self._answer(200, _CONTENT_TYPE, server.metrics(view))
            else:
                self._answer(200, "application/json", json.dumps(document(view)))

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Security-Policy", _POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: the terminal shows the screen."""

    return Handler


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; a connection above the limit is closed at once."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and let another connection in."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves before its answer is no error; the terminal shows the screen."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:  # a host that is none
        return ""


def _is_loopback(host_and_port: str) -> bool:
    try:
        host = urlsplit(f"//{host_and_port}").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def live_page() -> str:
    """The page of `fastfeed watch --web`, which asks for `data.json` once a second.

    All text from feeds goes through textContent.
    """
    body, style, script = (
        asset(Path(__file__).with_name(f"web.{kind}")) for kind in ("html", "css", "js")
    )
    return page(
        "fastfeed watch",
        "Running feeds, and what each waits for",
        body,
        style=style,
        script=script,
        policy="; connect-src 'self'",
    )
