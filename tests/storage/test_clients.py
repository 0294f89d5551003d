"""What errors of storage clients mean, and how the clients are set up."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from fastfeed.errors import SourceError
from fastfeed.faults import REASONS
from fastfeed.storage import clients
from fastfeed.storage.clients import connect, explain, settings
from fastfeed.storage.reads import Unread


def named(
    name: str, text: str = "text", base: type[Exception] = Exception, **more: Any
) -> Exception:
    """An error of a client that may not be installed."""
    error = type(name, (base,), {})(text)
    for key, value in more.items():
        setattr(error, key, value)
    return error


def translated(status: int, error: Exception) -> Exception:
    """As s3fs raises it."""
    error.__cause__ = named(
        "ClientError", response={"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {}}
    )
    return error


def web(cause: Exception) -> Exception:
    """As fsspec looks at a file on a web server."""
    error = FileNotFoundError("http://x/y")
    error.__cause__ = cause
    return error


class Aiohttp(Exception):
    __module__ = "aiohttp.client_exceptions"

    def __init__(self, status: int) -> None:
        super().__init__(f"{status}, message='...'")
        self.status = status


AGAIN = [
    (OSError("reset"), Unread("io_error", "reset")),
    (
        ConnectionResetError(104, "reset"),
        Unread("io_error", "ConnectionResetError: [Errno 104] reset"),
    ),
    (TimeoutError("slow"), Unread("timeout", "slow")),
    (asyncio.TimeoutError(), Unread("timeout", "")),
    (named("ReadTimeoutError"), Unread("timeout", "text")),
    (
        named("IncompleteRead", "a\n  long   text"),
        Unread("io_error", "IncompleteRead: a long text"),
    ),
    (named("EndpointConnectionError"), Unread("io_error", "EndpointConnectionError: text")),
    (RuntimeError("Session is closed"), Unread("io_error", "RuntimeError: Session is closed")),
    (Aiohttp(500), Unread("io_error", "Aiohttp: 500, message='...'")),
    (Aiohttp(429), Unread("io_error", "Aiohttp: 429, message='...'")),
    (Aiohttp(408), Unread("io_error", "Aiohttp: 408, message='...'")),
    (named("HttpError", code=503), Unread("io_error", "HttpError: text")),
    (named("HttpResponseError", status_code=502), Unread("io_error", "HttpResponseError: text")),
    (
        translated(503, OSError(errno.EBUSY, "Slow down")),
        Unread("io_error", f"[Errno {errno.EBUSY}] Slow down"),
    ),
    (
        translated(500, OSError(errno.EREMOTEIO, "Internal")),
        Unread("io_error", f"[Errno {errno.EREMOTEIO}] Internal"),
    ),
    (translated(400, TimeoutError("RequestTimeout")), Unread("timeout", "RequestTimeout")),
    (web(Aiohttp(503)), Unread("io_error", "Aiohttp: 503, message='...'")),
    (web(asyncio.TimeoutError()), Unread("timeout", "")),
]
FINAL = [
    (FileNotFoundError("x"), Unread("not_found")),
    (web(Aiohttp(404)), Unread("not_found")),
    (web(ValueError("of something else")), Unread("not_found")),
    (Aiohttp(404), Unread("not_found")),
    (Aiohttp(410), Unread("not_found")),
    (named("HttpError", code="404"), Unread("not_found")),
    (PermissionError("Access Denied"), Unread("denied", "permission denied: Access Denied")),
    (PermissionError(), Unread("denied", "permission denied: PermissionError")),
    (Aiohttp(403), Unread("denied", "permission denied: 403, message='...'")),
    (Aiohttp(400), Unread("io_error", "Aiohttp: 400, message='...'")),
    (Aiohttp(416), Unread("truncated", "it ends before the requested range")),
    (
        translated(416, OSError(errno.EINVAL, "range")),
        Unread("truncated", "it ends before the requested range"),
    ),
    (
        OSError(errno.EINVAL, "Bucket name"),
        Unread("io_error", f"[Errno {errno.EINVAL}] Bucket name"),
    ),
    (TypeError("bug"), Unread("io_error", "TypeError: bug")),
    (KeyError("bug"), Unread("io_error", "KeyError: 'bug'")),
    (ValueError("bug"), Unread("io_error", "ValueError: bug")),
    (named("ParamValidationError"), Unread("io_error", "ParamValidationError: text")),
]


@pytest.mark.parametrize(("error", "unread"), AGAIN)
def test_another_try_may_go_better(error, unread):
    why = explain(error)
    assert (why.unread, why.retryable) == (unread, True)
    assert why.unread.reason in REASONS


@pytest.mark.parametrize(("error", "unread"), FINAL)
def test_another_try_will_not_go_better(error, unread):
    why = explain(error)
    assert (why.unread, why.retryable) == (unread, False)
    assert why.unread.reason in REASONS


@pytest.mark.parametrize(
    "name", ["NoCredentialsError", "ProfileNotFound", "DefaultCredentialsError"]
)
def test_no_credentials(name):
    why = explain(named(name, "Unable to locate credentials"))
    assert not why.retryable
    assert (
        why.unread.detail
        == "no credentials: Unable to locate credentials; pass the storage options key and"
        " secret, or anon=True for public data, or set up the client's own configuration"
    )


def test_codes_that_are_no_status():
    """Of some clients `code` is a method, or counts something else."""
    assert explain(named("RpcError", code=lambda: 404)).retryable
    assert explain(named("RpcError", code=5)).retryable


def test_a_long_text_is_cut():
    assert len(explain(OSError("x" * 10_000)).unread.detail) == 300


def test_what_the_user_sets_comes_first():
    found = settings(
        "s3", {"key": "k", "max_concurrency": 5, "config_kwargs": {"max_pool_connections": 3}}, 64
    )
    assert found["max_concurrency"] == 5
    assert found["config_kwargs"] == {"max_pool_connections": 3, "retries": {"max_attempts": 0}}
    assert settings("s3a", {}, 64)["config_kwargs"]["max_pool_connections"] == 128
    assert settings("http", {"headers": {"Authorization": "x"}}, 64)["headers"] == {
        "Accept-Encoding": "identity",
        "Authorization": "x",
    }
    google = settings("gs", {"token": "anon", "session_kwargs": {"trust_env": True}}, 1)
    session = google.pop("session_kwargs")
    assert google == {"use_listings_cache": False, "token": "anon"}
    assert session["trust_env"] and issubclass(
        session["response_class"], pytest.importorskip("aiohttp").ClientResponse
    )
    assert settings("memory", {"a": 1}, 1) == {"a": 1}


def test_a_client_that_cannot_connect(monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise named("DefaultCredentialsError", "none found")

    monkeypatch.setattr(clients, "url_to_fs", fails)
    with pytest.raises(
        SourceError,
        match=r"^cannot open memory://x: no credentials: none found; pass the storage options",
    ):
        connect("memory://x", {}, 1)


def test_each_storage_has_a_file_system_of_its_own():
    """What is set on it, and its connections, must not be those of the user's own."""
    assert connect("memory://x", {}, 1) is not connect("memory://x", {}, 1)


S3 = """
import time
from fastfeed.errors import SourceError
from fastfeed.storage.storage import Storage, ByteRange
store = Storage({"endpoint_url": "http://127.0.0.1:9"})
try:
    store.find("s3://bucket/*.tar")
except SourceError as error:
    print(error)
print(store.stat(["s3://bucket/a.tar"])[0].detail.partition(";")[0])
print(store.read([ByteRange("s3://bucket/a.tar", 0, 10)])[0].detail.partition(";")[0])
"""


def test_s3_without_credentials(python, tmp_path, monkeypatch):
    pytest.importorskip("s3fs", reason="needs s3fs: pip install 'fastfeed[s3]'")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    nowhere = str(tmp_path / "none")
    done = python(
        S3,
        AWS_EC2_METADATA_DISABLED="true",
        AWS_CONFIG_FILE=nowhere,
        AWS_SHARED_CREDENTIALS_FILE=nowhere,
        HOME=nowhere,
    )
    assert done.stderr == ""
    assert done.stdout == (
        "cannot list s3://bucket/*.tar: no credentials: Unable to locate credentials; pass the"
        " storage options key and secret, or anon=True for public data, or set up the"
        " client's own configuration\n" + "no credentials: Unable to locate credentials\n" * 2
    )
