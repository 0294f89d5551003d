"""Opens shards and tables, with default names for the image, label and caption columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.inputs.peek_columns import peek_columns
from fastfeed.sources.access import allow_of
from fastfeed.sources.base import Source
from fastfeed.sources.shards.base import Paths
from fastfeed.sources.shards.labels import LabelKind
from fastfeed.storage.storage import Storage

__all__ = ["ColumnNames", "default_labels", "normalize_names", "open_shards", "resolve_columns"]

# default names by kind of source: the first that exists is used
_IMAGES = {
    "tfrecord": ("image/encoded", "image", "image_raw", "jpg", "jpeg"),
    "mds": ("image", "jpg", "jpeg", "png"),
    "table": ("path", "image", "file_name", "filename", "file", "image_path", "url"),
}
_LABELS = {
    "tar": ("cls",),
    "tfrecord": ("image/class/label", "label", "class"),
    "mds": ("label", "cls"),
    "table": ("label",),
}
_CAPTIONS = {
    "tar": ("txt", "caption"),
    "tfrecord": ("image/caption", "caption", "text"),
    "mds": ("caption", "text"),
    "table": ("caption", "text"),
}


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Names of columns, tar members or features. None: the default name; "": no such column."""

    label: str | None = None
    image: str | None = None
    caption: str | None = None


def default_labels(kind: str) -> tuple[str, ...]:
    """Default names of the label in sources of this kind."""
    return _LABELS.get(kind, ())


def resolve_columns(
    kind: str,
    paths: Paths,
    requested: ColumnNames,
    storage: Storage,
    allow: Mapping[str, Any] | None = None,
) -> ColumnNames:
    """Fill in default names; "" if the source has none of them."""
    if None not in (requested.label, requested.image, requested.caption):
        return requested
    allowed = allow or {}
    folders, hosts, schemes = (
        allowed.get(f"allow_{what}", ()) for what in ("path", "host", "scheme")
    )
    available = peek_columns(kind, paths, storage, allow_of(folders, hosts, schemes, "preprocess"))
    image = requested.image or _first(_IMAGES.get(kind, ()), available)
    if not image and kind in _IMAGES:
        raise ConfigError(
            f"cannot tell which column of {_describe(paths)} holds the images, got"
            f" {', '.join(available) or 'none'}; name it with image (--image)",
            field="image",
        )
    label = _first(_LABELS[kind], available) if requested.label is None else requested.label
    caption = _first(_CAPTIONS[kind], available) if requested.caption is None else requested.caption
    return ColumnNames(label, image, (*normalize_names(kind, [caption]), "")[0])


def open_shards(
    kind: str,
    paths: Paths,
    requested: ColumnNames,
    columns: Sequence[str],
    storage: Storage,
    progress: bool | None = None,
    classes: Sequence[str] | None = None,
    allow: Mapping[str, Any] | None = None,
    label_kind: LabelKind | None = None,
) -> tuple[Source, ColumnNames]:
    """The source, and the column names that were used.

    `allow`: what tables and indexes may name, by argument.

    `label_kind` as in the sources; None is their own default: names of classes in a table.
    """
    if kind == "raw":
        from fastfeed.sources.raw import RawShards

        return RawShards(paths, classes=classes or (), storage=storage), ColumnNames()
    resolved = resolve_columns(kind, paths, requested, storage, allow)
    open_source = partial(
        _open,
        kind,
        paths,
        columns=columns,
        storage=storage,
        progress=progress,
        classes=classes,
        allow=allow or {},
        label_kind=label_kind,
    )
    if requested.label is None and resolved.label:
        try:
            source = open_source(resolved)
            if bool(np.any(source.label(np.arange(len(source))) >= 0)):
                return source, resolved
        except SourceError:  # no sample has a label; any other error is raised again below
            pass
        resolved = replace(resolved, label="")
    return open_source(resolved), resolved


def _open(
    kind: str,
    paths: Paths,
    resolved: ColumnNames,
    columns: Sequence[str],
    storage: Storage,
    progress: bool | None,
    classes: Sequence[str] | None,
    allow: Mapping[str, Any],
    label_kind: LabelKind | None,
) -> Source:
    label = resolved.label or None
    carried = normalize_names(kind, [name for name in (resolved.caption, *columns) if name])
    options: dict[str, Any] = {
        "label": label,
        "storage": storage,
        "classes": classes if label else None,
    }
    options["label_kind"] = label_kind or ("name" if kind == "table" else None)
    options["columns"] = list(dict.fromkeys(_column_of(kind, name) for name in carried))
    if kind == "tar":
        from fastfeed.sources.tar.source import TarShards

        return TarShards(paths, progress=progress, **options | dict(allow))
    options["image"] = resolved.image
    if kind == "tfrecord":
        from fastfeed.sources.tfrecord.source import TFRecords

        return TFRecords(paths, progress=progress, **options)
    if kind == "mds":
        from fastfeed.sources.mds.source import MDSShards

        return MDSShards(paths, progress=progress, **options | dict(allow))
    from fastfeed.sources.table import Table

    return Table(paths, **options | dict(allow))


def normalize_names(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """Normalize tar members to lower-case extensions without a dot; "json:a.b" is a field of a JSON
    member.
    """
    if kind != "tar":
        return tuple(names)
    parts = [name.partition(":") for name in names]
    return tuple(extension.lower().lstrip(".") + colon + path for extension, colon, path in parts)


def _column_of(kind: str, name: str) -> str:
    """The column that contains this field."""
    return name.partition(":")[0] if kind in ("tar", "mds") else name


def _first(candidates: Sequence[str], available: Sequence[str]) -> str:
    return next((name for name in candidates if name in available), "")


def _describe(paths: Paths) -> str:
    return str(paths) if isinstance(paths, str) else f"{len(list(paths))} files"  # type: ignore[arg-type]
