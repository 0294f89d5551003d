"""TFRecord files of tf.train.Examples, and DALI's `tfrecord2idx` index.

The frame of a record and the message are described in fastfeed/sources, which reads them. Features
are sorted by name, as in protobuf's deterministic serialization. A sample without label, class or
caption has no such feature: give `FixedLenFeature` a default. Several classes are lists; several
images are `image/NAME/encoded`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.columns import as_words
from fastfeed.preprocess.model.record import Entry
from fastfeed.preprocess.model.task import SampleFault
from fastfeed.preprocess.writers import base
from fastfeed.preprocess.writers.base import as_json, as_text, class_texts, meta_text
from fastfeed.sources.tables.column_types import ColumnType, is_nested

_FORMATS = {"jpg": b"JPEG"}  # as in TensorFlow's scripts; others in upper case
_MAX_BYTES = (1 << 31) - 1  # bytes per message, protobuf's limit
# fields 1, 2, 3 with a length
_FIRST = b"\x0a"
_SECOND = b"\x12"
_THIRD = b"\x1a"
# kinds of a feature
_BYTES = _FIRST
_FLOATS = _SECOND
_INTEGERS = _THIRD
_IMAGE = "image/encoded"


class TFRecordWriter(base.ShardWriter):
    """Writes one `.tfrecord`, and its `.idx` if it has samples."""

    format = "tfrecord"

    def _begin(self) -> None:
        self._at = 0

    def add(self, entry: Entry) -> None:
        """Append one sample as an Example."""
        images = self.named_images(entry).items()
        encoded = {f"image/{name}/encoded" if name else _IMAGE: own.image for name, own in images}
        before, after = _message(entry, encoded, self.columns.arrays(entry), self.types)
        size = len(before) + len(entry.image) + len(after)
        if size > _MAX_BYTES:
            raise ConfigError(
                f"an Example may have {_MAX_BYTES} bytes, got {size}: use smaller images, or"
                " another format"
            )
        length = size.to_bytes(8, "little")
        check = google_crc32c.value(before)
        for piece in (entry.image, after):
            check = google_crc32c.extend(check, piece)
        self._file.write(length + _masked(google_crc32c.value(length)) + before)
        self._file.write(entry.image)
        self._file.write(after + _masked(check))
        self._offsets.append(self._at)
        self._at += 12 + size + 4

    def copy(self, data: bytes, starts: Sequence[int], others: Mapping[str, bytes]) -> None:
        """As in the base class."""
        self._offsets += [self._at + start for start in starts]
        self._file.write(data)
        self._at += len(data)

    def close(self) -> list[int]:
        """Byte offsets of the records' frames."""
        self._file.close()
        if self._offsets:
            # written later: readers ignore an index older than the records
            ends = [*self._offsets[1:], self._at]
            pairs = zip(self._offsets, ends, strict=True)
            lines = (f"{start} {end - start}\n" for start, end in pairs)
            self._write_file(".idx", "".join(lines).encode())
        return self._offsets


def _message(
    entry: Entry,
    images: Mapping[str, bytes],
    arrays: list[tuple[str, np.ndarray]],
    types: Mapping[str, ColumnType],
) -> tuple[bytes, bytes]:
    """An Example without the first of `images`, by feature: the bytes before and after it."""
    own, *_ = images
    words: dict[str, bytes | None] = {
        "image/caption": None if entry.text is None else as_text(entry.text).encode(),
        "image/filename": f"{entry.key}.{entry.extension}".encode(),
        "image/format": _FORMATS.get(entry.extension, entry.extension.upper().encode()),
        "image/key": entry.key.encode(),
        "image/meta": as_json(entry.meta),
        "image/source": meta_text(entry, "uri").encode(),
    }
    numbers = {"image/height": entry.height, "image/width": entry.width}
    features = {
        name: _feature(name, _BYTES, word) for name, word in words.items() if word is not None
    }
    features |= {
        name: _feature(name, _INTEGERS, _varint(n)) for name, n in numbers.items() if n is not None
    }
    features |= _label_features(entry)
    features |= {name: _list_feature(name, array) for name, array in arrays}
    features |= {
        name: _column_feature(name, kind, value)
        for name, kind, value in entry.columns(types)
        if value is not None
    }
    features |= {name: _feature(name, _BYTES, image) for name, image in images.items()}
    features[own] = _feature(own, _BYTES, b"", to_follow=len(entry.image))
    total = sum(map(len, features.values())) + len(entry.image)
    ordered = sorted(features.items())
    before = b"".join(piece for name, piece in ordered if name <= own)
    after = b"".join(piece for name, piece in ordered if name > own)
    return _FIRST + _varint(total) + before, after


def _label_features(entry: Entry) -> dict[str, bytes]:
    """Number and name of the class; of several classes lists."""
    if isinstance(entry.label, tuple):
        numbers = list(entry.label)
        texts = class_texts(entry)
    else:
        numbers = [] if entry.label is None else [entry.label]
        texts = [text for text in [meta_text(entry, "class")] if text]
    kinds = {"label": (["list", "int"], numbers), "text": (["list", "text"], texts)}
    return {
        name: _column_feature(name, kind, values)
        for name, (kind, values) in ((f"image/class/{n}", own) for n, own in kinds.items())
        if values or isinstance(entry.label, tuple)
    }


def _list_feature(name: str, array: np.ndarray) -> bytes:
    """All elements in C order; `FixedLenFeature` gives them their shape again."""
    if array.dtype.kind != "f":
        return _feature(name, _INTEGERS, b"".join(map(_varint, array.ravel().tolist())))
    if array.dtype == np.float64:
        raise ConfigError(f"TFRecords have no float64: convert {name!r} to float32")
    return _feature(name, _FLOATS, array.astype("<f4").tobytes())


def _column_feature(name: str, kind: ColumnType, value: Any) -> bytes:
    """A metadata column: its numbers or texts, a list of these; all else as JSON in one text."""
    inner = kind[1] if isinstance(kind, list) and kind[0] == "list" else kind
    if inner is kind or is_nested(inner) or inner == "json":
        inner = kind
        items = [value]
    else:
        items = value
    if inner in ("bool", "int", "float"):
        if None in items:
            raise SampleFault(f"{name}: a list with null in it, which TFRecords cannot hold")
        if inner == "float":
            return _feature(name, _FLOATS, np.array(items, "<f4").tobytes())
        return _feature(name, _INTEGERS, b"".join(_varint(int(item)) for item in items))
    if kind == "bytes":
        return _feature(name, _BYTES, value)
    words = ["" if item is None else as_text(as_words(inner, item)) for item in items]
    texts = [word.encode() for word in words]
    return _pair(name, _BYTES, b"".join(_FIRST + _varint(len(text)) + text for text in texts))


def _feature(name: str, kind: bytes, value: bytes, to_follow: int = 0) -> bytes:
    """An entry of the feature map up to `value`, of which `to_follow` bytes are written later."""
    # of numbers: packed
    return _pair(name, kind, _FIRST + _varint(len(value) + to_follow) + value, to_follow)


def _pair(name: str, kind: bytes, values: bytes, to_follow: int = 0) -> bytes:
    feature = kind + _varint(len(values) + to_follow) + values
    key = name.encode()
    pair = _FIRST + _varint(len(key)) + key
    pair += _SECOND + _varint(len(feature) + to_follow) + feature
    return _FIRST + _varint(len(pair) + to_follow) + pair


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1  # negative numbers as int64
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _masked(check: int) -> bytes:
    rotated = (check >> 15 | check << 17) & 0xFFFFFFFF
    return ((rotated + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")
