"""From what a user names to a source, and all that travels along with its photographs."""

from __future__ import annotations

import os
from collections import Counter
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
from fastfeed.sources.shards.extra_columns import Extended, names_of
from fastfeed.sources.tables.mmap_arrays import alone
from fastfeed.storage.storage import Storage, is_local

if TYPE_CHECKING:
    from fastfeed.preprocess.targets.target import Target

__all__ = ["EXTENSIONS", "Input", "InputLike", "listing_prefix", "open_input", "resolve_input"]

EXTENSIONS = (*IMAGE_EXTENSIONS, ".mpo", ".apng", ".dib", ".jpx", ".jpf", ".j2c", ".jpc", ".jxl", ".tga", ".psd")
_SPLITS = frozenset({"train", "val", "valid", "validation", "test", "dev"})


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """Photographs, their labels (`source.label`, `source.classes`), and what else travels along. Pickles."""

    source: Source
    text: str  # as the user named it, without options: they may hold secrets
    caption: str | None = None  # the name of that column; "json:a.b" is a field of a JSON one
    columns: tuple[str, ...] = ()  # names of further ones
    left_out: dict[str, int] = field(default_factory=dict)  # files that are no photographs, by extension

    def notes(self, ids: Sequence[int] | np.ndarray) -> list[dict[str, Any] | Failure]:
        """One per id, values as JSON has them: "text", the caption, and "columns", a dict, where there are such. A
        Failure where there should be and it cannot be read."""
        if not self.caption and not self.columns:
            return [{} for _ in ids]
        ids = [int(i) for i in ids]
        return [self._note(i, said) for i, said in zip(ids, self._said(ids), strict=True)]

    def missing(self, looked_at: int = 100) -> list[str]:
        """Of caption and columns, those that none of so many samples has, spread over all: a name that is misspelt."""
        count = len(self.source)
        ids = np.unique(np.linspace(0, count - 1, min(count, looked_at)).astype(np.int64))
        notes = [note for note in self.notes(ids) if isinstance(note, dict)]
        found = {name for note in notes for name, value in note.get("columns", {}).items() if value is not None}
        found |= {self.caption for note in notes if "text" in note and self.caption}
        asked = (*((self.caption,) if self.caption else ()), *self.columns)
        return [name for name in asked if notes and name not in found]

    @property
    def remarks(self) -> tuple[str, ...]:
        """What of the source is not among its photographs, and why: files by their names, damaged parts of shards."""
        return tuple(notes_of(self.source))

    @property
    def fingerprint(self) -> str:
        """Changes when the photographs, their labels, or what travels along with them change."""
        columns = f" columns {digest([self.caption, *self.columns])}" if self.caption or self.columns else ""
        return self.source.fingerprint + columns

    def _said(self, ids: list[int]) -> list[dict[str, Any] | Failure]:
        if isinstance(self.source, Extended):
            return self.source.beside(ids)
        assert isinstance(self.source, Annotated)
        columns = {k: v.tolist() for k, v in self.source.columns(np.asarray(ids, np.int64)).items()}
        return [{name: _plain(values[row]) for name, values in columns.items()} for row in range(len(ids))]

    def _note(self, i: int, said: dict[str, Any] | Failure) -> dict[str, Any] | Failure:
        if isinstance(said, Failure):
            return said
        note: dict[str, Any] = {}
        text = field_value(said, self.caption) if self.caption else None
        if text is not None and not isinstance(text, str):
            detail = f"{self.caption}: a caption is a text, got {text!r:.60}"
            return Failure(i, self.source.uri(i), "read", "corrupt", detail)
        if text:
            note["text"] = text
        if self.columns:
            note["columns"] = {name: field_value(said, name) for name in self.columns}
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
    return _input(source, repr(source), None, tuple(columns))


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
    """A folder, shards (tar, TFRecord, MDS), a table (CSV, TSV, JSON lines, Parquet), or what a job has written; local
    or remote. ConfigError, SourceError.

    `label`, `image` and `caption` name columns, members or features; None: those that are usual there, if there are
    any; "" for label and caption: none. Class folders are labels. `columns` names what else travels along.

    `labels_file` is a table of the photographs in a folder: `image` names the column of paths below `place` ("path").
    Where it does not match, that is an error, unless `missing` is "drop": then photographs without a row have the
    reason label_missing, and rows without a photograph do not count.

    `keep` begins the names of files of this machine in which the list of a folder's photographs is kept: the next time
    it is taken from there, so that the same photographs are meant, whatever lies in the folder by then. `fresh`: it is
    listed anew; None: unless a plan, `keep` + "plan.json", depends on the list.
    """
    own = storage if isinstance(storage, Storage) else Storage(storage)
    if missing not in ("error", "drop"):
        raise ConfigError(f'missing must be "error" or "drop", got {missing!r}')
    names, asked = names_of(columns, "preprocess"), ColumnNames(label, image, caption)
    if fresh is None:
        fresh = keep is not None and not os.path.exists(keep + os.path.basename(PLAN))
    output = open_previous_job(place, own, asked, names)
    if output is not None:
        return _input(output.source, place, output.caption, normalize_names(output.kind, names))
    kind = kind_of(place)
    if labels_file is not None:
        if kind != "folder":
            raise ConfigError(f"a labels file is for a folder of photographs, {place} is a {kind}; name its columns")
        folder = _folder(place, False, own, keep, fresh, progress)
        joined, found = join_labels(folder, labels_file, asked, names, own, missing)
        return Input(joined, place, found.caption or None, names, dict(folder.left_out))
    if kind == "folder":
        for option, given in (("image", image), ("caption", caption), ("columns", names)):
            if given:
                raise ConfigError(f"{option}={given!r} is for shards and tables, {place} is a folder; pass labels_file")
        if label:
            raise ConfigError(f'a folder\'s labels are its folders, got label={label!r}; pass "" for none')
        return _input(_folder(place, None if label is None else False, own, keep, fresh, progress), place, None, ())
    source, found = open_shards(kind, place, asked, names, own, progress)
    return _input(source, place, found.caption, normalize_names(kind, names))


