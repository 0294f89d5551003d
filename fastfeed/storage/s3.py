"""Reads objects from S3 through obstore, a client in Rust, signed in as s3fs is.

s3fs lists, stats and finds credentials, region and endpoint. Reads go through obstore where it is
installed, at twice the rate (benchmarks/results/obstore.md). They go through s3fs if its options
ask for more than is carried over, in forked processes, which obstore's threads do not survive, and
from servers that ignore ranges.
"""

from __future__ import annotations

import importlib
import os
import re
from datetime import datetime, timedelta, timezone
from typing import Any

from fastfeed.storage.byte_sizes import BodyTooLarge, check_announced

try:
    obstore: Any = importlib.import_module("obstore")
    importlib.import_module("obstore.store")
except ImportError:
    obstore = None


_PROCESS = os.getpid()  # that obstore's threads belong to
_CREDENTIALS_LAST = timedelta(minutes=5)  # then s3fs is asked again; it renews those that expire
_TIMEOUT = "3600s"  # obstore's own for one request; `retry` ends attempts much earlier
_PIECE = 1 << 20  # bytes of a body that is read in pieces
_REFUSED = (301, 307, 400, 401, 403)  # HTTP status: another region, another way to sign in

# options of s3fs that obstore has no use for, or that are passed on
_OPTIONS = {"key", "secret", "token", "anon", "profile", "endpoint_url"}
_OPTIONS |= {"client_kwargs", "config_kwargs", "asynchronous", "loop", "use_ssl"}
_OPTIONS |= {"max_concurrency", "use_listings_cache", "skip_instance_cache"}
_CLIENT_OPTIONS = {"endpoint_url", "region_name"}
_CONFIG_OPTIONS = {"max_pool_connections", "retries"}


def is_s3(system: Any) -> bool:
    """Return True for an s3fs client."""
    return type(system).__module__.startswith("s3fs") and hasattr(system, "_call_s3")


class _S3Error(OSError):
    """An error of obstore's in one line, with its HTTP status."""

    def __init__(self, error: Exception) -> None:
        text = str(error).partition("\n\nDebug source:")[0]
        super().__init__(" ".join(text.split()))
        status = re.search(r"status code: (\d{3})", text)
        self.status = int(status[1]) if status else None


class S3Reader:
    """Reads byte ranges of objects for one s3fs client."""

    def __init__(self, system: Any) -> None:
        self._system = system
        self._stores: dict[str, Any] = {}  # obstore's view of each bucket; None: s3fs reads it

    async def read(
        self,
        path: str,
        etag: str = "",
        start: int = 0,
        end: int | None = None,
        limit: int | None = None,
    ) -> bytes:
        """Read bytes [start, end) of an object.

        Args:
            path: Bucket and key.
            etag: The object must still have it; raises an error with status 412 otherwise.
            start: First byte.
            end: One past the last byte; None reads to the end, from byte 0.
            limit: Most bytes that are read; None: any number. Of more, BodyTooLarge.
        """
        bucket, key, _ = self._system.split_path(path)
        if bucket not in self._stores:
            self._stores[bucket] = await self._store(bucket)
        store = self._stores[bucket] if os.getpid() == _PROCESS else None
        if store is None:
            return await self._read_by_s3fs(bucket, key, etag, start, end, limit)
        try:
            return await _read_by_obstore(store, key, etag, start, end, limit)
        except obstore.exceptions.BaseError as error:
            readable = _S3Error(error)
            if readable.status not in _REFUSED and "non-partial response" not in str(readable):
                raise readable from error
        # it succeeds, or reports the fault
        data = await self._read_by_s3fs(bucket, key, etag, start, end, limit)
        self._stores[bucket] = None
        return data

    async def _read_by_s3fs(
        self, bucket: str, key: str, etag: str, start: int, end: int | None, limit: int | None
    ) -> bytes:
        options = {"IfMatch": f'"{etag}"'} if etag else {}
        if end is not None:
            options["Range"] = f"bytes={start}-{end - 1}"
        options |= {"Bucket": bucket, "Key": key}
        reply = await self._system._call_s3("get_object", **options, **self._system.req_kw)
        async with reply["Body"] as body:
            length = reply.get("ContentLength")
            check_announced(length, limit)
            return await body.read() if length is not None else await _read_up_to(body, limit)

    async def _store(self, bucket: str) -> Any:
        """obstore's view of a bucket, configured as the s3fs client is; None if it cannot be."""
        if obstore is None or os.getpid() != _PROCESS or not _carries_over(self._system):
            return None
        await self._system.set_session()
        client = await self._system.get_s3(bucket)
        endpoint = client.meta.endpoint_url
        credentials = client._request_signer._credentials
        anonymous = self._system.anon
        if not anonymous and credentials is None:
            return None  # s3fs reports the missing part
        if endpoint.startswith("https") and "AWS_CA_BUNDLE" in os.environ:
            return None

        async def current_credentials() -> dict[str, Any]:
            current = await credentials.get_frozen_credentials()
            return {
                "access_key_id": current.access_key,
                "secret_access_key": current.secret_key,
                "token": current.token,
                "expires_at": datetime.now(timezone.utc) + _CREDENTIALS_LAST,
            }

        return obstore.store.S3Store(
            bucket,
            config={
                "endpoint": endpoint,
                "region": client.meta.region_name or "us-east-1",
                "skip_signature": anonymous,
            },
            client_options={"allow_http": True, "timeout": _TIMEOUT},
            retry_config={"max_retries": 0},  # trying again is `retry`'s
            credential_provider=None if anonymous else current_credentials,
        )


async def _read_up_to(body: Any, limit: int | None) -> bytes:
    """A body of a length that the server does not say. BodyTooLarge."""
    pieces: list[bytes] = []
    size = 0
    while piece := await body.read(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if limit is not None and size > limit:
            raise BodyTooLarge(f"a body has more than {limit:,} bytes")
    return b"".join(pieces)


async def _read_by_obstore(
    store: Any, key: str, etag: str, start: int, end: int | None, limit: int | None
) -> bytes:
    options: dict[str, Any] = {"if_match": f'"{etag}"'} if etag else {}
    if end is not None:
        options["range"] = (start, end)
    reply = await obstore.get_async(store, key, options=options)
    check_announced(reply.meta["size"], limit)
    return bytes(await reply.bytes_async())


def _carries_over(system: Any) -> bool:
    """Return True if obstore supports all of the client's options."""
    options = system.storage_options
    return (
        set(options) <= _OPTIONS
        and set(options.get("client_kwargs") or {}) <= _CLIENT_OPTIONS
        and set(options.get("config_kwargs") or {}) <= _CONFIG_OPTIONS
        and not system.req_kw
    )
