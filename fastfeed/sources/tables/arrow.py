"""Arrow's arrays as parts of columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from fastfeed.errors import MissingExtra, SourceError
from fastfeed.printable import printable
from fastfeed.sources.tables.column_types import (
    MAX_DEPTH,
    ColumnType,
    TypeConflict,
    is_nested,
)
from fastfeed.sources.tables.columns import Codes, ColumnPart, TextLists
from fastfeed.sources.tables.string_column import StringColumn

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise MissingExtra.of("Table", "PyArrow", "parquet") from error

_IMAGE = "paths, or images as bytes (text, binary, or a struct with a field 'bytes' or 'path')"


def part(array: Any, coded: bool, name: str, uri: str, first: int) -> ColumnPart:
    """Some rows, the first of them being row `first` of its file. SourceError."""
    null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_dictionary(array.type) and not (coded and is_text(array.type)):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_null(kind):
        return ColumnPart(np.full(len(array), np.nan), null)
    if is_text(kind):
        return ColumnPart(_codes(array) if coded else _strings(array), null)
    if _is_number(kind):
        return ColumnPart(_numbers(array), null)
    if (
        coded
        and _is_list(kind)
        and (is_text(kind.value_type) or pa.types.is_integer(kind.value_type))
    ):
        counts = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        items = array.drop_null().flatten()
        if items.null_count:
            inner = int(np.argmax(items.is_null().to_numpy(zero_copy_only=False)))
            row = first + int(np.searchsorted(np.cumsum(counts), inner, side="right"))
            raise SourceError(
                f"Table: {uri}, row {row}: column {name!r} holds a list with null in it"
            )
        return ColumnPart(TextLists(_codes(items), counts.astype(np.int64)), null)
    if _is_list(kind) and _is_number(_innermost(kind)):
        try:
            return ColumnPart(_lists(array, null, name, uri, lambda row: first + row), null)
        except SourceError as error:
            return _any_part(array, null, name, uri, str(error))
    return _any_part(
        array,
        null,
        name,
        uri,
        f"Table: column {printable(repr(name))} of {uri} holds {printable(kind)}; numbers, bools,"
        " texts and lists of numbers can be read",
    )


def _any_part(array: Any, null: np.ndarray | None, name: str, uri: str, refusal: str) -> ColumnPart:
    """Values of any type, as texts. SourceError for types that no format can carry."""
    try:
        kind = _column_type(array.type)
        if kind == "bytes":
            values = _strings(array, pa.large_binary())
        elif is_nested(kind):
            values = StringColumn.of(
                ["" if row is None else json.dumps(row) for row in _json_values(array, kind)]
            )
        else:
            values = _strings(_iso(array))
    except TypeConflict as error:
        raise SourceError(f"Table: column {printable(repr(name))} of {uri} {error}") from None
    except UnicodeDecodeError as error:
        raise SourceError(
            f"Table: column {printable(repr(name))} of {uri} holds texts that are not UTF-8: {error}"
        ) from None
    return ColumnPart(values, null, kind=kind, refusal=refusal)


def _column_type(kind: Any, depth: int = 0) -> ColumnType:
    """The type of a column of Arrow's. TypeConflict."""
    if pa.types.is_dictionary(kind):
        return _column_type(kind.value_type, depth)
    for fits, own in _TYPES:
        if fits(kind):
            return own
    if is_bytes(kind) and not depth:
        return "bytes"
    if pa.types.is_timestamp(kind):
        return ["timestamp", kind.unit, kind.tz is not None]
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision:
        return ["decimal", kind.precision, kind.scale]
    if depth == MAX_DEPTH:
        raise TypeConflict(f"is nested more than {MAX_DEPTH} deep")
    if _is_list(kind):
        return ["list", _column_type(kind.value_type, depth + 1)]
    if pa.types.is_struct(kind) and kind.num_fields:
        return ["struct", [[field.name, _column_type(field.type, depth + 1)] for field in kind]]
    inner = " inside of lists or structs" if depth else ""
    raise TypeConflict(
        f"holds {printable(kind)}{inner}, which no format can carry; leave it out of columns"
    )


