"""A file system in memory that fails, hangs, lags and miscounts as it is told, and notes what it
was asked.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import fsspec
from fsspec.asyn import AsyncFileSystem

from fastfeed.storage.reads import ByteRange, Stat
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.storage import Storage

LONG = 20  # seconds; a wait that gets this far has failed
QUICK = RetryPolicy(backoff_s=0, max_backoff_s=0, attempts=5, hedge=False)
DATA = bytes(i * 7 % 251 for i in range(1000))


@dataclass(slots=True)
class Ask:
    """One request for bytes."""

    number: int  # from 0, of all
    path: str
    start: int | None
    end: int | None


@dataclass(slots=True)
class Lake:
    """Its files, and what befalls requests: `before` may raise or wait, `after` may change the
    answer.
    """

    files: dict[str, bytes] = field(default_factory=lambda: {"a/b": DATA})
    before: Callable[[Ask], Awaitable[None]] | None = None
    after: Callable[[Ask, bytes], bytes] | None = None
    ranges: bool = True
    sizes: bool = True
    asked: list[Ask] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)  # of other kinds
    # errors of the next calls of a kind
    broken: dict[str, list[Exception]] = field(default_factory=dict)
    now: int = 0  # requests under way
    most: int = 0

    async def answer(self, path: str, start: int | None, end: int | None) -> bytes:
        ask = Ask(len(self.asked), path, start, end)
        self.asked.append(ask)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            if self.before is not None:
                await self.before(ask)
        finally:
            self.now -= 1
        if path not in self.files:
            raise FileNotFoundError(path)
        data = self.files[path][start:end] if self.ranges else self.files[path]
        return data if self.after is None else self.after(ask, data)

    def call(self, kind: str) -> None:
        self.calls[kind] += 1
        if self.broken.get(kind):
            raise self.broken[kind].pop(0)

    def info(self, path: str) -> dict[str, Any]:
        if path not in self.files:
            raise FileNotFoundError(path)
        size = len(self.files[path]) if self.sizes else None
        return {"name": path, "size": size, "type": "file", "ETag": f'"{hash(self.files[path])}"'}


class LakeFileSystem(AsyncFileSystem):
    protocol = "lake"
    cachable = False

    def __init__(self, water: Lake, **more: Any) -> None:
        super().__init__(**more)
        self.lake = water

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        return await self.lake.answer(path, start, end)

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        self.lake.call("info")
        below = [name for name in self.lake.files if name.startswith(path + "/")]
        return {"name": path, "size": 0, "type": "directory"} if below else self.lake.info(path)

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        self.lake.call("ls")
        entries: dict[str, Any] = {}
        for name in self.lake.files:
            if name.startswith(path + "/"):
                first, _, rest = name[len(path) + 1 :].partition("/")
                whole = f"{path}/{first}"
                entries[whole] = (
                    {"name": whole, "size": 0, "type": "directory"}
                    if rest
                    else self.lake.info(whole)
                )
        if not entries:
            raise FileNotFoundError(path)
        return list(entries.values())[::-1] if detail else list(entries)[::-1]


class BlockingFileSystem(fsspec.AbstractFileSystem):
    """The same without asyncio."""

    protocol = "pond"
    cachable = False

    def __init__(self, water: Lake, **more: Any) -> None:
        super().__init__(**more)
        self.lake = water

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        return asyncio.run(self.lake.answer(path, start, end))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return self.lake.info(path)


fsspec.register_implementation("lake", LakeFileSystem, clobber=True)
fsspec.register_implementation("pond", BlockingFileSystem, clobber=True)


class Gate:
    """Shut until it is opened; threads and coroutines may wait at it."""

    def __init__(self) -> None:
        self._opened: Future[None] = Future()
        self.reached = threading.Event()

    async def wait(self) -> None:
        self.reached.set()
        await asyncio.shield(asyncio.wrap_future(self._opened))

    def wait_here(self) -> None:
        self.reached.set()
        self._opened.result(LONG)

    def open(self) -> None:
        self._opened.set_result(None)

    @property
    def opened(self) -> bool:
        return self._opened.done()


def storage(lake: Lake, policy: RetryPolicy = QUICK, **more: Any) -> Storage:
    return Storage({"water": lake}, policy=policy, **more)


def span(
    start: int = 0, stop: int | None = None, path: str = "a/b", whole: Stat | None = None
) -> ByteRange:
    return ByteRange(f"lake://{path}", start, stop, whole)


def wait(event: threading.Event) -> None:
    assert event.wait(LONG), "what was waited for did not happen"
