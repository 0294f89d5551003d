"""A disk that refuses: finished shards stay, nothing half is left, and the error says what, where,
and the way on.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fastfeed.errors import TargetError
from fastfeed.preprocess.targets import base, local
from fastfeed.preprocess.targets.target import Target, open_target
from fastfeed.runtime import atomic_write
from fastfeed.system import descriptors, folders

WATCHED = ("mkdir", "open", "write", "fsync", "replace", "rename")


class Faulty:
    """`os`, but that the n-th call of those that write fails: with an errno, or, for `short`, takes
    a part.
    """

    def __init__(self, fail_at: int = -1, code: int = 0) -> None:
        self.calls: list[str] = []
        self._fail_at = fail_at
        self._code = code

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in WATCHED:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if len(self.calls) - 1 == self._fail_at:
                raise OSError(self._code, os.strerror(self._code))
            return real(*args, **kwargs)

        return call


def inject(monkeypatch: pytest.MonkeyPatch, faulty: Any) -> Any:
    for module in (base, local, atomic_write, descriptors, folders):
        monkeypatch.setattr(module, "os", faulty)
    return faulty


def commit(target: Target, stem: str, salt: bytes = b"") -> None:
    attempt = target.attempt()
    try:
        tar, idx = attempt.create(stem + ".tar"), attempt.create(stem + ".idx")
        for k in range(30):
            tar.write(salt + bytes([k]) * 100_000)
            idx.write(b"%d\n" % k)
        tar.close()
        attempt.commit(
            lambda parts: (stem + ".json", json.dumps([asdict(part) for part in parts]).encode())
        )
    finally:
        attempt.abandon()


def check(target: Target) -> list[str]:
    """Records there; each says the truth."""
    there = target.files()
    records = sorted(name for name in there if name.endswith(".json"))
    for record in records:
        for part in json.loads(target.read(record) or b""):
            assert there[part["name"]] == part["bytes"]
            assert hashlib.sha256(target.read(part["name"]) or b"").hexdigest() == part["sha256"]
    return records


@pytest.fixture
def target(tmp_path: Path) -> Target:
    target = open_target(tmp_path / "out")
    commit(target, "train/done")
    return target


@pytest.mark.parametrize(
    ("code", "stem", "salt"),
    [(errno.ENOSPC, "train/new", b""), (errno.EIO, "train/done", b"other")],
    ids=["a new shard", "one made again from other bytes"],
)
def test_whatever_call_fails(target, monkeypatch, code, stem, salt):
    """Each of the calls that a commit makes, in turn."""
    old = target.read("train/done.json")
    watch = inject(monkeypatch, Faulty())
    commit(target, stem + "-dry")
    assert {"mkdir", "open", "write", "fsync", "replace"} == set(watch.calls)
    for k in range(len(watch.calls)):
        faulty = inject(monkeypatch, Faulty(k, code))
        with pytest.raises(TargetError) as caught:
            commit(target, stem, salt)
        monkeypatch.undo()
        left = check(target)
        assert "train/new.json" not in left, faulty.calls[k]
        # made again: the old one is there until the first file changes, and never after that
        assert target.read("train/done.json") == old or (
            stem == "train/done" and stem + ".json" not in left
        )
        assert os.listdir(os.path.join(target.folder, "__tmp")) == [], faulty.calls[k]
        text = str(caught.value)
        assert caught.value.errno == code and os.strerror(code).lower() in text.lower()
        assert f" {stem}." in text and f"{target.text}: " in text
        assert text.endswith("then run the same command again: finished shards are kept")
        if stem == "train/done":
            commit(target, stem)
    commit(target, stem, salt)
    assert stem + ".json" in check(target)


def test_the_words(target, monkeypatch):
    inject(monkeypatch, Faulty(2, errno.ENOSPC))
    with pytest.raises(TargetError) as caught:
        target.write("__job/plan.json", b"{}")
    assert (
        str(caught.value)
        == f"cannot write __job/plan.json to {target.text}: no space left on device; free some"
        " space, then run the same command again: finished shards are kept"
    )
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.errno) == (str(caught.value), errno.ENOSPC)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EDQUOT, "disk quota exceeded; free some space, or ask for more, then"),
        (
            errno.EROFS,
            "read-only file system; mount it for writing, or choose another folder, then",
        ),
        (errno.EACCES, "permission denied; change the folder's owner or mode, then"),
        (errno.ECANCELED, "operation canceled; then run the same command again"),
    ],
)
def test_the_way_on(target, monkeypatch, code, advice):
    inject(monkeypatch, Faulty(0, code))
    with pytest.raises(TargetError) as caught:
        target.attempt().create("s.tar")
    assert (
        f"cannot write s.tar to {target.text}: {advice}" in str(caught.value)
        and caught.value.errno == code
    )


@pytest.mark.parametrize("fail_at", range(5))
def test_a_small_file_is_the_old_one_or_the_new_one(target, monkeypatch, fail_at):
    target.write("job.json", b"old")
    inject(monkeypatch, Faulty(fail_at, errno.EIO))
    with pytest.raises(
        TargetError, match=r"cannot write job.json to .*: input/output error; check the disk"
    ):
        target.write("job.json", b"new")
    monkeypatch.undo()
    assert target.read("job.json") == b"old" and target.sweep() == 0
    assert sorted(os.listdir(target.folder)) == ["job.json", "train"]


def test_short_writes_are_gone_on_with_and_none_at_all_is_an_error(target, monkeypatch):
    class Short(Faulty):
        def __getattr__(self, name):
            if name == "write":
                return lambda file, data: os.write(file, data[: max(1, len(data) // 3)])
            return getattr(os, name)

    class Nothing(Faulty):
        def __getattr__(self, name):
            return (lambda _file, _data: 0) if name == "write" else getattr(os, name)

    inject(monkeypatch, Short())
    commit(target, "train/short")
    assert check(target) == ["train/done.json", "train/short.json"]
    inject(monkeypatch, Nothing())
    with pytest.raises(TargetError) as caught:
        commit(target, "train/nothing")
    assert caught.value.errno == errno.EIO and check(target) == [
        "train/done.json",
        "train/short.json",
    ]


def test_an_error_that_the_writer_swallows_is_not_lost(target, monkeypatch):
    attempt = target.attempt()
    file, other = attempt.create("s.tar"), attempt.create("s.idx")
    inject(monkeypatch, Faulty(0, errno.ENOSPC))
    with pytest.raises(TargetError):
        file.write(b"1" * (2 << 20))
    monkeypatch.undo()
    for use in (
        lambda: file.write(b"2"),
        file.close,
        lambda: other.write(b"3"),
        lambda: attempt.create("s.x"),
    ):
        with pytest.raises(TargetError, match="no space left"):
            use()
    with pytest.raises(TargetError, match=r"cannot write s.tar to .*no space left"):
        attempt.commit(lambda parts: ("s.json", b"[]"))
    assert (
        check(target) == ["train/done.json"]
        and os.listdir(os.path.join(target.folder, "__tmp")) == []
    )


def test_an_error_of_the_caller_leaves_nothing(target):
    attempt = target.attempt()
    attempt.create("s.tar").write(b"1")
    with pytest.raises(KeyError):
        attempt.commit(lambda parts: {}["x"])
    assert "s.tar" not in target.files() and os.listdir(os.path.join(target.folder, "__tmp")) == []


def test_a_target_that_vanishes_is_not_made_again(target):
    attempt = target.attempt()
    attempt.create("train/s.tar").write(b"1" * (2 << 20))
    shutil.rmtree(target.folder)
    with pytest.raises(
        TargetError, match="check that the folder still exists and is mounted"
    ) as caught:
        attempt.commit(lambda parts: ("train/s.json", b"[]"))
    assert caught.value.errno == errno.ENOENT and not os.path.exists(target.folder)
    for use in (
        target.files,
        lambda: commit(target, "train/x"),
        lambda: target.write("a", b""),
        target.free_bytes,
    ):
        with pytest.raises(TargetError, match="no such file or directory"):
            use()
    assert (
        target.sweep() == 0
        and target.read("train/done.json") is None
        and not os.path.exists(target.folder)
    )


FULL = """
import sys, os, subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", sys.argv[1]], check=True)
from fastfeed.errors import TargetError
from fastfeed.preprocess.targets.target import open_target
target, done = open_target(sys.argv[1] + "/out"), 0
try:
    for k in range(100):
        attempt = target.attempt()
        file = attempt.create(f"shard-{k}.tar")
        for _ in range(9):
            file.write(os.urandom(100_000))
        attempt.commit(lambda parts: (f"shard-{k}.json", parts[0].sha256.encode()))
        done += 1
