"""Object stores as targets: sent whole, tried again while that may help, and no secret told."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import fsspec
import pytest
from conftest import environment
from fsspec.implementations.memory import MemoryFileSystem
from s3fs import S3FileSystem

from fastfeed.errors import ConfigError, MissingExtra, TargetError
from fastfeed.preprocess.targets.lock import job_lock
from fastfeed.preprocess.targets.remote import RemoteTarget
from fastfeed.preprocess.targets.target import Target, open_target
from fastfeed.storage.retry import RetryPolicy

pytestmark = pytest.mark.slow

QUICK = RetryPolicy(deadline_s=20, backoff_s=0.01, hedge=False)
HASTY = RetryPolicy(attempts=4, backoff_s=0.01, hedge=False)


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files on their way; nothing may stay there."""
    folder = tmp_path / "spool"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def memory(tmp_path: Path):
    yield open_target(f"memory://{tmp_path.name}/out")
    for path in fsspec.filesystem("memory").find(tmp_path.name):
        fsspec.filesystem("memory").rm_file(path)


@pytest.fixture
def bucket(s3) -> Target:
    s3.put("shardbucket/other/x", b"not ours")
    s3.put("shardbucket/out2/x", b"not ours either")
    for path in fsspec.filesystem("s3", **s3.options, skip_instance_cache=True).find(
        "shardbucket/out"
    ):
        s3.delete(path)
    s3.clear_log()
    return RemoteTarget("s3://shardbucket/out/", s3.options, QUICK)


@pytest.fixture(params=["memory", "bucket"])
def target(request) -> Target:
    return request.getfixturevalue(request.param)


def commit(target: Target, stem: str, content: bytes = b"x" * 200_000) -> None:
    attempt = target.attempt()
    for suffix in (".tar", ".idx"):
        attempt.create(stem + suffix).write(content)
    attempt.commit(lambda parts: (stem + ".json", " ".join(part.sha256 for part in parts).encode()))


def test_put_list_read_remove(target, spool):
    assert target.files() == {} and target.read("train/s.json") is None
    commit(target, "train/s", b"abc")
    target.write("__job/plan.json", b"{}")
    target.write("__job/empty", b"")
    sizes = {
        "train/s.tar": 3,
        "train/s.idx": 3,
        "train/s.json": 129,
        "__job/plan.json": 2,
        "__job/empty": 0,
    }
    assert target.files() == sizes and target.free_bytes() is None
    assert target.read("train/s.tar") == b"abc"
    assert (
        target.read("train/s.json") == " ".join([hashlib.sha256(b"abc").hexdigest()] * 2).encode()
    )
    commit(target, "train/s", b"other")
    assert target.read("train/s.idx") == b"other"
    for _ in range(2):
        target.remove("train/s.json")
        assert target.read("train/s.json") is None
    assert sorted(target.files()) == [
        "__job/empty",
        "__job/plan.json",
        "train/s.idx",
        "train/s.tar",
    ]
    assert os.listdir(spool) == [] and target.sweep() == 0


def test_an_object_is_swapped_only_for_the_one_that_was_read(target):
    assert target.swap("plan", b"one", None) and target.read("plan") == b"one"
    assert not target.swap("plan", b"two", None) and not target.swap("plan", b"two", b"other")
    assert target.read("plan") == b"one"
    assert target.swap("plan", b"two", b"one") and target.read("plan") == b"two"


@pytest.mark.parametrize("before", [None, b"one"])
def test_s3_compares_as_it_writes(bucket, s3, monkeypatch, before):
    if before is not None:
        bucket.write("plan", before)
    pipe_file = S3FileSystem._pipe_file

    async def late(self, path, data, **conditions):
        s3.put(path, b"of another process")
        return await pipe_file(self, path, data, **conditions)

    monkeypatch.setattr(S3FileSystem, "_pipe_file", late)
    assert not bucket.swap("plan", b"two", before)
    assert bucket.read("plan") == b"of another process"


