"""Opens what a user names as an `Input`: a source of photographs, and the metadata columns to carry
along.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.folders import folder_hints, open_folder
from fastfeed.preprocess.inputs.formats import (
    ColumnNames,
    default_labels,
    normalize_names,
    open_shards,
    resolve_columns,
)
from fastfeed.preprocess.inputs.labels import join_labels
from fastfeed.preprocess.inputs.previous_job import METADATA, open_previous_job
from fastfeed.preprocess.inputs.readahead import failure_of
from fastfeed.preprocess.inputs.renumbered import columns_of
from fastfeed.preprocess.model.layout import CURRENT, JOB
from fastfeed.preprocess.model.plan import PLAN, plan_files
from fastfeed.preprocess.model.recipe import digest
from fastfeed.printable import printable
from fastfeed.sources.base import Optionals, Source, notes_of
from fastfeed.sources.detect import kind_of
from fastfeed.sources.shards.extra_columns import column_names
from fastfeed.sources.shards.labels import LabelKind, check_label_kind
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.storage import Storage

if TYPE_CHECKING:
    from fastfeed.preprocess.targets.target import Target

__all__ = ["Input", "InputLike", "listing_prefix", "open_input", "resolve_input"]

PATIENCE_S = 60.0  # for an endpoint of the source that does not answer


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """Photographs, their labels (`source.label`, `source.classes`), captions and metadata columns.

    Pickles.

    Args:
        source (Source): The encoded photographs.
        text (str): The source as the user named it, without storage options, which may hold
            secrets.
        caption (str | None): Name of the caption column; "json:a.b" is a field of a JSON column.
            Default: None.
        columns (tuple[str, ...]): Names of further metadata columns. Default: ().
        left_out (dict[str, int]): Files that are not photographs, by extension. Default: {}.
        hints (tuple[str, ...]): What a user should know before the shards are built. Default: ().
        metadata (str): Column with the metadata that an earlier job wrote: names, sums and sizes of
            its source, and its columns, are kept. "" where the source is not a job's. Default: "".
        optional (tuple[str, ...]): Of the caption and columns, those that no sample needs to have.
            Default: ().

    Example:
        >>> from fastfeed.preprocess import open_input
        >>> input = open_input("photos.csv", image="path", label="animal", columns=["trust"])
        >>> input.source.classes, input.notes([0])
        (('cat', 'dog'), [{'columns': {'trust': 1}}])
        >>> input.missing()
        []
    """

    source: Source
    text: str
    caption: str | None = None
    columns: tuple[str, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    metadata: str = ""
    optional: tuple[str, ...] = ()

    def notes(
        self, ids: Sequence[int] | np.ndarray, earlier: bool = False
    ) -> list[dict[str, Any] | Failure]:
        """Captions and columns of samples, as JSON values.

        Args:
            ids (Sequence[int] | np.ndarray): Of samples in the source.
            earlier (bool): Add what an earlier job wrote of each sample, as "earlier". Default:
                False.

        Returns:
            One dict per id: "text" (the caption) and "columns" (a dict), where the sample has them.
                A Failure if they
            cannot be read.
        """
        if not self.caption and not self.columns and not (earlier and self.metadata):
            return [{} for _ in ids]
        ids = [int(i) for i in ids]
        try:
            columns = columns_of(self.source, ids)
            return [self._note(i, values, earlier) for i, values in zip(ids, columns, strict=True)]
        except Exception as error:
            if len(ids) == 1:
                return [failure_of(self.source, ids[0], error)]
        return [self.notes([i], earlier)[0] for i in ids]

    def missing(self, looked_at: int = 100) -> list[str]:
        """Names of the caption and columns that no sample has: probably misspelled.

        Args:
            looked_at (int): How many samples are read, evenly spread over the source. Default: 100.

        Returns:
            The names, the caption first.
        """
        count = len(self.source)
        ids = np.unique(np.linspace(0, count - 1, min(count, looked_at)).astype(np.int64))
        notes = [note for note in self.notes(ids) if isinstance(note, dict)]
        present = {
            name
            for note in notes
            for name, value in note.get("columns", {}).items()
            if value is not None
        }
        present |= {self.caption for note in notes if "text" in note and self.caption}
        requested = (*((self.caption,) if self.caption else ()), *self.columns)
        return [
            name
            for name in requested
            if notes and name not in present and name not in self.optional
        ]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Parts of the source that are left out, and why: files without an image extension, damaged
        parts of shards.
        """
        links = (
            "links that lead out of a folder are followed where allow_path (--allow-path) names the"
            " folder behind them"
        )
        return (*notes_of(self.source), *([links] if "(link outside)" in self.left_out else []))

    @property
    def fingerprint(self) -> str:
        """Changes when the photographs, their labels, captions or columns change."""
        columns = (
            f" columns {digest([self.caption, *self.columns])}"
            if self.caption or self.columns
            else ""
        )
        return self.source.fingerprint + columns

    def _note(
        self, i: int, values: dict[str, Any] | Failure, earlier: bool
    ) -> dict[str, Any] | Failure:
        if isinstance(values, Failure):
            return values
        note: dict[str, Any] = {}
        text = field_value(values, self.caption) if self.caption else None
        if isinstance(text, (bool, int, float)):  # a column in which all captions are numbers
            text = json.dumps(text)
        if text is not None and not isinstance(text, str):
            detail = f"{self.caption}: a caption must be a string, got {printable(repr(text), 80)}"
            return Failure(i, self.source.uri(i), "read", "corrupt", detail)
        if text:
            note["text"] = text
        if self.columns:
            note["columns"] = {name: field_value(values, name) for name in self.columns}
        if earlier and self.metadata:
            meta = values.get(self.metadata)
            note["earlier"] = json.loads(meta) if isinstance(meta, str) else meta or {}
        return note


