"""Storage and sources on S3: every fault of the server is got over or named, and nothing wrong is
ever served.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import jpeg
from helpers.s3 import S3Server, peak
from helpers.shards import samples, tar_of

import fastfeed as ff
from fastfeed.errors import SourceError
from fastfeed.storage.reads import ByteRange, Unread
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.storage import Storage

BLOB = os.urandom(300_000)
SHORT = RetryPolicy(deadline_s=20.0, attempt_s=0.5, backoff_s=0.01)
FAULTS: list[dict[str, Any]] = [
    {"share_503": 0.3},
    {"share_500": 0.3},
    {"share_cut": 0.3},
    {"share_reset": 0.3},
    {"share_drop": 0.2},
    {"share_timeout": 0.05, "hang_s": 30.0},
    {"share_slow": 0.1, "latency_s": 0.002, "slow_factor": 50.0},
    {"ranges": False},
    {
        "share_503": 0.1,
        "share_cut": 0.1,
        "share_reset": 0.1,
        "share_drop": 0.05,
        "share_timeout": 0.02,
        "hang_s": 30.0,
    },
]


def spans(server: S3Server, storage: Storage, name: str = "blob") -> list[ByteRange]:
    uri = f"s3://bucket/{name}"
    server.put(f"bucket/{name}", BLOB)
    (whole,) = storage.stat([uri])
    assert not isinstance(whole, Unread)
    return [ByteRange(uri, start, start + 5000, whole) for start in range(0, 250_000, 2500)]


@pytest.mark.parametrize(
    ("faults", "cached"),
    [
        pytest.param(
            faults,
            cached,
            id=f"{' '.join(faults)}-{cached}",
            marks=[pytest.mark.slow] if cached != bool(number % 2) else [],
        )
        for number, faults in enumerate(FAULTS)
        for cached in (False, True)
    ],
)
def test_faults_are_got_over(s3: S3Server, tmp_path: Path, faults: dict[str, Any], cached: bool):
    cache = ff.Cache(tmp_path / "cache", "50MB", chunk=20_000) if cached else None
    storage = Storage(s3.options, policy=SHORT, cache=cache, in_flight=16)
    wanted = spans(s3, storage)
    s3.faults(**faults, seed=1)
    s3.clear_log()
    for span, data in zip(wanted, storage.read(wanted), strict=True):
        assert data == BLOB[span.start : span.stop]
    assert peak(s3.log()) <= 16 + 8, "more in flight than allowed, hedged reads included"
    if cached:
        s3.clear_log()
        assert storage.read(wanted) == [BLOB[span.start : span.stop] for span in wanted]
        assert not s3.log(), "what lies in the cache was asked for again"


def test_a_replaced_object_is_noticed(s3: S3Server, tmp_path: Path):
    for cache in (None, ff.Cache(tmp_path / "cache", "50MB", chunk=20_000)):
        storage = Storage(s3.options, cache=cache)
        wanted = spans(s3, storage)
        s3.put("bucket/blob", BLOB[::-1])
        read = storage.read(wanted)
        assert {data.reason for data in read if isinstance(data, Unread)} == {"changed"}
        assert not any(isinstance(data, bytes) for data in read)


def test_what_cannot_be_read_is_named_at_once(s3: S3Server, monkeypatch: pytest.MonkeyPatch):
    storage = Storage(s3.options, policy=SHORT)
    s3.put("bucket/there", b"x")
    gone, there = storage.read([ByteRange("s3://bucket/gone"), ByteRange("s3://bucket/there")])
    assert gone == Unread("not_found") and there == b"x"
    with pytest.raises(SourceError, match=r"cannot open s3://bucket/none.tar"):
        ff.TarShards("s3://bucket/none.tar", storage=storage)
    with pytest.raises(SourceError, match=r"nothing matches s3://bucket/no/\*.tar"):
        ff.TarShards("s3://bucket/no/*.tar", storage=storage)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    with pytest.raises(
        SourceError,
        match=r"no credentials: .*pass the storage options key and secret, or anon=True",
    ):
        ff.TarShards("s3://bucket/there.tar", storage={"endpoint_url": s3.url})


def test_a_dead_object_fails_alone(s3: S3Server):
    """One sample whose bytes never come is a bad sample; the others do not wait for it."""
    s3.put("bucket/s-0.tar", tar_of(samples(range(30))))
    policy = RetryPolicy(deadline_s=3.0, attempt_s=1.0, backoff_s=0.01)
    source = ff.TarShards(
        "s3://bucket/s-0.tar", storage=Storage(s3.options, policy=policy), progress=False
    )
    want = source.read(range(30))
    dead = int(source._index.offsets[11]) - 512
    s3.faults(share_503=1.0, only="GET")
    failures = source.read([11])
    assert failures[0].reason in ("io_error", "timeout")  # what came last before the deadline
    assert failures[0].offset == dead + 512
    s3.faults()
    assert source.read(range(30)) == want


def test_a_feed_from_s3_gives_what_a_local_one_gives(s3: S3Server, tmp_path: Path):
    for k in range(4):
        data = tar_of(samples(range(10 * k, 10 * k + 10)))
        s3.put(f"shards-of-a-feed/s-{k}.tar", data)
        (tmp_path / f"s-{k}.tar").write_bytes(data)
    s3.faults(latency_s=0.005, share_503=0.05, share_cut=0.05, seed=3)
    remote = ff.TarShards(
        "s3://shards-of-a-feed/", storage=s3.options, cache=tmp_path / "cache", progress=False
    )
    local = ff.TarShards(tmp_path)
    assert [remote.read([i])[0] for i in (0, 17)] == local.read([0, 17])
    with (
        ff.Feed(remote, [ff.RandomResizedCrop(16)], batch=8, threads=2) as one,
        ff.Feed(local, [ff.RandomResizedCrop(16)], batch=8, threads=2) as other,
    ):
        for a, b in zip(one.batches(epochs=2), other.batches(epochs=2), strict=True):
            assert np.array_equal(a.ids, b.ids) and np.array_equal(a.images, b.images)
        assert not one.stats().bad
    assert remote.fingerprint == local.fingerprint


def test_a_folder_of_objects(s3: S3Server, tmp_path: Path):
    blobs = {f"{name}/{i}.jpg": jpeg(i + 10 * (name == "b")) for name in "ab" for i in range(5)}
    for name, blob in blobs.items():
        s3.put(f"bucket/photos/{name}", blob)
    source = ff.ImageFolder("s3://bucket/photos", storage=s3.options)
    assert (source.classes, len(source)) == (("a", "b"), 10)
    assert sorted(map(zlib.crc32, source.read(range(10)))) == sorted(
        map(zlib.crc32, blobs.values())
    )
    s3.delete("bucket/photos/a/2.jpg")
    s3.put("bucket/photos/a/3.jpg", jpeg(99))
    reasons = {
        f.uri.rpartition("/")[2]: f.reason
        for f in source.read(range(10))
        if isinstance(f, ff.Failure)
    }
    assert reasons == {"2.jpg": "not_found", "3.jpg": "changed"}
