"""Columns of shards by native code are those that Python reads and converts one by one."""

from __future__ import annotations

import io
import os
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.mosaic import mds_shard
from helpers.records import example, field, frame, varint

from fastfeed import MDSShards, TarShards, TFRecords
from fastfeed.sources.column_arrays import as_array
from fastfeed.sources.shards import extra_columns
from fastfeed.sources.shards.extra_columns import read_npy
from fastfeed.storage.reads import Unread
from fastfeed.storage.shard_files import ShardReader

TEXTS = [
    b"a caption",
    b"",
    "Zürich, 東京, 🚲".encode(),
    b"\xef\xbb\xbfa byte order mark",
    b"two\xef\xbb\xbf",
    b"a\0b",
    b"\xff\xfe",
    b"\xc0\xaf",  # overlong
    b"\xed\xa0\x80",  # a surrogate
    b"\xf4\x90\x80\x80",  # beyond Unicode
    b"cut \xe2\x82",
    b"x" * 5000,
]
JSON = [
    b"3",
    b" \t\r\n-17 \n",
    b"-0",
    b"-0.0",
    b"0.1",
    b"1.5E+3",
    b"1e999",
    b"-2.2250738585072014e-308",
    b"123456789012345678",
    b"1234567890123456789012345678901234567890",
    b"NaN",
    b"-Infinity",
    b"true",
    b"null",
    b'{"a": [1, 2.0]}',
    b'"a"',
    b"\xef\xbb\xbf4",
    # not JSON
    b"",
    b"-",
    b"+1",
    b"01",
    b"-01",
    b"1.",
    b".5",
    b"1e",
    b"1_000",
    b"0x10",
    b"1 2",
    b"\x0b1",
    "\u0661".encode(),
    b"1\0",
]
FEATURES = [
    field(1, field(1, b"a caption")),
    field(1, field(1, b"")),
    field(1, field(1, b"\xff")),
    field(1, field(1, b"\xef\xbb\xbfa")),
    field(1, field(1, b"a") + field(1, b"b")),
    field(2, field(1, struct.pack("<f", 0.1))),
    field(2, b"\x0d" + struct.pack("<f", float("inf"))),
    field(2, field(1, struct.pack("<2f", 0.1, 0.2))),
    field(3, field(1, varint(-5))),
    field(3, b"\x08" + varint(1 << 62)),
    field(3, field(1, varint(1) + varint(300))),
    field(3, field(1, b"\x85\x80\x80\x80\x80\x80\x80\x80\x80\x7f")),  # more than 64 bits
    field(3, field(1, b"\x85\0")),  # 5 in two bytes
    field(3, field(1, varint(7))) + field(1, field(1, b"the last kind counts")),
    field(3, b"") + field(3, field(1, varint(7))),
    b"",
    field(1, b""),
    # damaged
    field(3, field(1, b"\x85")),
    field(3, field(1, b"\x85" * 11)),
    field(2, field(1, b"abc")),
    field(2, field(1, varint(1))),
    field(3, b"\x0d" + struct.pack("<f", 0.1)),
    field(1, field(1, b"abc"))[:-1],
    b"\x0a",
    b"\x1a\x05\x08",
]


