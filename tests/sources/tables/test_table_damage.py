"""Table: Parquet files that are damaged, cut off, or replaced while they are used."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.tables import Reads, image_bytes, write
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.sources import Table

BLOBS = [bytes([i]) * (1000 + i) for i in range(20)]


def damaged(path: Path, at: int, data: bytes = b"\xff" * 64) -> Path:
    """The same size and time, so that it is noticed only by reading."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return path


def test_a_damaged_row_group(tmp_path, monkeypatch):
    table = image_bytes(tmp_path / "t.parquet", BLOBS, 5)
    source = Table(table, image="image")
    damaged(table, pq.read_metadata(table).row_group(1).column(0).data_page_offset)
    reads = Reads(monkeypatch)
    found = source.read([4, 5, 6, 10])
    assert [found[0], found[3]] == [BLOBS[4], BLOBS[10]]
    assert [f.reason for f in found[1:3]] == ["corrupt", "corrupt"]
    assert found[1].detail.startswith("row group 1: ")
    assert reads.take() == 3, "the damaged one is not read again"


def test_a_file_that_is_replaced_while_it_is_used(tmp_path):
    table = image_bytes(tmp_path / "t.parquet", BLOBS, 5)
    source = Table(table, image="image")
    assert source.read([0]) == [BLOBS[0]]
    image_bytes(tmp_path / "t.parquet", BLOBS[::-1], 5)
    os.utime(table, ns=(1, 1))
    good, bad = source.read([1, 5])
    assert good == BLOBS[1]
    assert bad.reason == "changed"
    table.unlink()


def test_errors_that_may_pass_are_not_kept(tmp_path, monkeypatch):
    source = Table(image_bytes(tmp_path / "t.parquet", BLOBS, 5), image="image")

    def refused(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", refused)
        (bad,) = source.read([0])
    assert (bad.reason, bad.detail) == ("io_error", "Input/output error")
    assert source.read([0]) == [BLOBS[0]]


def test_not_parquet(tmp_path):
    table = tmp_path / "t.parquet"
    whole = image_bytes(tmp_path / "whole.parquet", BLOBS, 5).read_bytes()
    for content, text in (
        (b"", "is empty"),
        (b"path,label\na,1\n", "ends with b'a,1\\n': no Parquet file, or cut off"),
        (whole[:-100], "no Parquet file, or cut off"),
        (whole[: len(whole) // 2], "no Parquet file, or cut off"),
        (whole[-500:], "is damaged: a footer of "),
        (
            whole[:-8] + b"\xff\xff\xff\x7fPAR1",
            "is damaged: a footer of 2147483655 bytes in a file of",
        ),
        (whole[:-1000] + bytes(992) + whole[-8:], "is damaged: "),
        (whole[:-4] + b"PARE", "is encrypted"),
    ):
        table.write_bytes(content)
        with pytest.raises(SourceError) as error:
            Table(table, image="image")
        assert str(error.value).startswith(f"Table: {table} ")
        assert text in str(error.value)


def test_labels_that_are_damaged(tmp_path):
    table = write(
        tmp_path / "t.parquet", {"path": ["x"] * 100, "label": list(range(100))}, compression="gzip"
    )
    damaged(table, pq.read_metadata(table).row_group(0).column(1).data_page_offset + 20)
    with pytest.raises(SourceError, match=rf"^Table: {table} is damaged: "):
        Table(table, image="path", label="label")


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=4))
def test_wherever_a_file_is_damaged_the_error_is_ours(tmp_path_factory, at, data):
    table = image_bytes(tmp_path_factory.mktemp("t") / "t.parquet", BLOBS, 5, label=list(range(20)))
    at %= table.stat().st_size
    damaged(table, at, data[: table.stat().st_size - at])
    try:
        found = Table(table, image="image", label="label").read(range(20))
    except SourceError as error:
        assert str(error).startswith("Table: ")
    else:
        assert len(found) == 20
        assert all(isinstance(one, (bytes, Failure)) for one in found)
