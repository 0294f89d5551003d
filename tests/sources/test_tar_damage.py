"""TarShards whose files are cut off, damaged, or replaced while they are in use: right bytes, or a
Failure.
"""

from __future__ import annotations

import io
import itertools
import os
import pickle
import shutil
import signal
import tarfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from helpers.shards import samples, shard_folder, tar_of
from helpers.tars import entry, header, labels, opened, served
from hypothesis import example, given
from hypothesis import strategies as st

from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.sources import TarShards

LONG = "folder/" + "n" * 120
MEMBERS = [
    ("1.jpg", b"1" * 700),
    ("1.cls", b"12"),
    (LONG + ".cls", b"34"),
    (LONG + ".jpg", b"2" * 512),
    ("ü.jpg", b"3"),
    ("ü.cls", b"567"),
]
WHOLE = tar_of(MEMBERS, tarfile.PAX_FORMAT)


def places(data: bytes) -> dict[str, tuple[int, int]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {
            member.name: (member.offset_data, member.offset_data + member.size)
            for member in archive
        }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Names of files that were never used, for the examples of one test."""
    folder, count = tmp_path_factory.mktemp("shards"), itertools.count()
    return lambda: folder / f"{next(count)}.tar"


@given(cut=st.integers(0, len(WHOLE)))
@example(cut=512)
@example(cut=513)
def test_cut_off_anywhere(place, cut):
    """Whole samples are served, a cut image is a failure that names shard and offset, a cut label
    is none.
    """
    check_cut(place(), cut)


def test_cut_off_inside_a_label(place):
    """Half of a number is no number."""
    for name, (start, end) in places(WHOLE).items():
        for cut in range(start, end + 1) if name.endswith(".cls") else ():
            check_cut(place(), cut)


def check_cut(path: Path, cut: int) -> None:
    at, contents = places(WHOLE), dict(MEMBERS)
    ends = {name: end for name, (_, end) in at.items()}
    there = [name for name, (start, _) in at.items() if start <= cut and name.endswith(".jpg")]
    known = {name[:-4] for name in ends if name.endswith(".cls") and ends[name] <= cut}
    try:
        source = opened(path, WHOLE[:cut])
    except SourceError as error:
        assert not there or not any(name[:-4] in known for name in there)
        assert "cut off at" in str(error) or "empty file" in str(error)
        return
    found = served(source)
    assert list(found) == there
    for name, label in zip(there, labels(source), strict=True):
        stem, start = name[:-4], at[name][0]
        assert label == (int(contents[stem + ".cls"]) if stem in known else -1)
        if ends[name] > cut:
            assert found[name] == ("truncated", start)
        else:
            assert found[name] == (contents[name] if stem in known else ("label_missing", start))
    assert (source.notes == []) == (cut >= ends["ü.cls"] + 509 + 512)
    assert not source.notes or f"{path}: cut off at {cut}" in source.notes[0]


def test_what_is_said_of_a_cut_image(tmp_path):
    source = opened(tmp_path / "a.tar", (entry("1.cls", b"4") + entry("1.jpg", b"x" * 5000))[:4000])
    (bad,) = source.read([0])
    uri = f"{tmp_path}/a.tar#1536:1.jpg"
    assert bad == Failure(
        0,
        uri,
        "read",
        "truncated",
        "the shard is cut off at 4000, the sample would end at 6536",
        1536,
    )
    assert source.notes == [f"{tmp_path}/a.tar: cut off at 4000: 1.jpg should end at 6536"]


def test_many_notes(tmp_path):
    """So many that they can be read; and always how far the shard could be read."""
    links = b"".join(header(f"{i}.jpg", kind=b"2") for i in range(100))
    source = opened(
        tmp_path / "a.tar", links + b"".join(entry(f"{i}.jpg", b"x") for i in range(60)), label=None
    )
    at = [
        f"{tmp_path}/a.tar: left out '{i}.jpg' at {512 * i}: a link to no file of the archive"
        for i in range(49)
    ]
    cut = "cut off at 112640: the end of the archive is missing"
    assert source.notes == [*at, f"{tmp_path}/a.tar: and 51 more", f"{tmp_path}/a.tar: {cut}"]
    data = tar_of([(f"{i}.jpg", b"x") for i in range(60)] + [("60.jpg", b"x"), ("60.cls", b"1")])
    assert opened(tmp_path / "b.tar", data).notes[48:] == [
        f"{tmp_path}/b.tar: {note}"
        for note in ("no .cls for 48.jpg at 49664", "and 10 more", "no .cls for 59.jpg at 60928")
    ]


HEADERS = [at for at in range(0, len(WHOLE), 512) if WHOLE[at + 257 : at + 262] == b"ustar"]


@given(
    changes=st.lists(
        st.tuples(st.sampled_from(HEADERS), st.integers(0, 511), st.integers(1, 255)),
        min_size=1,
        max_size=3,
    )
)
def test_damaged_headers(place, changes):
    """What is served is what was put in, with its own label, or it is noted as lost."""
    data = bytearray(WHOLE)
    for at, where, flip in changes:
        data[at + where] ^= flip
    sums = [sum(block[at : at + 512]) for block in (WHOLE, data) for at in HEADERS]
    contents = dict(MEMBERS)
    try:
        source = opened(place(), bytes(data))
    except SourceError as error:
        assert (
            "at 0: nothing after it can be read" in str(error)
            or "damaged header" in str(error)
            or "no .cls" in str(error)
        )
        return
    found = served(source)
    if (
        sums[: len(HEADERS)] != sums[len(HEADERS) :]
    ):  # else bytes were swapped, which a sum does not show
        for (name, blob), label in zip(found.items(), labels(source), strict=True):
            stem = name[:-4]
            assert (blob, label) == (contents[name], int(contents[stem + ".cls"])) or blob == (
                "label_missing",
                places(WHOLE)[name][0],
            )
        assert len(found) == 3 or "nothing after it can be read" in source.notes[0]


# -- replaced while in use


def another() -> bytes:
    """A shard of the same size, in which the samples are others."""
    return tar_of([(name, data[::-1]) for name, data in samples(range(10, 13))])


def renamed(path: Path) -> None:
    path.with_suffix(".new").write_bytes(another())
    os.replace(path.with_suffix(".new"), path)


def same_time_and_size(path: Path) -> None:
    """Only the headers tell."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    at = data.index(b"000000.jpg")
    path.write_bytes(data[:at] + bytes(data[at:]).replace(b"000000.jpg", b"000009.jpg"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "renamed over": (
        renamed,
        "changed",
        "the shard has changed since it was indexed; create the source again",
    ),
    "overwritten": (
        lambda path: path.write_bytes(another()),
        "changed",
        "the shard has changed since it was indexed",
    ),
    "cut off": (
        lambda path: os.truncate(path, 1000),
        "changed",
        "the shard has changed since it was indexed",
    ),
    "emptied": (
        lambda path: os.truncate(path, 0),
        "changed",
        "the shard has changed since it was indexed",
    ),
    "deleted": (os.unlink, "not_found", "the shard is gone"),
    "a folder now": (lambda path: (os.unlink(path), path.mkdir()), "not_found", "Is a directory"),
}


@pytest.mark.parametrize("read_before", [False, True])
@pytest.mark.parametrize("what", CHANGES)
def test_a_shard_is_replaced(tmp_path, what, read_before):
    """A file that is open is still there when its name is gone: then its bytes are right."""
    change, reason, detail = CHANGES[what]
    shard_folder(tmp_path, (3, 3))
    source = TarShards(tmp_path)
    whole = source.read(range(6))
    if not read_before:
        source = pickle.loads(pickle.dumps(source))
    change(tmp_path / "s-000.tar")
    found = source.read(range(6))
    assert found[3:] == whole[3:]
    for i in range(3):
        if isinstance(found[i], Failure):
            assert (found[i].reason, found[i].uri, found[i].offset) == (
                reason,
                source.uri(i),
                source._index.offsets[i],
            )
            assert found[i].detail.startswith(detail)
        else:
            assert (
                read_before
                and what in ("renamed over", "deleted", "a folder now")
                and found[i] == whole[i]
            )
    with (
        pytest.raises(SourceError)
        if what in ("cut off", "emptied", "deleted", "a folder now")
        else nullcontext()
    ):
        assert TarShards([tmp_path / "s-000.tar"]).read([0]) != [whole[0]]


def test_a_shard_of_the_same_size_and_time(tmp_path):
    shard_folder(tmp_path, (3,))
    source = TarShards(tmp_path)
    whole = source.read(range(3))
    same_time_and_size(tmp_path / "s-000.tar")
    bad, *rest = source.read(range(3))
    detail = (
        f"the shard has changed since it was indexed; delete {source.index_file}, then create the"
        " source again"
    )
    assert (bad.reason, bad.detail) == ("changed", detail)
    assert rest == whole[1:]


def test_a_shard_that_is_taken_away_and_put_back(tmp_path):
    shard_folder(tmp_path, (2, 2))
    source = TarShards(tmp_path)
    whole = source.read(range(4))
    shutil.move(tmp_path / "s-000.tar", tmp_path / "away")
    source = pickle.loads(pickle.dumps(source))
    assert [isinstance(blob, Failure) for blob in source.read(range(4))] == [
        True,
        True,
        False,
        False,
    ]
    shutil.copy2(tmp_path / "away", tmp_path / "s-000.tar")
    assert source.read(range(4)) == whole
    (tmp_path / "s-000.tar").write_bytes(b"x")
    assert source.read([0])[0].reason == "changed"
    os.replace(tmp_path / "away", tmp_path / "s-000.tar")
    assert source.read(range(4)) == whole


def test_reads_that_bring_a_part_only(tmp_path, monkeypatch):
    """As those above 2 GB do."""
    source = TarShards(shard_folder(tmp_path, (2,)))
    whole, pread = source.read(range(2)), os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, at: pread(fd, min(count, 100), at))
    assert source.read(range(2)) == whole


# -- many files, many threads, several processes


def test_more_shards_than_files_are_held_open(tmp_path):
    shard_folder(tmp_path, (1,) * 150)
    source = TarShards(tmp_path)
    images = [data for name, data in samples(range(150)) if name.endswith("jpg")]
    orders = [np.random.default_rng(seed).permutation(150) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(source.read, orders))
    assert all(
        blobs == [images[i] for i in order] for blobs, order in zip(found, orders, strict=True)
    )
    assert 0 < held_open(tmp_path) <= 128
    del source
    assert held_open(tmp_path) == 0


def held_open(folder: Path) -> int:
    """Shards of a folder that this process holds open."""
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum(
        os.readlink(link).startswith(f"{folder}/s-") for link in links if os.path.islink(link)
    )


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_reads_too(tmp_path):
    """Also if another thread of the parent was opening a file at that moment."""
    source = TarShards(shard_folder(tmp_path, (2, 2)))
    whole = source.read(range(4))
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with source._shards._lock:
            held.set()
            go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends it if it waits for the lock
        os._exit(0 if source.read(range(4)) == whole else 1)
    go.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert source.read(range(4)) == whole
