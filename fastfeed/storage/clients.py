"""Storage clients: settings, errors, and one client for all addresses that can share it."""

from __future__ import annotations

import asyncio
import errno
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fsspec import get_filesystem_class
from fsspec.core import url_to_fs

from fastfeed.errors import ConfigError, FastfeedError, MissingExtra, SourceError
from fastfeed.printable import printable
from fastfeed.storage.byte_sizes import BodyTooLarge, max_announced, max_body
from fastfeed.storage.reads import Unread
from fastfeed.storage.retry import Diagnosis, Health, Latencies
from fastfeed.storage.s3 import S3Reader, is_s3

_EXTRAS = {
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "gcs": ("gcsfs", "gcs"),
}
# by the name of the exception: the clients' packages may not be installed
_CREDENTIALS = re.compile(
    "(No|Partial|Default)CredentialsError|(Credential|Token)RetrievalError|ProfileNotFound"
    "|SSOTokenLoadError|UnauthorizedSSOTokenError|RefreshError"
)
_REDIRECTS = {"NonHttpUrlRedirectClientError", "InvalidUrlRedirectClientError", "TooManyRedirects"}
_CERTAIN = re.compile("(ParamValidation|InvalidRegion|NoRegion|InvalidConfig|ConfigParse)Error")
# errors that a retry would only repeat; a client that lacks an operation will not get it
_PERMANENT = (TypeError, AttributeError, NameError, NotImplementedError, ValueError, LookupError)
_PERMANENT += (AssertionError, ImportError)
# the last one of s3fs: the bucket is elsewhere
_REFUSED = {errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.ENAMETOOLONG}
_REFUSED |= {errno.EISDIR, errno.ENOTDIR, errno.EREMCHG}
_ADVICE = (
    "pass the storage options key and secret, or anon=True for public data, or set up the client's"
    " own configuration"
)


def settings(protocol: str, options: dict[str, Any], in_flight: int) -> dict[str, Any]:
    """fsspec's options with defaults for many small reads; the user's options win."""
    limit = max_body(options)
    own_names = ("max_body",) if protocol in ("http", "https") else ("get_client", "max_body")
    options = {name: value for name, value in options.items() if name not in own_names}
    if protocol in ("gs", "gcs"):
        session = {**_limited_responses(limit), **options.get("session_kwargs", {})}
        return {"use_listings_cache": False, **options, "session_kwargs": session}
    if protocol in ("http", "https"):
        # compressed in transit, objects would not have the size that was listed
        headers = {"Accept-Encoding": "identity"} | options.get("headers", {})
        return {"get_client": partial(_http_client, limit), **options, "headers": headers}
    if protocol == "hf":  # by default it reads 5 MB beyond each range
        return {"block_size": 1, **options}
    if protocol not in ("s3", "s3a"):
        return dict(options)
    # its default of 10 connections would be the limit; hedges come on top
    config = {"max_pool_connections": 2 * in_flight, "retries": {"max_attempts": 0}}
    own = {
        "max_concurrency": 1,  # an object read whole would else be asked for its size first
        # every object ever listed would stay in memory, and be stale
        "use_listings_cache": False,
    }
    return own | options | {"config_kwargs": config | options.get("config_kwargs", {})}


async def _http_client(limit: int, loop: Any = None, **more: Any) -> Any:
    """Create aiohttp's session, with limited connections."""
    from fastfeed.storage.http_client import Connector, new_session  # loads aiohttp

    return new_session(Connector(), limit, **more)


def _limited_responses(limit: int) -> dict[str, Any]:
    """Options of gcsfs's aiohttp session; none without aiohttp, which is an error later."""
    try:
        from fastfeed.storage.http_client import limited_response  # loads aiohttp
    except ImportError:
        return {}
    return {"response_class": limited_response(limit)}


def parse_uri(uri: str) -> tuple[str, dict[str, Any]]:
    """Protocol of an address, and connection options written in it, such as a host."""
    if "::" in uri:
        raise ConfigError(
            f"cannot open {uri}: chained URLs are not supported; leave simplecache:: out, for"
            " which Storage has cache=, and unpack archives other than tar shards"
        )
    protocol = uri.partition("://")[0] if "://" in uri else "file"
    return protocol, _about(uri, lambda: get_filesystem_class(protocol)._get_kwargs_from_urls(uri))


