"""Table: Arrow's files and streams, whose images are read by their bytes alone."""

from __future__ import annotations

import json
import random
import threading

import numpy as np
import pyarrow as pa
import pytest
from helpers.hugging_face import blob, table, write_stream
from helpers.tables import Reads, every

from fastfeed.decode.executor import Executor
from fastfeed.errors import ConfigError, SourceError
from fastfeed.ops import Decode
from fastfeed.runtime.extension import is_built
from fastfeed.sources import Table

COLUMNS = {
    "i": pa.array([1, None, 3, 4, 5], pa.int16()),
    "f": pa.array([0.5, 1, 2, None, 4], pa.float64()),
    "b": pa.array([True, False, True, False, True]),
    "s": pa.array(["a", None, "höher", "", "e"]),
    "big": pa.array(["v", "w", "x", "y", "z"], pa.large_string()),
    "pair": pa.array([[1, 2], [3, 4], None, [7, 8], [9, 0]], pa.list_(pa.int64())),
    "fixed": pa.array([[1, 2]] * 5, pa.list_(pa.float32(), 2)),
    "map": pa.array([[("k", 1)]] * 5, pa.map_(pa.string(), pa.int8())),
    "none": pa.nulls(5),
    "deep": pa.array([{"x": {"y": k}, "z": "q"} for k in range(5)]),
}


def test_columns_of_every_kind_are_those_of_parquet(tmp_path):
    import pyarrow.parquet as pq

    rows = table(range(5))
    for name, values in COLUMNS.items():
        rows = rows.append_column(name, values)
    names = ["i", "f", "s", "big", "pair", "fixed", "deep.x.y", "b", "none"]
    arrow = write_stream(tmp_path / "t.arrow", rows)
    pq.write_table(rows, tmp_path / "t.parquet")
    source, other = (
        Table(path, image="image", label="label", columns=names)
        for path in (arrow, tmp_path / "t.parquet")
    )
    for name, values in source.columns(every(source)).items():
        np.testing.assert_array_equal(values, other.columns(every(other))[name], strict=True)
    assert source.classes == other.classes and source.read(range(5)) == other.read(range(5))


def test_files_and_streams_of_several_batches(tmp_path):
    rows = table(range(5))
    path = tmp_path / "file.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows, 2)
    for arrow in (path, write_stream(tmp_path / "stream.arrow", rows, per_batch=3)):
        source = Table(arrow, image="image", label="label", columns=["caption"])
        assert source.read([4, 0]) == [blob(4), blob(0)]
        assert source.columns(every(source))["caption"].tolist() == [f"text {i}" for i in range(5)]
        assert source.uris([3]) == [f"{arrow}#3"]
        assert source.sizes(every(source)).tolist() == [len(blob(i)) for i in range(5)]


def test_images_as_large_bytes_and_paths(tmp_path):
    large = pa.table({"image": pa.array([blob(0), None, blob(2)], pa.large_binary())})
    source = Table(write_stream(tmp_path / "a.arrow", large), image="image")
    assert source.read([0, 2]) == [blob(0), blob(2)]
    assert source.read([1])[0].reason == "not_found"
    (tmp_path / "x.jpg").write_bytes(blob(1))
    named = pa.table({"image": pa.array([{"bytes": None, "path": "x.jpg"}])})
    source = Table(write_stream(tmp_path / "b.arrow", named), image="image")
    assert source.read([0]) == [blob(1)] and source.paths is not None
    assert source.uris([0]) == [str(tmp_path / "x.jpg")]


def test_opening_reads_no_image(tmp_path, monkeypatch):
    big = pa.table({"image": [bytes(1 << 20)] * 4, "label": [0, 1, 0, 1]})
    path = write_stream(tmp_path / "a.arrow", big)
    reads = Reads(monkeypatch)
    source = Table(path, image="image", label="label")
    assert sum(stop - start for _, start, stop in reads.seen) < 512 << 10
    reads.take()
    assert source.read([2]) == [bytes(1 << 20)]
    assert [stop - start for _, start, stop in reads.seen] == [1 << 20]


