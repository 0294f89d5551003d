"""WebDataset: a tar of `KEY.jpg`, `KEY.cls`, `KEY.txt`, `KEY.json` per sample, and DALI's index.

Of several images `KEY.NAME.jpg`. Of several classes `KEY.label.json` is a list of their numbers: `cls` is an integer to WebDataset.

Headers are POSIX.1-1988 ustar (GNU tar manual, "Basic Tar Format") without time, user or group. The
index is that of DALI's `wds2idx`, v1.2: the number of samples, then per sample a line with
extension, offset, size and name of each member.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.record import Entry
from fastfeed.preprocess.writers import base
from fastfeed.preprocess.writers.base import as_json, as_text, npy_header

_BLOCK = 512  # bytes: headers and contents start at multiples of it
_RECORD = 20 * _BLOCK  # archives are padded to it, as by GNU tar and Python
_MAX_NAME = 100  # bytes
_LARGE = 1 << 16  # bytes; larger contents are written directly, smaller ones are joined
_MAX_BYTES = 8**11 - 1  # bytes of a member: the field has eleven octal digits
_OWNER = b"0000644\0" + b"0000000\0" * 2  # mode, user, group
_TIME = b"0" * 11 + b"\0"
_REST = (b"0" + bytes(100) + b"ustar\0" + b"00" + bytes(64) + b"0000000\0" * 2).ljust(
    _BLOCK - 156, b"\0"
)
_SUM = sum(_OWNER) + sum(_TIME) + 8 * ord(" ") + sum(_REST)


def header(name: str, size: int) -> bytes:
    """Header of a regular file: 512 bytes."""
    field = name.encode("ascii")
    if len(field) > _MAX_NAME or size > _MAX_BYTES:
        raise ConfigError(
            f"a tar member may have a name of {_MAX_NAME} bytes and {_MAX_BYTES} bytes of data, got"
            f" {name}, {size}"
        )
    digits = b"%011o\0" % size
    check = b"%06o\0 " % (_SUM + sum(field) + sum(digits))
    return b"".join((field.ljust(_MAX_NAME, b"\0"), _OWNER, digits, _TIME, check, _REST))


def iter_members(
    data: bytes, start: int = 0, stop: int | None = None
) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of members that this writer wrote, up to zeros or `stop`. ValueError."""
    stop = len(data) if stop is None else stop
    while start < stop and data[start]:
        name = data[start : start + _MAX_NAME].rstrip(b"\0").decode("ascii")
        size = int(data[start + 124 : start + 135], 8)
        start += _BLOCK
        yield name, start, size
        start += size + -size % _BLOCK


class TarWriter(base.ShardWriter):
    """Writes one `.tar` and its `.idx`, which DALI does not support for shards without samples."""

    format = "webdataset"

    def _begin(self) -> None:
        self._at = 0
        self._lines: list[str] = []

    def add(self, entry: Entry) -> None:
        """The next sample: image, label, caption, metadata as JSON, columns of bytes, arrays."""
        parts = [
            (f"{name}.{image.extension}".lstrip("."), image.image)
            for name, image in self.named_images(entry).items()
        ]
        if isinstance(entry.label, tuple):
            parts.append(("label.json", as_json(entry.label)))
        elif entry.label is not None:
            parts.append(("cls", b"%d" % entry.label))
        if entry.text is not None:
            parts.append(("txt", as_text(entry.text).encode()))
        parts.append(("json", as_json(entry.meta)))
        parts += sorted(entry.blobs.items())
        for name, array in self.columns.arrays(entry):
            parts.append(
                (f"{name}.npy", npy_header(array.dtype.str, array.shape) + array.tobytes())
            )
        self._offsets.append(self._at)
        words: list[Any] = []
        head = b""
        for extension, content in parts:
            name = f"{entry.key}.{extension}"
            head += header(name, len(content))
            words += [extension, self._at + _BLOCK, len(content), name]
            padding = -len(content) % _BLOCK
            self._at += _BLOCK + len(content) + padding
            if len(content) > _LARGE:
                self._file.write(head)
                self._file.write(content)
                head = bytes(padding)
            else:
                head += content + bytes(padding)
        self._file.write(head)
        self._lines.append(" ".join(map(str, words)))

    def copy(self, data: bytes, starts: Sequence[int], others: Mapping[str, bytes]) -> None:
        """As in the base class."""
        for start, stop in pairwise([*starts, len(data)]):
            self._offsets.append(self._at + start)
            members = [
                f"{name.partition('.')[2]} {self._at + offset} {size} {name}"
                for name, offset, size in iter_members(data, start, stop)
            ]
            self._lines.append(" ".join(members))
        self._file.write(data)
        self._at += len(data)

    def close(self) -> list[int]:
        """Byte offsets of the samples' first headers."""
        self._file.write(bytes(2 * _BLOCK + -(self._at + 2 * _BLOCK) % _RECORD))
        self._file.close()
        if self._lines:
            # written later: readers ignore an index older than the archive
            lines = [f"v1.2 {len(self._lines)}", *self._lines, ""]
            self._write_file(".idx", "\n".join(lines).encode())
        return self._offsets
