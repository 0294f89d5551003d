"""Conditions on samples as text: `width >= 512 and aspect < 3 and country in ("ch", "fr")`.

The syntax is Python's, but nothing is run as Python: names, constants, comparisons, `in`, `and`,
`or`, `not` and parentheses are all there is. A comparison with a missing value (null, NaN) is
neither true nor false, as in SQL, and `is None` finds it. Values that are not known yet leave a
condition open unless the known ones decide it.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np

from fastfeed.decode.base import DecodeFailure
from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.task import SampleFault
from fastfeed.printable import printable

DROPPED = "dropped"  # the reason of samples that a condition or a user's function leaves out
# of the file as it is read, pixels as displayed; aspect is the long side by the short one
FILE_NAMES = ("width", "height", "aspect", "bytes", "format")
SAMPLE_NAMES = ("uri", "label", "class_name", "text")
_NUMBERS = ("width", "height", "aspect", "bytes", "label")
_FACT_KINDS = {
    name: "number" if name in _NUMBERS else "text" for name in (*FILE_NAMES, *SAMPLE_NAMES)
}
_COLUMN = "column"  # `column["a name"]`, for names that are not words, or are among the above
_MAX_LENGTH = 4000  # characters
_MAX_DEPTH = 50
_OPEN: Any = object()  # the value of what is not known yet

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ALLOWED = "names, constants, ==, !=, <, <=, >, >=, in, is None, and, or, not and parentheses"


@dataclass(frozen=True, slots=True)
class SampleValues:
    """Values of one sample that are known so far; None is a missing one."""

    facts: Mapping[str, Any] = field(default_factory=dict)  # of FILE_NAMES and SAMPLE_NAMES
    columns: Mapping[str, Any] = field(default_factory=dict)

    def with_file(self, height: int, width: int, size: int, format: str) -> SampleValues:
        """These values and those of FILE_NAMES; `size` is in bytes."""
        aspect = max(height, width) / min(height, width)
        file = dict(zip(FILE_NAMES, (width, height, aspect, size, format), strict=True))
        return SampleValues({**self.facts, **file}, self.columns)


UNKNOWN = SampleValues()


def known_values(
    uri: str,
    label: int | tuple[int, ...] | None,
    classes: Sequence[str],
    note: Mapping[str, Any],
    has_caption: bool,
) -> SampleValues:
    """Values that are known before a file is read; `note` as from `Input.notes`."""
    number = None if isinstance(label, tuple) else label
    facts: dict[str, Any] = {"uri": uri, "label": number, "class_name": None}
    if number is not None and number < len(classes):
        facts["class_name"] = classes[number]
    if has_caption:
        facts["text"] = note.get("text")
    earlier = (note.get("earlier") or {}).get("columns") or {}
    return SampleValues(facts, {**earlier, **note.get("columns", {})})


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed `where` condition on samples."""

    text: str
    tree: ast.expr
    columns: dict[str, ast.expr]  # the first place of each column that it names

    def failure(self, known: SampleValues, is_last: bool = False) -> DecodeFailure | None:
        """The reason to drop a sample, if what is known decides it.

        SampleFault for values that do not compare and, if nothing more will be known, for names
        without a value.
        """
        state = self._state(self.tree, known)
        if state is _OPEN and is_last:
            absent = ", ".join(repr(name) for name in self.columns if name not in known.columns)
            raise SampleFault(f"where needs {absent}, which nothing gave for this sample")
        if state is True or state is _OPEN:
            return None
        return DecodeFailure(DROPPED, self._reason(known))

    def _reason(self, values: SampleValues) -> str:
        """The first part, of those joined by `and`, that is not true."""
        tree = self.tree
        parts = [tree]
        if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
            parts = tree.values
        for part in parts:
            state = self._state(part, values)
            if state is False or state is None:
                missing = " (a value is missing)" if state is None else ""
                return f"where {ast.get_source_segment(self.text, part)}{missing}"
        return f"where {self.text}"

    def _state(self, node: ast.expr, values: SampleValues) -> Any:
        """True, False, None if a missing value leaves it undecided, or _OPEN."""
        if isinstance(node, ast.BoolOp):
            states = (self._state(part, values) for part in node.values)
            return _joined(states, isinstance(node.op, ast.Or))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            state = self._state(node.operand, values)
            return not state if isinstance(state, bool) else state
        if isinstance(node, ast.Compare):
            sides = pairwise((node.left, *node.comparators))
            pairs = zip(node.ops, sides, strict=True)
            return _joined((self._compared(node, op, *pair, values) for op, pair in pairs), False)
        state = _value(node, values)
        if state is not _OPEN and not isinstance(state, bool) and state is not None:
            raise self._fault(node, f"is {_shown(state)}, neither true nor false")
        return state

    def _compared(
        self, node: ast.expr, comparison: ast.cmpop, a: ast.expr, b: ast.expr, values: SampleValues
    ) -> Any:
        left = _value(a, values)
        right = _value(b, values)
        if left is _OPEN or right is _OPEN:
            return _OPEN
        if isinstance(comparison, (ast.Is, ast.IsNot)):
            return (left is None) is isinstance(comparison, ast.Is)
        if left is None or right is None:
            return None
        if isinstance(comparison, (ast.In, ast.NotIn)):
            is_text = isinstance(left, str) and isinstance(right, str)
            if not (is_text or _may_hold(right, left)):
                raise self._fault(node, f"looks for {_shown(left)} in {_shown(right)}")
            return (left in right) is isinstance(comparison, ast.In)
        if _kind(left) != _kind(right) or not _kind(left):
            raise self._fault(node, f"compares {_shown(left)} with {_shown(right)}")
        return bool(_COMPARISONS[type(comparison)](left, right))

    def wrong(self, node: ast.expr, problem: str) -> ConfigError:
        """The error that points at a part of the condition; its own offset counts bytes."""
        at = len(self.text.encode()[: node.col_offset].decode())
        return _wrong(self.text, at, problem)

    def _fault(self, node: ast.expr, problem: str) -> SampleFault:
        return SampleFault(f"where: {ast.get_source_segment(self.text, node)} {problem}")


