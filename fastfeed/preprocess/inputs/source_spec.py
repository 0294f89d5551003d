"""The source of a job as a user names it: resolved once, and opened when it is needed.

The list of a folder's images is kept with the job if the target is a local folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.inputs.folders import folder_hints, join_labels, open_folder
from fastfeed.preprocess.inputs.formats import (
    ColumnNames,
    default_labels,
    normalize_names,
    open_shards,
    resolve_columns,
)
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.kept_listing import listing_prefix, temporary_listing
from fastfeed.preprocess.inputs.plan_ids import check_labels
from fastfeed.preprocess.inputs.previous_job import METADATA, open_previous_job
from fastfeed.preprocess.model.columns import declared_types
from fastfeed.preprocess.model.plan import PLAN
from fastfeed.sources.base import Optionals, Source, check_source
from fastfeed.sources.detect import detect_kind
from fastfeed.sources.label_values import LabelKind
from fastfeed.sources.shards.extra_columns import column_names
from fastfeed.sources.tables.column_types import ColumnType
from fastfeed.sources.together import Together
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.storage import Storage

if TYPE_CHECKING:
    from fastfeed.preprocess.targets.target import Target

PATIENCE_S = 60.0  # for an endpoint of the source that does not answer


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Arguments of `open_input`; called with a target, it opens the source of the job there."""

    place: str
    label: str | None = None
    image: str | Sequence[str] | None = None
    caption: str | None = None
    columns: Sequence[str] = ()
    labels_file: str | None = None
    missing: str = "error"
    allow_path: Sequence[str] = ()
    allow_host: Sequence[str] = ()
    allow_scheme: Sequence[str] = ()
    storage: dict[str, Any] | Storage | None = None
    label_kind: LabelKind | None = None
    column_types: Sequence[str] = ()

    def with_column(self, column: str) -> SourceSpec:
        """This source with one more column, which the plan is made from; "": as it is."""
        if not column or column in self.columns:
            return self
        return replace(self, columns=(*self.columns, column))

    def document(self) -> dict[str, Any]:
        """Arguments that differ from their defaults, as JSON values, without place and storage."""
        given = {item.name: (getattr(self, item.name), item.default) for item in fields(self)[1:]}
        return {
            name: list(value) if isinstance(value, (tuple, list)) else value
            for name, (value, default) in given.items()
            if name != "storage" and value != default
        }

    def __call__(self, target: Target | None) -> Input:
        """Open the source, with the listing that the job in `target` keeps."""
        if target is None:
            return self.open()
        return self.as_planned(target).open(listing_prefix(target))

    def as_planned(self, target: Target) -> SourceSpec:
        """This source with integer labels as in the job in `target`: earlier ones keep indices."""
        folder = self.labels_file is None and detect_kind(self.place) == "folder"
        plan = None if self.label_kind or folder else target.read(PLAN)
        try:
            header = {} if plan is None else json.loads(plan)
            classes = header.get("classes")
        except (ValueError, AttributeError):  # damaged: loading the plan says so
            return self
        if classes is None:
            return self
        kind: LabelKind = "multi" if header.get("multi") else "name" if classes else "index"
        return replace(self, label_kind=kind)

    def open(
        self, keep: str | None = None, fresh: bool | None = None, progress: bool | None = None
    ) -> Input:
        """Open the source; arguments as of `open_input`."""
        if self.image is not None and not isinstance(self.image, str):
            return self._open_images(self.image, keep, fresh, progress)
        client = self.storage
        if not isinstance(client, Storage):
            client = Storage(client, policy=RetryPolicy.patient(PATIENCE_S))
        if self.missing not in ("error", "drop"):
            raise ConfigError.of("missing", '"error" or "drop"', self.missing)
        if self.label_kind not in (None, "name", "index", "multi"):
            raise ConfigError.of(
                "preprocess: label_kind",
                "'name', 'index' or 'multi'",
                self.label_kind,
                "numbers and texts go into shards as columns (--columns), from which a source"
                " reads them as labels",
            )
        names = column_names(self.columns, "preprocess")
        declared = declared_types(self.column_types, names)
        binary = [name for name, kind in declared.items() if kind == "bytes"]
        if fresh is None and keep is not None:
            plan = os.path.join(os.path.dirname(keep), os.path.basename(PLAN))
            fresh = not os.path.exists(plan)
        assert self.image is None or isinstance(self.image, str)
        requested = ColumnNames(self.label, self.image, self.caption)
        previous = open_previous_job(
            self.place, client, requested, names, self.label_kind, True, binary
        )
        kind = detect_kind(self.place) if previous is None else previous.kind
        if self.labels_file is not None and (previous is not None or kind != "folder"):
            problem = f"is a {kind}; pass the names of its columns"
            if previous is not None:
                problem = (
                    f"holds the shards of a job: pass that job's source, {previous.origin}, or the"
                    " names of columns in the shards"
                )
            raise ConfigError(
                f"labels_file is for folders, {self.place} {problem}", field="labels_file"
            )
        if previous is not None:
            columns = normalize_names(kind, names)
            opened = opened_input(
                previous.source, self.place, previous.caption, columns, declared, self.caption
            )
            types = previous.types | opened.types
            return replace(opened, metadata=METADATA[kind], types=types)
        if kind == "folder":
            return self._open_folder(
                client, requested, names, declared, keep, bool(fresh), progress
            )
        allow = {name: getattr(self, name) for name in ("allow_path", "allow_host", "allow_scheme")}
        source, resolved = open_shards(
            kind,
            self.place,
            requested,
            names,
            client,
            progress,
            allow=allow,
            label_kind=self.label_kind,
            binary=binary,
        )
        columns = normalize_names(kind, names)
        caption = resolved.caption
        opened = opened_input(source, self.place, caption, columns, declared, self.caption)
        if self.label is not None or resolved.label or not (candidates := default_labels(kind)):
            return opened
        hint = (
            f"the shards will have no labels: {self.place} has none as {', '.join(candidates)};"
            " name it with label (--label)"
        )
        return replace(opened, hints=(hint,))

    def _open_images(
        self, image: Sequence[str], keep: str | None, fresh: bool | None, progress: bool | None
    ) -> Input:
        """Open the source once for each `NAME=COLUMN`; the first has label, caption and columns."""
        parts = [item.partition("=") for item in image]
        columns = {name: column for name, _, column in parts if column}
        if len(columns) < max(len(parts), 2):
            raise ConfigError.of(
                "preprocess: image",
                "one column, or two or more NAME=COLUMN",
                list(image),
                "as in --image left=LEFT --image right=RIGHT",
            )
        kind = detect_kind(self.place)
        if self.labels_file is not None or kind == "tar":
            raise ConfigError(
                "several images are columns of one table, or features of its shards, got"
                f" {'labels_file' if self.labels_file else self.place}; in Python,"
                ' ff.Together({"left": a, "right": b}) of any sources is a source',
                field="image",
            )
        first, *others = columns
        opened = replace(self, image=columns[first]).open(keep, fresh, progress)
        plain = replace(self, label="", caption="", columns=(), column_types=(), label_kind=None)
        sources = {first: opened.source}
        for name in others:
            sources[name] = replace(plain, image=columns[name]).open(keep, fresh, progress).source
        return replace(opened, source=Together(sources))

    def _open_folder(
        self,
        client: Storage,
        requested: ColumnNames,
        names: tuple[str, ...],
        declared: dict[str, ColumnType],
        keep: str | None,
        fresh: bool,
        progress: bool | None,
    ) -> Input:
        labeled = None if self.label is None else False  # None: if it has class folders
        if self.labels_file is None:
            for option in ("image", "caption", "columns", "column_types", "label_kind"):
                if value := getattr(self, option):
                    also = ", as for a group" if option == "columns" else ""
                    raise ConfigError(
                        f"{option} is for shards and tables, got {value!r} for the folder"
                        f" {self.place}; pass labels_file (--labels){also}",
                        field=option,
                    )
            if self.label:
                raise ConfigError(
                    f'labels of a folder are its subfolders, got {self.label!r}; pass "" for none',
                    field="label",
                )
        else:
            requested = resolve_columns("table", self.labels_file, requested, client)
            labeled = False if requested.label else labeled
        folder = open_folder(self.place, labeled, client, keep, fresh, progress, self.allow_path)
        hints = folder_hints(folder) if labeled is None else ()
        if self.labels_file is None:
            return replace(opened_input(folder, self.place, None, ()), hints=hints)
        joined, resolved = join_labels(
            folder, self.labels_file, requested, names, client, self.missing, self.label_kind
        )
        caption = resolved.caption
        opened = opened_input(joined, self.place, caption, names, declared, self.caption)
        return replace(opened, skipped=dict(folder.skipped), hints=hints)


