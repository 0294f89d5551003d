"""Pixels as one array per shard, for `np.load(..., mmap_mode="r")`.

`STEM.npy` is uint8 (n, height, width, 3), `STEM.labels.npy` int64 (n,), -1 for none, or of several
classes (n, most), -1 after those of a sample; `STEM.meta.jsonl` a line per sample: {"key", "text", "meta"}, and "bytes" for columns of bytes, by
name in base64. `STEM.NAME.npy` is (n, ...) of the arrays NAME.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.record import Entry
from fastfeed.preprocess.writers import base
from fastfeed.preprocess.writers.base import HEAD, Spool, as_json, as_text, npy_header

_FORMAT = np.lib.format
_READ_HEADER: dict[int, Any] = {1: _FORMAT.read_array_header_1_0, 2: _FORMAT.read_array_header_2_0}


class RawWriter(base.ShardWriter):
    """Writes one `.npy` and two more files. Pixels are spooled until n is known."""

    format = "raw"

    def _begin(self) -> None:
        # of an empty shard
        self._spool = Spool()
        self._shape = (0, 0, 3)
        self._labels: list[list[int]] = []
        self._lines: list[bytes] = []
        self._extras: dict[str, tuple[str, Spool]] = {}  # type, as in a header, and content by name

    def add(self, entry: Entry) -> None:
        """The next image: a `.npy` file of uint8 (height, width, 3)."""
        shape, pixels = _pixels(entry)
        if self._labels and shape != self._shape:
            raise ConfigError(
                f"images of one array must have one shape: {self._shape} so far, {entry.key} has"
                f" {shape}"
            )
        text = None if entry.text is None else as_text(entry.text)
        about: dict[str, Any] = {"key": entry.key, "text": text, "meta": entry.meta}
        blobs = [(n, blob) for n, kind, blob in entry.columns(self.types) if kind == "bytes"]
        if blobs:
            about["bytes"] = {n: None if b is None else b64encode(b).decode() for n, b in blobs}
        line = as_json(about) + b"\n"
        for name, array in self.columns.arrays(entry):
            self._extras.setdefault(name, (array.dtype.str, Spool()))[1].write(array.tobytes())
        self._shape = shape
        self._spool.write(pixels)
        label = -1 if entry.label is None else entry.label
        self._labels.append(list(label) if isinstance(label, tuple) else [label])
        self._lines.append(line)

    def copy(self, data: bytes, starts: Sequence[int], others: Mapping[str, bytes]) -> None:
        """As in the base class; `others` has a header of the pixels, too."""
        self._shape = _shape_in(io.BytesIO(others[".npy"]))[0]
        self._spool.write(data)
        labels = np.frombuffer(others[".labels.npy"], "<i8").reshape(len(starts), -1).tolist()
        self._labels += [[k for k in own if k >= 0] if self.multi else own for own in labels]
        self._lines.append(others[".meta.jsonl"])
        for name, (dtype, _) in self.columns.kinds.items():
            kind = np.dtype(dtype).newbyteorder("<").str
            self._extras.setdefault(name, (kind, Spool()))[1].write(others[f".{name}.npy"])

    def close(self) -> list[int]:
        """Byte offsets of the samples in the array file."""
        samples = len(self._labels)
        size = int(np.prod(self._shape))
        self._file.write(npy_header("|u1", (samples, *self._shape)))
        self._spool.pour(self._file)
        self._file.close()
        for name, (dtype, spool) in self._extras.items():
            file = self._create(f"{self._stem}.{name}.npy")
            file.write(npy_header(dtype, (samples, *self.columns.kinds[name][1])))
            spool.pour(file)
            file.close()
        most = max(map(len, self._labels), default=0)
        labels = np.array([own + [-1] * (most - len(own)) for own in self._labels], "<i8")
        shape = (samples, most) if self.multi else (samples,)
        self._write_file(".labels.npy", npy_header("<i8", shape) + labels.tobytes())
        self._write_file(".meta.jsonl", b"".join(self._lines))
        return [HEAD + i * size for i in range(samples)]


def _shape_in(file: io.BytesIO) -> tuple[Any, bool, np.dtype]:
    major, _ = np.lib.format.read_magic(file)
    return _READ_HEADER[major](file)


def _pixels(entry: Entry) -> tuple[tuple[int, int, int], memoryview]:
    """Shape and content of a `.npy` file."""
    file = io.BytesIO(entry.image)
    try:
        shape, reverse, dtype = _shape_in(file)
    except (ValueError, KeyError) as error:
        what_next = f"{entry.key} is not a .npy file: {error}; use Encoding('raw')"
        raise ConfigError(what_next) from error
    pixels = memoryview(entry.image)[file.tell() :]
    is_image = dtype == np.uint8 and not reverse and len(shape) == 3 and shape[2] == 3
    if not is_image or len(pixels) != np.prod(shape):
        wanted = "complete uint8 (height, width, 3)"
        raise ConfigError(f"{entry.key} must be {wanted}, got {dtype} {shape}")
    return shape, pixels
