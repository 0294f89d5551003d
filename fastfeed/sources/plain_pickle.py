"""Pickles of plain values and byte arrays, read without running anything that they name.

An unpickler calls what a file names. Even a short list of allowed names is too many: NumPy's own
`dtype` can be changed after an array was made of it. Here the opcodes are followed by hand. A name,
a call and a state are recorded as data, and an array is made at the end, from values that were
checked. Nothing else is built than None, numbers, texts, lists, tuples, dicts and `Call`s, and no
two values of a file are ever compared or hashed but texts and integers.
"""

from __future__ import annotations

import math
import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

__all__ = ["Call", "byte_array", "read_pickle", "text_of"]

_MARK: Final = object()  # on the stack
_LONGEST = 1000  # characters of a key, or of a class's name
_CORES = ("numpy.core", "numpy._core")
_NAMES = frozenset(
    [("_codecs", "encode"), ("numpy", "dtype"), ("numpy", "ndarray"), ("builtins", "bytearray")]
    + [(f"{core}.multiarray", "_reconstruct") for core in _CORES]
    + [(f"{core}.numeric", "_frombuffer") for core in _CORES]  # from protocol 5 on
)
_UINT8 = ("u1", "|u1", "uint8")
# opcodes that carry a value
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *(
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
    ),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


@dataclass(slots=True, eq=False)
class Call:
    """A call that a pickle asks for, recorded and not made."""

    name: str  # "numpy.dtype"
    arguments: tuple[Any, ...] | None = None  # None: the name alone
    state: Any = None


class _Machine:
    """The stack and the memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        """The value that is left at STOP."""
        for opcode, argument, _ in pickletools.genops(content):
            name = opcode.name
            if name == "STOP":
                return self.pop()
            if name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name])
            elif name in _STEPS:
                _STEPS[name](self, argument)
            elif name in _VALUES:
                self.stack.append(argument)
            elif name not in ("PROTO", "FRAME"):
                raise ValueError(f"refused opcode {name}")
        raise ValueError("no end")

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark in place of a value")
        return value

    def pop_mark(self) -> list[Any]:
        """The values above the last mark."""
        values: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def top(self, kind: type) -> Any:
        value = self.stack[-1]
        if type(value) is not kind:
            raise ValueError(f"a {kind.__name__} is needed, got a {type(value).__name__}")
        return value

    def tuple_of(self, count: int) -> None:
        self.stack.append(tuple(reversed([self.pop() for _ in range(count)])))

    def append(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def dict_of(self, values: list[Any]) -> None:
        self.stack.append({})
        self.set_items(values)

    def set_items(self, values: list[Any]) -> None:
        items = self.top(dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            name = text_of(key)
            if name is None:
                raise ValueError("a key that is no text")
            items[name] = value

    def name(self, name: str) -> None:
        module, _, attribute = name.partition(" ")
        if (module, attribute) not in _NAMES:
            raise ValueError(f"refused to load {module}.{attribute}")
        self.stack.append(Call(f"{module.replace('numpy.core', 'numpy._core')}.{attribute}"))

    def stack_name(self) -> None:
        attribute, module = self.pop(), self.pop()
        self.name(f"{module} {attribute}" if type(module) is type(attribute) is str else "")

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if (
            type(function) is not Call
            or function.arguments is not None
            or type(arguments) is not tuple
        ):
            raise ValueError("a call of what is no name")
        self.stack.append(Call(function.name, arguments))

    def build(self) -> None:
        state = self.pop()
        called = self.top(Call)
        if called.arguments is None or called.state is not None:
            raise ValueError("a state of what has none, or has one already")
        called.state = state

    def put(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    def get(self, key: int) -> None:
        self.stack.append(self.memo[key])


_STEPS: dict[str, Callable[[_Machine, Any], object]] = {
    "MARK": lambda m, _: m.stack.append(_MARK),
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.pop_mark(),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "DICT": lambda m, _: m.dict_of(m.pop_mark()),
    "LIST": lambda m, _: m.stack.append(m.pop_mark()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_mark())),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "APPEND": lambda m, _: m.append([m.pop()]),
    "APPENDS": lambda m, _: m.append(m.pop_mark()),
    "SETITEM": lambda m, _: m.set_items([m.pop(), m.pop()][::-1]),
    "SETITEMS": lambda m, _: m.set_items(m.pop_mark()),
    "MEMOIZE": lambda m, _: m.put(len(m.memo)),
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": lambda m, _: m.stack_name(),
    "REDUCE": lambda m, _: m.reduce(),
    "BUILD": lambda m, _: m.build(),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
}


def read_pickle(content: bytes) -> Any:
    """The value that a pickle describes. Keys of dicts are texts, also where Python 2 wrote bytes.

    Args:
        content (bytes): All of the file.

    Returns:
        None, numbers, texts, bytes, lists, tuples, dicts; `Call` for what only NumPy could build.

    Raises:
        ValueError: If it is damaged, or names or does anything else.
    """
    try:
        with warnings.catch_warnings():  # of a text with unknown escapes
            warnings.simplefilter("ignore")
            return _Machine().run(content)
    except (
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ValueError(f"a damaged pickle: {type(error).__name__} {error}") from None


def text_of(value: Any) -> str | None:
    """A short text, also where it is bytes or a call that encodes one; None for anything else.

    Only short ones: a file may name the same text as often as it likes, and each would be a copy.
    """
    if type(value) is Call and value.name == "_codecs.encode" and value.arguments:
        value = value.arguments[0]
    if not isinstance(value, (str, bytes)) or len(value) > _LONGEST:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def byte_array(value: Any) -> np.ndarray | None:
    """The uint8 array that a recorded call describes; None where it is none.

    The array is read-only.
    """
    if type(value) is not Call or type(value.arguments) is not tuple:
        return None
    raw: Any
    if (
        value.name == "numpy._core.numeric._frombuffer"
        and len(value.arguments) == 4
        and value.state is None
    ):
        raw, dtype, shape, order = value.arguments
    elif (
        value.name == "numpy._core.multiarray._reconstruct"
        and type(value.state) is tuple
        and len(value.state) == 5
    ):
        _, shape, dtype, fortran, raw = value.state
        order = "F" if fortran else "C"
    else:
        return None
    data = _raw_bytes(raw)
    if data is None or not _is_uint8(dtype) or type(shape) is not tuple or order not in ("C", "F"):
        return None
    if (
        not all(type(n) is int and 0 <= n < 2**40 for n in shape)
        or len(shape) > 4
        or math.prod(shape) != len(data)
    ):
        return None
    return np.frombuffer(data, np.uint8).reshape(shape, order=order)


def _is_uint8(value: Any) -> bool:
    if type(value) is not Call or value.name != "numpy.dtype" or not value.arguments:
        return False
    return value.arguments[0] in _UINT8


def _raw_bytes(value: Any) -> bytes | None:
    """Bytes from any protocol: Python 2 text, protocol 2 encoded text, protocol 5 bytearray."""
    if type(value) is Call and value.name == "builtins.bytearray" and value.arguments:
        value = value.arguments[0]
    if type(value) is Call and value.name == "_codecs.encode" and value.arguments:
        value = value.arguments[0]
    if type(value) is str:
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            return None
    return bytes(value) if isinstance(value, (bytes, bytearray)) else None