def opened_input(
    source: Source,
    text: str,
    caption: str | None,
    columns: tuple[str, ...],
    declared: Mapping[str, ColumnType] | None = None,
    asked: str | None = None,
) -> Input:
    """An Input of an opened source, with types of columns. ConfigError if it holds pixels.

    asked: the caption that a user named, which samples must have.
    """
    images = getattr(source, "together", None) or {"": source}
    if not all(image.spec.encoded for image in images.values()):
        raise ConfigError(
            f"{text} holds pixels, not encoded images: there is nothing to preprocess"
        )
    check_labels(source)
    known = getattr(source, "column_types", {}) | dict(declared or {})
    types = {name: known.get(name, "json") for name in columns}
    skipped = dict(getattr(source, "skipped", {}))
    optional = () if asked or caption is None else (caption,)
    return Input(source, text, caption or None, columns, skipped, optional=optional, types=types)


InputLike = Source | Input | str | os.PathLike[str] | Callable[["Target"], Input]


@dataclass(frozen=True, slots=True)
class JobSource:
    """The source of a job, opened when it is needed, maybe with a column that is not written."""

    source: SourceSpec | Source | Input | Callable[[Target], Input]
    hidden: str = ""  # a column that the plan is made from

    @property
    def text(self) -> str:
        """The source as the user named it; "" if it is not known before it is opened."""
        if isinstance(self.source, SourceSpec):
            return self.source.place
        if isinstance(self.source, Input):
            return self.source.text
        return "" if callable(self.source) else repr(self.source)

    def document(self) -> dict[str, Any] | None:
        """Options that open the source again, as JSON values; None for one that is open."""
        if not isinstance(self.source, SourceSpec):
            return None
        columns = tuple(name for name in self.source.columns if name != self.hidden)
        return replace(self.source, columns=columns).document()

    def __call__(self, target: Target) -> Input:
        """Open the source, with the listing that the job in `target` keeps."""
        if isinstance(self.source, Input):
            return self.source
        if callable(self.source):
            return self._without_hidden(self.source(target))
        check_source(self.source, "preprocess: source", several=True)
        columns = Optionals(self.source).columns(np.empty(0, np.int64))
        is_joined = bool(getattr(self.source, "together", None))
        text = (is_joined and getattr(self.source, "root", None)) or repr(self.source)
        return self._without_hidden(opened_input(self.source, text, None, tuple(columns)))

    @contextmanager
    def now(self, target: Target) -> Iterator[tuple[Input, str | None]]:
        """The source as it is now, and the prefix of its listing, which is removed at the end."""
        if not isinstance(self.source, SourceSpec):
            yield self(target), None
            return
        with temporary_listing(target) as prefix:
            yield self._without_hidden(self.source.as_planned(target).open(prefix, True)), prefix

    def _without_hidden(self, input: Input) -> Input:
        if not self.hidden:
            return input
        names = (self.hidden, *normalize_names("tar", (self.hidden,)))
        return replace(input, columns=tuple(name for name in input.columns if name not in names))


