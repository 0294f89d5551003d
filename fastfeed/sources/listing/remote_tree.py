"""The images below a folder of remote storage.

S3 is listed page by page; of other storage, a folder at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.sources.listing.file_table import FileTable
from fastfeed.sources.listing.skipped_files import (
    SkippedFiles,
    file_extension,
    is_hidden,
    may_be_hidden,
)
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.filesystem import call, list_files
from fastfeed.storage.reads import Stat, Unread, parse_stat
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.storage import Storage

_WHOLE_S = 3600.0  # that the listing of a folder may take where it comes in one piece
_GROUPS = 4  # of folders for each request in flight: large ones may lie together
_ATTEMPTS = 17  # at each page: about a minute where they fail at once, as a read is given


@dataclass(frozen=True, slots=True)
class _Page:
    files: list[tuple[str, Stat]]  # path below the folder; a size of -1 is not known
    folders: list[str]
    token: str = ""  # that gives the next page


@dataclass(eq=False)
class RemoteTree:
    """Remote storage, walked by the rules of a local disk; links are read like files."""

    root: str
    _storage: Storage
    _extensions: Collection[str]
    _who: str
    at_once: int = 16

    def __post_init__(self) -> None:
        self._extensions = frozenset(e.lower() for e in self._extensions)
        self._requests: set[Future[Any]] = set()
        self._stopped = False

    def top(self, skipped: SkippedFiles) -> Iterator[tuple[list[str], FileTable]]:
        """List folders and images of the first level."""
        empty = True
        for page in self._pages(self.root, deep=False):
            empty = empty and not page.files and not page.folders
            if any(not path for path, _ in page.files):
                raise SourceError(
                    f"{self._who}: {self.root} is not a folder; pass the folder that holds the"
                    " images"
                )
            for folder in page.folders:
                if not folder or is_hidden(folder):
                    skipped.add("(hidden)" if folder else "(no name)", folder or "/")
            folders = [folder for folder in page.folders if folder and not is_hidden(folder)]
            yield folders, self._rows(page.files, "", skipped)
        if empty:
            raise SourceError(
                f"{self._who}: {self.root} does not exist, or holds nothing; pass the folder that"
                " holds the images"
            )

    def groups(self, folders: Sequence[str]) -> list[list[str]]:
        """Neighboring folders for one S3 listing; elsewhere each folder alone."""
        ordered = sorted(folders, key=_key)
        size = 1
        if self._in_pages and len(ordered) > 1:
            first = next(self._pages(self.root, deep=True, after=ordered[0] + "/"))
            on_a_page = {path.partition("/")[0] for path, _ in first.files}.intersection(ordered)
            size = max(len(on_a_page), -(-len(ordered) // (_GROUPS * self.at_once)))
        return [ordered[i : i + size] for i in range(0, len(ordered), size)]

    def below(
        self, folders: Sequence[str], skipped_by_folder: Mapping[str, SkippedFiles]
    ) -> Iterator[tuple[str, FileTable]]:
        """The images below these folders, as storage sorts them: by text."""
        hidden = [""]  # the hidden folder that was met last: it is counted once
        for folder, files in (
            self._by_folder(folders) if len(folders) > 1 else self._of_one(folders[0])
        ):
            yield folder, self._rows(files, folder + "/", skipped_by_folder[folder], hidden)

    def _of_one(self, folder: str) -> Iterator[tuple[str, list[tuple[str, Stat]]]]:
        for page in self._pages(f"{self.root}/{folder}", deep=True):
            yield folder, page.files

    def _by_folder(self, folders: Sequence[str]) -> Iterator[tuple[str, list[tuple[str, Stat]]]]:
        """Files of several folders, skipping what is between them."""
        wanted = set(folders)
        keys = list(map(_key, folders))
        nearest: int | None = 0
        while nearest is not None:
            after = folders[nearest] + "/"
            nearest = None
            for page in self._pages(self.root, deep=True, after=after):
                for folder, files in groupby(page.files, lambda file: file[0].partition("/")[0]):
                    if folder in wanted:
                        below = [(path[len(folder) + 1 :], stat) for path, stat in files]
                        # a folder's own key, or a file of its name
                        yield (folder, [file for file in below if file[0]])
                if not page.files or not page.token:
                    break
                last = page.files[-1][0].partition("/")
                if last[0] in wanted and last[1]:
                    continue
                following = bisect_left(keys, page.files[-1][0].encode("utf-8", "surrogateescape"))
                nearest = following if following < len(keys) else None
                break

    def stop(self) -> None:
        """Cancel pending requests and send no more."""
        self._stopped = True
        for request in list(self._requests):
            request.cancel()

    def _rows(
        self,
        files: list[tuple[str, Stat]],
        above: str,
        skipped: SkippedFiles,
        hidden: list[str] | None = None,
    ) -> FileTable:
        images = []
        for path, stat in files:
            parts = path.split("/") if may_be_hidden(path) else []
            if any(map(is_hidden, parts)):
                first = next(i for i, part in enumerate(parts) if is_hidden(part))
                folder = above + "/".join(parts[: first + 1])
                if hidden is None or folder != hidden[0]:
                    skipped.add("(hidden)", folder)
                if hidden is not None:
                    hidden[0] = folder
            elif path.endswith("/"):
                continue  # what some tools put in place of a folder
            elif (kind := file_extension(path.rpartition("/")[2])) in self._extensions:
                images.append((above + path, stat))
            else:
                skipped.add(kind, above + path)
        return FileTable(
            StringColumn.of_bytes([path.encode("utf-8", "surrogateescape") for path, _ in images]),
            np.array([stat.size for _, stat in images], np.int64),
            StringColumn.of_bytes(
                [stat.version.encode("utf-8", "surrogateescape") for _, stat in images]
            ),
        )

    @property
    def _in_pages(self) -> bool:
        return self.root.partition("://")[0] in ("s3", "s3a")

    def _pages(self, address: str, deep: bool, after: str = "") -> Iterator[_Page]:
        """Pages of a listing; the first follows `after`, a path below the address."""
        policy = replace(self._storage.policy, attempts=_ATTEMPTS)
        if self._in_pages:
            look = partial(_s3, after=after)
        else:
            look = _list_page
            policy = replace(policy, deadline_s=_WHOLE_S, attempt_s=_WHOLE_S, hedge=False)
        token = ""
        while True:
            page = self._request(address, partial(look, deep=deep, token=token), policy)
            yield page
            if not page.token:
                return
            token = page.token

    def _request(
        self, address: str, question: Callable[[Any, str], Awaitable[_Page]], policy: RetryPolicy
    ) -> _Page:
        request = self._storage.submit(address, question, policy)
        self._requests.add(request)
        if self._stopped:  # since before it was among those to cancel
            request.cancel()
        try:
            page = request.result()
        except CancelledError:
            raise SourceError(f"{self._who}: listing {address} was interrupted") from None
        finally:
            self._requests.discard(request)
        if isinstance(page, Unread):
            if page.reason == "not_found":
                return _Page([], [])
            raise SourceError(f"{self._who}: cannot list {address}: {page.detail or page.reason}")
        return page


def trimmed(address: str) -> str:
    """An address of a folder without a slash at its end."""
    return address if address.endswith("://") else address.rstrip("/")


def _key(folder: str) -> bytes:
    """A folder's place among the keys of a bucket."""
    return f"{folder}/".encode("utf-8", "surrogateescape")


