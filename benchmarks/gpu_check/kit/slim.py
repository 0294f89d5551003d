"""A wheel with device code for one generation of GPUs and host code for one Python: DALI's is 200
MB, 50 so.

Bytes are overwritten with zeros where they lie, and then compress well: no offset moves. Fat
binaries are as cuobjdump lists them: a header, then an entry per generation, of which the driver
reads the one it needs.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

_FAT = 0xBA55ED50  # magic number of a fat binary
_CUBIN = 2  # kind of an entry: machine code; 1 is PTX
_DEVICE = (".nv_fatbin", "__nv_relfatbin")
_UNUSED = (".symtab", ".strtab")  # names for debuggers; the dynamic linker reads others
_LARGE = 1 << 20  # bytes; smaller files are left as they are


def slim(wheel: Path, out: Path, generation: int, python: str) -> Path:
    """Write the wheel again. generation: compute capability without its point, such as 90; python:
    such as "3.12".
    """
    own = f"cpython-{python.replace('.', '')}-"
    partial = out.with_name(out.name + ".partial")
    with (
        zipfile.ZipFile(wheel) as source,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_LZMA) as target,
    ):
        for info in source.infolist():
            other = re.search(r"\.cpython-\w+-", info.filename)
            if info.is_dir() or (other and own not in other[0]):
                continue
            content = source.read(info)
            if len(content) >= _LARGE and content[:4] == b"\x7fELF":
                content = _slimmed(bytearray(content), generation)
            target.writestr(info.filename, content)
    partial.replace(out)
    return out


def _slimmed(library: bytearray, generation: int) -> bytes:
    for name, start, size in _sections(library):
        if name in _UNUSED:
            library[start : start + size] = bytes(size)
        if name in _DEVICE:
            for entries in _fat(library, start, start + size):
                if (_CUBIN, generation) in [entry[:2] for entry in entries]:
                    for kind, built_for, first, last in entries:
                        if (kind, built_for) != (_CUBIN, generation):
                            library[first:last] = bytes(last - first)
    return bytes(library)


def _sections(library: bytearray) -> Iterator[tuple[str, int, int]]:
    """(name, first byte, bytes) of each section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", library, 0x28)
    width, count, names = struct.unpack_from("<HHH", library, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", library, table + k * width) for k in range(count)]
    at = headers[names][4]
    found = []
    for header in headers:
        first = at + header[0]
        found.append((library[first : library.index(0, first)].decode(), header[4], header[5]))
    yield from found


def _fat(library: bytearray, at: int, end: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """Of each fat binary: (kind, compute capability, first byte of the code, its end) per entry."""
    while at + 16 <= end:
        magic, _, header, size = struct.unpack_from("<IHHQ", library, at)
        if magic != _FAT:
            at += 8
            continue
        entries, entry = [], at + header
        at = entry + size
        while entry < at:
            kind, _, header, size = struct.unpack_from("<HHIQ", library, entry)
            (built_for,) = struct.unpack_from("<I", library, entry + 0x1C)
            entries.append((kind, built_for, entry + header, entry + header + size))
            entry += header + size
        yield entries
