"""Opens what a user names as an `Input`: a source of photographs, and the metadata columns to carry along."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.formats import ColumnNames, normalize_names, open_shards
from fastfeed.preprocess.inputs.labels import join_labels
from fastfeed.preprocess.inputs.previous_job import open_previous_job
from fastfeed.preprocess.plan import PLAN
from fastfeed.preprocess.recipe import digest
from fastfeed.sources.base import Annotated, Source, notes_of
from fastfeed.sources.detect import kind_of
from fastfeed.sources.folder import ImageFolder
from fastfeed.sources.listing.listing import list_images
from fastfeed.sources.listing.listing_file import ARRAYS, facts_of
from fastfeed.sources.listing.local_tree import IMAGE_EXTENSIONS
from fastfeed.sources.shards.extra_columns import HasExtraColumns, column_names
from fastfeed.sources.tables.mmap_arrays import alone
from fastfeed.storage.storage import Storage, is_local

if TYPE_CHECKING:
    from fastfeed.preprocess.targets.target import Target

__all__ = ["EXTENSIONS", "Input", "InputLike", "listing_prefix", "open_input", "resolve_input"]

EXTENSIONS = (*IMAGE_EXTENSIONS, ".mpo", ".apng", ".dib", ".jpx", ".jpf", ".j2c", ".jpc", ".jxl", ".tga", ".psd")
_SPLITS = frozenset({"train", "val", "valid", "validation", "test", "dev"})


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """Photographs, their labels (`source.label`, `source.classes`), captions and metadata columns. Pickles."""

    source: Source
    text: str  # as the user named it, without storage options, which may hold secrets
    caption: str | None = None  # name of the caption column; "json:a.b" is a field of a JSON column
    columns: tuple[str, ...] = ()  # names of further metadata columns
    left_out: dict[str, int] = field(default_factory=dict)  # files that are not photographs, by extension

    def notes(self, ids: Sequence[int] | np.ndarray) -> list[dict[str, Any] | Failure]:
        """One dict per id, of JSON values: "text" (the caption) and "columns" (a dict), where the sample has them.

        A Failure if they cannot be read.
        """
        if not self.caption and not self.columns:
            return [{} for _ in ids]
        ids = [int(i) for i in ids]
        return [self._note(i, values) for i, values in zip(ids, self._columns(ids), strict=True)]

    def missing(self, looked_at: int = 100) -> list[str]:
        """Names of the caption and columns that no sample has, checked on an even sample: probably misspelled."""
        count = len(self.source)
        ids = np.unique(np.linspace(0, count - 1, min(count, looked_at)).astype(np.int64))
        notes = [note for note in self.notes(ids) if isinstance(note, dict)]
        present = {name for note in notes for name, value in note.get("columns", {}).items() if value is not None}
        present |= {self.caption for note in notes if "text" in note and self.caption}
        requested = (*((self.caption,) if self.caption else ()), *self.columns)
        return [name for name in requested if notes and name not in present]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Parts of the source that are left out, and why: files without an image extension, damaged parts of shards."""
        return tuple(notes_of(self.source))

    @property
    def fingerprint(self) -> str:
        """Changes when the photographs, their labels, captions or columns change."""
        columns = f" columns {digest([self.caption, *self.columns])}" if self.caption or self.columns else ""
        return self.source.fingerprint + columns

    def _columns(self, ids: list[int]) -> list[dict[str, Any] | Failure]:
        if isinstance(self.source, HasExtraColumns):
            return self.source.extra_columns(ids)
        assert isinstance(self.source, Annotated)
        columns = {k: v.tolist() for k, v in self.source.columns(np.asarray(ids, np.int64)).items()}
        return [{name: _nan_to_none(values[row]) for name, values in columns.items()} for row in range(len(ids))]

    def _note(self, i: int, values: dict[str, Any] | Failure) -> dict[str, Any] | Failure:
        if isinstance(values, Failure):
            return values
        note: dict[str, Any] = {}
        text = field_value(values, self.caption) if self.caption else None
        if text is not None and not isinstance(text, str):
            detail = f"{self.caption}: a caption must be a string, got {text!r:.60}"
            return Failure(i, self.source.uri(i), "read", "corrupt", detail)
        if text:
            note["text"] = text
        if self.columns:
            note["columns"] = {name: field_value(values, name) for name in self.columns}
        return note


InputLike = Source | Input | str | os.PathLike[str] | Callable[["Target"], Input]


def resolve_input(source: InputLike, target: Target, storage: dict[str, Any] | None = None) -> Input:
    """The `Input` behind what `run` accepts as a source. A path is opened by `open_input`, a function is called.

    The list of a folder's photographs is kept with the job, where `target` is a local folder.
    """
    if isinstance(source, Input):
        return source
    if isinstance(source, (str, os.PathLike)):
        return open_input(os.fspath(source), storage=storage, keep=listing_prefix(target))
    if callable(source):
        return source(target)
    columns = source.columns(np.empty(0, np.int64)) if isinstance(source, Annotated) else ()
    return _make_input(source, repr(source), None, tuple(columns))


def listing_prefix(target: Target) -> str | None:
    """How the names of a folder's listing files begin in a local target; None for remote targets."""
    folder = getattr(target, "folder", None)
    return None if folder is None else os.path.join(folder, "_job", "")


