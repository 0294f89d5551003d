"""A local S3 server for tests and benchmarks: moto's answers, with latency and faults on request.

with S3Server() as server:
    server.put("bucket/photos/a.jpg", blob)
    server.faults(latency_s=0.04, share_503=0.005)
    fs = fsspec.filesystem("s3", **server.options)
    ...
    assert peak(server.log()) == 64
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from helpers.s3_faults import Entry, Faults

END_S = 10  # a server that has not ended by then is killed
SIGNED = {
    "authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request",
    "x-unfaulted": "yes",
}


class S3Server:
    """Runs in a process of its own on a free port of the loopback, until `close`, or until this
    process has ended.

    What is put lies in its memory, and once more after it was read.
    """

    def __init__(self) -> None:
        self._lock, self._buckets = threading.Lock(), set[str]()
        self._process = (
            subprocess.Popen(  # in a session of its own, so that Ctrl-C does not reach it
                [sys.executable, "-m", "helpers.s3_front"],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        )
        self.pid, self.port = self._process.pid, self._answer()
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, Any]:
        """What `fsspec.filesystem("s3", **options)` needs to come here."""
        return {"key": "test", "secret": "test", "endpoint_url": self.url}

    def put(self, path: str, blob: bytes, *, public: bool = False) -> str:
        """Write bucket/key, without faults, latency and log; its ETag.

        Public: may be read unsigned, by plain HTTP.
        """
        bucket = path.split("/")[0]
        if bucket not in self._buckets:
            self._request("PUT", bucket)
            self._buckets.add(bucket)
        return self._request("PUT", path, blob, {"x-amz-acl": "public-read"} if public else {})

    def put_folder(self, path: str, folder: Path, *, public: bool = False) -> list[str]:
        """Write every file below a folder to bucket/prefix/...; their paths, sorted."""
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        paths = [f"{path}/{file.relative_to(folder).as_posix()}" for file in files]
        for name, file in zip(paths, files, strict=True):
            self.put(name, file.read_bytes(), public=public)
        return paths

    def warm(self, paths: Iterable[str]) -> None:
        """Read each object once, without faults, latency and log: the first read of an object waits
        for moto, 4 ms.
        """
        for path in paths:
            self._request("GET", path)

    def delete(self, path: str) -> None:
        """Remove bucket/key, without faults, latency and log."""
        self._request("DELETE", path)

    def faults(self, **faults: Any) -> None:
        """From now on, exactly these: see `Faults`. Without arguments, none."""
        self._order("faults", dataclasses.asdict(Faults(**faults)))

    def log(self) -> list[Entry]:
        """Every request since the last `clear_log`, in the order in which they came."""
        return [Entry(*entry) for entry in self._order("log")]

    def clear_log(self) -> None:
        """Clear the log."""
        self._order("clear")

    def close(self) -> None:
        """End the server and all its connections."""
        with self._process:
            if self._process.stdin:
                self._process.stdin.close()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def __enter__(self) -> S3Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request(method, "/" + quote(path), body, SIGNED | (headers or {}))
            reply = connection.getresponse()
            content = reply.read()
        finally:
            connection.close()
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path}: {reply.status} {content.decode()}")
        return reply.getheader("etag", "")

    def _order(self, name: str, faults: dict[str, Any] | None = None) -> Any:
        with self._lock:
            assert self._process.stdin
            self._process.stdin.write(
                json.dumps({"name": name, "faults": faults or {}}).encode() + b"\n"
            )
            self._process.stdin.flush()
            return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"the S3 server ended with {self._process.wait(END_S)}; see its messages above"
            )
        return json.loads(line)


def peak(log: Sequence[Entry]) -> int:
    """The most requests that were in flight at once."""
    steps = sorted(
        (at, step) for entry in log for at, step in ((entry.start_s, 1), (entry.end_s or 1e300, -1))
    )
    most = now = 0
    for _, step in steps:  # at equal times, ends come before starts
        now += step
        most = max(most, now)
    return most


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    """One server for all tests, begun when one asks for it."""
    if not (
        find_spec("moto") and find_spec("flask")
    ):  # importing them here would take half a second
        pytest.skip("the S3 server needs moto: pip install 'moto[s3,server]'")
    with S3Server() as server, _models_kept():
        yield server


@contextlib.contextmanager
def _models_kept() -> Iterator[None]:
    """Every client parses the descriptions of AWS again, some megabytes of JSON; here they are
    parsed once.
    """
    from botocore.loaders import JSONFileLoader

    kept = functools.cache(JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: kept(path))
        yield


@pytest.fixture
def s3(s3_process: S3Server) -> Iterator[S3Server]:
    """The server without faults and with an empty log.

    Other tests' objects are there: take a bucket of your own.
    """
    s3_process.clear_log()
    yield s3_process
    s3_process.faults()
