"""Detects what kind of source a path or address is."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from fastfeed.sources.listing.local_tree import IMAGE_EXTENSIONS
from fastfeed.storage.byte_range import is_local

__all__ = ["kind_of"]

_TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")
_SHARDS = {".mds": "mds", ".tar": "tar", ".tfrecord": "tfrecord", ".parquet": "table", ".npy": "raw"}
_SPLIT = re.compile(r"[0-9*?}]-of-[0-9]{2,}$")  # train-00000-of-01024, train-*-of-01024
_MOST = 10_000  # files of a folder that are looked at


def kind_of(uri: str) -> str:
    """ "tar", "tfrecord", "mds", "raw", "table" or "folder": by the contents of a local folder, else by the name."""
    name = os.path.basename(uri.rstrip("/")).lower()
    if is_local(uri) and os.path.isdir(uri):
        if kind := _inside(Path(uri)):
            return kind
    elif name.endswith(_TABLES):
        return "table"
    if name == "index.json":
        return "mds"
    parts = name.replace("{", ".").replace("*", ".").split(".")
    for kind, part in (("tar", "tar"), ("tfrecord", "tfrecord"), ("mds", "mds"), ("raw", "npy")):
        if part in parts or (kind == "tfrecord" and kind in name):
            return kind
    return "tfrecord" if _SPLIT.search(name) else "folder"


def _inside(folder: Path) -> str:
    """The kind, by the files in a folder; "" if they do not tell. With both images and shards it is "folder"."""
    if _is_mds(folder / "index.json"):
        return "mds"
    kinds: set[str] = set()
    folders = False
    try:
        with os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(_MOST), strict=False):
                suffix = os.path.splitext(entry.name)[1].lower()
                if entry.name.startswith((".", "_")):
                    continue
                if entry.is_dir():
                    folders = True
                elif suffix in IMAGE_EXTENSIONS:
                    return "folder"
                elif suffix in _SHARDS:
                    kinds.add(_SHARDS[suffix])
    except OSError:  # reported when the folder is listed
        return ""
    return kinds.pop() if len(kinds) == 1 and not folders else ""


def _is_mds(index: Path) -> bool:
    try:
        with index.open("rb") as file:
            content = json.loads(file.read(1 << 26))
        return isinstance(content, dict) and content.get("version") == 2 and isinstance(content.get("shards"), list)
    except (OSError, ValueError, RecursionError):
        return False