def _json_values(array: Any, kind: ColumnType) -> list[Any]:
    """Values as JSON holds them."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not is_nested(kind):
        if kind == "float":
            array = array.cast(pa.float64())
            return pc.if_else(pc.is_finite(array), array, None).to_pylist()
        is_plain = kind in ("bool", "int", "null") or is_text(array.type)
        return (array if is_plain else _iso(array)).to_pylist()
    present = array.is_valid().to_pylist()
    if kind[0] == "struct":
        names = [name for name, _ in kind[1]]
        columns = [
            _json_values(own, inner)
            for own, (_, inner) in zip(array.flatten(), kind[1], strict=True)
        ]
        rows = zip(*columns, strict=True)
        return [
            dict(zip(names, row, strict=True)) if there else None
            for row, there in zip(rows, present, strict=True)
        ]
    filled = array.drop_null()
    items = _json_values(filled.flatten(), kind[1])
    stops = np.cumsum(filled.value_lengths().to_numpy(zero_copy_only=False)).tolist()
    bounds = zip([0, *stops], stops, strict=False)
    lists = iter([items[start:stop] for start, stop in bounds])
    return [next(lists) if there else None for there in present]


def _iso(array: Any) -> Any:
    """Dates, timestamps and decimals as texts."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp(array.type.unit, "UTC" if array.type.tz else None))
        return pc.replace_substring(array.cast(pa.string()), " ", "T")
    return array.cast(pa.string())


def path_to(schema: Any, name: str) -> list[str]:
    """Column and fields that a name with dots leads to; "" for an unknown column."""
    parts = name.split(".")
    heads = [".".join(parts[:k]) for k in range(len(parts), 0, -1)]
    head = next((head for head in heads if schema.get_field_index(head) >= 0), "")
    return [head, *name[len(head) + 1 :].split(".")] if head and head != name else [head]


def column_kind(schema: Any, name: str) -> Any:
    """Type of a column of a schema, or of a field `a.b` in a struct; None for an unknown one."""
    column, *fields = path_to(schema, name)
    kind = schema.field(column).type if column else None
    for inner in fields:
        index = kind.get_field_index(inner) if kind is not None and pa.types.is_struct(kind) else -1
        kind = kind.field(index).type if kind is not None and index >= 0 else None
    return kind


def get_column(table: Any, name: str) -> Any:
    """A column of a table, or a field `a.b` of a column of structs: a ChunkedArray."""
    column, *fields = path_to(table.schema, name)
    return pc.struct_field(table.column(column), fields) if fields else table.column(column)


def image_fields(kind: Any, name: str, uri: str) -> tuple[str, str]:
    """The column of the images' bytes, and that of their paths, by the type of `name`; "": none."""
    if is_text(kind):
        return "", name
    if is_bytes(kind):
        return name, ""
    if pa.types.is_struct(kind):
        inner = {field.name: field.type for field in kind}
        content = is_bytes(inner.get("bytes", pa.null())) and f"{name}.bytes"
        path = is_text(inner.get("path", pa.null())) and f"{name}.path"
        if content or path:
            return content or "", path or ""
    actual_type = "null in every row" if pa.types.is_null(kind) else printable(kind)
    is_nested = _is_list(kind) and is_bytes(kind.value_type)
    hint = "; write a row for each image" if is_nested else ""
    raise SourceError(
        f"Table: column {printable(repr(name))} of {uri} must hold {_IMAGE}, got"
        f" {actual_type}{hint}"
    )


def as_table(frame: Any) -> Any:
    """A table of Arrow; of another library, by its C interface."""
    return frame if isinstance(frame, pa.Table) else pa.table(frame)