def test_a_service_that_cannot_compare_is_warned_of_once(bucket, monkeypatch):
    pipe_file = S3FileSystem._pipe_file

    async def plain(self, path, data, **conditions):
        if conditions:
            raise OSError(errno.ENOSYS, "A header you provided implies functionality ...")
        return await pipe_file(self, path, data)

    monkeypatch.setattr(S3FileSystem, "_pipe_file", plain)
    with pytest.warns(RuntimeWarning, match=r"out/?: this service cannot compare objects") as seen:
        assert bucket.swap("plan", b"one", None) and bucket.swap("plan", b"two", b"one")
    assert len(seen) == 1
    assert bucket.read("plan") == b"two"


@pytest.mark.parametrize("shared", [False, True])
def test_a_job_in_a_bucket_is_locked(target, shared):
    with job_lock(target, shared):
        with pytest.raises(ConfigError, match=r"by another process; wait .*__job/locks/[a-z]+\."):
            job_lock(target).__enter__()
        assert len(target.files("__job/locks/")) == 1
    assert target.files() == {}


def test_it_pickles(target):
    commit(pickle.loads(pickle.dumps(target)), "s")
    assert sorted(target.files()) == ["s.idx", "s.json", "s.tar"]


def test_nothing_is_sent_before_the_commit(target, spool):
    attempt = target.attempt()
    attempt.create("s.tar").write(b"1" * (2 << 20))
    assert target.files() == {} and len(os.listdir(spool)) == 1
    attempt.abandon()
    assert os.listdir(spool) == []
    attempt = target.attempt()
    attempt.create("s.tar").write(b"1")
    with pytest.raises(KeyError):
        attempt.commit(lambda parts: {}["x"])
    assert target.files() == {} and os.listdir(spool) == []


def test_files_go_first_and_the_record_last(bucket, s3):
    commit(bucket, "s")
    writes = [entry.path for entry in s3.log() if entry.method == "PUT"]
    assert writes == [f"/shardbucket/out/s.{end}" for end in ("tar", "idx", "json")]


@pytest.mark.parametrize("fault", ["share_503", "share_500", "share_drop"])
def test_a_service_that_fails_for_a_while(bucket, s3, fault):
    s3.faults(**{fault: 1.0}, attempts=3, only="^PUT /shardbucket/out/")
    commit(bucket, "train/s")
    puts = [entry.fault for entry in s3.log() if entry.method == "PUT"]
    assert len(puts) == 12 and puts.count("") == 3
    s3.faults()
    assert len(bucket.files()) == 3


def test_a_service_that_fails_for_good(s3, bucket, spool):
    hasty = RemoteTarget("s3://shardbucket/out", s3.options, HASTY)
    commit(hasty, "done")
    s3.faults(share_503=1.0, only="^PUT .*new.idx")
    with pytest.raises(TargetError) as caught:
        commit(hasty, "new")
    text = str(caught.value)
    assert text.startswith("cannot write new.idx to s3://shardbucket/out: ") and "attempt" in text
    assert "reduce your request rate" in text and text.endswith("finished shards are kept")
    # no record: not done
    assert sorted(bucket.files()) == ["done.idx", "done.json", "done.tar", "new.tar"]
    assert os.listdir(spool) == []
    s3.faults()
    commit(hasty, "new")
    assert len(bucket.files()) == 6


def test_large_files_go_in_parts(bucket, s3, monkeypatch):
    import s3fs.core

    monkeypatch.setattr(s3fs.core, "calculate_chunksize", lambda *_args, **_more: 5 << 20)
    content = os.urandom(12 << 20)
    s3.faults(share_500=1.0, attempts=1, only="^POST .*uploads")
    commit(bucket, "s", content)
    assert bucket.read("s.tar") == content and bucket.files()["s.idx"] == 12 << 20
    assert any("partNumber=3" in entry.query for entry in s3.log())


