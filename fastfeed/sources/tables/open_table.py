"""Opens a table: its columns as arrays, read once and cached in a file if that takes long."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.printable import printable, warn
from fastfeed.sources.cache_folder import build_lock, cache_folder, trim_cache
from fastfeed.sources.class_names import missing_classes, renumbering
from fastfeed.sources.label_values import (
    UNLABELED,
    LabelArray,
    LabelValues,
    RequestedLabel,
    Texts,
    number_lists,
)
from fastfeed.sources.mmap_arrays import joined, load, save
from fastfeed.sources.tables.annotations import BoxColumn, ExtraColumn, WeightColumn
from fastfeed.sources.tables.column_types import ColumnType
from fastfeed.sources.tables.columns import (
    Codes,
    ColumnArrays,
    ColumnParser,
    ColumnPart,
    PathColumn,
    RowLocator,
    TextLists,
)
from fastfeed.sources.tables.label_columns import label_parser
from fastfeed.sources.tables.read_files import TableFile, read_files
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.expand import local_stat
from fastfeed.storage.reads import Stat, is_local
from fastfeed.storage.storage import Storage

_MEANING = 3  # of the arrays in a cached file: of another, they are made again
# of the table, from which on its columns are kept in a file: less is read in no time
KEEP_BYTES = 4 << 20

# fields of an OpenedTable in a cached file
_KEPT = ("rows", "leaf", "urls", "classes", "named", "kinds")

Files = Sequence[tuple[str, Stat]]
_ROWS = 1 << 16  # that are Python objects at the same time


@dataclass(frozen=True, slots=True)
class RequestedColumns:
    """The columns to read from a table, by name."""

    image: str | None
    label: RequestedLabel = UNLABELED
    weight: str | None = None
    box: tuple[str, ...] = ()  # one name or four
    columns: tuple[str, ...] = ()
    path: str | None = None  # template of paths, in place of `image`

    def __post_init__(self) -> None:
        for option, name in (("image", self.image), ("weight", self.weight)):
            if name is not None and not isinstance(name, str):
                raise ConfigError.of(f"Table: {option}", "the name of a column", name)
        if self.image is not None and self.image in (*self.label.names, self.weight, *self.box):
            raise ConfigError(
                f"Table: column {self.image!r} holds the images; it cannot be label, weight or box"
                " as well",
                field="image",
            )
        if (
            len(self.box) != len(set(self.box))
            or len(self.box) not in (0, 1, 4)
            or not _are_names(self.box)
        ):
            raise ConfigError(
                f"Table: box must name one column, or four (x, y, width, height), got {self.box!r}",
                field="box",
            )
        if not _are_names(self.columns):
            raise ConfigError.of("Table: columns", "names of columns", self.columns)

    @property
    def class_label(self) -> str | None:
        """The column whose classes a file may name."""
        return self.label.names[0] if self.label.names and self.label.is_coded else None

    def other_columns(self) -> dict[str, bool]:
        """The columns other than the images', and whether to read their texts as Codes."""
        template = () if self.path is None else template_columns(self.path)
        names = (*self.label.names, self.weight, *self.box, *self.columns, *template)
        coded = self.label.names if self.label.is_coded else ()
        return {name: name in coded for name in names if name is not None}

    def parsers(
        self, where: RowLocator, as_paths: bool, classes: Sequence[str]
    ) -> list[ColumnParser]:
        """A parser for each column, or group of columns.

        `classes`: those that the file names, integers count these.
        """
        parsers: list[ColumnParser] = []
        if self.path is not None:
            parsers.append(PathTemplate(self.path, where))
        elif self.image is not None and as_paths:
            parsers.append(PathColumn([self.image], where))
        parsers += [label_parser(self.label, where, classes)] if self.label.names else []
        parsers += [WeightColumn([self.weight], where)] if self.weight is not None else []
        parsers += [BoxColumn(self.box, where)] if self.box else []
        return parsers + [ExtraColumn([name], where) for name in self.columns]


def _are_names(names: tuple[object, ...]) -> bool:
    return all(isinstance(name, str) for name in names)


