"""Raw shards, read by NumPy."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.preprocess.packing import entries, pixels, write

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.recipe import Packing

RAW = Packing("raw")


def test_numpy_maps_it(tmp_path: Path) -> None:
    found = entries(7, "raw")
    offsets = write(tmp_path, RAW, found)
    array = np.load(tmp_path / "shard-000000.npy", mmap_mode="r")
    assert isinstance(array, np.memmap)
    assert (array.dtype, array.shape, array.flags.c_contiguous) == (np.uint8, (7, 8, 10, 3), True)
    np.testing.assert_array_equal(array, [pixels(i) for i in range(7)])
    assert offsets == [array.offset + i * 240 for i in range(7)]
    labels = np.load(tmp_path / "shard-000000.labels.npy")
    assert labels.dtype == np.int64
    assert labels.tolist() == [-1 if one.label is None else one.label for one in found]
    lines = [
        json.loads(line)
        for line in (tmp_path / "shard-000000.meta.jsonl").read_bytes().splitlines()
    ]
    assert [(line["key"], line["meta"]) for line in lines] == [(one.key, one.meta) for one in found]
    assert [line["text"] for line in lines] == [
        one.text and one.text.replace("\udcff", "\ufffd") for one in found
    ]


def test_an_empty_shard_is_an_array(tmp_path: Path) -> None:
    write(tmp_path, RAW, [])
    array = np.load(tmp_path / "shard-000000.npy", mmap_mode="r")
    assert (array.dtype, array.shape) == (np.uint8, (0, 0, 0, 3))
    assert np.load(tmp_path / "shard-000000.labels.npy").shape == (0,)
    assert (tmp_path / "shard-000000.meta.jsonl").read_bytes() == b""


def test_headers_of_version_2_are_read(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, pixels(0), version=(2, 0))
    write(tmp_path, RAW, [replace(entries(1, "raw")[0], image=file.getvalue())])
    np.testing.assert_array_equal(np.load(tmp_path / "shard-000000.npy")[0], pixels(0))


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (np.zeros((4, 4, 3), np.uint16), r"uint16 \(4, 4, 3\)"),
        (np.zeros((4, 4, 4), np.uint8), r"uint8 \(4, 4, 4\)"),
        (np.zeros((4, 4), np.uint8), r"uint8 \(4, 4\)"),
        (np.asfortranarray(np.zeros((4, 5, 3), np.uint8)), r"uint8 \(4, 5, 3\)"),
    ],
)
def test_other_arrays_are_refused(array: np.ndarray, got: str, tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, array)
    one = replace(entries(1, "raw")[0], image=file.getvalue())
    with pytest.raises(
        ConfigError, match=rf"000000000 must be complete uint8 \(height, width, 3\), got {got}"
    ):
        write(tmp_path, RAW, [one])


def test_an_array_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    one = entries(1, "raw")[0]
    with pytest.raises(ConfigError, match="must be complete"):
        write(tmp_path, RAW, [replace(one, image=one.image[:-1])])
