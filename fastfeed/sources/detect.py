"""Detects what kind of source a path or address is."""

from __future__ import annotations

import glob
import json
import os
from itertools import chain, islice
from pathlib import Path

from fastfeed.errors import ConfigError
from fastfeed.sources.listing.local_tree import IMAGE_EXTENSIONS
from fastfeed.sources.listing.skipped_files import is_hidden
from fastfeed.storage.expand import SPLIT, expand_braces
from fastfeed.storage.reads import is_local
from fastfeed.system.descriptors import open_regular

_TABLES = (".parquet", ".arrow", ".csv", ".tsv", ".jsonl", ".ndjson")
_SHARDS = {
    ".mds": "mds",
    ".tar": "tar",
    ".tfrecord": "tfrecord",
    ".parquet": "table",
    ".arrow": "table",
    ".npy": "raw",
}
_MOST = 10_000  # files of a folder, or of a pattern, that are looked at


def detect_kind(uri: str) -> str:
    """Kind of source: "tar", "tfrecord", "mds", "raw", "table", "hugging_face" or "folder"."""
    uri = uri.removeprefix("file://")
    is_folder = is_local(uri) and os.path.isdir(uri)
    kind = (_inside(Path(uri)) if is_folder else "") or _by_name(uri, is_folder)
    if not kind and is_local(uri) and not os.path.lexists(uri) and any(c in uri for c in "*?[{"):
        kind = _of_matches(uri)
    return kind or "folder"


def _by_name(uri: str, is_folder: bool = False) -> str:
    """The kind; "" if a name does not tell."""
    name = os.path.basename(uri.rstrip("/")).lower()
    if name.endswith(_TABLES) and not is_folder:
        return "table"
    if name == "index.json":
        return "mds"
    parts = name.replace("{", ".").replace("*", ".").split(".")
    for kind, part in (("tar", "tar"), ("tfrecord", "tfrecord"), ("mds", "mds"), ("raw", "npy")):
        if part in parts or (kind == "tfrecord" and kind in name):
            return kind
    return "tfrecord" if SPLIT.search(name) else ""


def _of_matches(pattern: str) -> str:
    """The kind of the files that match a pattern; "" if there are several, or it is not known."""
    try:
        paths = chain.from_iterable(map(glob.iglob, expand_braces(pattern)))
        kinds = {_by_name(path) for path in islice(paths, _MOST) if os.path.isfile(path)}
    except ConfigError:  # reported when it is opened
        return ""
    return kinds.pop() if len(kinds) == 1 else ""


def _inside(folder: Path) -> str:
    """The kind, by the files in a folder; "" if they do not tell.

    With both images and shards it is "folder".
    """
    if _is_mds(folder / "index.json"):
        return "mds"
    if _is_hugging_face(folder):
        return "hugging_face"
    kinds: set[str] = set()
    folders = False
    try:
        with os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(_MOST), strict=False):
                suffix = os.path.splitext(entry.name)[1].lower()
                if entry.name.startswith("_") or is_hidden(entry.name):
                    continue
                if entry.is_dir():
                    if "=" in entry.name and _inside(Path(entry.path)) == "table":
                        # a part of a table
                        return "table"
                    folders = True
                elif suffix in IMAGE_EXTENSIONS:
                    return "folder"
                elif suffix in _SHARDS:
                    kinds.add(_SHARDS[suffix])
                elif SPLIT.search(entry.name):
                    kinds.add("tfrecord")
    except OSError:  # reported when the folder is listed
        return ""
    return kinds.pop() if len(kinds) == 1 and not folders else ""


def _is_hugging_face(folder: Path) -> bool:
    """Return True for what `datasets` has saved, and for Parquet in the layout of the Hub."""
    if (folder / "dataset_dict.json").is_file():
        return True
    try:
        if (folder / "state.json").is_file():
            return any(islice(folder.glob("*.arrow"), 1))
        if not any(islice(folder.glob("data/*-of-*.parquet"), 1)):
            return False
        folders = (entry.name for entry in islice(folder.iterdir(), _MOST) if entry.is_dir())
        others = (name for name in folders if name != "data" and not is_hidden(name))
        return (folder / "README.md").is_file() or not any(others)
    except OSError:  # reported when the folder is listed
        return False


def _is_mds(index: Path) -> bool:
    try:
        with open(open_regular(index), "rb") as file:
            content = json.loads(file.read(1 << 26))
        return (
            isinstance(content, dict)
            and content.get("version") == 2
            and isinstance(content.get("shards"), list)
        )
    except (OSError, ValueError, RecursionError):
        return False
