"""Named arrays in one file, mapped into memory: parts are read from disk on first access.

The file: magic, length of the header, its checksum, the header (JSON), then the arrays, at
multiples of 64 bytes.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fastfeed.runtime.atomic_write import atomic_write
from fastfeed.system.descriptors import open_regular

_MAGIC = b"fastfeed arrays 1\n"
_ALIGN = 64  # bytes

Parts = Mapping[str, Sequence[np.ndarray]]  # arrays by name, each in pieces that follow one another


def save(path: Path, header: dict[str, Any], arrays: Parts) -> None:
    """Write the file, all or nothing; OSError if that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        put(file, header, arrays)


def put(file: BinaryIO, header: dict[str, Any], arrays: Parts) -> None:
    """Write header and arrays into an empty file."""
    table = []
    for name, parts in arrays.items():
        first = parts[0]
        table.append([name, first.dtype.str, [sum(len(part) for part in parts), *first.shape[1:]]])
    text = json.dumps({"arrays": table, "header": header}).encode()
    file.write(
        _MAGIC + len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(4, "little") + text
    )
    for name, kind, _ in table:
        file.write(bytes(-file.tell() % _ALIGN))
        for part in arrays[name]:
            file.write(np.ascontiguousarray(part, kind).data)


def load(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Header and arrays; None if the file is missing or damaged."""
    try:
        with open(open_regular(path), "rb") as file:
            start = file.read(len(_MAGIC) + 12)
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(start[-12:-4], "little")
            if not start.startswith(_MAGIC) or len(start) < len(_MAGIC) + 12 or length > size:
                return None
            text = file.read(length)
            if zlib.crc32(text) != int.from_bytes(start[-4:], "little"):
                return None
            content = json.loads(text)
            at = file.tell()
            spans = []
            for name, kind, shape in content["arrays"]:
                at += -at % _ALIGN
                count = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
                spans.append((name, at, at + count, kind, shape))
                at += count
            if at != size:
                return None
            mapped = np.asarray(np.memmap(file, np.uint8, "r"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return content["header"], {
        name: mapped[i:j].view(kind).reshape(shape) for name, i, j, kind, shape in spans
    }


def joined(arrays: Parts) -> dict[str, np.ndarray]:
    """Return the arrays joined in memory."""
    return {
        name: parts[0] if len(parts) == 1 else np.concatenate(parts)
        for name, parts in arrays.items()
    }
