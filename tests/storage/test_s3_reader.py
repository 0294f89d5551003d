"""Reads from S3: through obstore where it can stand in for s3fs, through s3fs elsewhere; the same
bytes and errors.
"""

from __future__ import annotations

import os

import pytest
from helpers.needs import needs
from helpers.s3 import S3Server

from fastfeed.storage import s3 as s3_module
from fastfeed.storage.reads import ByteRange, Unread
from fastfeed.storage.storage import Storage

pytestmark = needs("s3fs", "obstore")

BLOB = os.urandom(50_000)


class Calls:
    """Counts the reads of both clients, and lets them through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import obstore
        import s3fs

        self.by_obstore, self.by_s3fs = 0, 0
        get_async, call_s3 = obstore.get_async, s3fs.S3FileSystem._call_s3

        async def counted_get(*args, **kwargs):
            self.by_obstore += 1
            return await get_async(*args, **kwargs)

        async def counted_call(system, method, *args, **kwargs):
            self.by_s3fs += method == "get_object"
            return await call_s3(system, method, *args, **kwargs)

        monkeypatch.setattr(obstore, "get_async", counted_get)
        monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted_call)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def spans(storage: Storage, uri: str) -> list[ByteRange]:
    (stat,) = storage.stat([uri])
    assert not isinstance(stat, Unread), stat
    return [ByteRange(uri, start, start + 1000, stat) for start in range(0, 20_000, 1000)]


def check(storage: Storage, uri: str) -> None:
    wanted = spans(storage, uri)
    assert storage.read(wanted) == [BLOB[span.start : span.stop] for span in wanted]


def test_reads_go_through_obstore(s3: S3Server, calls: Calls):
    s3.put("bucket/a b/ü%20.bin", BLOB)
    check(Storage(s3.options), "s3://bucket/a b/ü%20.bin")
    assert calls.by_obstore >= 20 and calls.by_s3fs == 0
    assert Storage(s3.options).read([ByteRange("s3://bucket/a b/ü%20.bin")]) == [BLOB]


def test_public_objects_are_read_without_credentials(s3: S3Server, calls: Calls):
    s3.put("bucket/public.bin", BLOB, public=True)
    check(Storage({"anon": True, "endpoint_url": s3.url}), "s3://bucket/public.bin")
    assert calls.by_obstore >= 20 and calls.by_s3fs == 0


@pytest.mark.parametrize(
    "options",
    [
        {"requester_pays": True},
        {"client_kwargs": {"verify": False}},
        {"config_kwargs": {"s3": {"addressing_style": "path"}}},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_that_obstore_would_not_get_are_for_s3fs(s3: S3Server, calls: Calls, options):
    s3.put("bucket/x.bin", BLOB)
    check(Storage(s3.options | options), "s3://bucket/x.bin")
    assert calls.by_s3fs >= 20 and calls.by_obstore == 0


def test_without_obstore_s3fs_reads(s3: S3Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(s3_module, "obstore", None)
    s3.put("bucket/x.bin", BLOB)
    check(Storage(s3.options), "s3://bucket/x.bin")


@pytest.mark.parametrize("installed", [True, False], ids=["obstore", "s3fs"])
def test_errors_are_the_same(s3: S3Server, monkeypatch: pytest.MonkeyPatch, installed: bool):
    if not installed:
        monkeypatch.setattr(s3_module, "obstore", None)
    storage = Storage(s3.options)
    s3.put("bucket/x.bin", BLOB)
    wanted = spans(storage, "s3://bucket/x.bin")[:1]
    s3.put("bucket/x.bin", BLOB[::-1])
    (changed,) = storage.read(wanted)
    assert changed == Unread("changed", "the object has been replaced since it was listed")
    missing, beyond = storage.read(
        [ByteRange("s3://bucket/none.bin", 0, 10), ByteRange("s3://bucket/x.bin", 60_000, 60_010)]
    )
    assert isinstance(missing, Unread) and missing.reason == "not_found"
    assert isinstance(beyond, Unread) and beyond.reason == "truncated"


def test_a_bucket_that_refuses_obstore_is_read_by_s3fs_from_then_on(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
):
    import obstore

    asked = []

    async def redirect(*args, **kwargs):
        asked.append(args)
        raise obstore.exceptions.GenericError(
            "Generic S3 error: Error performing GET - Server returned non-2xx status code: 301"
            " Moved Permanently"
        )

    monkeypatch.setattr(obstore, "get_async", redirect)
    s3.put("bucket/x.bin", BLOB)
    storage = Storage(s3.options, in_flight=1)
    check(storage, "s3://bucket/x.bin")
    assert len(asked) == 1


def test_an_error_is_one_line(s3: S3Server):
    import obstore

    error = s3_module._S3Error(
        obstore.exceptions.GenericError(
            "Generic S3 error: 503\n<Error>SlowDown</Error>\n\nDebug source:\nGeneric {\n}"
        )
    )
    assert str(error) == "Generic S3 error: 503 <Error>SlowDown</Error>"


FORKED = """
import os, sys
import fastfeed as ff
from fastfeed.storage.storage import ByteRange
storage = ff.Storage({"key": "test", "secret": "test", "endpoint_url": sys.argv[1]})
span = ByteRange("s3://bucket/x.bin", 100, 110)
assert len(storage.read([span])[0]) == 10
child = os.fork()
if not child:
    import signal
    signal.alarm(30)
    os._exit(0 if len(storage.read([span])[0]) == 10 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_reads(s3: S3Server, python):
    s3.put("bucket/x.bin", BLOB)
    done = python(FORKED, s3.url)
    assert (done.stdout, done.stderr) == ("0\n", "")
