"""Images of a list of paths, with lists of their labels and other values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError, speaking_for
from fastfeed.sources.label_values import LabelKind
from fastfeed.sources.tables.in_memory import label_columns, open_in_memory
from fastfeed.sources.tables.open_table import RequestedColumns
from fastfeed.sources.tables.source import TableSource
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.storage import Storage, open_storage

_PATHS = "paths"


@checked_early
class Files(TableSource):
    """Images by their paths, local or remote, one sample per path.

    The lists are copied. Paths are the program's own, so every file that it may read is allowed;
    paths of a file that comes from elsewhere belong into `Table`, which looks at where they lead.

    Args:
        paths (Sequence[str | os.PathLike[str]]): Paths or addresses of image files: a list, an
            array or a column of a DataFrame. A path that is None or "" is a bad sample.
        labels (Sequence[Any] | None): One per path. Texts are names of classes; integers count
            `classes` from 0; -1 or None is a bad sample. Default: None, no labels.
        columns (Mapping[str, Sequence[Any]] | None): Other values carried to the batch, a list or
            an array for each name: numbers, bools, texts, lists of one length. Default: None.
        label_kind (str | None): "name": integers are names of classes, sorted and numbered as texts
            are; "index": they are labels already; "value": numbers, or lists and arrays of one
            length: float32; "multi": lists of names, or an array (n, classes) of 0 and 1: multi-hot,
            float32 (n, classes); "text": texts; "none": no labels. Default: None, "index" for
            integers and "name" for texts.
        classes (Sequence[str | int] | None): Names of classes in the order of their labels. Default:
            None, the sorted names in `labels`.
        root (str | os.PathLike[str] | None): Folder or address that relative paths begin at.
            Default: None, the working folder.
        storage (dict[str, Any] | Storage | None): Options for fsspec (key, secret, endpoint_url,
            anon ...), or a Storage that several sources share. Default: None.
        cache (str | os.PathLike[str] | Cache | None): Local folder in which what is read from
            remote storage is kept. Default: None, nothing is kept.

    Raises:
        ConfigError: If an argument is wrong, or the lists differ in length.
        SourceError: If there is no path, or values of a list cannot be read.

    Example:
        >>> ff.Files(["a.jpg", "b.jpg"], labels=["cat", "dog"], columns={"year": [2019, 2021]})
        Files(list of paths): 2 images of 2 classes
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str] | None],
        labels: Sequence[Any] | None = None,
        *,
        columns: Mapping[str, Sequence[Any]] | None = None,
        label_kind: LabelKind | None = None,
        classes: Sequence[str | int] | None = None,
        root: str | os.PathLike[str] | None = None,
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
    ) -> None:
        if isinstance(paths, (str, os.PathLike)):
            raise ConfigError.of(
                "Files: paths",
                "a list or an array of paths",
                paths,
                "pass sorted(glob.glob(pattern)), or use ImageFolder for all images of a folder",
            )
        kind = label_kind or ("index" if _are_integers(labels) else "name")
        own, label = label_columns(labels, kind, classes, "Files")
        columns = columns or {}
        table: dict[str, Any] = {_PATHS: paths, **own, **columns}
        if len(table) < 1 + len(own) + len(columns):
            raise ConfigError(
                f"Files: paths, {', '.join(own) or 'labels'} and columns must have different names,"
                f" got columns {', '.join(columns) or 'none'}; give one another name"
            )
        with speaking_for("Files", "Table"):
            requested = RequestedColumns(_PATHS, label, columns=tuple(columns))
            opened = open_in_memory(table, requested, "list of paths")
            self._open(opened, requested, open_storage(storage, cache), root=root, classes=classes)


def _are_integers(labels: Any) -> bool:
    """Return True if the labels of a list or an array are integers."""
    if labels is None:
        return False
    try:
        values = np.asarray(labels)
    except ValueError:  # lists of several lengths
        return False
    if values.dtype.kind != "O":
        return values.dtype.kind in "iub"
    return not any(isinstance(value, str) for value in values.tolist())
