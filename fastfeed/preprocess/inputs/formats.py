"""Shards and tables opened with what is usual there: which column is the image, the label, the caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.inputs.peek_columns import peek_columns
from fastfeed.sources.base import Source
from fastfeed.sources.shards.base import Paths
from fastfeed.storage.storage import Storage

__all__ = ["ColumnNames", "normalize_names", "open_shards", "resolve_columns"]

# by kind: what is taken where nothing is asked for; the first that is there
_IMAGES = {
    "tfrecord": ("image/encoded", "image", "image_raw", "jpg", "jpeg"),
    "mds": ("image", "jpg", "jpeg", "png"),
    "table": ("path", "image", "file_name", "filename", "file", "image_path", "url"),
}
_LABELS = {
    "tar": ("cls",), "tfrecord": ("image/class/label", "label", "class"), "mds": ("label", "cls"),
    "table": ("label",),
}  # fmt: skip
_CAPTIONS = {
    "tar": ("txt", "caption"), "tfrecord": ("image/caption", "caption", "text"), "mds": ("caption", "text"),
    "table": ("caption", "text"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Names of columns, members, or features; None: what is usual there, "" none."""

    label: str | None = None
    image: str | None = None
    caption: str | None = None


def resolve_columns(kind: str, place: Paths, asked: ColumnNames, storage: Storage) -> ColumnNames:
    """The same with what is usual filled in; "" where there is nothing of the kind."""
    if None not in (asked.label, asked.image, asked.caption):
        return asked
    there = peek_columns(kind, place, storage)
    image = asked.image or _first(_IMAGES.get(kind, ()), there)
    if not image and kind in _IMAGES:
        raise ConfigError(
            f"cannot tell which column of {_shown(place)} holds the images, it has {', '.join(there) or 'none'}; "
            "pass image='its name'"
        )
    label = _first(_LABELS[kind], there) if asked.label is None else asked.label
    caption = _first(_CAPTIONS[kind], there) if asked.caption is None else asked.caption
    return ColumnNames(label, image, (*normalize_names(kind, [caption]), "")[0])


def open_shards(
    kind: str,
    place: Paths,
    asked: ColumnNames,
    columns: Sequence[str],
    storage: Storage,
    progress: bool | None = None,
    classes: Sequence[str] | None = None,
) -> tuple[Source, ColumnNames]:
    """The source, and what was taken for what."""
    if kind == "raw":
        from fastfeed.sources.raw import RawShards

        return RawShards(place, classes=classes or (), storage=storage), ColumnNames()
    found = resolve_columns(kind, place, asked, storage)
    open_one = partial(_open, kind, place, columns=columns, storage=storage, progress=progress, classes=classes)
    if asked.label is None and found.label:
        try:
            source = open_one(found)
            if bool(np.any(source.label(np.arange(len(source))) >= 0)):
                return source, found
        except SourceError:  # no sample has one; what else is wrong, the next line will say
            pass
        found = replace(found, label="")
    return open_one(found), found


def _open(
    kind: str,
    place: Paths,
    found: ColumnNames,
    columns: Sequence[str],
    storage: Storage,
    progress: bool | None,
    classes: Sequence[str] | None,
) -> Source:
    label = found.label or None
    wanted = normalize_names(kind, [name for name in (found.caption, *columns) if name])
    given: dict[str, Any] = {"label": label, "storage": storage, "classes": classes if label else None}
    given["columns"] = list(dict.fromkeys(_whole(kind, name) for name in wanted))
    if kind == "tar":
        from fastfeed.sources.tar import TarShards

        return TarShards(place, progress=progress, **given)
    given["image"] = found.image
    if kind == "tfrecord":
        from fastfeed.sources.tfrecord import TFRecords

        return TFRecords(place, progress=progress, **given)
    if kind == "mds":
        from fastfeed.sources.mds import MDSShards

        return MDSShards(place, progress=progress, **given)
    from fastfeed.sources.table import Table

    return Table(place, **given)


def normalize_names(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """Members of tars have extensions in lower case, without a dot in front; "json:a.b" is a field of one."""
    if kind != "tar":
        return tuple(names)
    parts = [name.partition(":") for name in names]
    return tuple(extension.lower().lstrip(".") + colon + path for extension, colon, path in parts)


def _whole(kind: str, name: str) -> str:
    """The column that has this field."""
    return name.partition(":")[0] if kind in ("tar", "mds") else name


def _first(usual: Sequence[str], there: Sequence[str]) -> str:
    return next((name for name in usual if name in there), "")


def _shown(place: Paths) -> str:
    return str(place) if isinstance(place, str) else f"{len(list(place))} files"  # type: ignore[arg-type]
