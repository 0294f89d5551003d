"""Hugging Face's data sets of images, in Parquet and Arrow files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError, SourceError, speaking_for
from fastfeed.printable import printable
from fastfeed.sources.derived import Derived
from fastfeed.sources.hugging_face.repository import SUFFIXES, choose, find_data
from fastfeed.sources.label_values import LabelKind
from fastfeed.sources.methods import SourceMethods
from fastfeed.sources.notes import with_notes
from fastfeed.sources.table import Table
from fastfeed.sources.tables.column_types import ColumnType
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.expand import find_files
from fastfeed.storage.fingerprint import fingerprint
from fastfeed.storage.shard_files import ShardReader
from fastfeed.storage.storage import Storage, open_storage

# of what was done to a table, what leaves its rows and the names of its columns as they are
_HARMLESS = {"replace_schema_metadata", "select", "drop", "remove_column", "combine_chunks", "cast"}
_SAVE = "save it with dataset.save_to_disk(folder), and pass the folder"


@checked_early
class HuggingFace(Derived, SourceMethods):
    """A data set of Hugging Face: of the Hub, downloaded, saved, or as an object.

    Its Parquet and Arrow files are read in place, without its packages: images as their bytes,
    names of classes from the schema. Of Arrow files native threads read each image alone; Parquet
    is read by row group, for which `Table` has advice. Rows without bytes are read from their
    paths, under the rules of `Table`.

    Args:
        data (Any): A folder as `save_to_disk` writes it, or a repository of the Hub with .parquet
            or .arrow files: downloaded, or by its address (`hf://datasets/user/name`, which needs
            `huggingface_hub`; any other storage, too). Or one such file, or a pattern. Or a
            `datasets.Dataset` or DatasetDict that is loaded from files: these are read with its
            rows as they were selected, shuffled or filtered. It is refused if it was transformed by
            a function, or has values that its files lack.
        split (str | None): Such as "train". Default: None, the only one.
        name (str | None): Configuration of the repository. Default: None, the default one.
        image (str | None): Column of images. Default: None, the only one that the schema describes
            as such.
        label (str | Sequence[str] | None): Column of labels, or several as in `Table`. Default:
            None, the only one that the schema describes as labels of classes; without any, samples
            have no labels.
        columns (Sequence[str]): Columns carried to the batch, such as captions: as in `Table`.
            Default: ().
        label_kind (str): As in `Table`; with "name", integers whose classes the schema names are
            their labels. Default: "name".
        classes (Sequence[str | int] | None): Names of classes in the order of their labels. Default:
            None, those of the schema.
        memory (int | str): Row groups of Parquet kept per process, bytes. Default: "512MB".
        storage (dict[str, Any] | Storage | None): Options for fsspec, such as a token; or a Storage
            that several sources share. Default: None.
        cache (str | os.PathLike[str] | Cache | None): Local folder in which what is read from
            remote storage is kept. Default: None, nothing is kept.
        allow_path (str | os.PathLike[str] | Sequence[str | os.PathLike[str]]): Other folders, or
            addresses, below which paths in the data may lead. Default: ().
        allow_host (str | Sequence[str]): Hosts that they may name. Default: ().
        allow_scheme (str | Sequence[str]): Schemes that they may use. Default: ().

    Raises:
        ConfigError: If an argument is wrong, there are several splits or columns to choose from, or
            a Dataset is more than its files.
        SourceError: If the files cannot be read.

    Example:
        >>> ff.HuggingFace("birds", split="train", columns=["caption"])
        HuggingFace(birds, split train): 6 images of 2 classes
    """

    def __init__(
        self,
        data: Any,
        split: str | None = None,
        *,
        name: str | None = None,
        image: str | None = None,
        label: str | Sequence[str] | None = None,
        columns: Sequence[str] = (),
        label_kind: LabelKind = "name",
        classes: Sequence[str | int] | None = None,
        memory: int | str = "512MB",
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        allow_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        allow_host: str | Sequence[str] = (),
        allow_scheme: str | Sequence[str] = (),
    ) -> None:
        storage = open_storage(storage, cache)
        if isinstance(data, Mapping) and data and all(map(is_dataset, data.values())):
            data = data[choose("the DatasetDict", "split", split, list(data))]
            split = None
        dataset: Any = data if is_dataset(data) else None
        blocks, order = ([], None) if dataset is None else row_ranges(dataset)
        if dataset is not None:
            files = list(dict.fromkeys(block.path for block in blocks))
            self._place = f"{type(dataset).__name__} of {printable(files[0])}"
        else:
            files, configuration = _files(data, split, name, storage)
            parts = {"configuration": configuration, "split": split}
            chosen = (f", {part} {printable(text)}" for part, text in parts.items() if text)
            self._place = f"{printable(data)}{''.join(chosen)}"
        schema = _schema(files[0], storage)
        image = image or _only_image(schema, self._place)
        if label is None and label_kind != "none":
            label = _only_label(schema, self._place)
        labels = [label] if isinstance(label, str) else list(label or ())
        if dataset is not None:
            _check_types(dataset, schema, [image, *labels, *columns])
            names = getattr(dataset.features.get(labels[0]), "names", None) if labels else None
            if names and label_kind == "name":
                label_kind = "index"
                classes = classes or names
        with speaking_for("HuggingFace", "Table"):
            table = Table(
                files,
                image=image,
                label=label,
                columns=columns,
                label_kind=label_kind,
                classes=classes,
                memory=memory,
                storage=storage,
                allow_path=allow_path,
                allow_host=allow_host,
                allow_scheme=allow_scheme,
            )
        self._types = table.column_types
        rows = None if dataset is None else _rows(blocks, order, table)
        if rows is not None and not len(rows):
            raise ConfigError(
                f"HuggingFace: {self._place} has no rows; select or filter fewer of them away"
            )
        Derived.__init__(self, table, rows)

    @property
    def column_types(self) -> dict[str, ColumnType]:
        """Types of the columns by name, as in `Table`."""
        return self._types

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the files, and of the rows that are samples."""
        own = self.source.fingerprint
        if self._ids is None:
            return own
        return fingerprint(len(self), (own.encode(), self._ids.data), (), lambda *_: iter(()))

    def __str__(self) -> str:
        return with_notes(repr(self), self.notes)

    def __repr__(self) -> str:
        of_classes = f" of {len(self.classes)} classes" if self.classes else ""
        return f"HuggingFace({self._place}): {len(self)} images{of_classes}"


