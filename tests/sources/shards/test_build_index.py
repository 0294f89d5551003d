"""What is looked through again, and what is taken from an index."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import environment
from helpers.shards import samples, shard_folder, tar_of
from helpers.tars import END, counted, entry, indexes, same, taken

from fastfeed.errors import SourceError
from fastfeed.sources import TarShards
from fastfeed.sources.shards import build_index

WAIT_S = 20  # ends a hang; nothing here takes that long
ALL = ["s-000.tar", "s-001.tar", "s-002.tar"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """The user's cache folder."""
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def scans(monkeypatch) -> list[str]:
    return counted(monkeypatch)


@pytest.fixture
def root(tmp_path) -> Path:
    return shard_folder(tmp_path / "data", (2, 3, 1))


def test_shards_are_looked_through_once(root, scans, cache):
    first = TarShards(root)
    assert taken(scans) == ALL
    assert len(indexes(root / ".fastfeed")) == 1
    for shards in (
        root,
        str(root / "s-{000..002}.tar"),
        sorted(root.glob("*.tar")),
        os.path.relpath(root),
    ):
        assert same(TarShards(shards), first)
    assert taken(scans) == []
    assert not cache.exists()


def test_one_shard_has_changed(root, scans):
    first = TarShards(root)
    (root / "s-001.tar").write_bytes(tar_of(samples(range(2, 6))))
    taken(scans)
    second = TarShards(root)
    assert taken(scans) == ["s-001.tar"]
    assert (len(first), len(second)) == (6, 7)
    assert second.read([0, 1, 6]) == [*first.read([0, 1]), *first.read([5])]


def test_touched_shards_are_looked_through_again(root, scans):
    TarShards(root)
    os.utime(root / "s-002.tar", ns=(1, 1))
    taken(scans)
    TarShards(root)
    assert taken(scans) == ["s-002.tar"]


def test_shards_are_added_or_left_out_or_put_in_another_order(root, scans):
    whole = TarShards(root)
    taken(scans)
    (root / "s-003.tar").write_bytes(tar_of(samples([6])))
    assert len(TarShards(root)) == 7
    assert taken(scans) == ["s-003.tar"]
    back = TarShards(sorted(root.glob("*.tar"))[2::-1])
    assert back.read(range(6)) == whole.read([5, 2, 3, 4, 0, 1])
    assert taken(scans) == []


def test_other_options_need_another_look(root, scans):
    TarShards(root)
    for options in ({"label": None}, {"images": ["jpg"]}):
        taken(scans)
        assert len(TarShards(root, **options)) == 6
        assert taken(scans) == ALL
        TarShards(root, **options)
        assert taken(scans) == []
    TarShards(root, classes=("a", "b", "c"))
    assert taken(scans) == []


def test_a_folder_that_is_moved(root, scans, tmp_path):
    first = TarShards(root)
    taken(scans)
    moved = root.rename(tmp_path / "elsewhere")
    found = TarShards(moved).read(range(6))
    assert taken(scans) == []
    assert all(isinstance(blob, bytes) for blob in found)
    assert TarShards(moved).fingerprint == first.fingerprint
    assert len(indexes(moved / ".fastfeed")) == 1


# -- damage, haste


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:-9] + b"x" + data[-8:],
        lambda data: data.replace(b"index 1", b"index 0"),
    ],
)
@pytest.mark.parametrize("index", [None, "given"])
def test_a_damaged_index_is_built_again(root, scans, damage, index):
    options = {} if index is None else {"index": root / index}
    first = TarShards(root, **options)
    (path,) = indexes(root / ".fastfeed") or [root / "given"]
    path.write_bytes(damage(path.read_bytes()))
    taken(scans)
    assert same(TarShards(root, **options), first)
    assert taken(scans) == ALL
    TarShards(root, **options)
    assert taken(scans) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(5, "Input/output error")])
def test_a_build_that_breaks_off_is_gone_on_with(root, scans, monkeypatch, error):
    look = TarShards._scan

    def fails(self, peek):
        if peek.uri.endswith("s-002.tar"):
            raise error
        return look(self, peek)

    with monkeypatch.context() as patch:
        patch.setattr(TarShards, "_scan", fails)
        with pytest.raises(
            KeyboardInterrupt if error is KeyboardInterrupt else SourceError
        ) as caught:
            TarShards(root)
    if error is not KeyboardInterrupt:
        assert str(caught.value) == f"TarShards: cannot read {root}/s-002.tar: Input/output error"
        assert taken(scans) == ALL[:2]
    scans.clear()
    assert len(TarShards(root)) == 6
    seen = taken(scans)
    assert "s-002.tar" in seen and (len(seen) == 1 or error is KeyboardInterrupt), (
        "Ctrl-C waits for no other shard"
    )


