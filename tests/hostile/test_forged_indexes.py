"""Indexes of samples, states and lists of bad samples that come with the data: nothing in them ends
a run.
"""

from __future__ import annotations

import copy
import json
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.shards import shard_folder

import fastfeed as ff
from fastfeed.errors import FastfeedError, StateError

START = struct.Struct("<17sQII")
COLUMNS = {"offsets": "i8", "lengths": "u4", "checks": "u4", "labels": "i4", "ends": "u4"}
Columns = dict[str, np.ndarray]


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "cache"))
    return shard_folder(tmp_path / "data", (4,))


def source(shards: Path) -> ff.TarShards:
    return ff.TarShards(f"{shards}/*.tar", label="cls", label_kind="index")


def forge(shards: Path, change: Callable[[dict[str, Any], Columns], object]) -> Path:
    """Change an index; its checksums are right."""
    source(shards)
    (path,) = shards.rglob("*.ffindex")
    content = path.read_bytes()
    magic, length, *_ = START.unpack(content[: START.size])
    header = json.loads(content[START.size : START.size + length])
    body = content[START.size + length :][-(START.size + length) % 64 :]
    columns, at = {}, 0
    for name, kind in COLUMNS.items():
        size = header["shards"][0]["samples"] * np.dtype(kind).itemsize
        columns[name] = np.frombuffer(body[at : at + size], kind).copy()
        at += size
    names = body[at:]
    change(header, columns)
    text = json.dumps(header).encode()
    data = b"".join(column.tobytes() for column in columns.values())
    body = bytes(-(START.size + len(text)) % 64) + data + names
    path.write_bytes(START.pack(magic, len(text), zlib.crc32(text), zlib.crc32(body)) + text + body)
    return path


def column(name: str, value: Any) -> Callable[[dict[str, Any], Columns], object]:
    return lambda _, columns: columns[name].__setitem__(slice(1, 2), value)


def shard(name: str, value: Any) -> Callable[[dict[str, Any], Columns], object]:
    return lambda header, _: header["shards"][0].__setitem__(name, value)


def top(name: str, value: Any) -> Callable[[dict[str, Any], Columns], object]:
    return lambda header, _: header.__setitem__(name, value)


@pytest.mark.parametrize("offset", [-5, -(2**63), 2**62, 2**63 - 1, 1 << 40])
def test_a_bad_offset_is_one_bad_sample(shards: Path, offset: int) -> None:
    good = source(shards).read(range(4))
    forge(shards, column("offsets", offset))
    forged = source(shards)
    read = forged.read(range(4))
    assert [read[0], *read[2:]] == [good[0], *good[2:]] and read[1].reason == "truncated"
    assert "1:" not in str(forged.uri(0)) and forged.uri(1)
    addresses = forged.addresses(np.arange(4))
    assert addresses is not None


@pytest.mark.parametrize(
    "change",
    [
        *(shard("samples", value) for value in (-1, 10**30, 4.0, "4", None, [4])),
        *(shard("names", value) for value in (10**40, -9, 1.5, "x")),
        *(shard("notes", value) for value in (5, [[1]], [5], {"a": 1})),
        *(shard("size", value) for value in (-1, 10**40, "9")),
        *(shard("worded", value) for value in (True, 5, "yes")),
        *(shard("version", value) for value in (5, None, [])),
        *(shard("uri", value) for value in ("../../../../etc/passwd", 5, None)),
        *(top("texts", value) for value in (5, [5], None)),
        *(top("kind", value) for value in (5, None)),
        *(top("shards", value) for value in (5, [5], {}, None)),
        column("labels", -7),
    ],
    ids=lambda change: repr([cell.cell_contents for cell in change.__closure__]),
)
def test_a_forged_index_is_built_again(
    shards: Path, change: Callable[[dict[str, Any], Columns], object]
) -> None:
    before = source(shards)
    expected = (
        [before.uri(i) for i in range(4)],
        before.label(np.arange(4)).tolist(),
        before.read(range(4)),
    )
    forge(shards, change)
    after = source(shards)
    assert (
        [after.uri(i) for i in range(4)],
        after.label(np.arange(4)).tolist(),
        after.read(range(4)),
    ) == expected


def test_a_forged_label_is_no_class(shards: Path) -> None:
    """A trainer that makes a row per class of the largest label would need 8 GB for each sample."""
    forge(shards, column("labels", 2**31 - 1))
    with pytest.raises(FastfeedError, match=r"label 2147483647 is no class number.* 16,777,216; "):
        source(shards)


def test_wrong_names_are_names(shards: Path) -> None:
    for ends in (0xFFFFFFFF, 0):
        forge(shards, column("ends", ends))
        forged = source(shards)
        assert (
            all(isinstance(forged.uri(i), str) for i in range(4))
            and len(forged.read(range(4))) == 4
        )


VALUES: list[Any] = [
    None,
    True,
    -1,
    1 << 70,
    10**400,
    float("nan"),
    float("inf"),
    "x",
    [],
    [[1]],
    {"a": 1},
    1.5,
]


def small_feed(**more: Any) -> ff.Feed:
    return ff.Feed(ff.Arrays(np.zeros((16, 4, 4, 3), np.uint8)), [], batch=4, threads=1, **more)


@pytest.mark.parametrize("key", sorted(small_feed().state()))
def test_forged_states(key: str) -> None:
    state = small_feed().state()
    for value in [*VALUES, KeyError]:
        forged = copy.deepcopy(state)
        forged[key] = value
        if value is KeyError:
            del forged[key]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of ops that are others
            try:
                feed = small_feed()
                feed.restore(forged)
                for _ in feed:
                    break
                feed.close()
            except FastfeedError:
                pass


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"\xff", b"[]", b"5", b"", b'{"epoch": ' + b"9" * 5000 + b"}"]
)
def test_files_that_are_no_states(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "feed.json").write_bytes(content)
    with pytest.raises(StateError, match="is not a saved state"):
        ff.load_state(tmp_path / "feed.json")


def test_forged_lists_of_bad_samples(tmp_path: Path) -> None:
    entry = {
        "id": 1,
        "uri": "array[1]",
        "stage": "read",
        "reason": "corrupt",
        "detail": "",
        "offset": None,
    }
    lines = [json.dumps(entry | {key: value}) for key in entry for value in VALUES]
    lines += ["[" * 100_000, "5", '"x"', "[]", "{}", "\x00", '{"id": ' + "9" * 5000 + "}"]
    path = tmp_path / "bad.jsonl"
    for line in lines:
        path.write_text(line + "\n")
        try:
            feed = small_feed(quarantine=path)
        except FastfeedError as error:
            assert "is not a quarantine file" in str(error)
        else:
            feed.close()
