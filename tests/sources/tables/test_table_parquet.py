"""Table of images that lie in Parquet: row groups are read whole, kept within limits, and by one
thread each.
"""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.photos import jpeg
from helpers.tables import Reads, every, image_bytes, labels, write

from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.feed.feed import Feed
from fastfeed.ops import Resize
from fastfeed.sampling import Blocks
from fastfeed.sources import Table
from fastfeed.storage.shard_files import ShardReader

BLOBS = [bytes([i]) * (1000 + i) for i in range(20)]


def test_images_and_row_groups(tmp_path):
    table = image_bytes(tmp_path / "t.parquet", BLOBS, 6, label=[i % 3 for i in range(20)])
    source = Table(table, image="image", label="label")
    assert source.read(range(20)) == BLOBS
    assert source.read([19, 0, 7]) == [BLOBS[19], BLOBS[0], BLOBS[7]]
    assert source.bounds.tolist() == [0, 6, 12, 18, 20]
    assert source.uri(7) == f"{table}#7"
    assert source.shard(2) == f"{table} row group 2"
    assert labels(source) == [i % 3 for i in range(20)]
    sizes = source.sizes(every(source))
    assert np.all(np.abs(sizes - 1010) < 60), "a row group's bytes, shared equally"
    assert not source.remote


def test_several_files(tmp_path):
    for i in range(3):
        blobs = BLOBS[5 * i : 5 * i + 5]
        image_bytes(
            tmp_path / f"{i}.parquet", blobs, 2, n=list(range(5)), kind=["b", "a", "b", "c", "a"]
        )
    source = Table(tmp_path, image="image", label="kind", columns=["n"])
    assert source.read(range(15)) == BLOBS[:15]
    assert source.bounds.tolist() == [0, 2, 4, 5, 7, 9, 10, 12, 14, 15]
    assert (source.uri(7), source.shard(4)) == (
        f"{tmp_path}/1.parquet#2",
        f"{tmp_path}/1.parquet row group 1",
    )
    assert labels(source) == [1, 0, 1, 2, 0] * 3
    assert source.columns(every(source))["n"].tolist() == [0, 1, 2, 3, 4] * 3


def structs(*found: bytes | None) -> list[dict[str, object]]:
    return [{"bytes": blob, "path": f"{i}.jpg"} for i, blob in enumerate(found)]


HELD = {  # the last one is not there
    "bytes": lambda: pa.array([*BLOBS[:4], None], pa.binary()),
    "large bytes": lambda: pa.array([*BLOBS[:4], None], pa.large_binary()),
    "as Hugging Face does": lambda: pa.array(structs(*BLOBS[:4], None)),
    "as Hugging Face does, a gap": lambda: pa.array([*structs(*BLOBS[:4]), None]),
    "another field first": lambda: pa.array(
        [*({"path": "x", "bytes": b} for b in BLOBS[:4]), None]
    ),
}


@pytest.mark.parametrize("kind", HELD)
@pytest.mark.parametrize(
    "options", [{}, {"compression": "zstd"}, {"use_dictionary": False, "data_page_version": "2.0"}]
)
def test_kinds_of_image_columns(tmp_path, kind, options):
    columns = {"label": ["a"] * 5, "my.image": HELD[kind](), "more": list(range(5))}
    table = write(tmp_path / "t.parquet", columns, row_group_size=2, **options)
    found = Table(table, image="my.image", label="label", columns=["more"]).read(range(5))
    detail = "4.jpg" if kind == "as Hugging Face does" else "row 4: no image"  # it has a path
    assert found == [*BLOBS[:4], Failure(4, f"{table}#4", "read", "not_found", detail)]


def test_an_empty_image_and_a_missing_label(tmp_path):
    table = image_bytes(tmp_path / "t.parquet", [b"", b"x", b"y"], 2, label=[1, None, 2])
    empty, unlabeled, good = Table(table, image="image", label="label").read([0, 1, 2])
    assert (empty.reason, unlabeled.reason, unlabeled.detail, good) == (
        "empty",
        "label_missing",
        "row 1: no label",
        b"y",
    )


@pytest.mark.parametrize(
    "values", [pa.array([1]), pa.array([["a"]]), pa.array([{"p": "x"}]), pa.array([None])]
)
def test_columns_that_hold_no_images(tmp_path, values):
    with pytest.raises(SourceError) as error:
        Table(write(tmp_path / "t.parquet", {"image": values}), image="image")
    assert (
        "must hold paths, or images as bytes (text, binary, or a struct with a field 'bytes' or"
        " 'path')" in str(error.value)
    )


def test_paths_in_one_file_and_bytes_in_another(tmp_path):
    one = write(tmp_path / "a.parquet", {"image": ["x.jpg"]})
    two = write(tmp_path / "b.parquet", {"image": [b"x"]})
    with pytest.raises(SourceError) as error:
        Table([one, two], image="image")
    assert str(error.value) == f"Table: 'image' is of one kind in {one} and of another in {two}"


# -- what is read