except TargetError as error:
    import hashlib
    print(error, error.errno, done, sorted(target.files()), os.listdir(sys.argv[1] + "/out/__tmp"), sep="|")
    for k in range(done):
        assert hashlib.sha256(target.read(f"shard-{k}.tar")).hexdigest().encode() == target.read(f"shard-{k}.json")
subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]], check=True)
try:
    open_target(sys.argv[1] + "/out")
except TargetError as error:
    print(error)
print(len(open_target(sys.argv[1] + "/out", writes=False).files()))
"""


def test_a_disk_that_is_really_full_and_one_that_is_read_only(tmp_path, python):
    try:
        subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(tmp_path)],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(
            "no mount of a small file system of its own: run as root, or allow user namespaces:"
            f" {error}"
        )
    done = subprocess.run(
        ["unshare", "-rm", sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    full, read_only, count = done.stdout.splitlines()
    text, code, shards, files, left = full.split("|")
    assert text.startswith(
        f"cannot write shard-4.tar to {tmp_path}/out: no space left on device; free some space,"
        " then"
    )
    assert (int(code), int(shards), left) == (errno.ENOSPC, 4, "[]")
    assert files == str(sorted([f"shard-{k}.{end}" for k in range(4) for end in ("tar", "json")]))
    assert read_only.startswith(
        f"cannot write shards to {tmp_path}/out: read-only file system; mount it for writing"
    )
    assert count == "8"