def column_names(data: str, storage: Storage) -> list[str]:
    """Columns of a data set that has one split."""
    files, _ = _files(data, None, None, storage)
    return list(_schema(files[0], storage).names)


def _files(
    data: Any, split: str | None, name: str | None, storage: Storage
) -> tuple[list[str], str]:
    """Files of a folder, or those that are named themselves; and one of several configurations."""
    if not isinstance(data, (str, os.PathLike)):
        raise ConfigError.of(
            "HuggingFace: data",
            "a folder, an address, or a datasets.Dataset",
            data,
            "lists of files are for Table",
        )
    place = os.fspath(data).removeprefix("file://")
    if not place.endswith(SUFFIXES):
        return find_data(place, split, name, storage)
    if split is not None or name is not None:
        raise ConfigError(
            "HuggingFace: split and name are of a folder with several files, got them for"
            f" {printable(place)}; leave them out"
        )
    return [uri for uri, _ in find_files(place, "", storage, "HuggingFace")], ""


def _schema(uri: str, storage: Storage) -> Any:
    """The schema of a file, of PyArrow."""
    from fastfeed.sources.tables.arrow_file import ArrowFile  # loads PyArrow
    from fastfeed.sources.tables.parquet import read_footer

    files = find_files([uri], "", storage, "HuggingFace")
    shards = ShardReader([uri], [stat for _, stat in files], storage)
    return ArrowFile(shards, 0).schema if uri.endswith(".arrow") else read_footer(shards, 0).schema


def _only_image(schema: Any, place: str) -> str:
    """The column that the schema describes as images, or whose type can hold no other thing."""
    from fastfeed.sources.tables.arrow import features, holds_images

    names = _described(features(schema), "Image")
    names = names or [field.name for field in schema if holds_images(field.type)]
    if len(names) != 1:
        raise ConfigError(
            f"HuggingFace: {place} has {len(names) or 'no'} columns of images"
            f"{': ' * bool(names)}{', '.join(map(printable, names))}; pass image=, one of"
            f" {', '.join(map(printable, schema.names[:30]))}"
        )
    return names[0]


