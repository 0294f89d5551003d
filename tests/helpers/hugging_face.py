"""Data sets in the files that Hugging Face's `datasets` writes, made by PyArrow alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from helpers.photos import jpeg

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
FEATURES = {
    "image": {"_type": "Image"},
    "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
    "caption": {"dtype": "string", "_type": "Value"},
}


def blob(i: int) -> bytes:
    """The image of row i, each of another size."""
    return jpeg(i, (32 + 8 * i, 40))


def table(rows: Sequence[int], features: dict[str, Any] = FEATURES) -> pa.Table:
    """Rows by their numbers: row i has image `blob(i)`, label i % 2 and caption `text i`."""
    columns = {
        "image": pa.array([{"bytes": blob(i), "path": f"{i}.jpg"} for i in rows], IMAGE),
        "label": pa.array([i % 2 for i in rows], pa.int64()),
        "caption": pa.array([f"text {i}" for i in rows], pa.string()),
    }
    about = json.dumps({"info": {"features": features}})
    return pa.table(columns).replace_schema_metadata({"huggingface": about})


def write_stream(path: Path, rows: pa.Table, per_batch: int = 2, **options: Any) -> Path:
    """An Arrow stream, as `datasets` writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as file:
        written = pa.ipc.IpcWriteOptions(**options)
        with pa.ipc.new_stream(file, rows.schema, options=written) as writer:
            writer.write_table(rows, per_batch)
    return path


def write_parquet(path: Path, rows: pa.Table, per_group: int = 2) -> Path:
    """A Parquet file as the Hub has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, row_group_size=per_group)
    return path


def saved(folder: Path, *shards: Sequence[int], split: str | None = None) -> Path:
    """A folder as `Dataset.save_to_disk` writes it."""
    names = [f"data-{k:05}-of-{len(shards):05}.arrow" for k in range(len(shards))]
    for name, rows in zip(names, shards, strict=True):
        write_stream(folder / name, table(rows))
    files = [{"filename": name} for name in names]
    state = {
        "_data_files": files,
        "_fingerprint": "0123456789abcdef",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES, "description": ""}))
    return folder


# of a repository with two configurations
README = """
license: mit
configs:
- config_name: small
  data_files:
  - split: train
    path: data/train-00000*
- config_name: full
  default: true
  data_files:
  - split: train
    path: data/train-*
  - split: held_out
    path: ["data/test-*"]
"""


def repository(folder: Path, readme: str = "") -> Path:
    """A snapshot of the Hub with two splits."""
    write_parquet(folder / "data" / "train-00000-of-00002.parquet", table([0, 1, 2]))
    write_parquet(folder / "data" / "train-00001-of-00002.parquet", table([3, 4, 5]))
    write_parquet(folder / "data" / "test-00000-of-00001.parquet", table([6, 7]))
    if readme:
        (folder / "README.md").write_text(f"---\n{readme}\n---\n# A data set\n")
    return folder


class Mapped:
    """A table of `datasets` that is mapped from a file, with what was done to it."""

    def __init__(self, path: Path, rows: pa.Table, replays: Sequence[Any] = ()) -> None:
        self.path = str(path)
        self.schema = rows.schema
        self.replays = list(replays)
        self._rows = len(rows)

    def __len__(self) -> int:
        return self._rows


class Concatenated:
    """A table of `datasets` that is made of others: a row of blocks for some rows."""

    def __init__(self, *blocks: Mapped) -> None:
        self.blocks = [[block] for block in blocks]
        self.schema = blocks[0].schema


class Feature:
    """A ClassLabel of `datasets`."""

    def __init__(self, names: list[str]) -> None:
        self.names = names


class Dataset:
    """What is used of a `datasets.Dataset`."""

    def __init__(self, data: Any, indices: list[int] | None = None, kind: str | None = None):
        self.data = data
        self.cache_files = []
        self.features: dict[str, Any] = {"label": Feature(["cat", "dog"]), "image": object()}
        self.format = {"type": kind}
        self._indices = None if indices is None else pa.table({"indices": pa.array(indices)})
