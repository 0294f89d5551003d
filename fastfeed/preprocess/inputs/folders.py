"""Folders of images, labeled by subfolder or by a table; the listing is kept with the job."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.formats import ColumnNames, check_label_named, resolve_columns
from fastfeed.preprocess.inputs.plan_ids import nan_to_none
from fastfeed.printable import printable
from fastfeed.sources.cache_folder import build_lock
from fastfeed.sources.class_names import AmbiguousClasses, code_points, nfc
from fastfeed.sources.folder import ImageFolder
from fastfeed.sources.label_values import LabelKind
from fastfeed.sources.listing.file_table import unpacked
from fastfeed.sources.listing.listing import list_images
from fastfeed.sources.listing.listing_file import ARRAYS, read_header
from fastfeed.sources.listing.local_tree import IMAGE_EXTENSIONS
from fastfeed.sources.table import Table
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.spec import CLASS_NUMBER
from fastfeed.storage.fingerprint import fingerprint
from fastfeed.storage.reads import Completed, Pending, is_local
from fastfeed.storage.storage import Storage

_MORE = (".mpo", ".apng", ".dib", ".jpx", ".jpf", ".j2c", ".jpc", ".jxl", ".tga", ".psd")
EXTENSIONS = (*IMAGE_EXTENSIONS, *_MORE)
_LOOKED_AT = 100_000  # images, for class folders that cannot be labels
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
    """The folder's images, labeled by subfolder if all of them are in subfolders."""
    links = [path for path in allow_path if is_local(path)]
    listing = None
    if keep is not None:
        listing = _listing(place, keep + "listing" + ARRAYS, storage, fresh, progress, links)

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
    if folder.skipped["(no class)"]:
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
    names = folder.paths.take(np.arange(min(len(folder), _LOOKED_AT)))
    if len({b"/" in os.fsencode(name) for name in names}) < 2:
        return ()
    hint = (
        f"the shards will have no labels: some images lie directly in {folder.root}, next to its"
        " folders; to have the folders as labels, move these images into one"
    )
    return (hint,)


def _listing(
    place: str,
    path: str,
    storage: Storage,
    fresh: bool,
    progress: bool | None,
    links: Sequence[str],
) -> str | None:
    """Path of a folder's listing file, written if missing; None if it is of another folder."""
    root = os.path.abspath(place) if is_local(place) else place.rstrip("/")
    if is_local(place) and not os.path.isdir(root):  # before anything is created
        raise SourceError(
            f"{place} does not exist; name the folder, shards or table that hold the images"
        )
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    except OSError as error:
        why = f"cannot keep the listing of {place} at {path}: {error.strerror}"
        raise SourceError(why) from error
    mtime_before = _mtime_ns(path)
    usable = mtime_before is not None and not fresh
    if usable and _listed_root(path) != root:
        # it may be the same folder under another name, or another one: the job's own listing stays
        return None
    with build_lock(Path(path)):  # parts of a job may start at the same time
        if (usable or _mtime_ns(path) != mtime_before) and _listed_root(path) == root:
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


def _listed_root(path: str) -> Any:
    return read_header(path, "ImageFolder").get("root")


