"""Files without their compression, a piece at a time: `with open_stream(path) as stream: stream.read(65536)`.

Read are .gz, .bz2, .xz, .zst, and .zip of one file, told by their first bytes and not by their names, also one inside
the other. A stream that ends too early or is damaged gives what could be read; `Stream.cut` then says so.
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fastfeed.errors import TraceError

__all__ = ["HEAD", "Stream", "as_file", "head", "lines", "open_stream", "packing_of", "some"]

HEAD = 65_536  # bytes that are enough to tell what a file is
_LAYERS = 4  # of compression inside compression; more is a mistake or a trap
_PACKED = {b"\x1f\x8b\x08": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_FOREIGN = {b"7z\xbc\xaf\x27\x1c": "a 7-Zip", b"Rar!\x1a\x07": "a RAR", b"\x04\x22\x4d\x18": "an LZ4"}


class Stream(io.RawIOBase):
    """Bytes of a file, unpacked. `read(n)` gives at most n, and b"" only at the end."""

    def __init__(self, source: Any, packing: str = "", inside: Stream | None = None) -> None:
        """`source` has `read1(n)`; `packing` is what it unpacks, `inside` the stream that it unpacks."""
        self._source, self._packing, self._inside = source, packing, inside
        self._why = ""

    @property
    def cut(self) -> str:
        """Why the content is not whole, for a note to the user; "" as long as it is."""
        return self._why or (self._inside.cut if self._inside else "")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        if self._why:
            return b""
        try:
            return self._source.read1(size)
        except EOFError:
            self._why = f"the {self._packing} data ends too early; what came before was read"
        except OSError as error:
            what = f"the {self._packing} data is damaged" if self._packing else "reading failed"
            self._why = f"{what} ({error.strerror or error}); what came before was read"
        except Exception as error:  # zlib.error, LZMAError, ZstdError, BadZipFile: every codec has its own
            self._why = f"the {self._packing} data is damaged ({error}); what came before was read"
        return b""


@contextmanager
def open_stream(path: str | os.PathLike[str]) -> Iterator[Stream]:
    """The content of a file, unpacked. TraceError where there is no file to read, or its packing is not known."""
    with ExitStack() as stack:
        raw = stack.enter_context(_opened(Path(path)))
        buffered: Any = raw
        stream = stack.enter_context(Stream(raw))
        for depth in range(_LAYERS):
            packing = packing_of(buffered.peek(8))
            if packing in _FOREIGN.values():
                raise TraceError(f"{path} is {packing} archive; unpack it and give the file that is in it")
            if not packing or (packing == "zip" and depth):
                break
            source = _member(Path(path), raw) if packing == "zip" else _unpacker(Path(path), packing, buffered)
            stream = stack.enter_context(Stream(source, packing, stream))
            buffered = stack.enter_context(io.BufferedReader(stream))
        yield Stream(buffered, inside=stream)


def head(path: str | os.PathLike[str], size: int = HEAD) -> bytes:
    """The first `size` bytes of the content, unpacked; fewer only where it is shorter."""
    with open_stream(path) as stream:
        return some(stream, size)


def some(stream: Stream, size: int = HEAD) -> bytes:
    """The next `size` bytes; fewer only at the end."""
    parts, missing = [], size
    while missing and (part := stream.read(missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


@contextmanager
def as_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to the unpacked content, for what can only read files: itself, or a temporary copy."""
    path = Path(path)
    with _opened(path) as raw:
        packed = packing_of(raw.peek(8))
    if not packed:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fastfeed-") as folder, open_stream(path) as stream:
        copy = Path(folder) / path.stem
        try:
            with copy.open("wb") as out:
                shutil.copyfileobj(stream, out, 1 << 20)
        except OSError as error:
            raise TraceError(f"cannot unpack {path} to {folder}: {error.strerror}; unpack it yourself") from error
        yield copy


def lines(stream: Stream, longest: int = 1 << 20) -> Iterator[bytes]:
    """Lines without their ends, of one longer than `longest` bytes only the beginning; the last may be torn."""
    with io.BufferedReader(stream, 1 << 18) as buffered:
        while line := buffered.readline(longest):
            rest = line
            while len(rest) == longest and not rest.endswith(b"\n"):  # nobody meant a line of this size
                rest = buffered.readline(longest)
            yield line.rstrip(b"\r\n")


