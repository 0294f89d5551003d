"""A bucket, or any URL that fsspec writes to, as a target.

Files are built locally and uploaded, the record last. An object becomes visible when its upload is
complete.
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
from typing import Any, ClassVar, TypeVar

from fastfeed.errors import ConfigError, FastfeedError, TargetError
from fastfeed.preprocess.model.layout import TEMPORARY
from fastfeed.preprocess.model.record import ShardFile
from fastfeed.preprocess.targets.base import (
    RERUN_HINT,
    Attempt,
    LinkedFile,
    Target,
    outside,
    remove_tree,
    write_error,
)
from fastfeed.preprocess.targets.lock import has_ended, temporary_name
from fastfeed.printable import warn
from fastfeed.storage.event_loop import results
from fastfeed.storage.filesystem import call, list_files
from fastfeed.storage.reads import Unread
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.storage import Storage

T = TypeVar("T")

POLICY = RetryPolicy(
    deadline_s=180,
    refused_s=60,
    patience_s=180,
    attempt_s=60,
    min_rate=1e6,
    max_backoff_s=15,
    hedge=False,
)
# of commands that only look
INSPECT = replace(POLICY, deadline_s=30, refused_s=5, patience_s=30, attempt_s=15)
_LISTING_S = 3600.0  # for a listing, which takes many requests
_SPOOL = "fastfeed-spool-"
# here "not found" for a listing means that the bucket is missing
_BUCKETS = ("s3", "s3a", "gs", "gcs")
_READ_ONLY = ("http", "https", "data", "github", "git", "zip", "tar", "libarchive")
_SECRET = re.compile("key|secret|token|pass|credential|sas|connection_string", re.IGNORECASE)


class RemoteTarget(Target):
    """Objects below a URL; options may hold secrets, which are never shown or written."""

    is_local: ClassVar[bool] = False

    def __init__(self, url: str, options: dict[str, Any], policy: RetryPolicy = POLICY) -> None:
        # as named by the user, without a password
        self.text = re.sub(r"(?<=://)([^/@:]*):[^/]*@", r"\1:...@", url)
        self.url = url.rstrip("/")  # with a password, if it has one
        self.policy = policy
        self.storage = Storage(options, policy=policy)
        self._protocol = url.partition("://")[0]
        self._has_warned = False  # that the service does not compare

    def __repr__(self) -> str:
        return f"RemoteTarget({self.text!r})"

    def read(self, name: str) -> bytes | None:
        result = self._request(name, lambda system, path: call(system, "cat_file", path))
        if isinstance(result, Unread) and result.reason == "not_found":
            return None
        return self._checked(result, f"read {name} in {self.text}")

    def write(self, name: str, content: bytes) -> None:
        """Write a small object and check its size."""

        async def put(system: Any, path: str) -> None:
            await call(system, "pipe_file", path, content)
            await _check(system, path, len(content))

        self._checked(self._request(name, put, len(content)), f"write {name} to {self.text}")

    def swap(self, name: str, content: bytes, before: bytes | None) -> bool:
        """Write a small object whose content is `before`, None for none; False if it is another.

        S3 compares the ETag as it writes; a service with its protocol that cannot is warned of. Of
        other services the content is read, and then written.
        """
        if self.read(name) != before:
            return False
        is_compared = True

        async def swapped(system: Any, path: str) -> bool:
            nonlocal is_compared
            conditions: dict[str, str] = {}
            if self._protocol in ("s3", "s3a"):
                system.invalidate_cache()
                tag = None if before is None else (await call(system, "info", path))["ETag"]
                conditions = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
            if before is not None and (now := await call(system, "cat_file", path)) != before:
                return now == content  # of an attempt before
            try:
                await call(system, "pipe_file", path, content, **conditions)
            except OSError as error:
                if conditions and error.errno == errno.ENOSYS:
                    is_compared = False
                    await call(system, "pipe_file", path, content)
                elif conditions and await call(system, "exists", path):
                    now = await call(system, "cat_file", path)
                    if now == before:
                        raise
                    return now == content
                else:
                    raise
            await _check(system, path, len(content))
            return True

        result = self._request(name, swapped, len(content))
        is_swapped = self._checked(result, f"write {name} to {self.text}")
        if not is_compared and not self._has_warned:
            self._has_warned = True
            warn(
                f"{self.text}: this service cannot compare objects as it writes them, so of two"
                f" processes that change {name} at the same moment one may undo the other's change;"
                " run one command on this job at a time",
                stacklevel=3,
            )
        return is_swapped

    def place(self, attempt: Attempt, written: Sequence[ShardFile]) -> None:
        """Upload the files of an attempt, and check their sizes."""
        for file, part in zip(attempt.files, written, strict=True):
            self._send(part, file.path, isinstance(file, LinkedFile))

    def link(self, source: object, name: str, path: str) -> str | None:
        """URL of an object that the same service holds, to be copied there; else None."""
        if not isinstance(source, RemoteTarget) or source._protocol != self._protocol:
            return None
        return source.path(name) if source.storage.options == self.storage.options else None

    def _send(self, part: ShardFile, file: str, is_object: bool) -> None:
        async def put(system: Any, path: str) -> None:
            if is_object:
                await call(system, "cp_file", system._strip_protocol(file), path)
            else:
                await call(system, "put_file", file, path)
            await _check(system, path, part.bytes)

        result = self._request(part.name, put, part.bytes)
        self._checked(result, f"write {part.name} to {self.text}")

    def write_record(self, attempt: Attempt, name: str, content: bytes) -> None:
        self.write(name, content)

    def files(self, folder: str = "") -> dict[str, int]:
        return {
            folder + path: size
            for path, size in self._all(folder).items()
            if path.partition("/")[0] != TEMPORARY
        }

    def remove(self, name: str) -> None:
        result = self._request(name, lambda system, path: call(system, "rm_file", path))
        if not (isinstance(result, Unread) and result.reason == "not_found"):
            self._checked(result, f"remove {name} from {self.text}")

    def sweep(self, everything: bool = False) -> int:
        """Remove temporary folders of ended processes of this machine, or of all processes."""
        top = tempfile.gettempdir()
        swept = 0
        for name in os.listdir(top):
            mark, _, owner = name.removeprefix(_SPOOL).partition(".")
            own = has_ended(owner) or (everything and mark == self._mark)
            if name.startswith(_SPOOL) and own:
                with suppress(OSError):  # another user's
                    remove_tree(os.path.join(top, name))
                    swept += 1
        return swept

    def free_bytes(self) -> int | None:
        """None: unknown for object stores."""
        return None

    def check_writable(self) -> None:
        """Write and remove a test object."""
        name = f"{TEMPORARY}/{temporary_name()}"
        self._checked(
            self._request(name, lambda system, path: call(system, "pipe_file", path, b"")),
            f"write to {self.text}",
        )
        # stays if removing is forbidden
        self._request(name, lambda system, path: call(system, "rm_file", path))

    def check_exists(self) -> None:
        """ConfigError if nothing is stored below the URL."""
        if not self._all():
            raise ConfigError(
                f"there is nothing at {self.text}; pass the URL that a job was written to"
            )

    def make_temporary(self) -> str:
        """Create a local folder for files to upload. OSError."""
        path = os.path.join(tempfile.gettempdir(), f"{_SPOOL}{self._mark}.{temporary_name()}")
        os.mkdir(path, 0o700)
        return path

    def write_error_for(self, error: OSError, name: str) -> TargetError:
        way = f"{tempfile.gettempdir()} on its way to {self.text} (TMPDIR names another folder)"
        return write_error(error, f"write {name} to {way}")

    @property
    def _mark(self) -> str:
        return hashlib.sha256(self.url.encode()).hexdigest()[:8]

    def _all(self, folder: str = "") -> dict[str, int]:
        policy = replace(self.policy, deadline_s=_LISTING_S, attempt_s=_LISTING_S)
        root = ""

        async def request(system: Any, path: str) -> dict[str, dict[str, Any]]:
            nonlocal root
            root = path.rstrip("/") + "/"
            system.invalidate_cache()
            return await list_files(system, path)

        result = self._run(f"{self.url}/{folder}".rstrip("/"), request, policy)
        is_missing = isinstance(result, Unread) and result.reason == "not_found"
        if is_missing and (folder or self._protocol not in _BUCKETS):
            return {}
        infos = self._checked(result, f"list {self.text}")
        files = {path: info for path, info in infos.items() if info.get("type", "file") == "file"}
        return {
            path[len(root) :]: info["size"] for path, info in files.items() if path.startswith(root)
        }

    def path(self, name: str) -> str:
        if any(part in ("", ".", "..") for part in name.split("/")):
            raise outside(name)
        return f"{self.url}/{name}"

    def _request(self, name: str, request: Callable[[Any, str], Any], size: int = 0) -> Any:
        more = size / self.policy.min_rate
        times = {"attempt_s": self.policy.attempt_s + more}
        times["deadline_s"] = self.policy.deadline_s + 3 * more
        return self._run(self.path(name), request, replace(self.policy, **times))

    def _run(self, url: str, request: Callable[[Any, str], Any], policy: RetryPolicy) -> Any:
        try:
            (result,) = results([self.storage.submit(url, request, policy)])
        except FastfeedError as error:  # connecting failed
            raise type(error)(self._without_secrets(str(error).replace(url, self.url))) from None
        return result

    def _checked(self, result: T | Unread, action: str) -> T:
        if not isinstance(result, Unread):
            return result
        detail = result.detail or result.reason
        bucket = self.url.partition("://")[2].partition("/")[0]
        if result.reason == "not_found":
            what = "bucket" if self._protocol in _BUCKETS else "place"
            detail = f"there is no {what} {bucket}"
            advice = "create it, or correct the name"
            code = errno.ENOENT
        else:
            code = errno.EIO
            advice = "check that the service is up"
            if detail.startswith(("permission denied", "no credentials")):
                code = errno.EACCES
                advice = "check the permissions of the key"
            # the advice of every client
            detail = detail.replace("pass storage=", "pass target_storage=")
        text = f"cannot {action}: {detail}; {advice}, {RERUN_HINT}"
        raise TargetError(self._without_secrets(text), code)

    def _without_secrets(self, text: str) -> str:
        """Remove secrets: clients may repeat their options in errors."""
        for secret in _secrets(self.storage.options):
            text = text.replace(secret, "...")
        return text.replace(self.url, self.text)


def open_remote(url: str, options: dict[str, Any], writes: bool) -> RemoteTarget:
    """Open a URL that is writable, or without `writes` one that holds something."""
    protocol = url.partition("://")[0]
    if protocol in _READ_ONLY:
        raise ConfigError(
            f"{protocol}:// is read-only, got {url}; use a folder, or a bucket such as s3://...",
            field="target",
        )
    if not url.partition("://")[2].strip("/"):
        raise ConfigError(
            f"the target must name a bucket and a folder in it, got {url}; as in"
            f" {protocol}://bucket/train",
            field="target",
        )
    target = RemoteTarget(url, options, POLICY if writes else INSPECT)
    (target.check_writable if writes else target.check_exists)()
    return target


async def _check(system: Any, path: str, size: int) -> None:
    """Raise OSError unless all bytes have arrived; clients compare checksums."""
    stored = (await call(system, "info", path))["size"]
    if stored != size:
        raise OSError(f"{stored} of {size} bytes have arrived")


def _secrets(options: dict[str, Any]) -> list[str]:
    values: list[str] = []
    for name, value in options.items():
        if isinstance(value, dict):
            values += _secrets(value)
        elif isinstance(value, str) and len(value) > 5 and _SECRET.search(name):
            values.append(value)
    return values