@dataclass(frozen=True, slots=True, eq=False)
class OpenedTable:
    """Files, what was found out, and arrays by name. `rows` counts those of each file."""

    files: list[tuple[str, Stat]]
    rows: list[int]
    arrays: dict[str, np.ndarray]
    # where a Parquet file has the images' bytes; None: the table names paths
    leaf: str | None = None
    urls: bool = False  # some paths are
    classes: tuple[str, ...] = ()  # names by label
    named: bool = False  # labels are names: `classes` are all of them, sorted
    kinds: dict[str, ColumnType] = field(default_factory=dict)  # types of extra columns
    cache_path: Path | None = None  # where the arrays are mapped from


def open_table(
    files: Files, requested: RequestedColumns, storage: Storage, memory: int
) -> OpenedTable:
    """Read a table, or load it from the cache."""
    if sum(stat.size for _, stat in files) < KEEP_BYTES:
        opened, arrays = _read_all(files, requested, storage, memory)
        return replace(opened, arrays=joined(arrays))
    path = _cache_path(files, requested)
    opened = _load_cached(path, files, requested)
    if opened is None:
        with build_lock(path):
            opened = _load_cached(path, files, requested) or _save_cached(
                *_read_all(files, requested, storage, memory), requested, path
            )
    return opened


def reopen_table(
    opened: OpenedTable, requested: RequestedColumns, storage: Storage, memory: int
) -> OpenedTable:
    """Open the same table in another process. SourceError if it has changed."""
    if opened.cache_path is not None:
        cached = _load_cached(opened.cache_path, opened.files, requested)
    else:
        cached = None
    if cached is not None:
        return cached
    remote = [uri for uri, _ in opened.files if not is_local(uri)]
    stats: dict[str, object] = dict(zip(remote, storage.stat(remote), strict=True))
    for uri, before in opened.files:
        if (local_stat(uri) if is_local(uri) else stats[uri]) != before:
            raise SourceError(f"{uri} has changed since this source was created; create it again")
    return open_table(opened.files, requested, storage, memory)


def label_classes(
    opened: OpenedTable,
    label: RequestedLabel,
    requested: tuple[str, ...] | None,
    where: RowLocator,
) -> tuple[tuple[str, ...], LabelValues | None]:
    """Names of classes, and labels; no labels if none were asked for."""
    arrays = opened.arrays
    if not label.names:
        return (), None
    if label.is_class:
        classes, labels = _class_labels(opened, arrays["labels"], requested, where)
        return classes, LabelArray(labels)
    if label.kind == "text":
        return (), Texts(arrays["label_blob"], arrays["label_ends"])
    if label.kind == "value":
        return (), LabelArray(arrays["label_numbers"])
    own = requested
    if own is None and (label.several or not opened.named):
        own = opened.classes  # in the order of the columns, or of the schema
    codes = arrays["label_codes"]
    ends = arrays["label_ends"]
    return number_lists(opened.classes, codes, ends, own, "Table")


def _class_labels(
    opened: OpenedTable,
    labels: np.ndarray,
    requested: tuple[str, ...] | None,
    where: RowLocator,
) -> tuple[tuple[str, ...], np.ndarray]:
    """Names by label, and labels that count them."""
    names = opened.classes if requested is None else requested
    if opened.named and requested is not None:
        if (error := missing_classes(opened.classes, requested, "Table")) is not None:
            raise error
        return names, renumbering(opened.classes, requested)[labels]
    if names and int(labels.max()) >= len(names):
        row = int(labels.argmax())
        raise SourceError(
            f"Table: {where(row)}: label {labels[row]}, but there are {len(names)} classes"
        )
    return names, labels


def _cache_path(files: Files, requested: RequestedColumns) -> Path:
    uris = [os.path.abspath(uri) if is_local(uri) else uri for uri, _ in files]
    name = hashlib.sha256(
        "\0".join([_describe_columns(requested), *uris]).encode("utf-8", "surrogateescape")
    ).hexdigest()[:16]
    return cache_folder() / "tables" / f"{name}.ffarrays"


def _describe_columns(requested: RequestedColumns) -> str:
    return f"{_MEANING} {requested!r}"


def _load_cached(path: Path, files: Files, requested: RequestedColumns) -> OpenedTable | None:
    if not all(stat.version for _, stat in files):  # it could change unseen
        return None
    cached = load(path)
    if cached is None:
        return None
    header, arrays = cached
    stats = [[stat.size, stat.version] for _, stat in files]
    if header["asked"] != _describe_columns(requested) or header["stats"] != stats:
        return None
    known: dict[str, Any] = {name: header[name] for name in _KEPT}
    known["classes"] = tuple(known["classes"])
    return OpenedTable(list(files), arrays=arrays, cache_path=path, **known)


