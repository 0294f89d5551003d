"""The layouts of the small classic data sets: MNIST's idx files and CIFAR's batches.

CIFAR's Python version is pickles, read without running anything that they name. An unpickler calls
what a file names, and even a short list of allowed names is too many: NumPy's own `dtype` can be
changed after an array was made of it. Here the opcodes are followed by hand. A name, a call and a
state are recorded as data, and an array is made at the end, from checked values. Only None, numbers,
texts, lists, tuples, dicts and `PickledCall`s are built, and only texts and integers are ever compared or
hashed.
"""

from __future__ import annotations

import gzip
import io
import math
import pickletools
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.storage.local_file import read_file
from fastfeed.storage.reads import Unread

_CIFAR_PIXELS = 3 * 32 * 32
MEMORY = 1_000_000_000  # bytes of a file, unpacked
_LABELS = 1 << 31  # above every label that CIFAR can have


def read_mnist(folder: Path, split: str, memory: int) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (n, 28, 28) and labels of one split, each in up to `memory` bytes."""
    prefix = {"train": "train", "test": "t10k"}[_split(split)]
    images, labels = (
        read_idx(
            _first(
                folder,
                [f"{prefix}-{kind}{dot}idx{n}-ubyte{gz}" for dot in "-." for gz in ("", ".gz")],
            ),
            memory,
        )
        for kind, n in (("images", 3), ("labels", 1))
    )
    if images.ndim != 3 or labels.shape != (len(images),):
        raise SourceError(
            f"MNIST: images and labels in {folder} must have the same length, got {images.shape}"
            f" and {labels.shape}; download both again"
        )
    return images, labels


def read_idx(path: Path, memory: int = MEMORY) -> np.ndarray:
    """One idx file of unsigned bytes (yann.lecun.com/exdb/mnist), .gz or not."""
    data = _content(path, "idx")
    if path.suffix == ".gz":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(memory + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"idx: cannot read {path}: {error}") from error
    if len(data) > memory:
        raise SourceError(
            f"idx: {path} takes more than {memory:,} bytes unpacked; pass memory= if you trust it"
        )
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise SourceError(
            f"idx: {path} must start with 00 00 08 (unsigned bytes), got"
            f" {data[:4].hex(' ') or 'nothing'}"
        )
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise SourceError(f"idx: {path} ends inside its header: {len(data)} bytes of {start}")
    shape = tuple(int(n) for n in np.frombuffer(data[4:start], ">u4"))
    if len(data) - start != math.prod(shape):
        raise SourceError(
            f"idx: {path} should hold {math.prod(shape)} bytes for shape {shape}, got"
            f" {len(data) - start}"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def read_cifar(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Images uint8 (n, 32, 32, 3), labels (fine ones for CIFAR-100), and class names if present."""
    _split(split)
    if not folder.is_dir():
        raise SourceError(f"CIFAR: no folder {folder}; pass the one that was unpacked")
    ten = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}[split]
    for names, record in (([f"{n}.bin" for n in ten], 1), ([f"{split}.bin"], 2)):
        if all((folder / n).exists() for n in names):
            parts = [_cifar_binary(folder / n, record) for n in names]
            break
    else:
        names = ten if all((folder / n).exists() for n in ten) else [split]
        if not all((folder / n).exists() for n in names):
            raise SourceError(
                f"CIFAR: {folder} holds neither {ten[0]}[.bin] nor {split}[.bin]; is it the"
                " unpacked folder?"
            )
        parts = [_cifar_pickle(folder / n) for n in names]
    images = np.concatenate([p for p, _ in parts]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    labels = np.concatenate([labels for _, labels in parts])
    classes = _cifar_names(folder)
    if len(labels) and (int(labels.min()) < 0 or (classes and int(labels.max()) >= len(classes))):
        raise SourceError(
            f"CIFAR: {folder} has labels {labels.min()} to {labels.max()} and {len(classes)} names"
            " of classes; damaged?"
        )
    return np.ascontiguousarray(images), labels, classes


def _cifar_binary(path: Path, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    data = np.frombuffer(_content(path, "CIFAR"), np.uint8)
    if not len(data) or len(data) % (label_bytes + _CIFAR_PIXELS):
        raise SourceError(
            f"CIFAR: the size of {path} must be a multiple of {label_bytes + _CIFAR_PIXELS} bytes,"
            f" got {len(data)}; download it again if it is truncated"
        )
    rows = data.reshape(-1, label_bytes + _CIFAR_PIXELS)
    return rows[:, label_bytes:], rows[:, label_bytes - 1].astype(np.int64)


def _cifar_pickle(path: Path) -> tuple[np.ndarray, np.ndarray]:
    batch = _unpickle(path)
    labels = batch.get("labels", batch.get("fine_labels"))
    pixels = byte_array(batch.get("data"))
    if pixels is None or type(labels) is not list or pixels.shape != (len(labels), _CIFAR_PIXELS):
        raise SourceError(f"CIFAR: {path} is not a CIFAR batch")
    if not all(type(label) is int and 0 <= label < _LABELS for label in labels):
        raise SourceError(f"CIFAR: {path} is not a CIFAR batch")
    return pixels, np.array(labels, np.int64)


def _cifar_names(folder: Path) -> tuple[str, ...]:
    for name, key in (("batches.meta", "label_names"), ("meta", "fine_label_names")):
        if (folder / name).exists():
            listed = _unpickle(folder / name).get(key, [])
            names = [short_text(n) for n in listed] if type(listed) is list else [None]
            if None in names:
                raise SourceError(f"CIFAR: {folder / name} does not hold the names of classes")
            return tuple(n for n in names if n is not None)
    for name in ("batches.meta.txt", "fine_label_names.txt"):
        if (folder / name).exists():
            return tuple(_content(folder / name, "CIFAR").decode(errors="replace").split())
    return ()


def _unpickle(path: Path) -> dict[Any, Any]:
    try:
        batch = read_pickle(_content(path, "CIFAR"))
    except ValueError as error:
        raise SourceError(f"CIFAR: cannot read {path}: {error}") from error
    if not isinstance(batch, dict):
        raise SourceError(f"CIFAR: {path} is not a CIFAR batch")
    return batch


def _content(path: Path, who: str) -> bytes:
    """All bytes of a regular file. SourceError."""
    content = read_file(str(path))
    if isinstance(content, Unread) and content.reason != "empty":
        raise SourceError(f"{who}: cannot read {path}: {content.detail or content.reason}")
    return b"" if isinstance(content, Unread) else content


def _first(folder: Path, names: list[str]) -> Path:
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise SourceError(
        f"MNIST: {folder} does not hold {names[0]} (or .gz); pass the folder with the four idx"
        " files"
    )


def _split(split: str) -> str:
    if split not in ("train", "test"):
        raise ConfigError.of("split", '"train" or "test"', split)
    return split


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
_VALUES = {*["INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"]}
_VALUES |= {
    *["STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE"]
}
_VALUES |= {*["BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"]}
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


@dataclass(slots=True, eq=False)
class PickledCall:
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
        """Run the pickle and return the value left at STOP."""
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

    def build_tuple(self, count: int) -> None:
        self.stack.append(tuple(reversed([self.pop() for _ in range(count)])))

    def append(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def build_dict(self, values: list[Any]) -> None:
        self.stack.append({})
        self.set_items(values)

    def set_items(self, values: list[Any]) -> None:
        items = self.top(dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            name = short_text(key)
            if name is None:
                raise ValueError("a key that is not text")
            items[name] = value

    def name(self, name: str) -> None:
        module, _, attribute = name.partition(" ")
        if (module, attribute) not in _NAMES:
            raise ValueError(f"refused to load {module}.{attribute}")
        self.stack.append(PickledCall(f"{module.replace('numpy.core', 'numpy._core')}.{attribute}"))

    def stack_name(self) -> None:
        attribute = self.pop()
        module = self.pop()
        self.name(f"{module} {attribute}" if type(module) is type(attribute) is str else "")

    def reduce(self) -> None:
        arguments = self.pop()
        function = self.pop()
        if (
            type(function) is not PickledCall
            or function.arguments is not None
            or type(arguments) is not tuple
        ):
            raise ValueError("a call of what is not a name")
        self.stack.append(PickledCall(function.name, arguments))

    def build(self) -> None:
        state = self.pop()
        called = self.top(PickledCall)
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
    "DICT": lambda m, _: m.build_dict(m.pop_mark()),
    "LIST": lambda m, _: m.stack.append(m.pop_mark()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_mark())),
    "TUPLE1": lambda m, _: m.build_tuple(1),
    "TUPLE2": lambda m, _: m.build_tuple(2),
    "TUPLE3": lambda m, _: m.build_tuple(3),
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
        None, numbers, texts, bytes, lists, tuples, dicts; `PickledCall` for NumPy's values.

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


def short_text(value: Any) -> str | None:
    """A short text, even as bytes or a call that encodes one; None for other values.

    Only short ones: a file may name the same text as often as it likes, and each would be a copy.
    """
    if type(value) is PickledCall and value.name == "_codecs.encode" and value.arguments:
        value = value.arguments[0]
    if not isinstance(value, (str, bytes)) or len(value) > _LONGEST:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def byte_array(value: Any) -> np.ndarray | None:
    """The uint8 array that a recorded call describes; None for other calls.

    The array is read-only.
    """
    if type(value) is not PickledCall or type(value.arguments) is not tuple:
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
    if type(value) is not PickledCall or value.name != "numpy.dtype" or not value.arguments:
        return False
    return value.arguments[0] in _UINT8


def _raw_bytes(value: Any) -> bytes | None:
    """Bytes from any protocol: Python 2 text, protocol 2 encoded text, protocol 5 bytearray."""
    if type(value) is PickledCall and value.name == "builtins.bytearray" and value.arguments:
        value = value.arguments[0]
    if type(value) is PickledCall and value.name == "_codecs.encode" and value.arguments:
        value = value.arguments[0]
    if type(value) is str:
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            return None
    return bytes(value) if isinstance(value, (bytes, bytearray)) else None
