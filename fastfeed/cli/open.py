"""The source that a command's argument means."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fastfeed.errors import ConfigError

if TYPE_CHECKING:
    from fastfeed.sources.base import Source

__all__ = ["kind_of", "open_source", "storage_options"]

_TABLES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")


def kind_of(source: str) -> str:
    """ "tar", "tfrecord", "table" or "folder", by the name."""
    name = os.path.basename(source.rstrip("/")).lower()
    if name.endswith(_TABLES):
        return "table"
    for kind in ("tar", "tfrecord"):
        if kind in name.replace("{", ".").replace("*", ".").split(".") or (kind == "tfrecord" and kind in name):
            return kind
    return "folder"


def open_source(source: str, label: str | None, options: list[str], image: str = "path") -> Source:
    """Open shards, a table or a folder; without a label none is looked for."""
    storage, kind = storage_options(options), kind_of(source)
    if kind == "tar":
        from fastfeed.sources.tar import TarShards

        return TarShards(source, label=label, storage=storage)
    if kind == "tfrecord":
        from fastfeed.sources.tfrecord import TFRecords

        return TFRecords(source, label=label, storage=storage)
    if kind == "table":
        from fastfeed.sources.table import Table

        return Table(source, image=image, label=label, storage=storage)
    from fastfeed.sources.folder import ImageFolder

    return ImageFolder(source, labeled=label is not None, storage=storage)


def storage_options(given: list[str], option: str = "--storage-option") -> dict[str, object]:
    """`name=value` of the command line as fsspec takes them; true, false and numbers are not texts."""
    options: dict[str, object] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise ConfigError(f"{option} must be name=value, such as anon=true, got {item!r}")
        options[name] = {"true": True, "false": False}.get(value.lower(), int(value) if value.isdigit() else value)
    return options