def test_what_cannot_be_opened(s3, bucket):
    for writes in (True, False):
        with pytest.raises(
            TargetError, match="there is no bucket no-such-bucket; create it, or correct the name"
        ):
            open_target("s3://no-such-bucket/out", s3.options, writes=writes)
        with pytest.raises(ConfigError, match="cannot open foo://bar/out: Protocol not known: foo"):
            open_target("foo://bar/out", writes=writes)
        with pytest.raises(ConfigError, match="http:// is read-only"):
            open_target("http://127.0.0.1/out", writes=writes)
        with pytest.raises(ConfigError, match="must name a bucket"):
            open_target("s3://", writes=writes)
        with pytest.raises(ConfigError, match="chained URLs are not supported"):
            open_target("simplecache::s3://shardbucket/x", writes=writes)
    with pytest.raises(ConfigError, match="nothing at s3://shardbucket/nothing"):
        open_target("s3://shardbucket/nothing", s3.options, writes=False)
    # trying it out left nothing
    assert open_target("s3://shardbucket/out", s3.options).files() == {}


def test_a_client_that_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(MissingExtra, match=r"gs:// needs gcsfs: pip install 'fastfeed\[gcs\]'"):
        open_target("gs://bucket/out")


class Denied(MemoryFileSystem):
    """A key that may read only; its client says more than it should."""

    protocol = "denied"
    asked = 0

    def __init__(self, **options):
        super().__init__()

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        Denied.asked += 1
        raise PermissionError("key AKIAHUSH7 with s3cr3t-word may not do that")


def test_a_refusal_is_said_at_once_and_without_secrets():
    fsspec.register_implementation("denied", Denied, clobber=True)
    Denied.asked = 0
    options = {"key": "AKIAHUSH7", "client": {"secret_access_key": "s3cr3t-word"}}
    with pytest.raises(TargetError) as caught:
        open_target("denied://user:pass-word@bucket/out", options)
    text = str(caught.value)
    assert Denied.asked == 1 and caught.value.errno == 13
    assert (
        "denied://user:...@bucket/out: permission denied" in text
        and "check the permissions of the key" in text
    )
    shown = text + repr(RemoteTarget("denied://user:pass-word@bucket/out", options))
    assert not any(secret in shown for secret in ("AKIAHUSH7", "s3cr3t", "pass-word"))


def test_what_arrives_short_is_sent_again(memory, monkeypatch):
    real, sent = MemoryFileSystem.pipe_file, []

    def cut(self, path, value, mode="overwrite", **kwargs):
        sent.append(path)
        real(self, path, value[: len(value) // 2] if len(sent) == 1 else value, mode, **kwargs)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", cut)
    memory.write("a", b"0123456789")
    assert len(sent) == 2 and memory.read("a") == b"0123456789"


def test_no_room_for_files_on_their_way(memory, spool):
    spool.rmdir()
    with pytest.raises(
        TargetError, match=r"cannot write s.tar to .*spool on its way to memory://.*TMPDIR"
    ):
        memory.attempt().create("s.tar")


KILLED = """
import os, signal, sys
from fastfeed.preprocess.targets.lock import job_lock
from fastfeed.preprocess.targets.remote import RemoteTarget
target = RemoteTarget("s3://shardbucket/out", {"key": "test", "secret": "test", "endpoint_url": sys.argv[1]})
RemoteTarget.write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
attempt = target.attempt()
attempt.create("s.tar").write(b"123")
attempt.commit(lambda parts: ("s.json", b"{}"))
"""


def test_killed_before_the_record_the_shard_is_not_done(bucket, s3, spool):
    mine = bucket.attempt()
    mine.create("other.tar").write(b"1")
    env = environment(TMPDIR=str(spool))
    run = subprocess.run([sys.executable, "-c", KILLED, s3.url], env=env, timeout=60, check=False)
    assert run.returncode == -signal.SIGKILL
    assert bucket.files() == {"s.tar": 3}
    assert (
        len(glob.glob(f"{spool}/*")) == 2
        and bucket.sweep() == 1
        and len(glob.glob(f"{spool}/*")) == 1
    )
    mine.commit(lambda parts: ("other.json", b"{}"))
    mine = bucket.attempt()
    mine.create("more.tar").write(b"1")
    assert bucket.sweep(everything=True) == 1 and os.listdir(spool) == []
