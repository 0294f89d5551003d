"""Files of a few kilobytes that would take gigabytes: refused before they are unpacked, with what
to pass for more.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import textwrap
import tracemalloc
from io import BytesIO
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import environment

from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.runtime import json_file
from fastfeed.runtime.json_file import object_bytes
from fastfeed.sources import Arrays, HuggingFace, MDSShards, Table, TarShards
from fastfeed.sources.tables import csv_jsonl, read_files
from fastfeed.sources.tables.csv_jsonl import read_csv, read_json
from fastfeed.sources.tables.parquet_footer import scan_pages

ZEROS = bytes(40 << 20)  # 40 MB, in 2 KB of a file


def written(path: Path, columns: dict[str, Any], **how: Any) -> Path:
    pq.write_table(
        pa.table(columns), path, **{"compression": "zstd", "write_statistics": False} | how
    )
    assert path.stat().st_size < 100_000
    return path


def equal(value: str | bytes, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value]))


def test_an_image_that_unpacks_large(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.parquet",
        {"image": pa.array([ZEROS], pa.large_binary())},
        use_dictionary=False,
    )
    (bad,) = Table(path, image="image", memory="8MB").read([0])
    assert isinstance(bad, Failure) and bad.reason == "bomb"
    assert (
        "bytes unpacked" in bad.detail
        and "the limit is 8,000,000, pass memory= to Table" in bad.detail
    )
    assert Table(path, image="image", memory="64MB").read([0]) == [ZEROS]


def test_a_footer_that_says_less(tmp_path: Path) -> None:
    """Nothing keeps a footer to the truth: the headers of pages count."""
    path = written(
        tmp_path / "t.parquet",
        {"image": pa.array([ZEROS], pa.large_binary())},
        use_dictionary=False,
    )
    unpacked = pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size

    def varint(number: int) -> bytes:
        number, parts = number << 1, []
        while number > 127:
            parts.append(number & 127 | 128)
            number >>= 7
        return bytes([*parts, number])

    content = path.read_bytes()
    lie = bytes([*(byte | 128 for byte in varint(0) + bytes(len(varint(unpacked)) - 2)), 0])
    assert content.count(varint(unpacked)) >= 1 and len(lie) == len(varint(unpacked))
    path.write_bytes(content.replace(varint(unpacked), lie))
    (bad,) = Table(path, image="image", memory="8MB").read([0])
    assert isinstance(bad, Failure) and bad.reason in ("bomb", "corrupt")


def test_images_that_are_one_many_times(tmp_path: Path) -> None:
    """They stay one in memory."""
    image = bytes(100_000)
    path = written(tmp_path / "t.parquet", {"image": equal(image, 5000)})
    table = Table(path, image="image", memory="1MB")
    assert table.read([0, 4999]) == [image, image]
    assert table.read([7]) == [image]


@pytest.mark.parametrize("name", ["path", "caption"])
def test_texts_that_are_one_many_times(tmp_path: Path, name: str) -> None:
    count = 200_000
    path = written(
        tmp_path / "t.parquet", {name: equal("x" * 200, count), "p": equal("a.jpg", count)}
    )
    image, columns = ("path", []) if name == "path" else ("p", ["caption"])
    with pytest.raises(SourceError) as error:
        Table(path, image=image, columns=columns, memory="20MB")
    assert "take more than 20,000,000 bytes of memory" in str(
        error.value
    ) and "pass memory='1GB'" in str(error.value)
    assert len(Table(path, image=image, columns=columns, memory="200MB")) == count


def test_texts_that_share_their_beginnings(tmp_path: Path) -> None:
    texts = pa.array(["x" * 5000] * 4_000)
    how = {"use_dictionary": False, "column_encoding": {"path": "DELTA_BYTE_ARRAY"}}
    path = written(tmp_path / "t.parquet", {"path": texts}, **how)
    with pytest.raises(SourceError, match="bytes of memory"):
        Table(path, image="path", memory="8MB")
    assert len(Table(path, image="path", memory="200MB")) == 4_000


def test_numbers_of_which_there_are_many(tmp_path: Path) -> None:
    count = 3_000_000
    path = written(
        tmp_path / "t.parquet",
        {"path": equal("a.jpg", count), "n": pa.array(np.zeros(count, np.int64))},
    )
    with pytest.raises(SourceError, match="bytes of memory"):
        Table(path, image="path", columns=["n"], memory="10MB")


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_usual_tables_are_counted_right(tmp_path: Path, dictionary: bool, version: str) -> None:
    """Bytes of pages are those of the footer, without the pages' headers; nothing of it is
    refused.
    """
    rng, path = np.random.default_rng(0), tmp_path / "t.parquet"
    texts = [f"{number:x}.jpg" for number in rng.integers(0, 1 << 60, 20_000)]
    table = pa.table({"path": texts, "n": rng.integers(0, 9, len(texts))})
    pq.write_table(
        table, path, data_page_version=version, use_dictionary=dictionary, row_group_size=7000
    )
    about = pq.read_metadata(path)
    for group in range(about.num_row_groups):
        for k in range(about.num_columns):
            column = about.row_group(group).column(k)
            start = column.dictionary_page_offset or column.data_page_offset
            chunk = path.read_bytes()[start : start + column.total_compressed_size]
            pages = scan_pages(chunk, column.num_values)
            assert pages.values == column.num_values
            assert 0 < column.total_uncompressed_size - pages.unpacked < 0.01 * len(chunk) + 500
    assert len(Table(path, image="path", columns=["n"], memory="1MB")) == len(texts)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_lines_without_an_end(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of a line is in memory than `memory` and a block."""
    monkeypatch.setattr(read_files, "_BLOCK", 1000)
    row = "a.jpg" if kind == "csv" else '{"image": "a.jpg"}'
    start = f"image\n{row}\n" if kind == "csv" else f"{row}\n{row}\n"
    path = tmp_path / f"t.{kind}"
    path.write_text(start + row + " " * 50_000)
    with open(path, "r+b") as file:
        file.truncate(1 << 40)  # a hole, which takes no room on the disk
    with pytest.raises(
        SourceError, match="a line takes more than 100,000 bytes; if it is meant, pass memory='1GB'"
    ):
        Table(path, image="image", memory="100kB")
    path.write_text(start + row + " " * 50_000 + "\n" + row)
    assert len(Table(path, image="image", memory="60kB")) == 3 + (kind == "jsonl")