def open_input(
    place: str,
    *,
    label: str | None = None,
    image: str | None = None,
    caption: str | None = None,
    columns: Sequence[str] = (),
    labels_file: str | None = None,
    missing: str = "error",
    storage: dict[str, Any] | Storage | None = None,
    keep: str | None = None,
    fresh: bool | None = None,
    progress: bool | None = None,
) -> Input:
    """Open a folder, shards, a table, or the output of another job; local or remote.

    Args:
        place: Path or URL of a folder, shards (tar, TFRecord, MDS), or a table (CSV, TSV, JSON lines, Parquet).
        label: Column, tar member or feature with the label. None: a default name, if it exists; "": no labels. Class
            folders are labels.
        image: Column or feature with the image. None: a default name. With `labels_file`, its column of paths below
            `place`; default: "path".
        caption: Column, member or feature with the caption. None: a default name, if it exists; "": no captions.
        columns: Names of further metadata columns to carry along.
        labels_file: A table about the photographs of a folder. It must match the folder row by row.
        missing: "error", or "drop": photographs without a row in `labels_file` are bad (label_missing), and rows
            without a photograph are ignored.
        storage: fsspec options, or a Storage.
        keep: Path prefix of local files that keep the listing of a folder, so that later runs see the same photographs,
            whatever is in the folder by then.
        fresh: List the folder again, ignoring a kept listing. None: unless a plan, `keep` + "plan.json", depends on it.
        progress: Whether to show a progress bar. None: on a terminal.

    Raises:
        ConfigError: An argument is wrong, or does not fit the kind of source.
        SourceError: The source cannot be opened.
    """
    client = storage if isinstance(storage, Storage) else Storage(storage)
    if missing not in ("error", "drop"):
        raise ConfigError(f'missing must be "error" or "drop", got {missing!r}')
    names, requested = column_names(columns, "preprocess"), ColumnNames(label, image, caption)
    if fresh is None:
        fresh = keep is not None and not os.path.exists(keep + os.path.basename(PLAN))
    previous = open_previous_job(place, client, requested, names)
    if previous is not None:
        return _make_input(previous.source, place, previous.caption, normalize_names(previous.kind, names))
    kind = kind_of(place)
    if labels_file is not None:
        if kind != "folder":
            raise ConfigError(f"labels_file is for folders, {place} is a {kind}; pass the names of its columns")
        folder = _folder(place, False, client, keep, fresh, progress)
        joined, resolved = join_labels(folder, labels_file, requested, names, client, missing)
        return Input(joined, place, resolved.caption or None, names, dict(folder.left_out))
    if kind == "folder":
        for option, value in (("image", image), ("caption", caption), ("columns", names)):
            if value:
                raise ConfigError(f"{option}={value!r} is for shards and tables, {place} is a folder; pass labels_file")
        if label:
            raise ConfigError(f'labels of a folder are its subfolders, got label={label!r}; pass "" for none')
        folder = _folder(place, None if label is None else False, client, keep, fresh, progress)
        return _make_input(folder, place, None, ())
    source, resolved = open_shards(kind, place, requested, names, client, progress)
    return _make_input(source, place, resolved.caption, normalize_names(kind, names))


def _make_input(source: Source, text: str, caption: str | None, columns: tuple[str, ...]) -> Input:
    if not source.spec.encoded:
        raise ConfigError(f"{text} holds pixels, not encoded photographs: there is nothing to preprocess")
    return Input(source, text, caption or None, columns, dict(getattr(source, "left_out", {})))


def _folder(
    place: str, labeled: bool | None, storage: Storage, keep: str | None, fresh: bool, progress: bool | None
) -> ImageFolder:
    """Its photographs, labeled by subfolder, if there are any and all photographs are in them."""
    listing = None if keep is None else _listing(place, keep + "listing" + ARRAYS, storage, fresh, progress)

    def opened(labeled: bool) -> ImageFolder:
        return ImageFolder(
            place, labeled=labeled, min_per_class=1, extensions=EXTENSIONS, listing=listing, storage=storage,
            progress=progress,
        )  # fmt: skip

    if not labeled and labeled is not None:
        return opened(False)
    try:
        folder = opened(True)
    except SourceError:  # no subfolders; any other error is raised again below
        return opened(False)
    if folder.left_out["(no class)"]:
        return opened(False)
    if set(folder.classes) <= _SPLITS:
        raise ConfigError(
            f"{place} holds {', '.join(folder.classes)}: these are parts of a data set, not classes; preprocess each, "
            f'{place.rstrip("/")}/{folder.classes[0]} first, or pass label="" to take all of them without labels'
        )
    return folder


def _listing(place: str, path: str, storage: Storage, fresh: bool, progress: bool | None) -> str:
    """The path of a folder's listing file, which is written if there is none for this folder."""
    root = os.path.abspath(place) if is_local(place) else place.rstrip("/")
    if is_local(place) and not os.path.isdir(root):  # before anything is created
        raise SourceError(f"{place} does not exist; name the folder, shards or table that hold the photographs")
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    except OSError as error:
        raise SourceError(f"cannot keep the listing of {place} at {path}: {error.strerror}") from error
    mtime_before = _mtime_ns(path)
    with alone(Path(path)):  # parts of a job may start at the same time
        usable = mtime_before is not None and not fresh
        if (usable or _mtime_ns(path) != mtime_before) and facts_of(path, "ImageFolder").get("root") == root:
            return path
        list_images(root, path, storage=storage, extensions=EXTENSIONS, progress=progress, who="preprocess")
    return path


def _mtime_ns(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def field_value(values: dict[str, Any], name: str) -> Any:
    """The value of a column, or of a field of a JSON column: "json:a.b"."""
    if name in values:
        return values[name]
    column, _, path = name.partition(":")
    current = values.get(column)
    for part in path.split("."):
        current = current.get(part) if isinstance(current, dict) else None
    return current


def _nan_to_none(value: Any) -> Any:
    """None instead of NaN."""
    return None if isinstance(value, float) and value != value else value