def holds_images(kind: Any) -> bool:
    """Return True for bytes, and for structs with a field of bytes."""
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and is_bytes(kind.field("bytes").type)
    return is_bytes(kind)


def class_names(schema: Any, name: str) -> tuple[str, ...]:
    """Class names of a column of labels, or of lists of them, as Hugging Face's `datasets` has."""
    try:
        feature = features(schema)[name]
        return tuple(map(str, feature.get("feature", feature)["names"]))
    except (KeyError, TypeError, AttributeError):
        return ()


def features(schema: Any) -> dict[str, Any]:
    """Columns as Hugging Face's `datasets` describes them in a schema; empty without."""
    try:
        about = json.loads((schema.metadata or {})[b"huggingface"])
        return dict(about["info"]["features"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def is_text(kind: Any) -> bool:
    """Return True for types of texts, including dictionaries."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"


def is_bytes(kind: Any) -> bool:
    """Return True for types of bytes, including dictionaries."""
    if pa.types.is_dictionary(kind):
        return is_bytes(kind.value_type)
    is_plain = (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
    return is_plain or str(kind) == "binary_view"


def _is_list(kind: Any) -> bool:
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _innermost(kind: Any) -> Any:
    return _innermost(kind.value_type) if _is_list(kind) else kind


def _is_number(kind: Any) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


# Arrow's types that are one of a column's whatever their width
_TYPES: list[tuple[Callable[[Any], bool], ColumnType]] = [
    (pa.types.is_null, "null"),
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "int"),
    (pa.types.is_floating, "float"),
    (is_text, "text"),
    (pa.types.is_time, "text"),
    (pa.types.is_date, "date"),
]


def _codes(array: Any) -> Codes:
    if pa.types.is_dictionary(array.type):
        coded = array
    else:
        coded = array.cast(pa.large_string()).dictionary_encode()
    codes = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return Codes(codes.astype(np.int64), tuple(coded.dictionary.to_pylist()))


def _strings(array: Any, kind: Any = None) -> StringColumn:
    """Texts or bytes. Arrow's memory is given back."""
    array = array.cast(kind or pa.large_string())
    if not len(array):
        return StringColumn.of([])
    _, ends, blob = array.buffers()
    ends = np.frombuffer(ends, np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(b"" if blob is None else blob, np.uint8)[ends[0] : ends[-1]]
    return StringColumn(data.copy(), ends[1:] - ends[0])


def _numbers(array: Any) -> np.ndarray:
    if not array.null_count:
        return array.to_numpy(zero_copy_only=False)
    return array.fill_null(False if pa.types.is_boolean(array.type) else 0).to_numpy(
        zero_copy_only=False
    )


def _lists(
    array: Any, null: np.ndarray | None, name: str, uri: str, row_of: Callable[[int], int]
) -> np.ndarray:
    """(n, k), or (n, k, ...) of nested lists; rows of null are 0."""
    present = np.ones(len(array), bool) if null is None else ~null
    widths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    width = int(widths[present][0]) if present.any() else 0
    if (odd := present & (widths != width)).any():
        row = int(np.argmax(odd))
        raise SourceError(
            f"Table: {uri}, row {row_of(row)}: column {name!r} holds a list of {widths[row]}, those"
            f" above hold {width}"
        )
    flat = array.drop_null().flatten()
    if flat.null_count:
        inner = int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False)))
        row = row_of(int(np.flatnonzero(present)[inner // width]))
        raise SourceError(f"Table: {uri}, row {row}: column {name!r} holds a list with null in it")
    if _is_list(flat.type):
        rows = np.flatnonzero(present)
        inner_values = _lists(flat, None, name, uri, lambda k: row_of(int(rows[k // width])))
    else:
        inner_values = _numbers(flat)
    values = inner_values.reshape(int(present.sum()), width, *inner_values.shape[1:])
    if null is None:
        return values
    out = np.zeros((len(array), *values.shape[1:]), values.dtype)
    out[present] = values
    return out
