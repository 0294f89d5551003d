"""Writes shards of MosaicML streaming, and the index.json of a folder.

A shard is `u32 n, u32 offsets[n + 1], configuration as JSON, samples`; a sample the sizes (u32) of
those columns that vary, then all columns, sorted by name: streaming/base/format/mds/writer.py.
Little endian.

Columns: image (encoded; of several images one by the name of each), label (-1: none), class, text, uri ("": none), meta (all metadata, JSON),
extension, height, key, width, arrays with their type and shape, and metadata columns: texts as str,
bytes as bytes, all else as json; a text or bytes that are missing are empty. In a shard images are declared
as bytes, so that empty shards equal the others; streaming goes by the index, which declares JPEG
and PNG as images, so that it returns Pillow images.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.columns import own_columns
from fastfeed.preprocess.model.record import Entry
from fastfeed.preprocess.writers import base
from fastfeed.preprocess.writers.base import Spool, as_json, as_text, class_texts, meta_text
from fastfeed.sources.tables.column_types import ColumnType, is_text

_COLUMNS = {
    "class": "str",
    "extension": "str",
    "height": "int",
    "image": "bytes",
    "key": "str",
    "label": "int",
    "meta": "json",
    "text": "str",
    "uri": "str",
    "width": "int",
}
_LISTS = {"class": "json", "label": "json"}  # of several classes
# streaming's encodings by Encoding.image; others are bytes
_IMAGES = {"jpeg": "jpeg", "png": "png"}
_INT = 8  # bytes
_MAX_BYTES = (1 << 32) - 1  # bytes per shard


class MDSWriter(base.ShardWriter):
    """Writes one `.mds`. Samples are spooled until their number is known."""

    format = "mds"

    def _begin(self) -> None:
        self._spool = Spool()
        self._ends = [0]

    def add(self, entry: Entry) -> None:
        """Append one sample to the shard."""
        label = -1 if entry.label is None else entry.label
        fields: dict[str, bytes | int | np.ndarray] = {
            "class": as_json(class_texts(entry))
            if self.multi
            else meta_text(entry, "class").encode(),
            "extension": entry.extension.encode(),
            "height": entry.height,
            **{name or "image": image.image for name, image in self.named_images(entry).items()},
            "key": entry.key.encode(),
            "label": as_json(label) if isinstance(label, tuple) else label,
            "meta": as_json(entry.meta),
            "text": as_text(entry.text or "").encode(),
            "uri": meta_text(entry, "uri").encode(),
            "width": entry.width,
            **dict(self.columns.arrays(entry)),
        }
        for name, kind, value in entry.columns(self.types):
            fields[name] = _column(kind, value)
        ordered = [item for _, item in sorted(fields.items())]
        data = [
            np.array(item, "<i8").tobytes() if isinstance(item, int) else bytes(item)
            for item in ordered
        ]
        varying = [len(item) for item in ordered if isinstance(item, bytes)]
        self.copy(b"".join((np.array(varying, "<u4").tobytes(), *data)), [0], {})

    def copy(self, data: bytes, starts: Sequence[int], others: Mapping[str, bytes]) -> None:
        """As in the base class."""
        at = self._spool.size
        ends = [at + end for end in (*starts[1:], len(data))]
        samples = len(self._ends) + len(starts) - 1
        if ends[-1] + 4 * (samples + 2) + len(self._configuration) > _MAX_BYTES:
            raise ConfigError(
                f"an MDS shard holds at most 4 GiB, sample {samples} exceeds that; use fewer"
                " samples per shard"
            )
        self._spool.write(data)
        self._ends += ends

    def close(self) -> list[int]:
        """Byte offsets of the samples."""
        samples = len(self._ends) - 1
        first = 4 + 4 * (samples + 1) + len(self._configuration)
        offsets = [first + end for end in self._ends]
        self._file.write(np.array([samples, *offsets], "<u4").tobytes() + self._configuration)
        self._spool.pour(self._file)
        self._file.close()
        return offsets[:-1]

    @cached_property
    def _configuration(self) -> bytes:
        """JSON of the columns as of the first sample, which decides which arrays are written."""
        about = _described("bytes", self.columns.kinds, self.types, self.multi, self.images)
        return json.dumps(about, sort_keys=True).encode()


def _column(kind: ColumnType, value: Any) -> bytes:
    if kind == "bytes":
        return value or b""
    if is_text(kind):
        return as_text(value or "").encode()
    return as_json(value)


def index_json(
    files: Sequence[tuple[str, int, str, int, dict[str, Any]]],
    image: str = "jpeg",
    types: Mapping[str, ColumnType] | None = None,
    multi: bool = False,
    images: Sequence[str] = (),
) -> bytes:
    """The index.json of a folder: name, bytes, SHA-256, samples and arrays of each shard.

    `image` is the recipe's `encoding.image`, `types` those of metadata columns, `multi` of labels
    that are lists, `images` names of several images. Shards without samples are left out: streaming cannot open them.
    """
    shards: list[Any] = []
    for name, size, sha256, samples, arrays in files:
        data = {"basename": name.rpartition("/")[2], "bytes": size, "hashes": {"sha256": sha256}}
        if samples:
            shards.append(
                _described(
                    _IMAGES.get(image, "bytes"), arrays, own_columns(types or {}), multi, images
                )
                | {"raw_data": data, "samples": samples, "zip_data": None}
            )
    return json.dumps({"shards": shards, "version": 2}, sort_keys=True).encode()


def _described(
    image: str,
    arrays: dict[str, list[Any]],
    types: Mapping[str, ColumnType],
    multi: bool,
    images: Sequence[str],
) -> dict[str, Any]:
    columns = {name: kind for name, kind in _COLUMNS.items() if name != "image"}
    columns |= dict.fromkeys(images or ("image",), image) | (_LISTS if multi else {})
    for name, kind in types.items():
        columns[name] = "bytes" if kind == "bytes" else "str" if is_text(kind) else "json"
    sizes = {name: _INT for name, kind in columns.items() if kind == "int"}
    for name, (dtype, shape) in arrays.items():
        columns[name] = f"ndarray:{dtype}:{','.join(map(str, shape))}"
        sizes[name] = int(np.prod(shape)) * np.dtype(dtype).itemsize
    columns = dict(sorted(columns.items()))
    return {
        "column_encodings": list(columns.values()),
        "column_names": list(columns),
        "column_sizes": [sizes.get(name) for name in columns],
        "compression": None,
        "format": "mds",
        "hashes": ["sha256"],
        "size_limit": None,
        "version": 2,
    }
