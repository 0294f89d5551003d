"""Tables for the tests of Table."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastfeed.sources import Table
from fastfeed.storage.shard_files import ShardReader

Columns = Mapping[str, Sequence[Any]]
FORMATS = ("csv", "tsv", "jsonl", "parquet")


def files(folder: Path, count: int) -> list[str]:
    """`0.jpg`, `1.jpg`, ...: what lies in each is its name. The names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{i}.jpg" for i in range(count)]
    for name in names:
        (folder / name).write_bytes(name.encode())
    return names


def write(path: Path, columns: Columns, **more: Any) -> Path:
    """A table in the format that its name says; None is null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.table(dict(columns)), path, **more)
        return path
    rows = list(zip(*columns.values(), strict=True))
    if path.suffix == ".jsonl":
        path.write_text(
            "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
        )
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writerow(columns)
            for row in rows:
                writer.writerow(
                    [json.dumps(v) if isinstance(v, list) else "" if v is None else v for v in row]
                )
    return path


def image_bytes(
    path: Path, blobs: Sequence[bytes | None], per_group: int, **columns: Sequence[Any]
) -> Path:
    """Images in a Parquet file, so many to a row group, and in the file hardly more than their
    bytes.
    """
    columns = {"image": pa.array(blobs, pa.binary()), **columns}
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    return write(path, columns, row_group_size=per_group, **plain)


def every(source: Table) -> np.ndarray:
    return np.arange(len(source))


def labels(source: Table) -> list[int]:
    return source.label(every(source)).tolist()


class Reads:
    """Counts what is read of files, in bytes [start, stop)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, int, int]] = []
        read = ShardReader.read

        def counted(shards: ShardReader, shard: int, start: int, stop: int) -> object:
            self.seen.append((shard, start, stop))
            return read(shards, shard, start, stop)

        monkeypatch.setattr(ShardReader, "read", counted)

    def take(self) -> int:
        """How many since the last time."""
        count, self.seen = len(self.seen), []
        return count
