"""Labels, captions and further columns from a table, joined to the photographs of a folder by their paths."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.formats import ColumnNames, resolve_columns
from fastfeed.sources.folder import ImageFolder
from fastfeed.sources.listing.file_table import unpacked
from fastfeed.sources.table import Table
from fastfeed.storage.fingerprint import fingerprint
from fastfeed.storage.pending import Pending
from fastfeed.storage.shard_files import Known
from fastfeed.storage.storage import Storage

__all__ = ["LabeledFolder", "join_labels"]

_SHOWN = 5  # names of each kind
_WHY = ("no row in the labels file", "no label in its row of the labels file")


class LabeledFolder:
    """The photographs of a folder with what a table says of them. Those without a row, or without a label where they
    should have one, are bad: label_missing."""

    def __init__(self, folder: ImageFolder, table: Table, rows: np.ndarray, labeled: bool) -> None:
        self._folder, self._table = folder, table
        self._rows = rows  # int32 (photographs,): of each its row in the table; -1: it has none
        self._good = rows >= 0
        if labeled:
            self._good &= self.label(np.arange(len(folder))) >= 0
        self.spec, self.classes, self.remote = folder.spec, table.classes, folder.remote

    def __len__(self) -> int:
        return len(self._folder)

    @property
    def notes(self) -> list[str]:
        """What the folder and the table leave out."""
        return [*self._folder.notes, *self._table.notes]

    def uri(self, i: int) -> str:
        """As the folder says."""
        return self._folder.uri(i)

    def read(self, ids: Sequence[int]) -> list[Any]:
        """The files' bytes."""
        wanted = [int(i) for i in ids]
        found = iter(self._folder.read([i for i in wanted if self._good[i]]))
        return [next(found) if self._good[i] else self._missing(i) for i in wanted]

    def fetch(self, ids: Sequence[int]) -> list[Pending]:
        """Begin to read, from remote storage."""
        wanted = [int(i) for i in ids]
        found = iter(self._folder.fetch([i for i in wanted if self._good[i]]))
        return [next(found) if self._good[i] else Known(self._missing(i)) for i in wanted]

    def _missing(self, i: int) -> Failure:
        return Failure(i, self.uri(i), "read", "label_missing", _WHY[bool(self._rows[i] >= 0)])

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Class numbers: int64, shape (len(ids),); -1 where there is none."""
        rows = self._rows[ids]
        return np.where(rows < 0, np.int64(-1), self._table.label(np.maximum(rows, 0)))

    @property
    def fingerprint(self) -> str:
        """Of the photographs, and of what the table says of them."""
        said = (self._folder.fingerprint.encode(), self._table.fingerprint.encode())
        return fingerprint(len(self), said[:1], said[1:], lambda first, last: (self._rows[first:last].data,))

    def beside(self, ids: Sequence[int]) -> list[dict[str, Any] | Failure]:
        """By name, values as JSON has them; None where there is none."""
        rows = self._rows[np.asarray(ids, np.int64)]
        columns = {name: values.tolist() for name, values in self._table.columns(np.maximum(rows, 0)).items()}
        return [
            {name: values[k] if row >= 0 and values[k] == values[k] else None for name, values in columns.items()}
            for k, row in enumerate(rows.tolist())
        ]

    def __repr__(self) -> str:
        return f"{self._folder!r}, labels of {self._table!r}"


def join_labels(
    folder: ImageFolder, file: str, asked: ColumnNames, columns: Sequence[str], storage: Storage, missing: str
) -> tuple[LabeledFolder, ColumnNames]:
    """A folder's photographs with the rows of a labels file, and what was taken for what.

    SourceError where a path is there twice, or photographs and rows do not match; with `missing` "drop" only where no
    row matches.
    """
    found = resolve_columns("table", file, asked, storage)
    if not (found.label or found.caption or columns):
        raise ConfigError(f"the labels file {file} has no column 'label', nor 'caption'; pass label='its name'")
    carried = list(dict.fromkeys(name for name in (found.caption, *columns) if name))
    assert found.image is not None
    table = Table(file, image=found.image, label=found.label or None, columns=carried, storage=storage)
    rows = _rows(table, file, str(folder.root))
    by_row = np.full(len(folder), -1, np.int32)
    strangers: list[bytes] = []
    for i, path in enumerate(unpacked(folder.paths)):
        row = rows.pop(path, None)
        if row is not None:
            by_row[i] = row
        elif len(strangers) < _SHOWN:
            strangers.append(path)
    without = int(np.count_nonzero(by_row < 0))
    if (without or rows) and (missing == "error" or without == len(folder)):
        raise SourceError(_mismatch(file, folder, without, strangers, list(rows)))
    return LabeledFolder(folder, table, by_row, bool(found.label)), found


def _rows(table: Table, file: str, root: str) -> dict[bytes, int]:
    """Rows by path below the root. SourceError where a path is empty, or there twice."""
    paths = table.paths
    if paths is None:
        raise ConfigError(f"the labels file {file} holds images; its column must hold paths below {root}")
    rows: dict[bytes, int] = {}
    twice: list[str] = []
    start = os.fsencode(root.rstrip("/")) + b"/"
    for row, given in enumerate(unpacked(paths)):
        path = given.removeprefix(start)
        while path.startswith(b"./"):
            path = path[2:].lstrip(b"/")
        if rows.setdefault(path, row) != row:
            twice.append(f"{_shown(path)} (rows {rows[path]} and {row})")
    if twice:
        raise SourceError(f"labels file {file}: {len(twice)} paths are there twice: {_list(twice, len(twice))}")
    return rows


def _mismatch(file: str, folder: ImageFolder, without: int, strangers: list[bytes], rows: list[bytes]) -> str:
    said = []
    if without:
        said.append(f"{without} of {len(folder)} photographs have no row: {_list(map(_shown, strangers), without)}")
    if rows:
        said.append(f"{len(rows)} rows have no photograph: {_list(map(_shown, rows[:_SHOWN]), len(rows))}")
    return (
        f"labels file {file} does not match {folder.root}: {'; '.join(said)}. Its paths must be relative to that "
        'folder; or pass missing="drop" to leave such photographs out'
    )


def _list(names: Any, count: int) -> str:
    shown = list(names)[:_SHOWN]
    return ", ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")


def _shown(path: bytes) -> str:
    return repr(os.fsdecode(path))
