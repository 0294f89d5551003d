"""A bucket as a target, or whatever else fsspec writes to: files are made here, sent whole, then the record is.

An object store shows an object when all of it has arrived. Sending is tried again as reading is (`sources.fetch`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from fastfeed.errors import ConfigError, FastfeedError, TargetError
from fastfeed.preprocess.record import ShardFile
from fastfeed.preprocess.targets.atomic_files import AtomicFile, AtomicFiles
from fastfeed.preprocess.targets.lock import TEMPORARY, has_ended, temporary_name
from fastfeed.preprocess.targets.temp_files import remove_tree
from fastfeed.preprocess.targets.write_errors import RERUN_HINT, write_error
from fastfeed.storage.event_loop import results
from fastfeed.storage.filesystem import call, find
from fastfeed.storage.retry import Patience, Unread
from fastfeed.storage.storage import Storage

__all__ = ["RemoteTarget", "open_remote"]

T = TypeVar("T")

PATIENCE = Patience(deadline_s=180, attempt_s=60, slowest=1e6, longest_pause_s=15, hedge=False)
_LISTING_S = 3600.0  # that a listing may take, of many requests
_SPOOL = "fastfeed-spool-"
_BUCKETS = ("s3", "s3a", "gs", "gcs")  # where nothing is found below a name, a bucket is missing
_READ_ONLY = ("http", "https", "data", "github", "git", "zip", "tar", "libarchive")
_SECRET = re.compile("key|secret|token|pass|credential|sas|connection_string", re.IGNORECASE)
_NUMBERS = {"permission denied": errno.EACCES, "no credentials": errno.EACCES}


class RemoteTarget:
    """Objects below a URL. Its options may hold secrets: they are pickled, and never shown or written."""

    def __init__(self, url: str, options: dict[str, Any], patience: Patience = PATIENCE) -> None:
        self.text = re.sub(r"(?<=://)([^/@:]*):[^/]*@", r"\1:...@", url)  # as named, but for a password in it
        self._url, self.patience = url.rstrip("/"), patience
        self._storage = Storage(options, patience=patience)
        self._protocol = url.partition("://")[0]

    def __repr__(self) -> str:
        return f"RemoteTarget({self.text!r})"

    @property
    def storage(self) -> Storage:
        """What it is read through, with its options."""
        return self._storage

    @property
    def url(self) -> str:
        """With a password, where one was in it."""
        return self._url

    def read(self, name: str) -> bytes | None:
        """A whole object; None where there is none."""
        found = self._ask(name, lambda system, path: call(system, "cat_file", path))
        if isinstance(found, Unread) and found.reason == "not_found":
            return None
        return self._judged(found, f"read {name} in {self.text}")

    def write(self, name: str, content: bytes) -> None:
        """A small object; there, with its size checked, when this returns."""

        async def put(system: Any, path: str) -> None:
            await call(system, "pipe_file", path, content)
            await _check(system, path, len(content))

        self._judged(self._ask(name, put, len(content)), f"write {name} to {self.text}")

    def send(self, name: str, file: str, size: int) -> None:
        """A file of this machine, as an object."""

        async def put(system: Any, path: str) -> None:
            await call(system, "put_file", file, path)
            await _check(system, path, size)

        self._judged(self._ask(name, put, size), f"write {name} to {self.text}")

    def files(self) -> dict[str, int]:
        """Names and bytes of all objects below it, but for temporary ones."""
        return {name: size for name, size in self._all().items() if not name.startswith(TEMPORARY + "/")}

    def remove(self, name: str) -> None:
        """No error where it is not there."""
        found = self._ask(name, lambda system, path: call(system, "rm_file", path))
        if not (isinstance(found, Unread) and found.reason == "not_found"):
            self._judged(found, f"remove {name} from {self.text}")

    def attempt(self) -> RemoteAttempt:
        """Begin a try at a shard."""
        return RemoteAttempt(self)

    def sweep(self, everything: bool = False) -> int:
        """Remove temporary folders of processes of this machine that have ended, of any job (or, `everything`: all for
        this target)."""
        top, swept = tempfile.gettempdir(), 0
        for name in os.listdir(top):
            mark, _, owner = name.removeprefix(_SPOOL).partition(".")
            if name.startswith(_SPOOL) and (has_ended(owner) or (everything and mark == self._mark)):
                with suppress(OSError):  # another user's
                    remove_tree(os.path.join(top, name))
                    swept += 1
        return swept

    def free_bytes(self) -> int | None:
        """Nobody says so."""
        return None

    def try_out(self) -> None:
        """Write an object, and remove it."""
        name = f"{TEMPORARY}/{temporary_name()}"
        self._judged(
            self._ask(name, lambda system, path: call(system, "pipe_file", path, b"")), f"write to {self.text}"
        )
        self._ask(name, lambda system, path: call(system, "rm_file", path))  # where that is forbidden, it stays

    def look(self) -> None:
        """Is it there?"""
        if not self._all():
            raise ConfigError(f"there is nothing at {self.text}; name the place that a job was written to")

    def make_spool(self) -> str:
        """A folder of this machine, for files on their way. OSError."""
        path = os.path.join(tempfile.gettempdir(), f"{_SPOOL}{self._mark}.{temporary_name()}")
        os.mkdir(path, 0o700)
        return path

    def refuse(self, error: OSError, name: str) -> TargetError:
        """What to raise where this machine's disk refused a file."""
        where = tempfile.gettempdir()
        return write_error(error, f"write {name} to {where} on its way to {self.text} (TMPDIR names another folder)")

    @property
    def _mark(self) -> str:
        return hashlib.sha256(self._url.encode()).hexdigest()[:8]

    def _all(self) -> dict[str, int]:
        patience = replace(self.patience, deadline_s=_LISTING_S, attempt_s=_LISTING_S)
        root = ""

        async def question(system: Any, path: str) -> dict[str, dict[str, Any]]:
            nonlocal root
            root = path.rstrip("/") + "/"
            system.invalidate_cache()
            return await find(system, path)

        found = self._asked(self._url, question, patience)
        if isinstance(found, Unread) and found.reason == "not_found" and self._protocol not in _BUCKETS:
            return {}
        infos = self._judged(found, f"list {self.text}")
        files = {path: info for path, info in infos.items() if info.get("type", "file") == "file"}
        return {path[len(root) :]: info["size"] for path, info in files.items() if path.startswith(root)}

    def _ask(self, name: str, question: Callable[[Any, str], Any], size: int = 0) -> Any:
        if any(part in ("", ".", "..") for part in name.split("/")):
            raise ConfigError(f"a file of a target must have a name below it, without '..', got {name!r}")
        more, patience = size / self.patience.slowest, self.patience
        patience = replace(patience, attempt_s=patience.attempt_s + more, deadline_s=patience.deadline_s + 3 * more)
        return self._asked(f"{self._url}/{name}", question, patience)

    def _asked(self, url: str, question: Callable[[Any, str], Any], patience: Patience) -> Any:
        try:
            (found,) = results([self._storage.ask(url, question, patience)])
        except FastfeedError as error:  # it cannot be connected to
            raise type(error)(self._shown(str(error).replace(url, self._url))) from None
        return found

    def _judged(self, found: T | Unread, doing: str) -> T:
        if not isinstance(found, Unread):
            return found
        said, bucket = found.detail or found.reason, self._url.partition("://")[2].partition("/")[0]
        if found.reason == "not_found":
            what = "bucket" if self._protocol in _BUCKETS else "place"
            said, advice, code = f"there is no {what} {bucket}", "make it, or correct the name", errno.ENOENT
        else:
            code = next((code for text, code in _NUMBERS.items() if said.startswith(text)), errno.EIO)
            advice = "see that the key may do that" if code == errno.EACCES else "look whether the service is up"
        raise TargetError(self._shown(f"cannot {doing}: {said}; {advice}, {RERUN_HINT}"), code)

    def _shown(self, text: str) -> str:
        """Without secrets: clients may repeat what they were given."""
        for secret in _secrets(self._storage.options):
            text = text.replace(secret, "...")
        return text.replace(self._url, self.text)