def _read_all(
    files: Files, requested: RequestedColumns, storage: Storage, memory: int
) -> tuple[OpenedTable, ColumnArrays]:
    with closing(
        read_files(
            files,
            requested.image,
            requested.other_columns(),
            requested.class_label,
            storage,
            memory,
        )
    ) as table_files:
        return parse_files(files, table_files, requested)


def parse_files(
    files: Files, table_files: Iterable[TableFile], requested: RequestedColumns
) -> tuple[OpenedTable, ColumnArrays]:
    """The table without its arrays, and these in parts, from the columns of its files."""
    where = RowLocator()
    parsers = []
    rows = []
    reads = []
    leaf: str | None = None  # of a file with bytes
    kinds: dict[str | None, str] = {}  # leaves of all files, and the first file with each
    for (uri, _), read in zip(files, table_files, strict=True):
        if not reads:
            parsers = requested.parsers(where, read.has_paths, read.classes)
        elif not read.has_paths:  # the paths of files without any bytes are read as theirs
            parsers = [parser for parser in parsers if not isinstance(parser, PathColumn)]
        leaf = leaf if read.has_paths else read.leaf
        kinds.setdefault(read.leaf, uri)
        if leaf is not None and len(kinds) > 1:
            first, other = kinds.values()
            raise SourceError(
                f"Table: {requested.image!r} is of one kind in {first} and of another in {other}"
            )
        where.begin(uri, sum(rows))
        rows.append(_add(read, parsers))
        reads.append(read)
    if not sum(rows):
        more = f", nor have the other {len(files) - 1} files" if len(files) > 1 else ""
        raise SourceError(f"Table: {files[0][0]} has no rows{more}")
    arrays: ColumnArrays = _units(reads) if leaf is not None else _spans(reads, rows)
    for parser in parsers:
        arrays |= parser.arrays()
    texts = next((parser.texts for parser in parsers if parser.texts is not None), None)
    urls = any(parser.urls for parser in parsers)
    extra = [parser for parser in parsers if isinstance(parser, ExtraColumn)]
    types = {name: kind for parser in extra for name, kind in parser.kinds.items()}
    classes = reads[0].classes if texts is None else texts
    return (
        OpenedTable(list(files), rows, {}, leaf, urls, classes, texts is not None, types),
        arrays,
    )


def _add(read: TableFile, parsers: Sequence[ColumnParser]) -> int:
    """Pass a file's parts to the parsers of their columns; returns its number of rows."""
    before = [dict(parser.rows) for parser in parsers]
    for name, part in read.parts:
        for parser in parsers:
            if name in parser.names:
                parser.add(name, part)
    read.parts = ()  # their memory is not needed twice
    if read.leaf is not None:
        return sum(unit.rows for unit in read.units)
    return next(
        parser.rows[name] - old[name]
        for parser, old in zip(parsers, before, strict=True)
        for name in parser.names
    )


def _units(reads: Sequence[TableFile]) -> ColumnArrays:
    """Row groups, and the footers that say how they are written."""
    units = [(file, *astuple(unit)) for file, read in enumerate(reads) for unit in read.units]
    names = ("unit_file", "unit_group", "unit_rows", "unit_start", "unit_stop", "unit_unpacked")
    footers = [np.frombuffer(read.footer, np.uint8) for read in reads]
    ends = np.cumsum([len(footer) for footer in footers], dtype=np.int64)
    table = np.array(units, np.int64).reshape(-1, len(names))
    return {name: [table[:, i].copy()] for i, name in enumerate(names)} | {
        "footers": footers,
        "footer_ends": [ends],
    }


def _spans(reads: Sequence[TableFile], rows: Sequence[int]) -> ColumnArrays:
    """Places of images in Arrow files; nothing where no row has bytes."""
    if all(read.spans is None for read in reads):
        return {}
    none = [(np.zeros(count, np.int64), np.full(count, -1, np.int64)) for count in rows]
    spans = [read.spans or absent for read, absent in zip(reads, none, strict=True)]
    return {
        "span_starts": [starts for starts, _ in spans],
        "span_lengths": [lengths for _, lengths in spans],
    }


