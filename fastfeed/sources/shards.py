"""A fixed list of shard files, of which ranges are read: local ones by threads, remote ones through storage."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from fastfeed.sources.base import Pending
from fastfeed.sources.fetch import Unread
from fastfeed.sources.storage import Span, Stat, Storage, is_local
from fastfeed.sources.stored import OpenFile

__all__ = ["Known", "Shards", "Then"]

_OPEN = 128  # files held open; a thousand is what a process may have at all


class Shards:
    """Reads ranges, and notices files that are not what they were when they were listed."""

    def __init__(self, uris: Sequence[str], stats: Sequence[Stat], storage: Storage) -> None:
        self.uris, self.stats, self.storage = list(uris), list(stats), storage
        self.remote = not all(map(is_local, uris))
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._files: OrderedDict[int, OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("uris", "stats", "storage", "remote")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def fetch(self, shard: int, start: int, stop: int) -> Pending:
        """Begin to read bytes [start, stop) of a remote shard."""
        if stop > self.stats[shard].size:
            return Known(_cut_off(self.stats[shard].size, stop))
        return self.storage.fetch([Span(self.uris[shard], start, stop, self.stats[shard])])[0]

    def read(self, shard: int, start: int, stop: int) -> bytes | Unread:
        """Read bytes [start, stop) of a shard, all of them or none."""
        if self.remote:
            return self.fetch(shard, start, stop).result()
        stat = self.stats[shard]
        if stop > stat.size:
            return _cut_off(stat.size, stop)
        for attempt in (0, 1):
            try:
                file = self._file(shard)
                data = os.pread(file.fd, stop - start, start)
                while len(data) < stop - start:  # of a read above 2 GB, or one that a signal broke off
                    more = os.pread(file.fd, stop - start - len(data), start + len(data))
                    if not more:
                        break
                    data += more
                status = os.fstat(file.fd)  # afterwards: nothing was written to it before or meanwhile
                if (status.st_size, str(status.st_mtime_ns), len(data)) == (stat.size, stat.version, stop - start):
                    return data
            except FileNotFoundError:
                return Unread("not_found", "the shard is gone")
            except OSError as error:
                if error.errno != errno.ESTALE or attempt:
                    return Unread("io_error", error.strerror or str(error))
            self._drop(shard)  # open what lies there now: it may have been moved away and back
        return Unread("changed", "the shard is another one than was indexed; build the source anew")

    def _file(self, shard: int) -> OpenFile:
        if self._pid != os.getpid():  # a thread of the parent may have held the lock
            self._forget()
        with self._lock:
            file = self._files.get(shard)
            if file is not None:
                self._files.move_to_end(shard)
                return file
        file = OpenFile(self.uris[shard])
        with self._lock:
            self._files[shard] = file
            while len(self._files) > _OPEN:
                self._files.popitem(last=False)  # closed when the last thread that reads from it lets go
        return file

    def _drop(self, shard: int) -> None:
        with self._lock:
            self._files.pop(shard, None)


class Known:
    """A read that needs none."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def done(self) -> bool:
        """It is there."""
        return True

    def cancel(self) -> object:
        """Nothing to do."""
        return None

    def result(self, timeout: float | None = None) -> Any:
        """The value."""
        return self._value


def _cut_off(size: int, stop: int) -> Unread:
    return Unread("truncated", f"the shard is cut off at {size}, the sample would end at {stop}")


class Then:
    """A pending read whose result is looked at by the thread that takes it."""

    def __init__(self, pending: Pending, look: Callable[[Any], Any]) -> None:
        self._pending, self._look = pending, look
        self.done, self.cancel = pending.done, pending.cancel

    def result(self, timeout: float | None = None) -> Any:
        """What `look` makes of it."""
        return self._look(self._pending.result(timeout))
