"""File systems by address, connected on first use and shared among hosts if possible."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fastfeed.storage.body_limit import max_announced
from fastfeed.storage.clients import connect, parse_uri
from fastfeed.storage.health import Health
from fastfeed.storage.retry import Latencies
from fastfeed.storage.s3 import S3Reader, is_s3

__all__ = ["Endpoint", "Endpoints"]


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """A file system and its latencies."""

    system: Any
    s3: S3Reader | None  # reads, where it is S3
    health: Health
    max_body: int  # bytes of an object whose size is not known before it is read
    reads: Latencies = field(default_factory=Latencies)
    stats: Latencies = field(default_factory=Latencies)
    calls: Latencies = field(default_factory=Latencies)


class Endpoints:
    """Endpoints of one `Storage`."""

    def __init__(self, options: dict[str, Any], in_flight: int, cached: bool) -> None:
        self._options = options
        self._in_flight = in_flight
        self._cached = cached
        self._lock = threading.Lock()
        self._endpoints: dict[str, Endpoint] = {}
        self._systems: dict[str, Endpoint] = {}

    def at(self, uri: str) -> tuple[Endpoint, str]:
        """The file system of an address, and the path in it."""
        protocol, _, remainder = uri.partition("://")
        key = f"{protocol}://{remainder.partition('/')[0]}" if remainder else "file"
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            with self._lock:
                system = repr(parse_uri(uri))
                if system not in self._systems:
                    client = connect(uri, self._options, self._in_flight)
                    reader = S3Reader(client) if is_s3(client) else None
                    self._systems[system] = Endpoint(
                        client, reader, Health(key), max_announced(self._options)
                    )
                # hosts of the web share a client, not their health
                health = Health(key, cached=self._cached)
                endpoint = self._endpoints[key] = replace(self._systems[system], health=health)
        return endpoint, endpoint.system._strip_protocol(uri)

    def spelling(self, address: str) -> Callable[[str], str]:
        """A function that writes paths in the file system of an address as addresses like it."""
        protocol, _, remainder = address.partition("://")
        host = remainder.partition("/")[0]
        (endpoint, _), about = self.at(address), parse_uri(address)

        def spell(path: str) -> str:
            bare = path.lstrip("/")
            for uri in (
                f"{protocol}://{bare}",
                f"{protocol}://{path}",
                f"{protocol}://{host}/{bare}",
            ):
                if (
                    "://" not in path
                    and parse_uri(uri) == about
                    and endpoint.system._strip_protocol(uri) == path
                ):
                    return uri
            return endpoint.system.unstrip_protocol(path)

        return spell
