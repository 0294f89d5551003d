"""A feed's live page: 4 KiB of shared memory that the feed writes and `fastfeed watch` reads.

Counters only ever grow, so a reader derives rates from two readings and never has to talk to the
trainer. A write goes to the slot that is not in use and then flips the sequence (a seqlock with two
copies, as Linux's seqcount_latch), so the page of a process that is stopped or killed in the middle
of a write still holds the batch before. The checksum is for processors that reorder stores. The
layout, native byte order, documented in docs/watching.md:

    0     magic, 8 bytes
    8     uint64: number of the newest write; it is in slot (number & 1)
    64    slot 0: uint64 CRC-32 of the rest, uint64 number, int64 for each of COUNTERS,
          STAGES x (name, count, ns), and the stage (16 bytes) and path (128 bytes) that the next
          batch is at
    1056  slot 1
    2048  uint32 length and uint32 CRC-32 of a JSON object that never changes: whose page this is
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

READY = 8  # classes of the histogram of batches ready when one was requested; the last is 7 or more
# the phase: not iterated, inside next() with nothing ready, the trainer has a batch
IDLE = 0
WAITING = 1
TRAINING = 2
COUNTERS = (
    "asked",  # batches requested
    "batches",  # delivered
    "images",  # delivered
    "wait_ns",  # spent inside next()
    "consumer_ns",  # spent by the trainer between deliveries
    "phase",  # IDLE, WAITING or TRAINING
    "since_ns",  # CLOCK_MONOTONIC when this phase began
    "updated_ns",  # CLOCK_MONOTONIC of this write
    "epoch",  # of the next batch
    "step",
    "bad",  # bad samples
    "failed",  # 1: an error has ended the last iteration
    "stages_ns",  # CLOCK_MONOTONIC when the stages below were written
    "stages_images",  # images delivered by then
    "helper_pid",  # of the helper process; 0 without a helper
    "framework_steps",  # training steps that a callback has timed, in ff.Watch and the like
    "framework_ns",  # and their time
    "step_median_ns",  # of the last steps: wait and trainer together
    "framework_median_ns",  # of the last steps that a callback has timed
    "read_bytes",  # of samples
    "retries",  # reads and requests that were repeated
    "doing_since_ns",  # CLOCK_MONOTONIC since when the batch that is needed first is at its stage
    *(f"ready_{n}" for n in range(READY)),
)
_MAGIC = b"FFLIVE01"
SIZE = 4096
_STAGES = 16
_COUNTERS = struct.Struct(f"@{len(COUNTERS)}q")
_STAGE = struct.Struct("@16s2q")
_WORD = struct.Struct("@Q")
_SLOTS = 64
_SLOT = 992
# bytes
_STAGE_NAME = 16
_PLACE = 128
# what the checksum covers
_BODY = 8 + _COUNTERS.size + _STAGES * _STAGE.size + _STAGE_NAME + _PLACE
_IDENTITY = 2048
_TRIES = 1000  # a reader that loses this often against a writer gives up
assert _SLOTS + 2 * _SLOT <= _IDENTITY and 8 + _BODY <= _SLOT


class PageError(ValueError):
    """This file is not a page, is damaged, or is of another version. The text says which."""


@dataclass(frozen=True, slots=True)
class Page:
    """One reading of a live page."""

    identity: Mapping[str, Any]
    counters: Mapping[str, int]
    stages: Mapping[str, tuple[int, int]]  # stage -> (spans, nanoseconds summed over threads)
    # stage of the batch that is needed first, and the endpoint or folder it reads
    doing: tuple[str, str] = ("", "")

    @property
    def ready(self) -> tuple[int, ...]:
        """Counts of requests that found 0, 1, 2, ... batches ready; the last entry is 7 or more."""
        return tuple(self.counters[f"ready_{n}"] for n in range(READY))


class PageWriter:
    """Writes the live page, on the feed's side.

    Memory is reserved first: a store into a full tmpfs would otherwise end the process.
    """

    def __init__(self, path: str, identity: Mapping[str, Any]) -> None:
        """Create the file, readable by its owner alone.

        OSError if that is impossible; nothing is left then.
        """
        # a name may hold any characters
        text = json.dumps(identity, ensure_ascii=False).encode("utf-8", "replace")
        if 8 + len(text) > SIZE - _IDENTITY:
            raise ValueError(
                f"the identity of a live page takes {len(text)} bytes, at most"
                f" {SIZE - _IDENTITY - 8} fit"
            )
        self.path = path
        self._pid = os.getpid()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, SIZE)
            else:
                os.write(fd, bytes(SIZE))
            memory = mmap.mmap(fd, SIZE)
        except (
            BaseException
        ):  # also Ctrl-C: a page that is not whole must not stay; it is raised again
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        self._bytes = memoryview(memory)
        self._words = memoryview(memory).cast("Q")
        self._number = 0
        self._stages = bytes(_STAGES * _STAGE.size)
        self._doing = bytes(_STAGE_NAME + _PLACE)
        self._bytes[_IDENTITY : _IDENTITY + 8] = struct.pack("@2I", len(text), zlib.crc32(text))
        self._bytes[_IDENTITY + 8 : _IDENTITY + 8 + len(text)] = text
        self.write([0] * len(COUNTERS))
        self._bytes[:8] = _MAGIC  # last: from now on it is a page

    def set_stages(self, stages: Mapping[str, tuple[int, int]]) -> None:
        """(spans, nanoseconds) by stage, for the next writes.

        Names are cut to 16 bytes, the 17th stage is left out.
        """
        entries = [
            _STAGE.pack(name.encode(), count, ns)
            for name, (count, ns) in list(stages.items())[:_STAGES]
        ]
        self._stages = b"".join(entries).ljust(_STAGES * _STAGE.size, b"\0")

    def set_doing(self, stage: str, place: str) -> None:
        """Set the stage and place of the batch that is needed first, for the next writes.

        A long place is cut to its end.
        """
        end = place.encode("utf-8", "replace")[-_PLACE:].decode("utf-8", "ignore").encode()
        self._doing = stage.encode()[:_STAGE_NAME].ljust(_STAGE_NAME, b"\0") + end.ljust(
            _PLACE, b"\0"
        )

    def write(self, counters: Sequence[int]) -> None:
        """Publish these values of COUNTERS. Not for several threads at once."""
        number = self._number + 1
        body = b"".join((_WORD.pack(number), _COUNTERS.pack(*counters), self._stages, self._doing))
        start = _SLOTS + (number & 1) * _SLOT
        self._words[start >> 3] = zlib.crc32(body)
        self._bytes[start + 8 : start + 8 + _BODY] = body
        self._words[1] = self._number = number

    @property
    def is_own(self) -> bool:
        """False in a forked child: the page belongs to the parent, whose memory this is."""
        return self._pid == os.getpid()

    def close(self) -> None:
        """Remove the file, unless this is a forked child.

        The memory stays with this object: a thread may write.
        """
        if self.is_own:
            with suppress(OSError):
                os.unlink(self.path)


def read_page(path: str) -> Page:
    """One consistent reading. OSError if it cannot be opened, PageError if it is not a page.

    Copies the bytes with read(): a file that is cut short meanwhile must not end this process, as a
    mapping would.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        for _ in range(_TRIES):
            data = os.pread(fd, SIZE, 0)
            if len(data) < SIZE or data[:6] != _MAGIC[:6]:
                raise PageError(f"{path} is not a live page of a feed")
            if data[:8] != _MAGIC:
                version = ascii(data[6:8].decode("latin-1"))
                raise PageError(
                    f"{path} is a live page of version {version}, this fastfeed reads '01'; use the"
                    " same on both sides"
                )
            number = _WORD.unpack_from(data, 8)[0]
            start = _SLOTS + (number & 1) * _SLOT
            body = data[start + 8 : start + 8 + _BODY]
            if _WORD.unpack_from(body)[0] == number and _WORD.unpack_from(data, start)[
                0
            ] == zlib.crc32(body):
                return Page(_identity(path, data), *_values(body))
    finally:
        os.close(fd)
    raise PageError(f"{path} is damaged: its checksum is wrong in {_TRIES} readings")


def _identity(path: str, data: bytes) -> Mapping[str, Any]:
    length, checksum = struct.unpack_from("@2I", data, _IDENTITY)
    text = data[_IDENTITY + 8 : _IDENTITY + 8 + length]
    if len(text) != length or zlib.crc32(text) != checksum:
        raise PageError(f"{path} is damaged: it does not say whose page it is")
    try:
        identity = json.loads(text)
    except RecursionError:
        identity = None
    if not isinstance(identity, dict):
        raise PageError(f"{path} is damaged: it does not say whose page it is")
    return identity


def _values(body: bytes) -> tuple[dict[str, int], dict[str, tuple[int, int]], tuple[str, str]]:
    counters = dict(zip(COUNTERS, _COUNTERS.unpack_from(body, 8), strict=True))
    stages = {}
    end = 8 + _COUNTERS.size + _STAGES * _STAGE.size
    for name, count, ns in _STAGE.iter_unpack(body[8 + _COUNTERS.size : end]):
        if name[0]:
            stages[_text(name)] = (count, ns)
    return (
        counters,
        stages,
        (_text(body[end : end + _STAGE_NAME]), _text(body[end + _STAGE_NAME :])),
    )


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("utf-8", "replace")