def _only_label(schema: Any, place: str) -> str | None:
    """The column that the schema describes as classes; None without one."""
    from fastfeed.sources.tables.arrow import features

    names = _described(features(schema), "ClassLabel")
    if len(names) > 1:
        raise ConfigError(
            f"HuggingFace: {place} has several columns of classes, {', '.join(map(printable, names))};"
            " pass label=, one of them"
        )
    return names[0] if names else None


def _described(columns: Mapping[str, Any], kind: str) -> list[str]:
    return [
        name
        for name, feature in columns.items()
        if isinstance(feature, Mapping) and feature.get("_type") == kind
    ]


def _check_types(dataset: Any, schema: Any, names: Sequence[str]) -> None:
    """ConfigError if a column of a Dataset is not that of its files."""
    own = dataset.data.schema
    for name in names:
        if (
            name in own.names
            and name in schema.names
            and own.field(name).type != schema.field(name).type
        ):
            raise ConfigError(
                f"HuggingFace: column {printable(repr(name))} was cast to {own.field(name).type},"
                f" but its files hold {schema.field(name).type}; save the data set with"
                " dataset.save_to_disk(folder), and pass the folder"
            )


def _rows(blocks: Sequence[RowRange], order: np.ndarray | None, table: Table) -> np.ndarray | None:
    """Rows of the table that are samples, int64; None for all of them in their order."""
    spans = table.file_rows
    parts = []
    for path, first, count in blocks:
        start, held = spans[path]
        if first + count > held:
            raise SourceError(
                f"HuggingFace: {path} has {held:,} rows, and the Dataset {first + count:,}; load it"
                " again"
            )
        parts.append(np.arange(start + first, start + first + count))
    rows = np.concatenate(parts)
    if order is not None:
        rows = rows[order]
    return None if np.array_equal(rows, np.arange(len(table))) else rows


class RowRange(NamedTuple):
    """Rows [first, first + rows) of a file."""

    path: str
    first: int
    rows: int


def is_dataset(data: Any) -> bool:
    """Return True for a Dataset, or for another kind of it that `row_ranges` refuses."""
    return hasattr(data, "features") and (
        hasattr(data, "cache_files") or hasattr(data, "_ex_iterable")
    )


def row_ranges(dataset: Any) -> tuple[list[RowRange], np.ndarray | None]:
    """The rows of files that a data set has, and the order of them, int64; None for all.

    ConfigError if it is in memory, streamed, transformed by a function, or has other columns than
    its files.
    """
    if not hasattr(dataset, "cache_files"):
        raise _refused("is streamed", "load it without streaming=True, or pass its hf:// address")
    if (dataset.format or {}).get("type") == "custom":
        raise _refused(
            "has a transform (set_transform, with_transform), which would not be run",
            "take it off with dataset.reset_format() and use ops, or pass it to Mapped",
        )
    table = dataset.data
    rows = getattr(table, "blocks", [[table]])
    blocks = []
    for row in rows:
        if len(row) != 1:
            raise _refused("has columns that were added in memory", _SAVE)
        blocks.append(_block(row[0]))
    indices = getattr(dataset, "_indices", None)
    if indices is None:
        return blocks, None
    return blocks, indices.column(0).to_numpy().astype(np.int64)


def _block(table: Any) -> RowRange:
    path = getattr(table, "path", None)
    if path is None:
        raise _refused("is in memory", _SAVE)
    first = 0
    for name, arguments, named in table.replays:
        if name == "slice":
            offset, *_ = arguments or (named.get("offset", 0),)
            first += offset
        elif name not in _HARMLESS:
            raise _refused(f"was changed by {name}, which its files do not have", _SAVE)
    return RowRange(str(path), first, len(table))


def _refused(why: str, instead: str) -> ConfigError:
    return ConfigError(
        f"HuggingFace: a Dataset is read from its files, but this one {why}; {instead}"
    )