def connect(uri: str, options: dict[str, Any], in_flight: int) -> Any:
    """A new file system, which shares its settings and connections with no one."""
    protocol, _ = parse_uri(uri)
    own = settings(protocol, options, in_flight)
    system, _ = _about(uri, lambda: url_to_fs(uri, skip_instance_cache=True, **own))
    if hasattr(system, "retries"):
        system.retries = 1  # attempts per request: retries are up to `retry`
    return system


def _about(uri: str, work: Any) -> Any:
    try:
        return work()
    except FastfeedError:
        raise
    except ImportError as error:
        protocol = uri.partition("://")[0]
        if protocol in _EXTRAS:
            raise MissingExtra.of(f"{protocol}://", *_EXTRAS[protocol]) from error
        raise MissingExtra(f"cannot open {uri}: {error}") from error
    except (ValueError, TypeError) as error:  # no such protocol, or no such option
        is_unknown = "Protocol not known" in str(error)
        advice = "; fsspec.available_protocols() lists all" if is_unknown else ""
        raise ConfigError(f"cannot open {uri}: {error}{advice}") from error
    except Exception as error:  # of any storage client
        why = explain(error).unread
        raise SourceError(f"cannot open {uri}: {why.detail or why.reason}") from error


def explain(error: Exception) -> Diagnosis:
    """Reason and detail for the quarantine list, and whether another try may go better."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and _is_web_error(cause):
        assert isinstance(cause, Exception)
        error = cause  # fsspec takes any error of a web server for a file that is not there
    name = type(error).__name__
    text = printable(" ".join(str(error).split()), 300)
    status = _status(error)
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return Diagnosis(Unread("not_found"), False)
    if _CREDENTIALS.fullmatch(name):
        return Diagnosis(Unread("denied", f"no credentials: {text}; {_ADVICE}"), False)
    if isinstance(error, PermissionError) or status in (401, 403):
        return Diagnosis(Unread("denied", f"permission denied: {text or name}"), False)
    if name in _REDIRECTS:
        detail = f"the server redirects to where it cannot be read: {text or name}"
        return Diagnosis(Unread("io_error", detail), False)
    if isinstance(error, BodyTooLarge):
        return Diagnosis(Unread("bomb", text), False)
    if status == 412:
        detail = "the object has been replaced since it was listed"
        return Diagnosis(Unread("changed", detail), False)
    if status == 416:
        return Diagnosis(Unread("truncated", "it ends before the requested range"), False)
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)) or "Timeout" in name:
        return Diagnosis(Unread("timeout", text), True)
    is_certain = isinstance(error, _PERMANENT) or _CERTAIN.fullmatch(name) is not None
    retryable = not is_certain and getattr(error, "errno", None) not in _REFUSED
    if status is not None:
        retryable = status >= 500 or status in (408, 425, 429)
    detail = f"{name}: {text}" if name != "OSError" else text
    return Diagnosis(Unread("io_error", detail), retryable)


def _status(error: Exception) -> int | None:
    """HTTP status of a client's error; None if unknown."""
    response = getattr(error.__cause__, "response", None)
    if isinstance(response, dict):
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    # with a response: errors of requests and httpx, such as those of the Hub's client
    for holder, name in (
        (error, "status"),
        (error, "code"),
        (error, "status_code"),
        (getattr(error, "response", None), "status_code"),
    ):
        value = getattr(holder, name, None)
        if isinstance(value, (int, str)) and str(value).isdigit() and 300 <= int(value) < 600:
            return int(value)
    return None


def _is_web_error(error: BaseException | None) -> bool:
    is_timeout = isinstance(error, (asyncio.TimeoutError, TimeoutError))
    return is_timeout or type(error).__module__.startswith("aiohttp")


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


@dataclass(eq=False, repr=False)  # options may hold secrets
class Endpoints:
    """Endpoints of one `Storage`, by protocol and host."""

    _options: dict[str, Any]
    _in_flight: int
    _cached: bool

    def __post_init__(self) -> None:
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
                    most = max_announced(self._options)
                    self._systems[system] = Endpoint(client, reader, Health(key), most)
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
            places = () if "://" in path else (bare, path, f"{host}/{bare}")
            for uri in (f"{protocol}://{place}" for place in places):
                if parse_uri(uri) == about and endpoint.system._strip_protocol(uri) == path:
                    return uri
            return endpoint.system.unstrip_protocol(path)

        return spell