def _input(source: Source, text: str, caption: str | None, columns: tuple[str, ...]) -> Input:
    if not source.spec.encoded:
        raise ConfigError(f"{text} holds pixels, not encoded photographs: there is nothing left to preprocess")
    return Input(source, text, caption or None, columns, dict(getattr(source, "left_out", {})))


def _folder(
    place: str, labeled: bool | None, storage: Storage, keep: str | None, fresh: bool, progress: bool | None
) -> ImageFolder:
    """Its photographs, labeled by folders, if there are any, and no photograph lies beside them."""
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
    except SourceError:  # no folders in it; or what the next line will say
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
    """The file that lists a folder; it is made where there is none of this folder."""
    root = os.path.abspath(place) if is_local(place) else place.rstrip("/")
    if is_local(place) and not os.path.isdir(root):  # before anything is made
        raise SourceError(f"{place} does not exist; name the folder, shards or table that hold the photographs")
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    except OSError as error:
        raise SourceError(f"cannot keep the list of {place} at {path}: {error.strerror}") from error
    before = _version(path)
    with alone(Path(path)):  # parts of a job may begin at the same time
        usable = before is not None and not fresh
        if (usable or _version(path) != before) and facts_of(path, "ImageFolder").get("root") == root:
            return path
        list_images(root, path, storage=storage, extensions=EXTENSIONS, progress=progress, who="preprocess")
    return path


def _version(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return None


def field_value(said: dict[str, Any], name: str) -> Any:
    """A value, or the field of one: "json:a.b"."""
    if name in said:
        return said[name]
    column, _, path = name.partition(":")
    value = said.get(column)
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _plain(value: Any) -> Any:
    """Not a number is none."""
    return None if isinstance(value, float) and value != value else value
