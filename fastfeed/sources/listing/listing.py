"""Lists all images below a root, into memory or into a file that makes listing again unnecessary.

Folders of remote storage are listed many at a time. S3 gives pages of a thousand images, of several
folders where these are small; other storage gives all of a folder, which is then held in memory as
fsspec has it.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.sources.listing.file_table import FileTable, in_pieces, unpacked
from fastfeed.sources.listing.journal import FileJournal, Journal, MemoryJournal
from fastfeed.sources.listing.listing_file import ARRAYS, check_suffix, write_listing
from fastfeed.sources.listing.local_tree import IMAGE_EXTENSIONS, LocalTree
from fastfeed.sources.listing.remote_tree import RemoteTree, trimmed
from fastfeed.sources.listing.skipped_files import SkippedFiles
from fastfeed.sources.progress import ScanProgress, progress_bar
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.reads import is_local
from fastfeed.storage.storage import Storage

Tree = LocalTree | RemoteTree

_LISTED = "folders, {task.fields[images]:,} images, {task.fields[rate]:,.0f}/s"


@dataclass(frozen=True, slots=True)
class ListingSummary:
    """Counts of a listing that was written."""

    root: str
    images: int
    size: int  # bytes of all images whose size is known
    classes: dict[str, int]  # images in each folder below the root that has some
    folders: int  # below the root
    resumed: int  # of them, listed by an earlier run
    skipped: Counter[str]  # by extension


def list_images(
    root: str,
    out: str,
    *,
    storage: Storage,
    extensions: Sequence[str] = IMAGE_EXTENSIONS,
    at_once: int = 16,
    progress: bool | None = None,
    who: str = "list_images",
    allow_links: Sequence[str] | None = None,
) -> ListingSummary:
    """Write all images below a folder to a file that ImageFolder and Table can read.

    `out` ends in .parquet, .csv or .jsonl. What is listed is kept in `out`.partial, folder by
    folder, until all is: a listing that is interrupted resumes from there. Names that are not UTF-8
    are left out, but not of a file that ends in ARRAYS, which is for ImageFolder alone.
    `allow_links`: as in LocalTree.
    """
    check_suffix(out, who)
    kinds = sorted({e.lower() for e in extensions})
    tree: Tree
    facts: dict[str, Any] = {"extensions": kinds} | (
        {} if allow_links is None else {"allow_links": sorted(allow_links)}
    )
    if is_local(root):
        root = os.path.abspath(root)
        tree = LocalTree(root, kinds, who, stats=True, allow_links=allow_links)
    else:
        root = trimmed(root)
        tree = RemoteTree(root, storage, kinds, who, at_once=at_once)
    facts["root"] = root
    with _disk(who, out), progress_bar(f"listing {root}", progress, _LISTED) as count:
        partial = FileJournal(out + ".partial", facts)
        is_complete = False
        try:
            resumed = len(partial.ends.keys() - {""})
            folders = _top(tree, partial, count)
            _walk(tree, folders, partial, count)
            is_complete = not any(end.images for end in partial.ends.values())
            if is_complete:
                raise SourceError(
                    f"{who}: no images below {root}{_skipped_text(_skipped(partial))}"
                )
            count.now(f"writing {out}")
            summary = _write(partial, folders, root, resumed, out)
            is_complete = True
        finally:
            partial.close(is_complete or not partial.ends)
    return summary


@contextlib.contextmanager
def _disk(who: str, out: str) -> Iterator[None]:
    """Raise errors of the disk as SourceError."""
    try:
        yield
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(f"{who}: cannot write {out}: {error}") from error


def _write(
    journal: Journal, folders: Sequence[str], root: str, resumed: int, out: str
) -> ListingSummary:
    skipped, images, size = _skipped(journal), Counter[str](), 0
    classes: list[str] = []

    def labeled() -> Iterator[FileTable]:
        nonlocal size
        for folder, listed in _merged(journal, folders):
            rows = listed if out.lower().endswith(ARRAYS) else _utf8(listed, skipped)
            if folder and len(rows) and not images[folder]:
                classes.append(folder)
            images[folder] += len(rows)
            assert rows.sizes is not None
            size += int(np.maximum(rows.sizes, 0).sum())
            yield replace(
                rows, labels=np.full(len(rows), len(classes) - 1 if folder else -1, np.int32)
            )

    write_listing(out, in_pieces(labeled()), classes, skipped, root)
    return ListingSummary(
        root,
        images.total(),
        size,
        {name: images[name] for name in classes},
        len(folders),
        resumed,
        skipped.counts,
    )


def _utf8(rows: FileTable, skipped: SkippedFiles) -> FileTable:
    """Drop images whose names a table cannot hold."""
    if not len(rows) or rows.paths.blob.max(initial=0) < 128:
        return rows
    texts = enumerate(unpacked(rows.paths))
    bad = [row for row, text in texts if text.decode(errors="ignore").encode() != text]
    if not bad:
        return rows
    skipped.add("(not UTF-8)", rows.paths[bad[0]], len(bad))
    return rows.take(np.delete(np.arange(len(rows)), bad))


def gather(
    tree: Tree,
    choose: Callable[[Sequence[str], int], Sequence[str]],
    include_loose: bool,
    progress: bool | None,
    title: str,
) -> tuple[FileTable, list[str], SkippedFiles]:
    """Images in memory, labeled by folder; the folders' names; what was left out.

    `choose` selects and orders the folders, given their names and the number of images directly in
    the root. `include_loose` includes these images; then all are in the order of paths.
    """
    journal = MemoryJournal()
    with progress_bar(title, progress, _LISTED) as count:
        names = _top(tree, journal, count)
        loose = journal.ends[""]
        if loose.images and not include_loose:
            loose.skipped.add("(no class)", loose.more["first"], loose.images)
        folders = list(choose(names, loose.images))
        _walk(tree, folders, journal, count)
    number = {folder: i for i, folder in enumerate(folders)} | {"": -1}
    if include_loose:
        walked = _merged(journal, folders)
    else:
        walked = ((folder, rows) for folder in folders for rows in journal.rows(folder))
    parts = [FileTable(StringColumn.of_bytes([]), labels=np.empty(0, np.int32))]
    for folder, rows in walked:
        parts.append(replace(rows, labels=np.full(len(rows), number[folder], np.int32)))
    return FileTable.joined(parts), folders, _skipped(journal)


def _skipped_text(skipped: SkippedFiles) -> str:
    summary = skipped.summary()
    hint = skipped.hint()
    if "(link outside)" in skipped.counts:
        hint += "; allow the folders that links lead to, if you trust these links (--allow-path)"
    return f"; left out: {summary}{hint}" if summary else ""


def _skipped(journal: Journal) -> SkippedFiles:
    total = SkippedFiles()
    for folder in sorted(journal.ends):
        # folders may end in any order, the examples are always the same
        total.update(journal.ends[folder].skipped)
    return total


def _top(tree: Tree, journal: Journal, count: ScanProgress) -> list[str]:
    """The folders below the root, sorted; images directly in the root go to the journal."""
    if "" in journal.ends:
        return journal.ends[""].more["folders"]
    skipped = SkippedFiles()
    folders = list[str]()
    first = ""
    for names, rows in tree.top(skipped):
        folders += names
        journal.add("", rows)
        first = first or (rows.paths[0] if len(rows) else "")
        count.add(images=len(rows))
    folders.sort(key=os.fsencode)
    journal.end("", skipped, folders=folders, first=first)
    return folders


def _walk(tree: Tree, folders: Sequence[str], journal: Journal, count: ScanProgress) -> None:
    """List these folders, except those already listed."""

    def list_group(group: list[str]) -> None:
        skipped_by_folder = {folder: SkippedFiles() for folder in group}
        ended = 0

        def end(until: int) -> None:
            nonlocal ended
            for folder in group[ended:until]:
                journal.end(folder, skipped_by_folder[folder])
                count.add(1)
            ended = max(ended, until)

        for folder, rows in tree.below(group, skipped_by_folder):
            end(group.index(folder))
            journal.add(folder, rows)
            count.add(images=len(rows))
        end(len(group))

    remaining = [folder for folder in folders if folder not in journal.ends]
    count.begin(len(folders), len(folders) - len(remaining))
    groups = tree.groups(remaining)
    if tree.at_once == 1:
        for group in groups:
            list_group(group)
        return
    pool = ThreadPoolExecutor(tree.at_once, thread_name_prefix="fastfeed-list")
    try:
        for work in as_completed([pool.submit(list_group, group) for group in groups]):
            work.result()
    except BaseException:
        # Ctrl-C as well: folders under way stop listing, or the pool's end would wait for them
        tree.stop()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _merged(journal: Journal, folders: Sequence[str]) -> Iterator[tuple[str, FileTable]]:
    """All images in the order of their paths, including those directly in the root."""
    parts = journal.rows("")
    loose = FileTable(StringColumn.of_bytes([]))
    for folder in (*folders, None):
        while True:  # images of the root that come before the folder; after the last one, all
            some = loose
            last = len(some)
            if folder is not None:
                name = os.fsencode(folder)
                last = bisect_left(
                    range(last), name, key=lambda row, some=some: os.fsencode(some.paths[row])
                )
            if last:
                yield "", some.cut(0, last)
            loose = some.cut(last, len(some))
            if last < len(some) or (more := next(parts, None)) is None:
                break
            loose = more
        if folder is not None:
            for rows in journal.rows(folder):
                yield folder, rows