def _mtime_ns(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


_SHOWN = 5  # names of each kind
_DETAILS = ("no row in the labels file", "no label in its row of the labels file")


class LabeledFolder:
    """Images of a folder with labels and columns from a table; without a row: label_missing."""

    def __init__(self, folder: ImageFolder, table: Table, rows: np.ndarray, labeled: bool) -> None:
        self._folder = folder
        self._table = table
        self._rows = rows  # int32, shape (images,): row in the table; -1: none
        self._good = rows >= 0
        self._keeps_classes = not labeled
        self.classes = table.classes if labeled else folder.classes
        self.label_spec = table.label_spec if labeled else CLASS_NUMBER
        if labeled:
            self._good &= ~table.unlabeled(np.maximum(rows, 0))
        self.column_types = table.column_types
        self.spec = folder.spec
        self.remote = folder.remote

    def __len__(self) -> int:
        return len(self._folder)

    @property
    def paths(self) -> StringColumn:
        """Paths of the folder's images."""
        return self._folder.paths

    def file_sizes(self, first: int, last: int) -> np.ndarray:
        """Sizes of the folder's images."""
        return self._folder.file_sizes(first, last)

    @property
    def notes(self) -> list[str]:
        """Skipped files of the folder and of the table."""
        return [*self._folder.notes, *self._table.notes]

    def uri(self, i: int) -> str:
        """Address of the image in the folder."""
        return self._folder.uri(i)

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Read the bytes of these files."""
        indexes = [int(i) for i in ids]
        blobs = iter(self._folder.read([i for i in indexes if self._good[i]]))
        return [next(blobs) if self._good[i] else self._missing(i) for i in indexes]

    def fetch(self, ids: Sequence[int]) -> list[Pending]:
        """Start reading from remote storage."""
        indexes = [int(i) for i in ids]
        pending = iter(self._folder.fetch([i for i in indexes if self._good[i]]))
        return [next(pending) if self._good[i] else Completed(self._missing(i)) for i in indexes]

    def _missing(self, i: int) -> Failure:
        return Failure(i, self.uri(i), "read", "label_missing", _DETAILS[bool(self._rows[i] >= 0)])

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Class numbers: int64, shape (len(ids),), -1 for none; or multi-hot vectors."""
        if self._keeps_classes:
            return self._folder.label(ids)
        rows = self._rows[ids]
        labels = self._table.label(np.maximum(rows, 0))
        labels[rows < 0] = 0 if self.label_spec.shape else -1
        return labels

    @property
    def fingerprint(self) -> str:
        """Changes when the images, the table, or their matching change."""
        parts = (self._folder.fingerprint.encode(), self._table.fingerprint.encode())
        rows = self._rows
        return fingerprint(len(self), parts[:1], parts[1:], lambda a, b: (rows[a:b].data,))

    def extra_columns(self, ids: Sequence[int]) -> list[dict[str, Any] | Failure]:
        """Metadata columns by name, as JSON values; None for a sample without a value."""
        rows = self._rows[np.asarray(ids, np.int64)]
        arrays = self._table.columns(np.maximum(rows, 0))
        columns = {name: values.tolist() for name, values in arrays.items()}
        none = dict.fromkeys(columns)
        return [
            {name: nan_to_none(values[k]) for name, values in columns.items()} if row >= 0 else none
            for k, row in enumerate(rows.tolist())
        ]

    def __repr__(self) -> str:
        return f"{self._folder!r}, labels of {self._table!r}"


def join_labels(
    folder: ImageFolder,
    file: str,
    requested: ColumnNames,
    columns: Sequence[str],
    storage: Storage,
    missing: str,
    label_kind: LabelKind | None,
) -> tuple[LabeledFolder, ColumnNames]:
    """Join a folder with the rows of a table; also returns the column names. SourceError."""
    resolved = resolve_columns("table", file, requested, storage)
    if not (resolved.label or resolved.caption or columns):
        raise ConfigError(
            f"the labels file {file} has no column 'label', nor 'caption'; name one with label"
            " (--label)",
            field="label",
        )
    check_label_named(resolved, label_kind)
    carried = list(dict.fromkeys(name for name in (resolved.caption, *columns) if name))
    assert resolved.image is not None
    # its paths are compared with the folder's, never read
    table = Table(
        file,
        image=resolved.image,
        label=resolved.label or None,
        label_kind=label_kind or "name",
        columns=carried,
        storage=storage,
        root=str(folder.root),
        allow_path=["/"],
    )
    rows = _rows(table, file, str(folder.root))
    by_row = np.array([rows.pop(path, -1) for path in unpacked(folder.paths)], np.int32)
    _match_forms(folder, file, rows, by_row)
    without = np.flatnonzero(by_row < 0)
    missing_rows = len(without)
    unmatched = [os.fsencode(folder.paths[int(i)]) for i in without[:_SHOWN]]
    if (missing_rows or rows) and (missing == "error" or missing_rows == len(folder)):
        raise SourceError(_mismatch(file, folder, missing_rows, unmatched, list(rows)))
    return LabeledFolder(folder, table, by_row, bool(resolved.label)), resolved


def _rows(table: Table, file: str, root: str) -> dict[bytes, int]:
    """Rows by path below the root. SourceError if a path occurs twice."""
    paths = table.paths
    if paths is None:
        raise ConfigError(
            f"the labels file {file} holds images; its column must hold paths below {root}",
            field="labels_file",
        )
    rows: dict[bytes, int] = {}
    duplicates: list[str] = []
    start = os.fsencode(root.rstrip("/")) + b"/"
    for row, raw_path in enumerate(unpacked(paths)):
        path = raw_path.removeprefix(start)
        while path.startswith(b"./"):
            path = path[2:].lstrip(b"/")
        if rows.setdefault(path, row) != row:
            duplicates.append(f"{_quoted(path)} (rows {rows[path]} and {row})")
    if duplicates:
        names = _first_names(duplicates, len(duplicates))
        raise SourceError(f"labels file {file}: {len(duplicates)} paths occur twice: {names}")
    return rows


def _match_forms(
    folder: ImageFolder, file: str, rows: dict[bytes, int], by_row: np.ndarray
) -> None:
    """Match, and take out of `rows`, paths that are equal in NFC only. SourceError if twice."""
    paths = [path for path in rows if not path.isascii()]
    without = np.flatnonzero(by_row < 0) if paths else np.empty(0, np.int64)
    by_form: dict[str, bytes] = {}
    for path in paths if len(without) else ():
        if (other := by_form.setdefault(nfc(os.fsdecode(path)), path)) is not path:
            raise SourceError(
                f"labels file {file}: rows {rows[other]} and {rows[path]} have one path, written"
                f" differently: {code_points(os.fsdecode(other))} and"
                f" {code_points(os.fsdecode(path))}"
            )
    for i in without.tolist():
        if (path := by_form.pop(nfc(folder.paths[i]), None)) is not None:
            by_row[i] = rows.pop(path)


def _mismatch(
    file: str, folder: ImageFolder, missing_rows: int, unmatched: list[bytes], rows: list[bytes]
) -> str:
    problems = []
    if missing_rows:
        names = _first_names(map(_quoted, unmatched), missing_rows)
        problems.append(f"{missing_rows} of {len(folder)} images have no row: {names}")
    if rows:
        names = _first_names(map(_quoted, rows[:_SHOWN]), len(rows))
        problems.append(f"{len(rows)} rows have no image: {names}")
    return (
        f"labels file {file} does not match {folder.root}: {'; '.join(problems)}. Its paths must be"
        ' relative to that folder; or leave such images out: missing="drop" (--drop-unlabeled)'
    )


def _first_names(names: Any, count: int) -> str:
    first = list(names)[:_SHOWN]
    return ", ".join(first) + (f" and {count - len(first)} more" if count > len(first) else "")


def _quoted(path: bytes) -> str:
    return printable(repr(os.fsdecode(path)))
