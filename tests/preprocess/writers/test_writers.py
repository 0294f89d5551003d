"""What holds for shards of every format: the same bytes, errors that come through, little memory,
odd names.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import importlib
import json
import os
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.preprocess.packing import NullFile, entries, files, large_entries, write

from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.preprocess.model.layout import SUFFIXES
from fastfeed.preprocess.model.recipe import FORMATS, Packing
from fastfeed.preprocess.writers import writer_for
from fastfeed.preprocess.writers.base import as_json, as_text

SMALL = 8 << 20  # bytes that a writer may hold
FILES = {
    "webdataset": [".idx", ".tar"],
    "tfrecord": [".idx", ".tfrecord"],
    "parquet": [".parquet"],
    "mds": [".mds"],
    "raw": [".labels.npy", ".meta.jsonl", ".npy"],
}


@pytest.fixture(params=FORMATS)
def packing(request: pytest.FixtureRequest) -> Packing:
    if request.param == "parquet":
        pytest.importorskip("pyarrow", reason="no PyArrow; pip install 'fastfeed[parquet]'")
    return Packing(request.param, group_bytes=SMALL)


def test_the_same_entries_give_the_same_bytes(
    packing: Packing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "a", packing, entries(7, packing.format))
    monkeypatch.setenv("USER", "somebody-else")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.chdir(tmp_path)
    second = write(tmp_path / "elsewhere", packing, entries(7, packing.format))
    assert first == second
    assert files(tmp_path / "a") == files(tmp_path / "elsewhere")


def test_files_are_named_after_the_shard(packing: Packing, tmp_path: Path) -> None:
    write(tmp_path, packing, entries(2, packing.format), "shard-000012")
    assert sorted(files(tmp_path)) == [f"shard-000012{suffix}" for suffix in FILES[packing.format]]
    assert SUFFIXES[packing.format] in FILES[packing.format]


def test_the_main_file_comes_first(packing: Packing) -> None:
    names: list[str] = []

    def create(name: str) -> NullFile:
        names.append(name)
        return NullFile()

    writer = writer_for(packing)(create, "s", packing)
    assert names == ["s" + SUFFIXES[packing.format]]  # a target that takes no files says so at once
    for one in entries(2, packing.format):
        writer.add(one)
    writer.close()
    assert sorted(names) == [f"s{suffix}" for suffix in FILES[packing.format]]


def test_offsets_are_where_samples_begin(packing: Packing, tmp_path: Path) -> None:
    found = entries(5, packing.format)
    offsets = write(tmp_path, packing, found)
    content = (tmp_path / f"shard-000000{SUFFIXES[packing.format]}").read_bytes()
    if packing.format == "parquet":
        assert offsets == []
        return
    ends = [*offsets[1:], len(content)]
    for one, start, end in zip(found, offsets, ends, strict=True):
        # there without its header
        image = one.image[-240:] if packing.format == "raw" else one.image
        assert image in content[start:end]


@pytest.fixture(scope="module", autouse=True)
def little_to_collect() -> Iterator[None]:
    """`gc.collect()` of some tests looks at what they made, and not at all modules again."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("room", [0, 100, 200_000, 1_100_000])
def test_an_error_of_the_file_comes_through(packing: Packing, room: int) -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def run() -> None:
        writer = writer_for(packing)(
            lambda name: NullFile(room, error), "s", Packing(packing.format, group_bytes=1 << 20)
        )
        for one in large_entries(4, 600_000, "npy" if packing.format == "raw" else "jpg"):
            writer.add(one)
        writer.close()

    with pytest.raises(OSError, match="No space left") as caught:
        run()
    assert caught.value.errno == errno.ENOSPC
    del caught
    gc.collect()  # what is left of it says nothing more: a warning would be an error here