def tar_of(path: Path, columns: dict[str, list[bytes]]) -> Path:
    """Samples whose image is a word."""
    with tarfile.open(path, "w") as archive:
        for i in range(max(map(len, columns.values()))):
            for name, data in [("jpg", b"no image"), *((n, v[i]) for n, v in columns.items())]:
                member = tarfile.TarInfo(f"{i:03}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return path


def same_by_python(source: Any, ids: list[int], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Rows of the columns, which are the same without native code."""
    rows = source.column_values(ids)
    with monkeypatch.context() as patch:
        patch.setattr(extra_columns, "extension", lambda: None)
        expected = source.column_values(ids)
    assert repr(rows) == repr(expected)
    for row, other in zip(rows, expected, strict=True):
        assert [type(value) for value in row.values()] == [type(x) for x in other.values()]
    return rows


def test_texts_and_json_of_tar_shards(tmp_path, monkeypatch):
    count = max(len(TEXTS), len(JSON))
    texts, documents = (values * count for values in (TEXTS, JSON))
    columns = {"txt": texts[:count], "json": documents[:count], "txt:bytes": texts[:count]}
    path = tar_of(tmp_path / "a.tar", {name.replace(":", "."): v for name, v in columns.items()})
    names = ["txt", "json", "txt.bytes"]
    source = TarShards(path, label=None, columns=names)
    rows = same_by_python(source, [*range(count), 0, 0, 5], monkeypatch)
    assert rows[0] == {"txt": "a caption", "json": 3, "txt.bytes": b"a caption"}
    assert rows[1]["txt"] == "" and rows[2]["txt"] == "Zürich, 東京, 🚲"
    assert "txt: 'utf-8' codec" in rows[6]["txt"].detail
    assert source.columns(np.arange(3))["txt"].tolist() == ["a caption", "", "Zürich, 東京, 🚲"]


@pytest.mark.parametrize(
    "arrays",
    [
        [np.float32(i) for i in range(4)],
        [np.arange(i, i + 6).reshape(2, 3) for i in range(4)],
        [np.asfortranarray(np.eye(2) * i) for i in range(4)],
        [np.zeros(2), np.zeros(3), np.ones(2), np.zeros(0)],
        [np.int32(1), np.float32(2), np.int32(3), np.int64(4)],
    ],
    ids=["numbers", "arrays", "fortran", "shapes", "types"],
)
def test_arrays_of_tar_shards(arrays, tmp_path, monkeypatch):
    files = []
    for array in arrays:
        np.save(file := io.BytesIO(), array)
        files.append(file.getvalue())
    source = TarShards(tar_of(tmp_path / "a.tar", {"npy": files}), label=None, columns=["npy"])
    for row, array in zip(same_by_python(source, [0, 1, 2, 3], monkeypatch), arrays, strict=True):
        np.testing.assert_array_equal(row["npy"], array, strict=True)
        assert row["npy"].flags.writeable
    damaged = [*files[:3], b"", files[3][:20], b"x" * len(files[3]), files[3][:-1]]
    source = TarShards(tar_of(tmp_path / "b.tar", {"npy": damaged}), label=None, columns=["npy"])
    for ids in ([0, 1, 2, 3, 4, 5, 6], [3], [4], [5], [5, 5], [6], [0, 6]):
        rows = same_by_python(source, ids, monkeypatch)
        bad = [getattr(row["npy"], "reason", "") for row in rows]
        assert bad == ["corrupt" if i > 2 else "" for i in ids]


def test_features_of_tfrecords(tmp_path, monkeypatch):
    entries = [
        field(1, field(1, b"image/encoded") + field(2, field(1, field(1, b"\xff\xd8\xff")))),
    ]
    records = [
        field(1, entries[0] + field(1, field(1, b"f") + field(2, feature))) for feature in FEATURES
    ]
    (tmp_path / "a.tfrecord").write_bytes(b"".join(map(frame, records)))
    source = TFRecords(tmp_path / "a.tfrecord", label=None, columns=["f"])
    rows = same_by_python(source, list(range(len(source))), monkeypatch)
    assert len(source) == len(FEATURES)
    for same in ([8, 9, 12], [5, 6], [0, 1]):  # integers, floats, texts
        same_by_python(source, same, monkeypatch)
    values = [row["f"] for row in rows]
    assert values[0] == "a caption" and values[5] == np.float32(0.1) and values[8] == -5


def test_numbers_of_mds_shards(tmp_path, monkeypatch):
    kinds = {"image": "bytes", "n": "int", "f": "float32", "t": "str", "j": "json", "i": "str_int"}
    samples = [
        {"image": b"\xff\xd8\xff", "n": n, "f": n / 3, "t": f"text {n}", "j": n, "i": f" {n}"}
        for n in (-(1 << 63), 0, 7)
    ]
    (tmp_path / "a.mds").write_bytes(mds_shard(kinds, samples))
    names = ["n", "f", "t", "j", "i"]
    source = MDSShards(tmp_path / "a.mds", image="image", label=None, columns=names)
    rows = same_by_python(source, [2, 0, 1, 1], monkeypatch)
    assert list(rows[0].values()) == [7, np.float32(7 / 3), "text 7", 7, 7]
    assert source.columns(np.array([2, 0]))["n"].dtype == np.int64


def test_python_reads_nothing_that_native_code_has_read(tmp_path, monkeypatch):
    path = tar_of(tmp_path / "a.tar", {"txt": TEXTS[:3], "json": JSON[:3]})
    source = TarShards(path, label=None, columns=["txt", "json"])
    monkeypatch.setattr(ShardReader, "read_all", None)
    assert source.columns(np.arange(3))["json"].tolist() == [3, -17, 0]
    features = {"image/encoded": b"\xff\xd8\xff", "n": 3, "t": b"a"}
    (tmp_path / "a.tfrecord").write_bytes(frame(example(features)))
    records = TFRecords(tmp_path / "a.tfrecord", label=None, columns=["n", "t"])
    monkeypatch.setattr("fastfeed.sources.tfrecord.source.to_python", None)
    assert records.column_values([0]) == [{"n": 3, "t": "a"}]


@pytest.mark.parametrize("damage", ["header", "changed", "cut", "gone", "large"])
def test_what_is_wrong_is_found_as_by_python(damage, tmp_path, monkeypatch):
    texts = [b"a", b"x" * (1 << 20) + b"y" if damage == "large" else b"b", b"c"]
    path = tar_of(tmp_path / "a.tar", {"txt": texts})
    source = TarShards(path, label=None, columns=["txt"])
    data = bytearray(path.read_bytes())
    stat = path.stat()
    if damage == "header":
        data[data.index(b"001.txt") + 100] ^= 1  # its mode
        path.write_bytes(data)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif damage == "changed":
        path.write_bytes(data + bytes(512))
    elif damage == "cut":
        path.write_bytes(data[:2048])
    elif damage == "gone":
        path.unlink()
    rows = same_by_python(source, [0, 1, 2], monkeypatch)
    reasons = [getattr(row["txt"], "reason", row["txt"]) for row in rows]
    assert reasons == {
        "header": ["a", "changed", "c"],
        "large": ["a", "bomb", "c"],
        "gone": ["not_found"] * 3,
    }.get(damage, ["changed"] * 3)


@pytest.mark.parametrize(
    "array",
    [np.float32(3), np.arange(6).reshape(2, 3), np.zeros((0, 4)), np.asfortranarray(np.eye(3))],
    ids=str,
)
def test_npy_files_are_read_as_numpy_reads_them(array):
    file = io.BytesIO()
    np.save(file, array)
    for _ in range(2):  # the header is known the second time
        read = read_npy(file.getvalue())
        np.testing.assert_array_equal(read, array, strict=True)
        assert read.flags.writeable
    np.lib.format.write_array(second := io.BytesIO(), np.asarray(array), version=(2, 0))
    np.testing.assert_array_equal(read_npy(second.getvalue()), array, strict=True)


@pytest.mark.parametrize("data", [b"", b"\x93NUMPY", b"\x93NUMPY\1\0\xff\xff", b"no array" * 20])
def test_what_is_no_npy_file_is_refused(data):
    with pytest.raises(ValueError):
        read_npy(data)


def test_pickles_and_cut_arrays_are_refused():
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickled objects are not loaded"):
        read_npy(file.getvalue())
    np.save(file := io.BytesIO(), np.arange(4))
    with pytest.raises(ValueError, match=r"31 bytes for int64 \(4,\)"):
        read_npy(file.getvalue()[:-1])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([np.int64(1), np.int64(2)], np.array([1, 2])),
        ([np.int64(1), None], np.array([1, np.nan])),
        ([np.float32(1), Unread("corrupt")], np.array([1, np.nan], np.float32)),
        ([np.int32(1), np.int64(2)], np.array([1, 2])),
        ([np.arange(2), None], np.array([[0, 1], [0, 0]])),
        (["a", None], np.array(["a", ""], object)),
        (["a", np.int64(1)], np.array(["a", 1], object)),
        ([None, None], np.array(["", ""], object)),
        ([], np.array([], object)),
    ],
    ids=str,
)
def test_arrays_of_columns(values, expected):
    np.testing.assert_array_equal(as_array(values), expected, strict=True)


def test_lists_stay_lists_in_an_array_of_objects():
    column = as_array([[1, 2], [3, 4]])
    assert column.shape == (2,) and column.tolist() == [[1, 2], [3, 4]]
    ragged = as_array([np.arange(2), np.arange(3)])
    assert ragged.dtype == object and [len(value) for value in ragged] == [2, 3]