def parse_condition(text: str) -> Condition:
    """Parse a condition. ConfigError that points at the place of what is wrong."""
    if not isinstance(text, str) or len(text) > _MAX_LENGTH:
        raise ConfigError.of("where", f"a text of at most {_MAX_LENGTH} characters", text)
    text = re.sub(r"\s", " ", text.strip())
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        problem = "the name of the class is class_name, its number is label"
        if not re.search(r"\bclass\b", text):
            problem = f"{error.msg}; allowed are {_ALLOWED}"
        raise _wrong(text, (error.offset or len(text) + 1) - 1, problem) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"where cannot be parsed: {error}", field="where") from None
    condition = Condition(text, tree, {})
    _check(condition, tree)
    return condition


def unknown_name(condition: Condition, names: set[str]) -> ConfigError | None:
    """The error for the first column in the condition that is not among these."""
    for name, node in condition.columns.items():
        if name not in names:
            there = ", ".join((*FILE_NAMES, *SAMPLE_NAMES))
            columns = f" and the columns {', '.join(sorted(names))}" if names else ""
            problem = f"there is no column {name!r}, only {there}{columns}"
            advice = "add it to columns (--columns), or let the function of --with return it"
            return condition.wrong(node, f"{problem}; {advice}")
    return None


def _check(of: Condition, node: ast.expr, depth: int = 0) -> None:
    """Collect the columns that a condition names. ConfigError for what is no condition."""
    if depth > _MAX_DEPTH:
        raise of.wrong(node, f"more than {_MAX_DEPTH} levels")
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _check(of, part, depth + 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check(of, node.operand, depth + 1)
    elif isinstance(node, ast.Compare):
        _check_comparison(of, node)
    elif _column(node) is None:
        raise of.wrong(node, f"this is no condition; allowed are {_ALLOWED}")
    else:
        _check_value(of, node)


def _check_comparison(of: Condition, node: ast.Compare) -> None:
    _check_value(of, node.left)
    if isinstance(node.left, (ast.Tuple, ast.List)):
        raise of.wrong(node.left, "a list is for the right side of `in`")
    left = node.left
    for comparison, side in zip(node.ops, node.comparators, strict=True):
        _check_value(of, side)
        is_none = isinstance(side, ast.Constant) and side.value is None
        if is_none and not isinstance(comparison, (ast.Is, ast.IsNot)):
            raise of.wrong(side, "missing values are found by `is None`")
        if isinstance(comparison, (ast.Is, ast.IsNot)) and not is_none:
            raise of.wrong(side, "`is` is for None; equality is ==")
        is_membership = isinstance(comparison, (ast.In, ast.NotIn))
        if isinstance(side, (ast.Tuple, ast.List)) and not is_membership:
            raise of.wrong(side, "a list is for the right side of `in`")
        kinds = [_static_kind(left), _static_kind(side)]
        if not is_membership and all(kinds) and kinds[0] != kinds[1]:
            raise of.wrong(side, f"a {kinds[0]} is compared with a {kinds[1]}")
        left = side


def _check_value(of: Condition, node: ast.expr) -> None:
    name = _column(node)
    if name is not None:
        if isinstance(node, ast.Subscript) or name not in _FACT_KINDS:
            of.columns.setdefault(name, node)
        return
    for item in node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]:
        if _constant(item) is _OPEN:
            raise of.wrong(item, f"this is no value; allowed are {_ALLOWED}")