@pytest.mark.parametrize("count", [0, 1, 8])
def test_a_writer_that_is_given_up_is_silent(packing: Packing, count: int) -> None:
    sinks: list[NullFile] = []

    def create(name: str) -> NullFile:
        sinks.append(NullFile())
        return sinks[-1]

    def run() -> int:
        writer = writer_for(packing)(create, "s", replace(packing, group_bytes=1 << 20))
        for one in large_entries(count, 600_000, "npy" if packing.format == "raw" else "jpg"):
            writer.add(one)
        return sinks[0].bytes

    written = run()
    gc.collect()
    assert sinks[0].bytes == written  # no end was written: it must not pass for whole


def test_a_large_shard_needs_little_memory(packing: Packing) -> None:
    if packing.format == "parquet":
        import pyarrow as pa

        allocated = pa.total_allocated_bytes
    else:

        def allocated() -> int:
            return 0

    before, most = allocated(), 0
    sinks: list[NullFile] = []

    def create(name: str) -> NullFile:
        sinks.append(NullFile())
        return sinks[-1]

    writer = writer_for(packing)(create, "s", packing)
    tracemalloc.start()
    try:
        for one in large_entries(100, 1 << 20, "npy" if packing.format == "raw" else "jpg"):
            writer.add(one)
            most = max(most, allocated() - before)
        writer.close()
        most += tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sink.bytes for sink in sinks) > 99 << 20
    # what these keep in memory before they use a file
    spool = 34 << 20 if packing.format in ("mds", "raw") else 0
    assert most < spool + 3 * SMALL, f"{most >> 20} MiB"
    assert max(sink.largest for sink in sinks) < SMALL


def test_a_shard_without_samples_is_a_file(packing: Packing, tmp_path: Path) -> None:
    assert write(tmp_path, packing, []) == []
    assert f"shard-000000{SUFFIXES[packing.format]}" in files(tmp_path)
    assert not list(tmp_path.glob("*.idx"))


@pytest.mark.parametrize(
    ("packing", "golden"),
    [
        ("webdataset", ["71154a344bb8fcd3", "4be787156de1746a"]),
        ("tfrecord", ["83e4675631f35484", "b8b8cb87fb70ee6a"]),
        ("mds", ["360804f3f5c613a4"]),
        ("raw", ["eed7c944a674e7e9", "409b694615501105", "717d233fa4c8fbe4"]),
    ],
    indirect=["packing"],
)
def test_bytes_stay_what_they_are(packing: Packing, golden: list[str], tmp_path: Path) -> None:
    """A job that is resumed after an update mixes shards of both versions: a change here is one of
    the format.
    """
    found = [
        replace(one, text="caption é", meta=one.meta | {"class": "rosé"}) if i else one
        for i, one in enumerate(
            large_entries(3, 300 * 4, "npy" if packing.format == "raw" else "jpg")
        )
    ]
    write(tmp_path, packing, found)
    digests = [hashlib.sha256(content).hexdigest()[:16] for content in files(tmp_path).values()]
    assert digests == golden


def test_meta_is_json_of_ascii() -> None:
    meta = {"uri": "é\udce9\n", "b": 1, "a": [float("nan"), {"x": float("inf")}, (1.5, None)]}
    text = as_json(meta)
    assert text == b'{"a":[null,{"x":null},[1.5,null]],"b":1,"uri":"\\u00e9\\udce9\\n"}'
    assert os.fsencode(json.loads(text)["uri"]) == "é".encode() + b"\xe9\n"
    assert as_text("é\udce9") == "é\ufffd"


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "fastfeed.preprocess.writers.parquet"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtra, match=r"Parquet shards needs PyArrow: pip install 'fastfeed\[parquet\]'"
    ):
        importlib.import_module(name)


def test_images_of_one_array_have_one_shape() -> None:
    writer = writer_for(Packing("raw"))(lambda name: NullFile(), "s", Packing("raw"))
    writer.add(next(large_entries(1, 3000, "npy")))
    with pytest.raises(
        ConfigError, match=r"images of one array must have one shape: \(10, 100, 3\) so far"
    ):
        writer.add(next(large_entries(1, 6000, "npy")))
    with pytest.raises(
        ConfigError, match=r"000000000 is not a .npy file: .*; use Encoding\('raw'\)"
    ):
        writer.add(entries(1)[0])
