"""Tar files byte by byte, and what a source makes of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfeed.faults import Failure
from fastfeed.sources import TarShards
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.shards.index import ShardScan
from fastfeed.sources.tar.headers import Member, members

END = bytes(1024)


def header(
    name: str | bytes, size: int | bytes = 0, kind: bytes = b"0", magic: bytes = b"ustar\x0000"
) -> bytes:
    """One block; the size as a number in octal, or as the bytes of its field."""
    block = bytearray(512)
    name = name.encode() if isinstance(name, str) else name
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = size.ljust(12, b"\0") if isinstance(size, bytes) else b"%011o\0" % size
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[257 : 257 + len(magic)] = magic
    return summed(block)


def summed(block: bytes | bytearray) -> bytes:
    """With the checksum that belongs to it."""
    block = bytearray(block)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def entry(name: str | bytes, data: bytes = b"", kind: bytes = b"0") -> bytes:
    """Header and content."""
    return header(name, len(data), kind) + padded(data)


def pax(records: Mapping[str, str], kind: bytes = b"x") -> bytes:
    """A pax header with its records."""
    lines = b""
    for key, value in records.items():
        rest = f" {key}={value}\n".encode()
        length = len(rest) + 1
        while len(str(length)) + len(rest) != length:
            length += 1
        lines += str(length).encode() + rest
    return entry("PaxHeaders/0", lines, kind)


def parse(data: bytes, size: int | None = None) -> tuple[list[Member], list[str]]:
    """The members of a tar in memory, and what is noted."""
    notes: list[str] = []
    reader = ForwardReader(
        "a.tar", len(data) if size is None else size, lambda start, n: data[start : start + n], 4096
    )
    return list(members(reader, notes)), notes


def gnu_tar(root: Path, *options: str, names: tuple[str, ...] = (".",)) -> Path:
    """An archive of a folder by GNU tar, the files in the order of their names."""
    archive = root.parent / f"{root.name}.tar"
    command = [
        "tar",
        "--create",
        f"--file={archive}",
        f"--directory={root}",
        "--sort=name",
        *options,
        *names,
    ]
    subprocess.run(command, check=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
    return archive


def opened(path: Path, data: bytes, **options: Any) -> TarShards:
    """A shard of its own."""
    path.write_bytes(data)
    return TarShards(path, **options)


def served(source: TarShards) -> dict[str, bytes | tuple[str, int | None]]:
    """By name: the bytes, or reason and offset of the failure. Every failure names its shard."""
    entries: dict[str, bytes | tuple[str, int | None]] = {}
    for i, blob in enumerate(source.read(range(len(source)))):
        shard, name = source.uri(i).split("#")[0], source.uri(i).split(":", 1)[1]
        if isinstance(blob, Failure):
            assert (blob.id, blob.uri, blob.stage) == (i, source.uri(i), "read")
            assert str(blob).startswith(f"{shard}#{blob.offset}:{name}: {blob.reason} (")
            blob = (blob.reason, blob.offset)
        entries[name] = blob
    return entries


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of shards, as they are looked through."""
    seen: list[str] = []
    look = TarShards._scan

    def scan(self: TarShards, reader: ForwardReader) -> ShardScan:
        seen.append(os.path.basename(reader.uri))
        return look(self, reader)

    monkeypatch.setattr(TarShards, "_scan", scan)
    return seen


def taken(scans: list[str]) -> list[str]:
    """Those since the last call."""
    seen, scans[:] = sorted(scans), []
    return seen


def same(one: TarShards, other: TarShards) -> bool:
    """The same bytes and labels."""
    ids = range(len(one))
    return (
        len(one) == len(other) and one.read(ids) == other.read(ids) and labels(one) == labels(other)
    )


def indexes(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.ffindex"))


def labels(source: TarShards) -> list[int]:
    return source.label(np.arange(len(source))).tolist()