def packing_of(begin: bytes) -> str:
    """`gzip`, `zip`, ... of the first bytes of a file; "" where they are not packed."""
    if begin.startswith(_ZIP):
        return "zip"
    return next((name for magic, name in (_PACKED | _FOREIGN).items() if begin.startswith(magic)), "")


def _opened(path: Path) -> io.BufferedReader:
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            return path.open("rb")
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise TraceError(f"there is no {path}; check the spelling, or the folder it was written to") from error
        raise TraceError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    except ValueError as error:  # a NUL in the name
        raise TraceError(f"{str(path)!r} cannot be the name of a file: {error}; check the spelling") from error
    if stat.S_ISDIR(mode):
        raise TraceError(f"{path} is a folder{_holding(path)}; give the trace file in it")
    raise TraceError(f"{path} is not a file but a pipe or device; save the trace to a file and give that")


def _holding(folder: Path) -> str:
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return ""
    return f" with {', '.join(names[:3])}{', ...' * (len(names) > 3)}" if names else " without a file"


def _unpacker(path: Path, packing: str, packed: Any) -> Any:
    if packing == "gzip":
        return gzip.GzipFile(fileobj=packed)
    if packing == "bzip2":
        return bz2.BZ2File(packed)
    if packing == "xz":
        return lzma.LZMAFile(packed)
    try:
        return importlib.import_module("compression.zstd").ZstdFile(packed)  # Python 3.14
    except ImportError:
        pass
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as error:
        raise TraceError(
            f"{path} is packed with zstd, which needs a package here: pip install zstandard, or unpack it with zstd -d"
        ) from error
    return _Frames(zstandard.ZstdDecompressor().decompressobj, packed)


class _Frames:
    """zstd frames in a row, by the `zstandard` package, whose own reader does not say that one was cut off."""

    def __init__(self, fresh: Any, packed: Any) -> None:
        self._fresh, self._packed = fresh, packed
        self._decoder: Any = None  # of the frame at hand
        self._ahead = b""  # read of the next frame
        self._data = io.BytesIO()

    def read1(self, size: int) -> bytes:
        while not (data := self._data.read(size)):
            packed = self._ahead or self._packed.read(4096)  # few, as each may become very many
            self._ahead = b""
            if not packed:
                if self._decoder is not None:
                    raise EOFError
                return b""
            self._decoder = self._decoder or self._fresh()
            self._data = io.BytesIO(self._decoder.decompress(packed))
            if self._decoder.eof:
                self._ahead, self._decoder = self._decoder.unused_data, None
        return data


def _member(path: Path, raw: Any) -> Any:
    """The only file in a zip; its beginning, where the zip was cut off."""
    try:
        archive = zipfile.ZipFile(raw)
    except (zipfile.BadZipFile, ValueError, RuntimeError):  # the last: a newer version of zip
        return _Torn(raw)
    names = [
        one.filename for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")
    ]
    if any(name.endswith(("/data.pkl", "/.data/serialization_id")) for name in names):
        raise TraceError(f"{path} is a checkpoint saved by PyTorch, not a trace; give the profiler's output")
    if len(names) != 1:
        few = ", ".join(names[:3]) + ("..." if len(names) > 3 else "")
        holds = f"{len(names)} files ({few})" if names else "no file"
        raise TraceError(f"{path} is a zip of {holds}, one is allowed; unpack it and give the trace")
    try:
        return archive.open(names[0])
    except (RuntimeError, zipfile.BadZipFile) as error:  # RuntimeError: encrypted, or compressed in an unknown way
        raise TraceError(f"cannot unpack {path}: {error}; unpack it and give the file that is in it") from error


class _Torn:
    """The first file of a zip whose end, and with it the table of contents, is missing."""

    def __init__(self, raw: Any) -> None:
        raw.seek(0)
        header = raw.read(30)
        if len(header) == 30:
            raw.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), os.SEEK_CUR)
        method = header[8:10]
        self._inflate = zlib.decompressobj(-15) if method == b"\x08\x00" else None
        self._raw, self._packed = raw, b""
        self._known = self._inflate is not None or method == b"\x00\x00"

    def read1(self, size: int) -> bytes:
        while self._known:
            packed = self._packed or self._raw.read(65_536 if self._inflate else size)
            if not packed or (self._inflate and self._inflate.eof):
                break
            if not self._inflate:
                return packed
            data = self._inflate.decompress(packed, max(size, 1))
            self._packed = self._inflate.unconsumed_tail
            if data:
                return data
        raise EOFError  # a zip without its table is never whole