ENDLESS = {  # a table's beginning, what follows for ever -> what is too large
    "one field": ("csv", b'image,n\na.jpg,1\n"', b"x\n" * 500, "row"),
    "many fields": ("csv", b'image,n\na.jpg,1\n"', b'x\n","' * 250, "row"),
    "a header": ("csv", b'"', b"x\n" * 500, "row"),
    "fields of a line": ("csv", b"image,n\na.jpg,1\n", b"ab," * 300, "line"),
    "objects of a line": ("jsonl", b'{"image": "a.jpg"}\n[', b"[]," * 300, "line"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_rows_without_an_end(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotes that are not closed, and lines of many values, which take more than their bytes."""
    kind, start, more, part = ENDLESS[what]
    monkeypatch.setattr(read_files, "_blocks", lambda *file: chain([start], repeat(more)))
    (tmp_path / f"t.{kind}").write_bytes(start)
    with pytest.raises(SourceError, match=rf"a {part} takes more than 100,000 bytes; .* memory="):
        Table(tmp_path / f"t.{kind}", image="image", memory="100kB")


def test_json_that_takes_more_as_objects(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"image": "a.jpg", "x": [[]] * 5_000}) + "\n")
    with pytest.raises(SourceError, match=r"a line takes more than 300,000 bytes; .* memory='1GB'"):
        Table(path, image="image", memory="300kB")
    assert len(Table(path, image="image", memory="2MB")) == 1
    path.write_text(json.dumps({"image": "a.jpg", "x": "A" * 100_000}) + "\n")
    assert len(Table(path, image="image", memory="300kB")) == 1, "a text takes little more"


VALUES = {
    "lists": ["[]"] * 2000,
    "objects": ["{}"] * 2000,
    "an object each": ['{"a":1}'] * 2000,
    "other objects": [f'{{"k{k}":1.5}}' for k in range(2000)],
    "numbers": [f"{k}.25" for k in range(1000, 3000)],
    "texts": [f'"ab{k}"' for k in range(2000)],
    "annotations": ['{"id": 177, "bbox": [473.07, 395.93, 38.65, 28.67], "area": 70.5}'] * 500,
    "one inside of another": ["[" * 900 + "]" * 900],
    "a text": [json.dumps("a" * 20_000)],
    "a text that is not ASCII": ['"' + "a" * 20_000 + '\u00e4"', '"' + "a" * 20_000 + '\u4e2d"'],
}


@pytest.mark.parametrize("what", VALUES)
def test_objects_of_json_take_no_more_than_is_counted(what: str) -> None:
    data = f"[{','.join(VALUES[what])}]".encode()
    tracemalloc.start()
    try:
        json.loads(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= object_bytes(data) + 10_000


INDEXES: dict[str, tuple[str, Any]] = {
    "index.json": ("", MDSShards),
    "wids.json": ("wids.json", TarShards),
    "dataset_dict.json": ("", HuggingFace),
}


@pytest.mark.parametrize("name", INDEXES)
def test_indexes_that_take_more_as_objects(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_file, "MOST_OBJECTS", 100_000)
    (tmp_path / name).write_text(json.dumps({"version": 2, "shards": [], "x": [[]] * 5_000}))
    item, source = INDEXES[name]
    with pytest.raises(SourceError, match=r"it takes [0-9,]+ bytes of .*, the limit is 100,000"):
        source(tmp_path / item)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_rows_are_objects_a_few_at_a_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there is room for: CSV of many columns, JSON of long lines."""
    columns = [f"c{k}" for k in range(8)]
    monkeypatch.setattr(csv_jsonl, "_FIELDS", 64)
    if kind == "csv":
        text = "\n".join([",".join(columns)] + [",".join("12345678")] * 20)
        parts = read_csv([BytesIO(text.encode())], "t", {"c7": False}, ",", 1_000_000)
    else:
        text = "\n".join([json.dumps(dict.fromkeys(columns, "x" * 100))] * 20)
        parts = read_json([BytesIO(text.encode())], "t", {"c7": False}, 700_000)
    counts = [len(part["c7"]) for part in parts]
    assert sum(counts) == 20 and max(counts) <= 8


@pytest.mark.parametrize(
    "shape", [(5, 28, 28), (50_000, 28, 28), (1 << 31, 1 << 31, 1 << 31)], ids=str
)
def test_idx_files_that_unpack_large(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """No more is unpacked than the header announces, and no header announces more than `memory`."""
    head = bytes([0, 0, 8, 3]) + np.array(shape, ">u4").tobytes()
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + ZEROS, 1))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 5]) + bytes(5))
    )
    with pytest.raises(SourceError, match="idx: "):
        Arrays.mnist(tmp_path, "test", memory="20MB")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_memory_of_a_process(tmp_path: Path) -> None:
    written(
        tmp_path / "image.parquet",
        {"image": pa.array([bytes(1 << 30)], pa.large_binary())},
        use_dictionary=False,
    )
    written(tmp_path / "path.parquet", {"path": equal("x" * 200, 12_000_000)})
    code = """
        import json, re, sys, fastfeed as ff
        said = []
        said.append(str(ff.Table(sys.argv[1] + "/image.parquet", image="image", memory="64MB").read([0])[0]))
        try:
            ff.Table(sys.argv[1] + "/path.parquet", image="path", memory="64MB")
        except ff.errors.SourceError as error:
            said.append(str(error))
        peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())  # of this program, not of its parent
        print(json.dumps([said, int(peak[1]) >> 10]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        env=environment(),
        capture_output=True,
        check=True,
    )
    said, peak = json.loads(done.stdout)
    assert len(said) == 2 and "bomb" in said[0] and "bytes of memory" in said[1] and peak < 600, (
        said,
        peak,
    )