def test_what_was_begun_before_an_error_is_kept(root, scans, monkeypatch):
    look, failed = TarShards._scan, threading.Event()

    def fails(self, peek):
        if peek.uri.endswith("s-001.tar"):
            failed.set()
            raise OSError(5, "Input/output error")
        assert failed.wait(WAIT_S)
        return look(self, peek)

    monkeypatch.setattr(os, "cpu_count", lambda: 4)  # threads
    with monkeypatch.context() as patch:
        patch.setattr(TarShards, "_scan", fails)
        with pytest.raises(SourceError, match=r"cannot read .*/s-001.tar: Input/output error"):
            TarShards(root)
    assert taken(scans)[0] == "s-000.tar"
    assert len(TarShards(root)) == 6
    assert "s-000.tar" not in taken(scans)


def test_a_shard_that_is_still_being_written(root, monkeypatch):
    look = TarShards._scan

    def grows(self, peek):
        with open(peek.uri, "ab") as file:
            file.write(bytes(512))
        return look(self, peek)

    with monkeypatch.context() as patch:
        patch.setattr(TarShards, "_scan", grows)
        with pytest.raises(
            SourceError, match=r"changed while it was scanned; is it still being wri"
        ):
            TarShards(root)
    assert len(TarShards(root)) == 6


BUILD = """
import sys
from fastfeed.sources import TarShards
look = TarShards._scan
def scan(self, peek):
    sys.stdout.write(peek.uri + chr(10))  # in one piece, of many threads
    return look(self, peek)
TarShards._scan = scan
source = TarShards(sys.argv[1])
assert len(source) == 60 and all(isinstance(b, bytes) for b in source.read(range(60))), source
"""


def test_two_threads_at_once(root, scans, monkeypatch):
    """The second waits while the first looks, and then takes what that has written."""
    lock, look, asked, saved = fcntl.flock, TarShards._scan, threading.Semaphore(0), []

    def scan(self, peek):
        if peek.uri.endswith("s-000.tar"):
            assert asked.acquire(timeout=WAIT_S) and asked.acquire(timeout=WAIT_S), (
                "two have asked for the lock"
            )
        return look(self, peek)

    def save(path, *args, kept=build_index.save):
        saved.append(path)
        kept(path, *args)

    monkeypatch.setattr(fcntl, "flock", lambda *args: (asked.release(), lock(*args)))
    monkeypatch.setattr(build_index, "save", save)
    monkeypatch.setattr(TarShards, "_scan", scan)
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(TarShards, (root, root))
    assert same(one, two)
    assert (taken(scans), len(saved)) == (ALL, 1)


def test_two_processes_at_once(tmp_path):
    """Both are right, and no shard is looked through twice."""
    root = shard_folder(tmp_path / "data", (1,) * 60)
    command = [sys.executable, "-W", "error", "-c", BUILD, str(root)]
    two = [
        subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    lines = [line for process in two for line in process.communicate(timeout=60)[0].splitlines()]
    assert [process.returncode for process in two] == [0, 0]
    assert sorted(lines) == sorted(map(str, root.glob("*.tar")))


# -- what is seen meanwhile


def seen_on_a_terminal(root: Path, monkeypatch, **options) -> str:
    """All that is written to a terminal while shards are opened."""
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    with open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        TarShards(root, **options)
        monkeypatch.undo()
    os.set_blocking(ours, False)
    try:
        return os.read(ours, 1 << 20).decode()
    except OSError:  # nothing came, and the other side is gone
        return ""
    finally:
        os.close(ours)


def test_a_terminal_shows_how_far_it_is(root, monkeypatch):
    text = seen_on_a_terminal(root, monkeypatch)
    assert "TarShards: scanning shards" in text
    assert "3/3" in text
    assert re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\n]", "", text.rpartition("\x1b[2K")[2]) == "", (
        "it is gone at the end"
    )
    assert seen_on_a_terminal(root, monkeypatch) == "", "nothing is looked through"


def test_no_bar_where_none_is_wanted(root, monkeypatch, capsys):
    assert seen_on_a_terminal(root, monkeypatch, progress=False) == ""
    shutil.rmtree(root / ".fastfeed")
    TarShards(root)
    assert capsys.readouterr() == ("", "")
    shutil.rmtree(root / ".fastfeed")
    monkeypatch.setattr(sys, "stderr", None)  # as in a program without a console
    assert len(TarShards(root)) == 6


def test_damaged_shards_of_many(tmp_path):
    root = shard_folder(tmp_path / "data", (2, 2))
    (root / "s-000.tar").write_bytes(
        entry("1.jpg", b"x") + entry("1.cls", b"1") + entry("2.jpg", b"y") + b"trash" * 200
    )
    (root / "s-001.tar").write_bytes(entry("1.jpg", b"x") + END)
    source = TarShards(root)
    assert source.notes == [
        f"{root}/s-000.tar: damaged header at 3072: nothing after it can be read",
        f"{root}/s-000.tar: no .cls for 2.jpg at 2560",
        f"{root}/s-001.tar: no .cls for 1.jpg at 512",
    ]
    assert repr(source).endswith("s-000.tar and 1 more): 3 images; 3 notes, see .notes")
    assert TarShards(root).notes == source.notes
