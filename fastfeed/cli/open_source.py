"""The source that a command's argument means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastfeed.errors import ConfigError
from fastfeed.sources.detect import kind_of

if TYPE_CHECKING:
    from fastfeed.sources.base import Source

__all__ = ["kind_of", "open_source", "storage_options"]


def open_source(source: str, label: str | None, options: list[str], image: str | None = None) -> Source:
    """Open shards, a table, a folder, or what `fastfeed preprocess` has written; without a label none is looked for,
    but what a job has written has those that it has."""
    from fastfeed.preprocess.inputs.formats import ColumnNames, open_shards
    from fastfeed.preprocess.inputs.previous_job import open_previous_job
    from fastfeed.storage.storage import Storage

    storage = Storage(storage_options(options))
    output = open_previous_job(source, storage, ColumnNames(label, image, ""))
    if output is not None:
        return output.source
    kind = kind_of(source)
    if kind == "folder":
        from fastfeed.sources.folder import ImageFolder

        return ImageFolder(source, labeled=label is not None, storage=storage)
    if kind == "table":
        from fastfeed.sources.table import Table

        return Table(source, image=image or "path", label=label, storage=storage)
    return open_shards(kind, source, ColumnNames(label or "", image, ""), (), storage)[0]


def storage_options(given: list[str], option: str = "--storage-option") -> dict[str, object]:
    """`name=value` of the command line as fsspec takes them; true, false and numbers are not texts."""
    options: dict[str, object] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise ConfigError(f"{option} must be name=value, such as anon=true, got {item!r}")
        options[name] = {"true": True, "false": False}.get(value.lower(), int(value) if value.isdigit() else value)
    return options