class RemoteAttempt:
    """One try at a shard, in a temporary folder of this machine."""

    def __init__(self, target: RemoteTarget) -> None:
        self._target = target
        self._bundle = AtomicFiles(target.make_spool, target.refuse, local=False)

    def create(self, name: str) -> AtomicFile:
        """A new file, here until `commit`."""
        return self._bundle.create(name)

    def commit(self, record: Callable[[Sequence[ShardFile]], tuple[str, bytes]]) -> None:
        """Close and send all files, then the record."""
        target, bundle = self._target, self._bundle
        try:
            parts = bundle.finish()
            name, content = record(parts)
            if target.read(name) not in (None, content):
                target.remove(name)  # it would speak of files that are no more
            for draft, part in zip(bundle.drafts, parts, strict=True):
                target.send(part.name, draft.path, part.bytes)
            target.write(name, content)
        finally:
            bundle.abandon()

    def abandon(self) -> None:
        """Remove what is there of it."""
        self._bundle.abandon()


def open_remote(url: str, options: dict[str, Any], writes: bool) -> RemoteTarget:
    """A URL that can be written to (or, without `writes`, that holds something). ConfigError, TargetError."""
    protocol = url.partition("://")[0]
    if protocol in _READ_ONLY:
        raise ConfigError(f"{protocol}:// can be read only, got {url}; name a folder, or a bucket such as s3://...")
    if not url.partition("://")[2].strip("/"):
        raise ConfigError(
            f"the target must name a bucket and a folder in it, got {url}; as in {protocol}://bucket/train"
        )
    target = RemoteTarget(url, options)
    (target.try_out if writes else target.look)()
    return target


async def _check(system: Any, path: str, size: int) -> None:
    """What has arrived is all that was sent; clients and services compare checksums of their own on the way."""
    there = (await call(system, "info", path))["size"]
    if there != size:
        raise OSError(f"{there} of {size} bytes have arrived")


def _secrets(options: dict[str, Any]) -> list[str]:
    found: list[str] = []
    for name, value in options.items():
        if isinstance(value, dict):
            found += _secrets(value)
        elif isinstance(value, str) and len(value) > 5 and _SECRET.search(name):
            found.append(value)
    return found