InputLike = Source | Input | str | os.PathLike[str] | Callable[["Target"], Input]


def resolve_input(source: Source | Input | Callable[[Target], Input], target: Target) -> Input:
    """The `Input` behind what `run` accepts as a source, other than a path: a function is
    called.
    """
    if isinstance(source, Input):
        return source
    if callable(source):
        return source(target)
    columns = Optionals(source).columns(np.empty(0, np.int64))
    return _make_input(source, repr(source), None, tuple(columns))


def listing_prefix(target: Target, name: str | None = None) -> str | None:
    """How the names of a folder's listing files begin in a local target; None for remote targets.

    `name` distinguishes listings. None: that of the plan in the target, "" before photographs were
    appended to it.
    """
    folder, layout = getattr(target, "folder", None), getattr(target, "layout", CURRENT)
    if folder is None:
        return None
    if name is None:
        files = plan_files(target.read(PLAN) or b"")
        name = files[0].rpartition("/")[2].removeprefix("order").removesuffix("npy").strip("-.")
    return os.path.join(folder, layout.path(f"{JOB}/")) + (f"{name}-" if name else "")


def open_input(
    place: str,
    *,
    label: str | None = None,
    image: str | None = None,
    caption: str | None = None,
    columns: Sequence[str] = (),
    labels_file: str | None = None,
    missing: str = "error",
    label_kind: LabelKind | None = None,
    allow_path: Sequence[str] = (),
    allow_host: Sequence[str] = (),
    allow_scheme: Sequence[str] = (),
    storage: dict[str, Any] | Storage | None = None,
    keep: str | None = None,
    fresh: bool | None = None,
    progress: bool | None = None,
) -> Input:
    """Open a folder, shards, a table, or the output of another job; local or remote.

    Args:
        place (str): Path or URL of a folder, shards (tar, TFRecord, MDS), or a table (CSV, TSV,
            JSON lines, Parquet).
        label (str | None): Column, tar member or feature with the label; "": no labels. Class
            folders are labels. Default: None, a usual name, if it exists.
        image (str | None): Column or feature with the image; with `labels_file`, its column of
            paths below `place`. Default: None, a usual name, with `labels_file` "path".
        caption (str | None): Column, member or feature with the caption; "": no captions. Default:
            None, a usual name, if it exists.
        columns (Sequence[str]): Names of further metadata columns to carry along. Default: ().
        labels_file (str | None): A table about the photographs of a folder. It must match the
            folder row by row. Default: None.
        missing (str): "error", or "drop": photographs without a row in `labels_file` are bad
            (label_missing), and rows without a photograph are ignored. Default: "error".
        label_kind (str | None): "name": integer labels are names of classes, sorted and numbered;
            "index": they are indices of classes, kept as they are. Default: None, as in the
            sources: names in tables, and in shards unless the field is called `cls` or `label`.
        allow_path (Sequence[str]): Folders outside of `place` that links in it, and paths in a
            table, may lead to. Default: ().
        allow_host (Sequence[str]): As in Table: private hosts that a table may name. Default: ().
        allow_scheme (Sequence[str]): As in Table: schemes other than https, and the table's own,
            that it may name. Default: ().
        storage (dict[str, Any] | Storage | None): fsspec options, or a Storage; options wait a
            minute for an endpoint that does not answer. Default: None.
        keep (str | None): Path prefix of local files that keep the listing of a folder, so that
            later runs see the same photographs, whatever is in the folder by then. Default: None,
            it is not kept.
        fresh (bool | None): List the folder again, ignoring a kept listing. Default: None, unless a
            plan, `keep` + "plan.json", depends on it.
        progress (bool | None): Whether to show a progress bar. Default: None, on a terminal.

    Returns:
        What `run` takes as its source.

    Raises:
        ConfigError: An argument is wrong, or does not fit the kind of source.
        SourceError: The source cannot be opened.

    Example:
        >>> from fastfeed.preprocess import open_input
        >>> len(open_input("tar/*.tar").source)
        8
    """
    client = (
        storage
        if isinstance(storage, Storage)
        else Storage(storage, policy=RetryPolicy.patient(PATIENCE_S))
    )
    if missing not in ("error", "drop"):
        raise ConfigError(f'missing must be "error" or "drop", got {missing!r}', field="missing")
    check_label_kind(label_kind, "preprocess")
    names, requested = column_names(columns, "preprocess"), ColumnNames(label, image, caption)
    if fresh is None:
        fresh = keep is not None and not os.path.exists(
            os.path.join(os.path.dirname(keep), os.path.basename(PLAN))
        )
    previous = open_previous_job(place, client, requested, names, label_kind, with_metadata=True)
    if previous is not None:
        if labels_file is not None:
            raise ConfigError(
                f"labels_file is for folders, {place} holds the shards of a job: pass that job's"
                f" source, {previous.origin}, or the names of columns in the shards",
                field="labels_file",
            )
        opened = _make_input(
            previous.source, place, previous.caption, normalize_names(previous.kind, names)
        )
        optional = () if caption else (previous.caption,)
        return replace(opened, metadata=METADATA[previous.kind], optional=optional)
    kind = kind_of(place)
    if labels_file is not None:
        if kind != "folder":
            raise ConfigError(
                f"labels_file is for folders, {place} is a {kind}; pass the names of its columns",
                field="labels_file",
            )
        columns_of_file = resolve_columns("table", labels_file, requested, client)
        by_folder = None if label is None and not columns_of_file.label else False
        folder = open_folder(place, by_folder, client, keep, fresh, progress, allow_path)
        joined, resolved = join_labels(
            folder, labels_file, columns_of_file, names, client, missing, label_kind
        )
        hints = folder_hints(folder) if by_folder is None else ()
        optional = () if caption else (resolved.caption or "",)
        return Input(
            joined,
            place,
            resolved.caption or None,
            names,
            dict(folder.left_out),
            hints,
            optional=optional,
        )
    if kind == "folder":
        for option, value in (
            ("image", image),
            ("caption", caption),
            ("columns", names),
            ("label_kind", label_kind),
        ):
            if value:
                raise ConfigError(
                    f"{option} is for shards and tables, got {value!r} for the folder {place}; pass"
                    " labels_file (--labels)",
                    field=option,
                )
        if label:
            raise ConfigError(
                f'labels of a folder are its subfolders, got {label!r}; pass "" for none',
                field="label",
            )
        folder = open_folder(
            place, None if label is None else False, client, keep, fresh, progress, allow_path
        )
        return replace(
            _make_input(folder, place, None, ()),
            hints=folder_hints(folder) if label is None else (),
        )
    allow = {"allow_path": allow_path, "allow_host": allow_host, "allow_scheme": allow_scheme}
    source, resolved = open_shards(
        kind, place, requested, names, client, progress, allow=allow, label_kind=label_kind
    )
    opened = _make_input(source, place, resolved.caption, normalize_names(kind, names))
    opened = replace(opened, optional=() if caption else (resolved.caption or "",))
    if label is not None or resolved.label or not (candidates := default_labels(kind)):
        return opened
    hint = (
        f"the shards will have no labels: {place} has none as {', '.join(candidates)};"
        " name it with label (--label)"
    )
    return replace(opened, hints=(hint,))


def _make_input(source: Source, text: str, caption: str | None, columns: tuple[str, ...]) -> Input:
    if not source.spec.encoded:
        raise ConfigError(
            f"{text} holds pixels, not encoded photographs: there is nothing to preprocess"
        )
    return Input(source, text, caption or None, columns, dict(getattr(source, "left_out", {})))


def field_value(values: dict[str, Any], name: str) -> Any:
    """The value of a column, or of a field of a JSON column: "json:a.b"."""
    if name in values:
        return values[name]
    column, _, path = name.partition(":")
    current = values.get(column)
    for part in path.split("."):
        current = current.get(part) if isinstance(current, dict) else None
    return current