@pytest.mark.skipif(not is_built(), reason="the kernel is not built")
def test_native_threads_read_bytes_and_paths(tmp_path):
    (tmp_path / "x.jpg").write_bytes(blob(1))
    images = [{"bytes": blob(0), "path": None}, {"bytes": None, "path": "x.jpg"}, None]
    rows = pa.table({"image": pa.array(images, table([]).schema.field("image").type)})
    source = Table(write_stream(tmp_path / "a.arrow", rows), image="image")
    addresses = source.addresses(np.array([1, -1, 0, 2, 1]))
    assert addresses is not None
    samples = Executor(Decode(), 2).read(addresses, 1 << 40, threading.Event())
    assert sorted(samples.unread) == [1, 3]
    got = [samples.handle.bytes(row) for row in (0, 2, 4)]
    assert got == [blob(1), blob(0), blob(1)]


def test_a_changed_file_is_noticed(tmp_path):
    path = write_stream(tmp_path / "a.arrow", table([0, 1]))
    source = Table(path, image="image")
    write_stream(path, table([2, 3]))
    assert source.read([0])[0].reason == "changed"


def bad_texts() -> pa.Table:
    texts = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")]
    )
    return pa.table({"image": pa.array([b"x"]), "caption": texts})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda p: p.write_bytes(b"PAR1" * 9), "no message of Arrow at 0, or one from before"),
        (lambda p: p.write_bytes(b""), "it does not begin with a schema"),
        (lambda p: write_stream(p, bad_texts()), "cannot be read as an Arrow file: Invalid UTF8"),
        (
            lambda p: write_stream(p, table(range(9)), compression="lz4"),
            "its record batches are compressed; write them without compression",
        ),
        (
            lambda p: write_stream(p, pa.table({"image": [b"x"], "caption": [[b"y"]]})),
            "column 'caption' of",
        ),
        (
            lambda p: write_stream(
                p, pa.table({"image": [b"x"], "caption": pa.array(["a"]).dictionary_encode()})
            ),
            "write its values themselves",
        ),
        (
            lambda p: write_stream(
                p,
                pa.table({"image": pa.array([b"xy"], pa.binary(2)), "caption": ["a"]}),
            ),
            "column 'image' holds fixed_size_binary[2]; write images as binary",
        ),
        (lambda p: write_stream(p, pa.table({"image": [1], "caption": ["a"]})), "must hold paths"),
        (lambda p: write_stream(p, table([])), "has no rows"),
    ],
)
def test_refused(tmp_path, make, text):
    make(tmp_path / "a.arrow")
    with pytest.raises(SourceError) as error:
        Table(tmp_path / "a.arrow", image="image", columns=["caption"])
    assert text in str(error.value)


def test_a_column_that_is_not_there(tmp_path):
    path = write_stream(tmp_path / "a.arrow", table([0]))
    with pytest.raises(ConfigError, match=r"no column 'year' in .*; it has 'image', 'label', 'cap"):
        Table(path, image="image", columns=["year"])


def test_damage_is_an_error_and_never_a_crash(tmp_path):
    """Of a file cut off anywhere, and of one with any byte changed."""
    path = tmp_path / "a.arrow"
    rows = pa.table(
        {"image": [b"one", b"three", b"five5"], "caption": ["a", "bc", "d"], "n": [[1], [2], [3]]}
    )
    whole = write_stream(path, rows).read_bytes()
    random.seed(0)
    changes = [(random.randrange(len(whole)), random.randrange(1, 256)) for _ in range(150)]
    damaged = [whole[: random.randrange(len(whole))] for _ in range(30)]
    for at, change in changes:
        damaged.append(whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :])
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            source = Table(path, image="image", columns=["caption", "n"])
        except (SourceError, ConfigError):
            refused += 1
        else:
            assert len(source.read(range(len(source)))) == len(source)
            assert len(source.columns(every(source))["caption"]) == len(source)
    assert refused > 30, json.dumps(refused)
