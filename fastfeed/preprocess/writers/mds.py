"""Writes shards of MosaicML streaming, and the index.json of a folder.

A shard is `u32 n, u32 offsets[n + 1], configuration as JSON, samples`; a sample the sizes (u32) of those columns that
vary, then all columns, sorted by name: streaming/base/format/mds/writer.py. Little endian.

Columns: image (encoded), label (-1: none), class, text, uri ("": none), meta (all metadata, JSON), extension, height,
key, width. In a shard images are declared as bytes, so that empty shards equal the others; streaming goes by the index,
which declares JPEG and PNG as images, so that it returns Pillow images.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.entry import Entry
from fastfeed.preprocess.recipe import Packing
from fastfeed.preprocess.writers import Create
from fastfeed.preprocess.writers.plain import as_json, as_text, class_of, name_of
from fastfeed.preprocess.writers.spool import Spool

__all__ = ["Writer", "index_json"]

_COLUMNS = {
    "class": "str", "extension": "str", "height": "int", "image": "bytes", "key": "str", "label": "int", "meta": "json",
    "text": "str", "uri": "str", "width": "int",
}  # fmt: skip
_IMAGES = {"jpeg": "jpeg", "png": "png"}  # streaming's encodings by Encoding.image; others are bytes
_INT = 8  # bytes
_MAX_BYTES = (1 << 32) - 1  # bytes per shard


class Writer:
    """Writes one `.mds`. Samples are spooled until their number is known."""

    def __init__(self, create: Create, stem: str, packing: Packing) -> None:
        self._file = create(stem + ".mds")
        self._spool, self._ends = Spool(), [0]

    def add(self, entry: Entry) -> None:
        """The next sample."""
        fields: dict[str, bytes | int] = {
            "class": as_text(class_of(entry)).encode(),
            "extension": entry.extension.encode(),
            "height": entry.height,
            "image": entry.image,
            "key": entry.key.encode(),
            "label": -1 if entry.label is None else entry.label,
            "meta": as_json(entry.meta),
            "text": as_text(entry.text or "").encode(),
            "uri": as_text(name_of(entry)).encode(),
            "width": entry.width,
        }
        data = [
            item.to_bytes(_INT, "little", signed=True) if isinstance(item, int) else item for item in fields.values()
        ]
        varying = [len(item) for item in fields.values() if not isinstance(item, int)]
        size = 4 * len(varying) + sum(map(len, data))
        samples, total = len(self._ends), self._spool.size + size
        if total + 4 * (samples + 2) + len(_CONFIGURATION) > _MAX_BYTES:
            raise ConfigError(
                f"an MDS shard holds at most 4 GiB, sample {samples} exceeds that; use fewer samples per shard"
            )
        for piece in (np.array(varying, "<u4").tobytes(), *data):
            self._spool.write(piece)
        self._ends.append(self._spool.size)

    def close(self) -> list[int]:
        """Byte offsets of the samples."""
        samples = len(self._ends) - 1
        first = 4 + 4 * (samples + 1) + len(_CONFIGURATION)
        offsets = [first + end for end in self._ends]
        self._file.write(np.array([samples, *offsets], "<u4").tobytes() + _CONFIGURATION)
        self._spool.pour(self._file)
        self._file.close()
        return offsets[:-1]


def index_json(files: Sequence[tuple[str, int, str, int]], packing: Packing, image: str = "jpeg") -> bytes:
    """The index.json of a folder, from all its shards: name, bytes, SHA-256 (hexadecimal), samples.

    `image` is the recipe's `encoding.image`. Shards without samples are left out: streaming
    cannot open them.
    """
    shards: list[Any] = []
    for name, size, sha256, samples in files:
        data = {"basename": name.rpartition("/")[2], "bytes": size, "hashes": {"sha256": sha256}}
        if samples:
            shards.append(
                _described(_IMAGES.get(image, "bytes")) | {"raw_data": data, "samples": samples, "zip_data": None}
            )
    return json.dumps({"shards": shards, "version": 2}, sort_keys=True).encode()


def _described(image: str) -> dict[str, Any]:
    columns = _COLUMNS | {"image": image}
    return {
        "column_encodings": list(columns.values()),
        "column_names": list(columns),
        "column_sizes": [_INT if kind == "int" else None for kind in columns.values()],
        "compression": None,
        "format": "mds",
        "hashes": ["sha256"],
        "size_limit": None,
        "version": 2,
    }


_CONFIGURATION = json.dumps(_described("bytes"), sort_keys=True).encode()
