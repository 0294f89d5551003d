"""A folder as a target: what has a name is whole, and nothing else is left."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import threading
from pathlib import Path

import pytest

from fastfeed.errors import ConfigError, TargetError
from fastfeed.preprocess.model.layout import TEMPORARY
from fastfeed.preprocess.model.record import ShardFile
from fastfeed.preprocess.targets import local
from fastfeed.preprocess.targets.local import LocalTarget
from fastfeed.preprocess.targets.target import Target, open_target


def commit(
    target: Target, stem: str, contents: dict[str, bytes], note: bytes = b""
) -> list[ShardFile]:
    """A shard of these files; the record holds their hashes."""
    parts: list[ShardFile] = []

    def record(found):
        parts.extend(found)
        return f"{stem}.json", note + repr(found).encode()

    attempt = target.attempt()
    for suffix, content in contents.items():
        file = attempt.create(stem + suffix)
        for start in range(0, len(content), 70_000):
            file.write(content[start : start + 70_000])
        file.close()
    attempt.commit(record)
    return parts


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return open_target(tmp_path / "out")


@pytest.mark.parametrize("size", [0, 1, 69_999, 1 << 20, (9 << 20) + 5])
def test_what_the_parts_say_is_what_can_be_read(target, size):
    contents = {".tar": os.urandom(size), ".idx": b"index"}
    parts = commit(target, "train/512x768/shard-000000", contents)
    assert [part.name for part in parts] == [
        "train/512x768/shard-000000.tar",
        "train/512x768/shard-000000.idx",
    ]
    for part, content in zip(parts, contents.values(), strict=True):
        assert target.read(part.name) == content
        assert (part.bytes, part.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    there = target.files()
    assert {part.name: part.bytes for part in parts}.items() <= there.items()
    assert (
        len(there) == 3 and target.read("train/512x768/shard-000000.json") == repr(parts).encode()
    )


def test_large_and_small_writes_of_any_buffer_keep_their_order(target):
    pieces = [
        b"a" * 10,
        bytearray(b"b" * (3 << 20)),
        memoryview(b"c" * 999_999),
        b"",
        b"d" * (1 << 20),
        b"e",
    ]
    attempt = target.attempt()
    file = attempt.create("x.tar")
    assert [file.write(piece) for piece in pieces] == [len(piece) for piece in pieces]
    attempt.commit(lambda parts: ("x.json", b"{}"))  # closes what is open
    assert target.read("x.tar") == b"".join(pieces)


def test_nothing_is_seen_before_the_commit_and_nothing_left_after(target):
    attempt = target.attempt()
    attempt.create("a.tar").write(b"1" * (2 << 20))
    assert target.files() == {} and os.listdir(target.folder) == [TEMPORARY]
    attempt.abandon()
    assert os.listdir(os.path.join(target.folder, TEMPORARY)) == []
    commit(target, "b", {".tar": b"2"})
    target.write("__job/plan.json", b"{}")
    assert os.listdir(os.path.join(target.folder, TEMPORARY)) == []
    assert target.sweep() == 0
    assert sorted(target.files()) == ["__job/plan.json", "b.json", "b.tar"]
    assert TEMPORARY not in os.listdir(target.folder)


def test_modes_follow_the_umask(target):
    old = os.umask(0o027)
    try:
        commit(target, "train/a", {".tar": b"1"})
        target.write("plan.json", b"{}")
    finally:
        os.umask(old)
    modes = {
        name: os.stat(os.path.join(target.folder, name)).st_mode & 0o777 for name in target.files()
    }
    assert set(modes.values()) == {0o640}
    assert os.stat(os.path.join(target.folder, "train")).st_mode & 0o777 == 0o750


def test_write_replaces_and_remove_forgives(target):
    target.write("__job/a/b.json", b"1")
    target.write("__job/a/b.json", b"22")
    assert target.read("__job/a/b.json") == b"22" and target.files() == {"__job/a/b.json": 2}
    for name in ("__job/a/b.json", "__job/a/b.json", "never/was", "__job/a/b.json/below"):
        target.remove(name)
        assert target.read(name) is None
    assert target.files() == {}


def test_a_record_of_other_bytes_goes_before_they_change(target, monkeypatch):
    """Killed between the two renames, the old record would vouch for a file that is another one."""
    commit(target, "s", {".tar": b"old", ".idx": b"o"})
    seen = []
    replace = os.replace

    def watched(source, place):
        seen.append((Path(place).name, target.read("s.json") is not None))
        replace(source, place)

    monkeypatch.setattr(os, "replace", watched)
    commit(target, "s", {".tar": b"new", ".idx": b"n"})
    assert seen == [("s.tar", False), ("s.idx", False), ("s.json", False)]
    seen.clear()
    commit(target, "s", {".tar": b"new", ".idx": b"n"})
    # the same bytes: it stays true all the time
    assert seen == [("s.tar", True), ("s.idx", True), ("s.json", True)]


def test_attempts_at_one_shard_at_the_same_time_leave_one_whole(target):
    contents = {".tar": os.urandom(300_000), ".idx": b"i" * 1000}
    barrier, errors = threading.Barrier(4), []

    def work():
        barrier.wait()
        try:
            for k in range(5):
                commit(target, f"train/shard-{k}", contents)
        except BaseException as error:  # a thread's errors are seen nowhere else
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for k in range(5):
        for suffix, content in contents.items():
            assert target.read(f"train/shard-{k}{suffix}") == content
        assert hashlib.sha256(contents[".tar"]).hexdigest().encode() in (
            target.read(f"train/shard-{k}.json") or b""
        )
    assert len(target.files()) == 15
    target.sweep()
    assert os.listdir(target.folder) == ["train"]


def test_sweeping_while_others_begin_breaks_nothing(target):
    stop = threading.Event()

    def sweep():
        while not stop.is_set():
            target.sweep()

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        for k in range(100):
            commit(target, f"s{k}", {".tar": b"x"})
    finally:
        stop.set()
        thread.join()
    assert len(target.files()) == 200


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "a/../../x", "a//b", "", ".", "__tmp/x", "a\0b"]
)
def test_names_that_lie_elsewhere_are_refused(target, name):
    for use in (
        target.read,
        target.remove,
        lambda name: target.write(name, b""),
        target.attempt().create,
    ):
        with pytest.raises(ConfigError, match="below it"):
            use(name)


def test_pickles_and_knows_its_folder_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = open_target("out")
    again = pickle.loads(pickle.dumps(target))
    monkeypatch.chdir("/")
    again.write("a", b"1")
    assert again == target and again.text == "out" and (tmp_path / "out" / "a").read_bytes() == b"1"


def test_opening_makes_folders_or_says_what_is_wrong(tmp_path):
    assert isinstance(open_target(f"file://{tmp_path}/a/b/c"), LocalTarget)
    assert os.listdir(tmp_path / "a" / "b" / "c") == []  # trying it out left nothing
    (tmp_path / "file").write_bytes(b"")
    for place in (tmp_path / "file", tmp_path / "file" / "x" / "y"):
        with pytest.raises(
            ConfigError, match=f"must be a folder, got {place}: {tmp_path}/file is not a folder"
        ):
            open_target(place)
    with pytest.raises(ConfigError, match="there is no folder"):
        open_target(tmp_path / "none", writes=False)
    assert not (tmp_path / "none").exists()
    with pytest.raises(ConfigError, match="storage options are for URLs, got key"):
        open_target(tmp_path, {"key": "hush"})
    with pytest.raises(ConfigError, match="a folder or a URL"):
        open_target("")


def test_files_leaves_out_what_is_no_file(target, tmp_path):
    target.write("a/__tmp/b", b"123")  # only the one at the top is meant
    os.mkdir(tmp_path / "out" / "empty")
    os.symlink(tmp_path / "out", tmp_path / "out" / "loop")
    os.symlink("nowhere", tmp_path / "out" / "dangling")
    os.mkfifo(tmp_path / "out" / "pipe")
    assert target.files() == {"a/__tmp/b": 3}


@pytest.mark.parametrize(
    ("code", "is_swapped"), [(errno.ENOLCK, True), (errno.EOPNOTSUPP, True), (errno.EIO, False)]
)
def test_a_folder_is_swapped_in_without_a_lock_only_where_there_are_none(
    target, monkeypatch, code, is_swapped
):
    def refuse(fd):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(local, "lock", refuse)
    if is_swapped:
        assert target.swap("plan", b"one", None)
    else:
        with pytest.raises(TargetError, match=r"cannot lock the folder of .*: input/output error"):
            target.swap("plan", b"one", None)
    assert target.read("plan") == (b"one" if is_swapped else None)


def test_free_bytes(target):
    assert 0 < target.free_bytes() < 1 << 60
