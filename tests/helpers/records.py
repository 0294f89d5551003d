"""TFRecord files for tests, written without TensorFlow, in forms that TensorFlow never writes
too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

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