def _joined(states: Iterable[Any], deciding: bool) -> Any:
    """`or` of states if True decides, `and` if False does; no state behind that is asked for."""
    joined: Any = not deciding
    for state in states:
        if state is deciding:
            return state
        if state is _OPEN or (state is None and joined is not _OPEN):
            joined = state
    return joined


def _column(node: ast.expr) -> str | None:
    """The name in `score` or `column["score"]`."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return None
    key = node.slice.value if isinstance(node.slice, ast.Constant) else None
    return key if node.value.id == _COLUMN and isinstance(key, str) else None


def _constant(node: ast.expr) -> Any:
    """The value of a text, number, True, False or None; _OPEN for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return -value if is_number else _OPEN
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, type(None))):
        return node.value
    return _OPEN


def _value(node: ast.expr, values: SampleValues) -> Any:
    """The value of a name or constant; None if it is missing, _OPEN if it is not known yet."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(_constant(item) for item in node.elts)
    name = _column(node)
    if name is None:
        return _constant(node)
    is_fact = isinstance(node, ast.Name) and name in _FACT_KINDS
    value = (values.facts if is_fact else values.columns).get(name, _OPEN)
    return None if isinstance(value, (float, Decimal)) and value != value else value


def _kind(value: Any) -> str:
    """The kind of values that this one compares with; "" for lists, mappings and arrays."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bool, int, float, Decimal)):
        return "number"
    return "" if isinstance(value, (list, tuple, dict, np.ndarray)) else type(value).__name__


def _may_hold(values: Any, value: Any) -> bool:
    """True for a list without values of another kind only, or without any."""
    if not isinstance(values, (list, tuple)) or not _kind(value):
        return False
    kinds = {_kind(item) for item in values if item is not None}
    return not kinds or _kind(value) in kinds


def _static_kind(node: ast.expr) -> str:
    """The kind of a constant, or of a name that is no column; "" if it is not known."""
    if isinstance(node, ast.Name):
        return _FACT_KINDS.get(node.id, "")
    value = _constant(node)
    return "" if value is _OPEN or value is None else _kind(value)


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {value.shape}"
    return f"{_kind(value) or type(value).__name__} {printable(repr(value), 60)}"


def _wrong(text: str, at: int, problem: str) -> ConfigError:
    """The error that points at a character of the condition."""
    where = f"where is wrong at character {at + 1}: {problem}\n  {text}\n  {' ' * at}^"
    return ConfigError(where, field="where")