async def _s3(system: Any, path: str, deep: bool, token: str, after: str) -> _Page:
    bucket, key, _ = system.split_path(path)
    prefix = key.rstrip("/") + "/" if key else ""
    more = (
        {"ContinuationToken": token} if token else {"StartAfter": prefix + after} if after else {}
    )
    more |= {} if deep else {"Delimiter": "/"}
    await system.set_session()
    # every object has a date that is not needed; the client would take longer to read these than
    # for all else
    system.session.get_component("response_parser_factory").set_parser_defaults(
        timestamp_parser=_date
    )
    response = await system._call_s3(
        "list_objects_v2", Bucket=bucket, Prefix=prefix, **more, **system.req_kw
    )
    files = [
        (entry["Key"][len(prefix) :], Stat(entry["Size"], entry["ETag"].strip('"')))
        for entry in response.get("Contents", ())
        if entry["Key"] != prefix  # what some tools put in place of a folder
    ]
    folders = [entry["Prefix"][len(prefix) : -1] for entry in response.get("CommonPrefixes", ())]
    return _Page(files, folders, response.get("NextContinuationToken", ""))


def _date(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (AttributeError, ValueError):  # a number, or a date as in headers
        from botocore.utils import parse_timestamp

        return parse_timestamp(text)


async def _list_page(system: Any, path: str, deep: bool, token: str) -> _Page:
    if deep:
        response = (await list_files(system, path)).values()
    else:
        response = await call(system, "ls", path, detail=True)
    files = []
    folders = []
    for info in sorted(response, key=lambda info: info["name"]):
        name = info["name"][len(path) :].strip("/") if info["name"].startswith(path) else None
        if info["type"] == "directory" and name:
            folders.append(name)
        elif name is not None:
            # the size of a link, as SFTP has them, is not that of what it leads to
            sized = info["type"] == "file" and info.get("size") is not None
            files.append((name, parse_stat(info) if sized else Stat(-1, "")))
    return _Page(files, folders)