def _save_cached(
    opened: OpenedTable, arrays: ColumnArrays, requested: RequestedColumns, path: Path
) -> OpenedTable:
    stats = [[stat.size, stat.version] for _, stat in opened.files]
    known = {name: getattr(opened, name) for name in _KEPT}
    header = {"asked": _describe_columns(requested), "stats": stats, **known}
    try:
        save(path, header, arrays)
        trim_cache(path.parent.parent, path)
        mapped = load(path)
        if mapped is not None:
            return replace(opened, arrays=mapped[1], cache_path=path)
    except OSError as error:
        warn(
            f"cannot keep a table at {path}: {error.strerror}; set FASTFEED_CACHE to a folder that"
            " can be written, or the table takes memory and is read again each time",
            stacklevel=2,
        )
    return replace(opened, arrays=joined(arrays))


def template_columns(template: str) -> list[str]:
    """The names of columns in a template, each once. ConfigError if it cannot be used."""
    try:
        fields = [(name, change) for _, name, _, change in Formatter().parse(template)]
    except (TypeError, ValueError) as error:
        raise _wrong_template(template, str(error)) from error
    names = [name for name, _ in fields if name is not None]
    if not names or "" in names or any(change for _, change in fields):
        raise _wrong_template(template, "each pair of braces must hold the name of a column")
    return list(dict.fromkeys(names))


def _wrong_template(template: object, problem: str) -> ConfigError:
    return ConfigError(
        "Table: path must be a template with names of columns in braces, such as"
        f" '{{folder}}/{{id}}.jpg', got {printable(repr(template))}: {problem}",
        field="path",
    )


class PathTemplate(ColumnParser):
    """The arrays of a `PathColumn`, from the columns that a template names."""

    def __init__(self, template: str, where: RowLocator) -> None:
        super().__init__(template_columns(template), where)
        self._pieces = list(Formatter().parse(template))
        self._paths = PathColumn(["path"], where)

    def _take(self, name: str, part: ColumnPart, first: int) -> None:
        self._parts[name].append(part)

    @property
    def urls(self) -> bool:  # type: ignore[override]
        """Some paths are addresses; known once the arrays are made."""
        return self._paths.urls

    def arrays(self) -> ColumnArrays:
        fields = [(name, spec or "") for _, name, spec, _ in self._pieces if name is not None]
        form = "".join(
            literal.replace("{", "{{").replace("}", "}}") + "{}" * (name is not None)
            for literal, name, *_ in self._pieces
        )
        rows = zip(*(self._texts(name, spec) for name, spec in fields), strict=True)
        while chunk := list(islice(rows, _ROWS)):
            paths = ["" if None in texts else form.format(*texts) for texts in chunk]
            self._paths.add("path", ColumnPart(StringColumn.of(paths)))
        return self._paths.arrays()

    def _texts(self, name: str, spec: str) -> Iterator[str | None]:
        """Values of all rows as a field of the path writes them; None for null."""
        row = 0
        for part in self._parts[name]:
            missing = part.missing().tolist()
            for value, null in zip(_values(part), missing, strict=True):
                try:
                    yield None if null or value != value else _text(value, spec)
                except (TypeError, ValueError) as error:
                    needed = f"what {{{name}{':' * bool(spec)}{spec}}} can write"
                    raise self._wrong(row, name, needed, repr(value), f": {error}") from error
                row += 1


def _values(part: ColumnPart) -> Iterator[Any]:
    values = part.values
    if isinstance(values, Codes):
        return (values.texts[code] for code in values.codes.tolist())
    firsts = range(0, len(part), _ROWS)
    if isinstance(values, StringColumn):
        return iter(values.tolist())
    if isinstance(values, TextLists):
        return (part[row] for row in range(len(part)))
    return chain.from_iterable(values[first : first + _ROWS].tolist() for first in firsts)


def _text(value: Any, spec: str) -> str:
    """Format a value; a float that is whole is an integer, as pandas makes of those with gaps."""
    if isinstance(value, list):
        raise TypeError("a path has no place for a list")
    if (isinstance(value, float) and value.is_integer()) or (
        isinstance(value, str) and spec.endswith("d")
    ):
        value = int(value)
    return format(value, spec)
