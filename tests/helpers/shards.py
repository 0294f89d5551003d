"""Tar shards for tests."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from helpers.photos import jpeg


def tar_of(members: Iterable[tuple[str, bytes]], format: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar with these members, in this order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def samples(ids: Sequence[int], changed: int | None = None) -> list[tuple[str, bytes]]:
    """Image and class of each: sample i is photograph i, or another one where it is the changed
    one.
    """
    pairs = []
    for i in ids:
        pairs.append((f"{i:06d}.jpg", jpeg(i + 1000 * (i == changed), (48 + i % 5, 64))))
        pairs.append((f"{i:06d}.cls", str(i % 3).encode()))
    return pairs


def shard_folder(root: Path, counts: Sequence[int], changed: int | None = None) -> Path:
    """One shard per count, `s-000.tar` ..., of samples numbered through."""
    root.mkdir(parents=True, exist_ok=True)
    first = 0
    for k, count in enumerate(counts):
        (root / f"s-{k:03d}.tar").write_bytes(tar_of(samples(range(first, first + count), changed)))
        first += count
    return root
