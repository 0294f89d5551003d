"""Paths made of the values of other columns: `{folder}/{id}.jpg`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from string import Formatter
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.sources.tables.columns import (
    Codes,
    ColumnArrays,
    ColumnParser,
    ColumnPart,
    PathColumn,
    RowLocator,
    TextLists,
)
from fastfeed.sources.tables.string_column import StringColumn

_ROWS = 1 << 16  # that are Python objects at the same time


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
        self._parts: dict[str, list[ColumnPart]] = {name: [] for name in self.names}
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
