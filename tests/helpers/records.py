"""TFRecord files for tests, written without TensorFlow, in forms that TensorFlow never writes
too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c

from helpers.photos import jpeg

Value = bytes | int | float | Sequence[bytes] | Sequence[int] | Sequence[float]


def checksum(data: bytes) -> bytes:
    """CRC32C, masked."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(data: bytes) -> bytes:
    """A record: length and data, each with its checksum."""
    length = struct.pack("<Q", len(data))
    return length + checksum(length) + data + checksum(data)


def varint(number: int) -> bytes:
    """An integer, as protobuf writes it."""
    number &= (1 << 64) - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def field(number: int, data: bytes) -> bytes:
    """A field with a length."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value: Value, packed: bool = True) -> bytes:
    """A list of one kind or another."""
    values = [value] if isinstance(value, (bytes, int, float)) else list(value)
    if all(isinstance(v, bytes) for v in values):
        return field(1, b"".join(field(1, v) for v in values))
    if any(isinstance(v, float) for v in values):
        return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
    if packed:
        return field(3, field(1, b"".join(map(varint, values))))
    return field(3, b"".join(varint(1 << 3) + varint(v) for v in values))


def entry(name: str, value: Value, packed: bool = True) -> bytes:
    """One feature of the map."""
    return field(1, field(1, name.encode()) + field(2, feature(value, packed)))


def example(values: Mapping[str, Value], packed: bool = True) -> bytes:
    """A tf.train.Example, with its features in this order."""
    return field(1, b"".join(entry(name, value, packed) for name, value in values.items()))


def sample(i: int, image: bytes | None = None) -> dict[str, Value]:
    """Photograph i, of class i % 3."""
    return {
        "image/class/label": i % 3,
        "image/encoded": jpeg(i, (48 + i % 5, 64)) if image is None else image,
        "image/filename": f"{i:04d}.jpg".encode(),
        "image/bbox": [0.5, 0.25],
    }


def record_folder(root: Path, counts: Sequence[int], changed: int | None = None) -> Path:
    """A file per count, `s-000.tfrecord` ..., of samples numbered through; the changed one has
    another photograph.
    """
    root.mkdir(parents=True, exist_ok=True)
    first = 0
    for k, count in enumerate(counts):
        samples = [
            sample(i, jpeg(i + 1000, (48, 64)) if i == changed else None)
            for i in range(first, first + count)
        ]
        write(root / f"s-{k:03d}.tfrecord", map(example, samples))
        first += count
    return root


def write(path: Path, records: Iterable[bytes]) -> Path:
    """A file of framed records."""
    path.write_bytes(b"".join(map(frame, records)))
    return path


def tfds_folder(
    root: Path,
    splits: Mapping[str, Sequence[int]],
    features: Mapping[str, str] | None = None,
    names: Sequence[str] = ("cat", "dog"),
    info: Mapping[str, object] | None = None,
) -> Path:
    """A data set "pets" as TensorFlow Datasets prepares it: `splits` has the samples per shard.

    Photograph i, of class i % 2; `features` has kinds of features, a dict in features.json each.
    """
    root.mkdir(parents=True)
    kinds = {"image": "Image", "label": "ClassLabel", "caption": "Text", "meta/id": "Tensor"}
    number = 0
    for split, counts in splits.items():
        for k, count in enumerate(counts):
            samples = [
                {
                    "caption": b"no %d" % i,
                    "image": jpeg(i, (24, 32)),
                    "label": i % 2,
                    "meta/id": i * 10,
                }
                for i in range(number, number + count)
            ]
            path = root / f"pets-{split}.tfrecord-{k:05d}-of-{len(counts):05d}"
            write(path, map(example, samples))
            number += count
    (root / "features.json").write_text(json.dumps(_features(features or kinds)))
    described = {
        "name": "pets",
        "version": root.name,
        "fileFormat": "tfrecord",
        "splits": [
            {
                "name": split,
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "shardLengths": list(map(str, counts)),
            }
            for split, counts in splits.items()
        ],
    }
    (root / "dataset_info.json").write_text(json.dumps(described | dict(info or {})))
    if names:
        (root / "label.labels.txt").write_text("\n".join(names))
    return root


def _features(kinds: Mapping[str, str]) -> dict[str, Any]:
    """The content of features.json."""
    package = "tensorflow_datasets.core.features"
    inner: dict[str, Any] = {}
    nested: dict[str, dict[str, str]] = {}
    for name, kind in kinds.items():
        above, _, last = name.rpartition("/")
        if above:
            nested.setdefault(above, {})[last] = kind
            continue
        content = {"numClasses": "2"} if kind == "ClassLabel" else {}
        field = kind[0].lower() + kind[1:]
        inner[name] = {"pythonClassName": f"{package}.{kind}", field: content}
    inner |= {name: _features(each) for name, each in nested.items()}
    own = f"{package}.features_dict.FeaturesDict"
    return {"featuresDict": {"features": inner}, "pythonClassName": own}
