"""Images that a table lists, or holds: CSV, JSON lines, Parquet, or a table in memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError
from fastfeed.sources.access import parse_allow
from fastfeed.sources.label_values import LabelKind, RequestedLabel
from fastfeed.sources.tables.image_files import ImageFiles
from fastfeed.sources.tables.in_memory import is_in_memory, open_in_memory
from fastfeed.sources.tables.open_table import OpenedTable, RequestedColumns
from fastfeed.sources.tables.read_files import Files, find_table
from fastfeed.sources.tables.source import TableSource, parse_memory
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.storage import Storage, open_storage


@checked_early
class Table(TableSource):
    """Images that a table lists or holds, one sample per row: CSV, JSON lines, Parquet, a DataFrame.

    A file may come from elsewhere, so it may not read all that its user can: paths must lie below
    the table's folder or `root`, also behind links; URLs must be https, or of the table's own
    scheme, and of a public host or the table's own. The `allow_` options permit more; other rows
    are bad samples ("not_allowed"). A row without path, image or label is a bad sample, too.

    A table in memory is the program's own, so its paths are trusted. Its columns are copied: later
    changes have no effect.

    Images in Parquet are read by row group. Where these are many and large, pass
    `shuffle=Blocks(...)` to the feed; a warning says with which numbers. Columns of large tables
    are cached in FASTFEED_CACHE.

    Args:
        table (Any): .csv, .tsv (the first line names the columns), .jsonl, .ndjson, .json,
            .parquet or .arrow: a file, a pattern, a folder, or a list of these, local or remote. Folders
            called `name=value` below a folder are columns. Or a table in memory: a pandas or Polars
            DataFrame, a PyArrow Table (and any other with `__arrow_c_stream__`; these and Polars
            need PyArrow), or a dict of lists and arrays.
        image (str | None): Column of paths, URLs, data URIs or images in base64; relative paths
            begin at `root`. In Parquet, also of the images' bytes, or a struct of `bytes` and
            `path`, which is read for rows without bytes; `a.b` is a field of a struct, in every
            column. Default: None, `path` is given instead.
        label (str | Sequence[str] | None): Column of names of classes, texts or integers, or of
            what label_kind says; several columns for label_kind "value" and "multi". Default: None,
            no labels.
        path (str | None): Template of the images' paths, in place of `image`, with names of columns
            in braces: "{folder}/{id}.jpg", "{id:06d}.png". Whole numbers have no decimal point; a
            row that lacks one of the values has no path. Default: None.
        weight (str | None): Column of weights >= 0 in the loss. Default: None, all are 1.
        box (str | Sequence[str] | None): Column of lists [x, y, width, height], or four columns:
            the part of the displayed image that counts, pixels; null is the whole image. Default:
            None.
        columns (Sequence[str]): Columns carried to the batch: numbers, bools, texts, lists of
            numbers of one length as arrays; as objects all other lists and structs, bytes, and
            dates, timestamps (ISO 8601, UTC) and decimals as texts. Null is NaN or "". Default: ().
        label_kind (str): "name": integers are names of classes, sorted and numbered as texts are;
            "index": they are labels already, and `classes` names them. "value": numbers, or lists
            of one length: float32. "multi": lists of names (in CSV as JSON, or separated by
            semicolons or commas), or several columns of 0 and 1, which are the classes: multi-hot,
            float32 (n, classes). "text": texts. "none":
            no labels. Default: "name".
        classes (Sequence[str | int] | None): Names of classes in the order of their labels;
            `train.classes` for validation. Default: None, the sorted names of the data.
        root (str | os.PathLike[str] | None): Folder that relative paths begin at. Default: None,
            the table's folder; of a table in memory, the working folder.
        memory (int | str): Row groups of Parquet kept per process, bytes or a string such as "2GB";
            those of samples under way before others. If these lie in more than fits, some are read
            again. Also the most that columns, or one row group of images, may take unpacked, unless
            100 or 20 times their bytes in the file is more; others are refused before they are
            unpacked; and a row of CSV or JSON may take no more. Default: "512MB".
        storage (dict[str, Any] | Storage | None): Options for fsspec (key, secret, endpoint_url,
            anon ...), or a Storage that several sources share. Default: None.
        cache (str | os.PathLike[str] | Cache | None): Local folder in which what is read from
            remote storage is kept. Default: None, nothing is kept.
        allow_path (str | os.PathLike[str] | Sequence[str | os.PathLike[str]]): Other folders, or
            addresses, below which paths may lead. Default: ().
        allow_host (str | Sequence[str]): Hosts, or `host:port`, that are private, loopback, or of
            other schemes. Default: ().
        allow_scheme (str | Sequence[str]): Such as "http", "s3". Default: ().

    Raises:
        ConfigError: If an argument is wrong.
        SourceError: If the table cannot be read or no row may be.

    Example:
        >>> print(table := ff.Table("photos.csv", image="path", label="animal", weight="trust"))
        Table(photos.csv): 6 images of 2 classes
        >>> table.weights(np.arange(3))
        array([1., 2., 1.], dtype=float32)
        >>> ff.Table({"id": [7, 12], "animal": ["cat", "dog"]}, path="{animal}/{id:04d}.jpg").uri(0)
        'cat/0007.jpg'
    """

    def __init__(
        self,
        table: Any,
        *,
        image: str | None = None,
        label: str | Sequence[str] | None = None,
        path: str | None = None,
        weight: str | None = None,
        box: str | Sequence[str] | None = None,
        columns: Sequence[str] = (),
        label_kind: LabelKind = "name",
        classes: Sequence[str | int] | None = None,
        root: str | os.PathLike[str] | None = None,
        memory: int | str = "512MB",
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        allow_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        allow_host: str | Sequence[str] = (),
        allow_scheme: str | Sequence[str] = (),
    ) -> None:
        if isinstance(columns, str):
            raise ConfigError(
                f"Table: columns must be a list of names, got {columns!r}; pass [{columns!r}]",
                field="columns",
            )
        if bool(image) == bool(path):
            got = "neither" if not image else "both"
            raise ConfigError(
                "Table needs image=, the column of paths or images, or path=, a template such as"
                f" '{{id}}.jpg', got {got}; pass one of them"
            )
        boxes = () if box is None else (box,) if isinstance(box, str) else tuple(box)
        requested = RequestedColumns(
            image,
            RequestedLabel.of(label, label_kind or "name", "Table"),
            weight,
            boxes,
            tuple(columns),
            path,
        )
        limit = parse_memory(memory)
        allow = parse_allow(allow_path, allow_host, allow_scheme, "Table")
        storage = open_storage(storage, cache)
        opened: OpenedTable | Files
        if is_in_memory(table):
            if any(allow):
                raise ConfigError(
                    "Table: allow_path, allow_host and allow_scheme are for tables in files, got"
                    " them with a table in memory, whose paths are trusted; leave them out"
                )
            opened = open_in_memory(table, requested)
        else:
            opened, self.notes = find_table(table, storage)
        self._open(
            opened,
            requested,
            storage,
            root=root,
            classes=classes,
            memory=limit,
            allow=None if is_in_memory(table) else allow,
        )
        if isinstance(self._images, ImageFiles):
            self._images.check()
