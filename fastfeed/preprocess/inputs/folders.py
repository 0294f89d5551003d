"""Opens a folder of photographs, with its class folders as labels, and keeps its listing with the
job.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.cache_folder import build_lock
from fastfeed.sources.class_names import AmbiguousClasses
from fastfeed.sources.folder import ImageFolder
from fastfeed.sources.listing.listing import list_images
from fastfeed.sources.listing.listing_file import ARRAYS, facts_of
from fastfeed.sources.listing.local_tree import IMAGE_EXTENSIONS
from fastfeed.storage.reads import is_local
from fastfeed.storage.storage import Storage

__all__ = ["EXTENSIONS", "folder_hints", "open_folder"]

EXTENSIONS = (
    *IMAGE_EXTENSIONS,
    ".mpo",
    ".apng",
    ".dib",
    ".jpx",
    ".jpf",
    ".j2c",
    ".jpc",
    ".jxl",
    ".tga",
    ".psd",
)
_LOOKED_AT = 100_000  # photographs, for class folders that cannot be labels
_SPLITS = frozenset({"train", "val", "valid", "validation", "test", "dev"})


def open_folder(
    place: str,
    labeled: bool | None,
    storage: Storage,
    keep: str | None,
    fresh: bool,
    progress: bool | None,
    allow_path: Sequence[str],
) -> ImageFolder:
    """Its photographs, labeled by subfolder, if there are any and all photographs are in them."""
    links = [path for path in allow_path if is_local(path)]
    listing = (
        None
        if keep is None
        else _listing(place, keep + "listing" + ARRAYS, storage, fresh, progress, links)
    )

    def opened(labeled: bool) -> ImageFolder:
        with warnings.catch_warnings():  # the report says what is left out
            warnings.filterwarnings("ignore", "ImageFolder: ")
            return ImageFolder(
                place,
                labeled=labeled,
                min_per_class=1,
                extensions=EXTENSIONS,
                listing=listing,
                storage=storage,
                progress=progress,
                allow_links=links,
            )

    if not labeled and labeled is not None:
        return opened(False)
    try:
        folder = opened(True)
    except AmbiguousClasses:
        raise
    except SourceError:  # no subfolders; any other error is raised again below
        return opened(False)
    if folder.left_out["(no class)"]:
        return opened(False)
    if set(folder.classes) <= _SPLITS:
        raise ConfigError(
            f"{place} holds {', '.join(folder.classes)}: these are parts of a data set, not"
            f" classes; preprocess each, {place.rstrip('/')}/{folder.classes[0]} first, or pass an"
            " empty label to take all of them without labels",
            field="label",
        )
    return folder


def folder_hints(folder: ImageFolder) -> tuple[str, ...]:
    """Class folders that cannot be labels."""
    if folder.classes:
        return ()
    parts = [
        os.fsencode(name).partition(b"/")
        for name in folder.paths.take(np.arange(min(len(folder), _LOOKED_AT)))
    ]
    loose, inside = (
        sum(not slash for _, slash, _ in parts),
        sum(bool(slash) for _, slash, _ in parts),
    )
    if not loose or not inside:
        return ()
    return (
        (
            f"the shards will have no labels: some photographs lie directly in {folder.root}, next"
            " to its folders; to have the folders as labels, move these photographs into one"
        ),
    )


def _listing(
    place: str,
    path: str,
    storage: Storage,
    fresh: bool,
    progress: bool | None,
    links: Sequence[str],
) -> str | None:
    """The path of a folder's listing file, which is written if there is none; None if it is of
    another folder.
    """
    root = os.path.abspath(place) if is_local(place) else place.rstrip("/")
    if is_local(place) and not os.path.isdir(root):  # before anything is created
        raise SourceError(
            f"{place} does not exist; name the folder, shards or table that hold the photographs"
        )
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    except OSError as error:
        raise SourceError(
            f"cannot keep the listing of {place} at {path}: {error.strerror}"
        ) from error
    if (
        not fresh
        and _mtime_ns(path) is not None
        and facts_of(path, "ImageFolder").get("root") != root
    ):
        # it may be the same folder under another name, or another one: the job's own listing must
        # stay
        return None
    mtime_before = _mtime_ns(path)
    with build_lock(Path(path)):  # parts of a job may start at the same time
        usable = mtime_before is not None and not fresh
        if (usable or _mtime_ns(path) != mtime_before) and facts_of(path, "ImageFolder").get(
            "root"
        ) == root:
            return path
        list_images(
            root,
            path,
            storage=storage,
            extensions=EXTENSIONS,
            progress=progress,
            who="preprocess",
            allow_links=links,
        )
    return path


def _mtime_ns(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None
