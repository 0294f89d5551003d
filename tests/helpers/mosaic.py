"""MDS shards and raw shards for tests, written without the packages that usually do."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from helpers.photos import jpeg, picture

ENCODINGS = {"image": "jpeg", "label": "int", "id": "str"}
_SIZES = {"int": 8, "int32": 4, "uint8": 1, "float32": 4, "float64": 8}


def encoded(kind: str, value: Any) -> bytes:
    """A value as MDS has it."""
    if kind in _SIZES:
        return np.array(value, "<i8" if kind == "int" else kind).tobytes()
    if kind == "json":
        return json.dumps(value).encode()
    return value if isinstance(value, bytes) else str(value).encode()


def mds_sample(encodings: Mapping[str, str], sample: Mapping[str, Any]) -> bytes:
    """Sizes of those columns that vary, then all of them."""
    parts = [
        (encodings[name], encoded(encodings[name], sample[name])) for name in sorted(encodings)
    ]
    sizes = [len(data) for kind, data in parts if kind not in _SIZES]
    return struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(data for _, data in parts)


def mds_shard(encodings: Mapping[str, str], samples: Sequence[Mapping[str, Any]]) -> bytes:
    """A whole shard."""
    names = sorted(encodings)
    about = {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": None,
        "column_names": names,
        "column_encodings": [encodings[name] for name in names],
        "column_sizes": [_SIZES.get(encodings[name]) for name in names],
    }
    text, bodies = (
        json.dumps(about, sort_keys=True).encode(),
        [mds_sample(encodings, sample) for sample in samples],
    )
    start = 4 + 4 * (len(bodies) + 1) + len(text)
    offsets = np.cumsum([start] + [len(body) for body in bodies]).astype("<u4")
    return struct.pack("<I", len(bodies)) + offsets.tobytes() + text + b"".join(bodies)


def mds_index(names: Sequence[str], **more: Any) -> str:
    """An index.json."""
    shards = [
        {
            "version": 2,
            "format": "mds",
            "compression": None,
            "raw_data": {"basename": name},
            "zip_data": None,
        }
        | more
        for name in names
    ]
    return json.dumps({"version": 2, "shards": shards})


def mds_folder(root: Path, counts: Sequence[int], changed: int | None = None) -> Path:
    """A shard per count, of samples numbered through; the changed one has another photograph.

    With its index.
    """
    root.mkdir(parents=True, exist_ok=True)
    first, names = 0, []
    for k, count in enumerate(counts):
        samples = [
            {
                "image": jpeg(i + 1000 * (i == changed), (48 + i % 5, 64)),
                "label": i % 3,
                "id": f"{i:04d}",
            }
            for i in range(first, first + count)
        ]
        names.append(f"shard.{k:05d}.mds")
        (root / names[-1]).write_bytes(mds_shard(ENCODINGS, samples))
        first += count
    (root / "index.json").write_text(mds_index(names))
    return root


def raw_folder(root: Path, counts: Sequence[int], changed: int | None = None) -> Path:
    """A `.npy` per count with its labels, of samples numbered through; one of the changed one's
    pixels is another.
    """
    root.mkdir(parents=True, exist_ok=True)
    first = 0
    for k, count in enumerate(counts):
        pixels = np.stack([picture(i, (20, 30)) for i in range(first, first + count)])
        if changed is not None and first <= changed < first + count:
            pixels[changed - first, 7, 7] ^= 1
        np.save(root / f"shard-{k:06d}.npy", pixels)
        np.save(root / f"shard-{k:06d}.labels.npy", np.arange(first, first + count) % 3)
        first += count
    return root
