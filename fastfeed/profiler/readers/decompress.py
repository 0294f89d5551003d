"""Decompressed streams of files: `with open_stream(path) as stream: stream.read(65536)`.

Supports .gz, .bz2, .xz, .zst, and .zip with one file, detected by their first bytes and not by
their names, also one inside another. A stream that ends too early or is damaged gives what could be
read; `Stream.damage` then says why.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import importlib
import io
import lzma
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Trace

HEAD = 65_536  # bytes that are enough to tell what a file is
_MAX_LAYERS = 4  # of compression inside compression; more is a mistake or a trap
_COMPRESSIONS = {
    b"\x1f\x8b\x08": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_ARCHIVES = {
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip",
    b"Rar!\x1a\x07": "a RAR",
    b"\x04\x22\x4d\x18": "an LZ4",
}


class Stream(io.RawIOBase):
    """Decompressed bytes of a file. `read(n)` returns at most n bytes, and b"" only at the end."""

    def __init__(self, source: Any, compression: str = "", inner: Stream | None = None) -> None:
        """Stream over `source.read1(n)`; `compression` names what it decompresses, of `inner`."""
        self._source = source
        self._compression = compression
        self._inner = inner
        self._reason = ""

    @property
    def damage(self) -> str:
        """Reason why the content is incomplete, for a note to the user; "" if it is complete."""
        return self._reason or (self._inner.damage if self._inner else "")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        if self._reason:
            return b""
        try:
            return self._source.read1(size)
        except EOFError:
            self._reason = f"the {self._compression} data ends too early; what came before was read"
        except Exception as error:  # OSError, zlib.error, LZMAError, ZstdError, BadZipFile
            subject = "reading failed"
            if self._compression:
                subject = f"the {self._compression} data is damaged"
            reason = (error.strerror if isinstance(error, OSError) else "") or error
            self._reason = f"{subject} ({reason}); what came before was read"
        return b""


@contextmanager
def open_stream(path: str | os.PathLike[str]) -> Iterator[Stream]:
    """The decompressed content of a file.

    Raises a TraceError if the file cannot be read or its compression is unknown.
    """
    with ExitStack() as stack:
        raw = stack.enter_context(_open(Path(path)))
        buffered: Any = raw
        stream = stack.enter_context(Stream(raw))
        for depth in range(_MAX_LAYERS):
            compression = detect_compression(_peek(Path(path), buffered))
            if compression in _ARCHIVES.values():
                raise TraceError(
                    f"{path} is {compression} archive; unpack it and pass the file in it"
                )
            if not compression or (compression == "zip" and depth):
                break
            if compression == "zip":
                source = _only_member(Path(path), raw)
            else:
                source = _decompressor(Path(path), compression, buffered)
            stream = stack.enter_context(Stream(source, compression, stream))
            buffered = stack.enter_context(io.BufferedReader(stream))
        yield Stream(buffered, inner=stream)


def head(path: str | os.PathLike[str], size: int = HEAD) -> bytes:
    """The first `size` bytes of the decompressed content; fewer only if it is shorter."""
    with open_stream(path) as stream:
        return read_up_to(stream, size)


def read_up_to(stream: Stream, size: int = HEAD) -> bytes:
    """The next `size` bytes; fewer only at the end."""
    parts = []
    remaining = size
    while remaining and (part := stream.read(remaining)):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)


@contextmanager
def as_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to the decompressed content: the path itself, or a temporary copy."""
    path = Path(path)
    if not is_compressed(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fastfeed-") as folder, open_stream(path) as stream:
        copy = Path(folder) / path.stem
        try:
            with copy.open("wb") as out:
                _unpack(path, stream, out)
        except OSError as error:
            raise TraceError(
                f"cannot unpack {path} to {folder}: {error.strerror}; unpack it yourself"
            ) from error
        yield copy


def read_as(shown: Path, read: Callable[[Path], Trace], file: Path) -> Trace:
    """The trace in a copy, by the name that the user knows, also in errors: the copy goes."""
    try:
        trace = read(file)
    except TraceError as error:
        if file == shown:
            raise
        raise TraceError(str(error).replace(str(file), str(shown))) from error
    return replace(trace, origin=replace(trace.origin, path=str(shown)))


def _unpack(path: Path, stream: Stream, out: BinaryIO) -> None:
    """A whole file; of an SQLite database the pages that it says it has, if it does."""
    head = read_up_to(stream, 100)
    size = _database_size(head)
    free = shutil.disk_usage(out.name).free
    if (size or 0) > free:
        raise TraceError(
            f"cannot unpack {path}: its header claims {size / 1e9:,.0f} GB, and"
            f" {Path(out.name).parent} has {free / 1e9:,.0f} GB left; copy it again if it is"
            " damaged, else unpack it yourself"
        )
    out.write(head)
    left = (size if size else free // 2) - len(head)
    while left > 0 and (part := stream.read(min(left, 1 << 20))):
        out.write(part)
        left -= len(part)


def _database_size(head: bytes) -> int:
    """Size of the SQLite database that begins so, bytes; 0 if unknown."""
    if not head.startswith(b"SQLite format 3\0") or len(head) < 100 or head[24:28] != head[92:96]:
        return 0
    page = int.from_bytes(head[16:18], "big")
    return (65_536 if page == 1 else page) * int.from_bytes(head[28:32], "big")


def lines(stream: Stream, limit: int = 1 << 20) -> Iterator[bytes]:
    """Lines without their line ends, cut to `limit` bytes; the last may be incomplete."""
    with io.BufferedReader(stream, 1 << 18) as buffered:
        while line := buffered.readline(limit):
            rest = line
            while len(rest) == limit and not rest.endswith(b"\n"):  # no real record is this long
                rest = buffered.readline(limit)
            yield line.rstrip(b"\r\n")


def is_compressed(path: Path) -> bool:
    """True if the file has to be decompressed to be read."""
    with _open(path) as raw:
        return bool(detect_compression(_peek(path, raw)))


def detect_compression(begin: bytes) -> str:
    """`gzip`, `zip`, ... from the first bytes of a file; "" if it is not compressed."""
    if begin.startswith(_ZIP):
        return "zip"
    return next(
        (name for magic, name in (_COMPRESSIONS | _ARCHIVES).items() if begin.startswith(magic)), ""
    )


def _open(path: Path) -> io.BufferedReader:
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            return path.open("rb")
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise TraceError(
                f"there is no {path}; check the spelling, or the folder it was written to"
            ) from error
        raise TraceError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    except ValueError as error:  # a NUL in the name
        raise TraceError(
            f"{str(path)!r} cannot be the name of a file: {error}; check the spelling"
        ) from error
    if stat.S_ISDIR(mode):
        raise TraceError(f"{path} is a folder{_contents(path)}; pass the trace file in it")
    raise TraceError(
        f"{path} is not a file but a pipe or device; save the trace to a file and give that"
    )


def _peek(path: Path, file: io.BufferedReader) -> bytes:
    try:
        return file.peek(8)
    except OSError as error:  # the disk, or a server that is gone
        raise TraceError(
            f"cannot read {path}: {error.strerror}; copy it again, or record again"
        ) from error


def _contents(folder: Path) -> str:
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return ""
    return (
        f" with {', '.join(names[:3])}{', ...' * (len(names) > 3)}" if names else " without a file"
    )


def _decompressor(path: Path, compression: str, compressed: Any) -> Any:
    if compression == "gzip":
        return gzip.GzipFile(fileobj=compressed)
    if compression == "bzip2":
        return bz2.BZ2File(compressed)
    if compression == "xz":
        return lzma.LZMAFile(compressed)
    try:
        return importlib.import_module("compression.zstd").ZstdFile(compressed)  # Python 3.14
    except ImportError:
        pass
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as error:
        raise TraceError(
            f"{path} is packed with zstd, which needs a package here: pip install zstandard, or"
            " unpack it with zstd -d"
        ) from error
    return _ZstdFrames(zstandard.ZstdDecompressor().decompressobj, compressed)


class _ZstdFrames:
    """Consecutive zstd frames; the reader of `zstandard` itself reports no truncation."""

    def __init__(self, new_decoder: Any, compressed: Any) -> None:
        self._new_decoder = new_decoder
        self._compressed = compressed
        self._decoder: Any = None  # of the current frame
        self._next_frame = b""  # bytes read beyond the current frame
        self._data = io.BytesIO()

    def read1(self, size: int) -> bytes:
        while not (data := self._data.read(size)):
            # little: it may expand a lot
            compressed = self._next_frame or self._compressed.read(4096)
            self._next_frame = b""
            if not compressed:
                if self._decoder is not None:
                    raise EOFError
                return b""
            self._decoder = self._decoder or self._new_decoder()
            self._data = io.BytesIO(self._decoder.decompress(compressed))
            if self._decoder.eof:
                self._next_frame = self._decoder.unused_data
                self._decoder = None
        return data


def _only_member(path: Path, raw: Any) -> Any:
    """The only file in a zip; its beginning if the zip is truncated."""
    try:
        archive = zipfile.ZipFile(raw)
    except (zipfile.BadZipFile, ValueError, RuntimeError):  # the last: a newer version of zip
        return TruncatedZip(raw)
    except OSError as error:
        raise TraceError(
            f"cannot read {path}: {error.strerror}; copy it again, or record again"
        ) from error
    names = [
        entry.filename
        for entry in archive.infolist()
        if not entry.is_dir() and not entry.filename.startswith("__MACOSX/")
    ]
    if any(name.endswith(("/data.pkl", "/.data/serialization_id")) for name in names):
        raise TraceError(
            f"{path} is a checkpoint saved by PyTorch, not a trace; pass the profiler's output"
        )
    if len(names) != 1:
        first_names = ", ".join(names[:3]) + ("..." if len(names) > 3 else "")
        holds = f"{len(names)} files ({first_names})" if names else "no file"
        raise TraceError(f"{path} is a zip of {holds}, expected one; unpack it and pass the trace")
    try:
        return archive.open(names[0])
    except (
        RuntimeError,
        zipfile.BadZipFile,
    ) as error:  # RuntimeError: encrypted, or compressed in an unknown way
        raise TraceError(
            f"cannot unpack {path}: {error}; unpack it and pass the file in it"
        ) from error


class TruncatedZip:
    """The first file of a zip whose end, and with it the central directory, is missing."""

    def __init__(self, raw: Any) -> None:
        raw.seek(0)
        header = raw.read(30)
        if len(header) == 30:
            raw.seek(
                int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"),
                os.SEEK_CUR,
            )
        method = header[8:10]
        self._inflate = zlib.decompressobj(-15) if method == b"\x08\x00" else None
        self._raw = raw
        self._compressed = b""
        self._is_supported = self._inflate is not None or method == b"\x00\x00"

    def read1(self, size: int) -> bytes:
        while self._is_supported:
            compressed = self._compressed or self._raw.read(65_536 if self._inflate else size)
            if not compressed or (self._inflate and self._inflate.eof):
                break
            if not self._inflate:
                return compressed
            data = self._inflate.decompress(compressed, max(size, 1))
            self._compressed = self._inflate.unconsumed_tail
            if data:
                return data
        raise EOFError  # a zip without its central directory is never complete
