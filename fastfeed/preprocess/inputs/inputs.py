"""The source of a job: images, and the metadata columns to carry along."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import STORAGE, Failure
from fastfeed.preprocess.inputs.plan_ids import sample_columns
from fastfeed.preprocess.inputs.readahead import read_failure
from fastfeed.preprocess.model.columns import TAKEN, canonical, too_large
from fastfeed.preprocess.model.recipe import Recipe, digest
from fastfeed.printable import printable, warn
from fastfeed.sources.base import Source
from fastfeed.sources.notes import source_notes
from fastfeed.sources.tables.column_types import ColumnType

_IMAGE_NAME = re.compile("[a-z][a-z0-9_]{0,39}")
_AT_ONCE = 4096  # samples whose columns are read together


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """Images, their labels (`source.label`, `source.classes`), captions and metadata columns.

    Pickles.

    Args:
        source (Source): The encoded images.
        text (str): The source as the user named it, without storage options, which may hold
            secrets.
        caption (str | None): Name of the caption column; "json:a.b" is a field of a JSON column.
            Default: None.
        columns (tuple[str, ...]): Names of further metadata columns. Default: ().
        skipped (dict[str, int]): Files that are not images, by extension. Default: {}.
        hints (tuple[str, ...]): What a user should know before the shards are built. Default: ().
        metadata (str): Column with the metadata that an earlier job wrote: names, sums and sizes of
            its source, and its columns, are kept. "" if the source is not a job's. Default: "".
        types (dict[str, Any]): Types of the columns, and of those of the earlier job, by name, as
            a plan has them: values that do not fit are bad samples. {} leaves values as the source
            returns them. Default: {}.
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
    skipped: dict[str, int] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    metadata: str = ""
    optional: tuple[str, ...] = ()
    types: dict[str, ColumnType] = field(default_factory=dict)

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the images of a sample, of a `Together`; () if it has one image."""
        return tuple(getattr(self.source, "together", None) or ())

    @property
    def left_out(self) -> dict[str, int]:
        """The deprecated former name of `skipped`."""
        warn("Input.left_out is now called skipped", DeprecationWarning, stacklevel=2)
        return self.skipped

    def notes(
        self, ids: Sequence[int] | np.ndarray, earlier: bool = False
    ) -> list[dict[str, Any] | Failure]:
        """Captions and columns of samples, as JSON values.

        Args:
            ids (Sequence[int] | np.ndarray): Of samples in the source.
            earlier (bool): Add what an earlier job wrote of each sample, as "earlier". Default:
                False.

        Returns:
            One dict per id: "text" (the caption), "columns" (a dict), and "blobs" (a dict of
                columns of bytes), where the sample has them. A Failure if they cannot be read.
        """
        if not self.caption and not self.columns and not (earlier and self.metadata):
            return [{} for _ in ids]
        ids = [int(i) for i in ids]
        try:
            columns = sample_columns(self.source, ids)
            return [self._note(i, values, earlier) for i, values in zip(ids, columns, strict=True)]
        except Exception as error:
            if len(ids) == 1:
                return [read_failure(self.source, ids[0], error)]
        return [self.notes([i], earlier)[0] for i in ids]

    def missing(self, looked_at: int = 100) -> list[str]:
        """Names of the caption and columns that no sample has: probably misspelled.

        Args:
            looked_at (int): How many samples are read, evenly spread over the source. Default: 100.

        Returns:
            The names, the caption first.
        """
        notes = sampled_notes(self, looked_at)
        present = set(self.optional)
        for note in notes:
            columns = note.get("columns", {}) | note.get("blobs", {})
            present |= {name for name, value in columns.items() if value is not None}
            present |= {self.caption or ""} if "text" in note else set()
        requested = [name for name in (self.caption, *self.columns) if name]
        return [name for name in requested if notes and name not in present]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Parts of the source that are skipped, and why."""
        links = (
            "links that lead out of a folder are followed where allow_path (--allow-path) names the"
            " folder behind them"
        )
        return (*source_notes(self.source), *([links] if "(link outside)" in self.skipped else []))

    @property
    def fingerprint(self) -> str:
        """Changes when the images, their labels, captions or columns change."""
        names = f" images {','.join(self.images)}" if self.images else ""
        if not (self.caption or self.columns):
            return f"{self.source.fingerprint}{names}"
        columns = digest([self.caption, *self.columns])
        return f"{self.source.fingerprint}{names} columns {columns}"

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
        try:
            columns = {name: self._value(name, field_value(values, name)) for name in self.columns}
        except ValueError as error:
            return Failure(i, self.source.uri(i), "read", "corrupt", str(error))
        if self.types and (problem := too_large(columns)):
            return Failure(i, self.source.uri(i), "read", "corrupt", problem)
        blobs = {name: value for name, value in columns.items() if isinstance(value, bytes)}
        if self.columns:
            binary = {name for name in columns if self.types.get(name) == "bytes"}
            note["columns"] = {name: columns[name] for name in columns if name not in binary}
        if earlier:
            for name, kind in self.types.items():  # columns of bytes of an earlier job
                is_carried = kind == "bytes" and name not in self.columns
                if is_carried and (value := canonical("bytes", values.get(name))):
                    blobs[name] = value
        if blobs:
            note["blobs"] = blobs
        if earlier and self.metadata:
            meta = values.get(self.metadata)
            note["earlier"] = json.loads(meta) if isinstance(meta, str) else meta or {}
        return note

    def _value(self, name: str, value: Any) -> Any:
        """The value of a column, by its type. ValueError."""
        try:
            if self.types:
                return canonical(self.types[name], value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{printable(name)}: {error}") from error
        if isinstance(value, bytes):
            raise ValueError(f"{name}: bytes that are not text, which JSON cannot hold")
        return value


def check_images(input: Input, recipe: Recipe) -> None:
    """ConfigError for several images per sample that a recipe, or a format, has no room for."""
    refused = {
        "format raw (--format)": recipe.packing.format == "raw",
        "dedupe (--dedupe)": recipe.choice.dedupe != "none",
        "buckets (--buckets)": bool(recipe.scaling.buckets),
        "keep_small (--keep-small)": recipe.encoding.keep_small,
        "extras (--with)": bool(recipe.metadata.extras),
    }
    names = ", ".join(input.images)
    for option, is_asked in refused.items():
        if names and is_asked:
            raise ConfigError(
                f"{option} is for samples of one image, {input.text} has {names}; leave it out"
            )
    for name in input.images:
        is_taken = name in {*input.types, *TAKEN} - {"image"}
        if is_taken or not _IMAGE_NAME.fullmatch(name):
            raise ConfigError.of(
                "preprocess: names of images",
                "lower-case letters, digits and _, and no other part of a sample",
                name,
                "name the images of Together, or --image, otherwise",
            )


def sampled_notes(
    input: Input, looked_at: int = 100, earlier: bool = False
) -> list[dict[str, Any]]:
    """Notes of samples spread evenly over the source, those that can be read."""
    count = len(input.source)
    ids = np.unique(np.linspace(0, count - 1, min(count, looked_at)).astype(np.int64))
    return [note for note in input.notes(ids, earlier) if isinstance(note, dict)]


def read_columns(
    input: Input, names: Sequence[str], what: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Id and columns of each sample that can be read. SourceError for `what` if storage fails."""
    alone = replace(input, caption=None, columns=tuple(names), metadata="")
    count = len(input.source)
    for first in range(0, count, _AT_ONCE):
        ids = range(first, min(first + _AT_ONCE, count))
        for i, note in zip(ids, alone.notes(ids), strict=True):
            if not isinstance(note, Failure):
                yield i, note["columns"]
            elif note.reason in STORAGE:
                raise SourceError(f"{what}: storage failed at {note}; run the same command again")


def field_value(values: dict[str, Any], name: str) -> Any:
    """The value of a column, or of a field of a JSON column: "json:a.b"."""
    if name in values:
        return values[name]
    column, _, path = name.partition(":")
    current = values.get(column)
    for part in path.split("."):
        current = current.get(part) if isinstance(current, dict) else None
    return current