def test_only_what_is_wanted_is_read(tmp_path, monkeypatch):
    table = image_bytes(
        tmp_path / "t.parquet", BLOBS, 5, label=list(range(20)), other=["x" * 1000] * 20
    )
    reads = Reads(monkeypatch)
    source = Table(table, image="image", label="label")
    assert sum(stop - start for _, start, stop in reads.seen[1:]) < 2000, (
        "behind the footer, only labels"
    )
    reads.take()
    assert source.read([5, 6, 9]) == [BLOBS[5], BLOBS[6], BLOBS[9]]
    ((_, start, stop),) = reads.seen
    assert stop - start == pytest.approx(5 * 1010, rel=0.05), "one row group's images"


def test_row_groups_are_kept_within_memory(tmp_path, monkeypatch):
    table = image_bytes(tmp_path / "t.parquet", BLOBS, 5)
    reads = Reads(monkeypatch)
    source = Table(table, image="image", memory=11_000)  # two row groups
    reads.take()
    for ids, count in (
        ([0, 1, 4], 1),
        ([5, 3, 9], 1),
        ([2], 0),
        ([10], 1),
        ([0], 0),
        ([6], 1),
        ([10], 1),
        ([7], 0),
    ):
        assert source.read(ids) == [BLOBS[i] for i in ids]
        assert reads.take() == count, ids
    small = Table(table, image="image", memory=1)
    reads.take()
    assert small.read([0, 1, 2, 3, 5, 6]) == [BLOBS[i] for i in (0, 1, 2, 3, 5, 6)]
    assert reads.take() == 2, "one is kept, however large"


def test_a_row_group_is_read_once_however_many_threads_ask(tmp_path, monkeypatch):
    table = image_bytes(tmp_path / "t.parquet", BLOBS, 10)
    source = Table(table, image="image")
    reads, start = Reads(monkeypatch), threading.Barrier(8)

    def read(i: int) -> bytes:
        start.wait()
        return source.read([i])[0]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(8))) == BLOBS[:8]
    assert reads.take() == 1


def test_an_order_that_reads_too_much_is_said_once(tmp_path):
    table = image_bytes(tmp_path / "t.parquet", BLOBS, 5)
    source = Table(table, image="image", memory=11_000)
    with pytest.warns(RuntimeWarning) as found:
        for _ in range(5):
            source.read([0, 5, 10, 15])
    assert len(found) == 1
    assert (
        str(found[0].message)
        == "Table: 45.6 kB of row groups were read for 8.1 kB of images: there are 4 row"
        " groups of about 5.1 kB, and 11.0 kB are kept; pass shuffle=Blocks(window=1,"
        " lanes=1) to the feed, or more memory to Table"
    )


def test_an_order_by_row_groups_reads_each_once(tmp_path, monkeypatch):
    blobs = [jpeg(i, (32, 32)) for i in range(48)]
    table = image_bytes(tmp_path / "t.parquet", blobs, 6, label=list(range(48)))
    source = Table(table, image="image", label="label", memory=4 * sum(map(len, blobs)) // 8)
    reads = Reads(monkeypatch)
    feed = Feed(
        source,
        [Resize((8, 8))],
        batch=6,
        shuffle=Blocks(window=2, lanes=1),
        threads=1,
        prefetch=0,
        seed=3,
    )
    with feed:
        seen = np.concatenate([batch.labels for batch in feed.batches(0)])
    assert sorted(seen.tolist()) == list(range(48))
    assert seen.tolist() != sorted(seen.tolist())
    assert reads.take() == 8


def test_reads_that_are_begun(tmp_path):
    source = Table(image_bytes(tmp_path / "t.parquet", BLOBS, 5), image="image")
    begun = source.fetch([0, 7, 1])
    begun[1].cancel()
    assert [pending.result(5) for pending in begun] == [BLOBS[0], BLOBS[7], BLOBS[1]]


def test_pickles_without_what_it_has_read(tmp_path):
    table = image_bytes(tmp_path / "t.parquet", [bytes(100_000)] * 4, 2)
    source = Table(table, image="image")
    source.read([0, 3])
    packed = pickle.dumps(source)
    assert len(packed) < 10_000
    assert pickle.loads(packed).read([2]) == [bytes(100_000)]


def test_in_a_process_that_was_forked_while_a_thread_reads(tmp_path, monkeypatch):
    """What that thread held is held for ever there."""
    source = Table(image_bytes(tmp_path / "t.parquet", BLOBS, 5), image="image")
    source.read([6])
    read, reading, go_on = ShardReader.read, threading.Event(), threading.Event()

    def slow(*place: Any) -> Any:
        if threading.current_thread().name == "slow":
            reading.set()
            go_on.wait()
        return read(*place)

    monkeypatch.setattr(ShardReader, "read", slow)
    thread = threading.Thread(target=source.read, args=([0],), name="slow")
    thread.start()
    reading.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads: that is the point
        pid = os.fork()
    if not pid:
        os._exit(0 if source.read([1, 6, 0]) == [BLOBS[1], BLOBS[6], BLOBS[0]] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    go_on.set()
    thread.join()
    assert source.read([1]) == [BLOBS[1]]