def job_source(
    source: InputLike,
    storage: dict[str, Any] | None = None,
    group: str = "",
    embedding: str = "",
) -> JobSource:
    """Resolve what `run` accepts as its source; a place is opened with these columns, too.

    The column `embedding` is not written, unless it is among the source's own `columns`.
    """
    if isinstance(source, (str, os.PathLike)):
        source = SourceSpec(os.fspath(source), storage=storage)
    if not isinstance(source, SourceSpec):
        return JobSource(source, "" if callable(source) else embedding)
    grouped = source.with_column(group)
    opened = grouped.with_column(embedding)
    return JobSource(opened, "" if opened is grouped else embedding)


def open_input(
    place: str,
    *,
    label: str | None = None,
    image: str | Sequence[str] | None = None,
    caption: str | None = None,
    columns: Sequence[str] = (),
    labels_file: str | None = None,
    missing: str = "error",
    label_kind: LabelKind | None = None,
    column_types: Sequence[str] = (),
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
        image (str | Sequence[str] | None): Column or feature with the image; with `labels_file`,
            its column of paths below `place`. Of samples of several images two or more such as
            "left=LEFT", "right=RIGHT": the name of each in the shards, and its column. Default:
            None, a usual name, with `labels_file` "path".
        caption (str | None): Column, member or feature with the caption; "": no captions. Default:
            None, a usual name, if it exists.
        columns (Sequence[str]): Names of further metadata columns to carry along. Default: ().
        labels_file (str | None): A table about the images of a folder. It must match the
            folder row by row. Default: None.
        missing (str): "error", or "drop": images without a row in `labels_file` are bad
            (label_missing), and rows without an image are ignored. Default: "error".
        label_kind (str | None): "name": integer labels are names of classes, sorted and numbered;
            "index": they are indices of classes, kept as they are; "multi": the label is a list of
            names of classes. Default: None, as in the sources: names in tables, and in shards
            unless the field is called `cls` or `label`.
        column_types (Sequence[str]): Types of columns, such as "keywords=list", "price=decimal(10,2)":
            bool, int, float, text, bytes, date, timestamp, utc (a timestamp), decimal(p,s), list
            (of texts), json. Others have the type in the source; those of shards are json, which
            takes any value. Default: ().
        allow_path (Sequence[str]): Folders outside of `place` that links in it, and paths in a
            table, may lead to. Default: ().
        allow_host (Sequence[str]): As in Table: private hosts that a table may name. Default: ().
        allow_scheme (Sequence[str]): As in Table: schemes other than https, and the table's own,
            that it may name. Default: ().
        storage (dict[str, Any] | Storage | None): fsspec options, or a Storage; options wait a
            minute for an endpoint that does not answer. Default: None.
        keep (str | None): Path prefix of local files that keep the listing of a folder, so that
            later runs see the same images, whatever is in the folder by then. Default: None,
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
    spec = SourceSpec(
        place,
        label=label,
        image=image,
        caption=caption,
        columns=columns,
        labels_file=labels_file,
        missing=missing,
        allow_path=allow_path,
        allow_host=allow_host,
        allow_scheme=allow_scheme,
        storage=storage,
        label_kind=label_kind,
        column_types=column_types,
    )
    return spec.open(keep, fresh, progress)
