"""Lists of ops as readable JSON, by the arguments of their constructors.

    {"fastfeed": "0.2.0", "format": 1, "meaning": 2, "ops": [{"op": "Resize", "size": 256, ...}]}

Nothing in a file is run: names are those of fastfeed's ops, and functions of users are imported
only if the caller of `load_ops` allows it.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from fastfeed import ops as public_ops
from fastfeed.arguments import checked, checked_early
from fastfeed.errors import ConfigError
from fastfeed.familiar import name_hint, option_hint
from fastfeed.ops.base import MEANING
from fastfeed.ops.batch_sizes import BucketSize, BySchedule, LargestSize, RandomSizes
from fastfeed.ops.function import as_op
from fastfeed.printable import printable
from fastfeed.runtime.import_path import find_function, import_path
from fastfeed.runtime.json_file import load_json, save_file
from fastfeed.spec import Spec
from fastfeed.version import __version__

FORMAT = 1  # of the file: a higher number in every release whose files older ones cannot read
_KEYS = ("fastfeed", "format", "meaning", "ops")
_MORE = (
    "seed",
    "classes",
    "input",
    "objects",
    "to_original",
    "check",
    "unchecked",
)  # of a transform
_CLASSES: dict[str, type] = {name: getattr(public_ops, name) for name in public_ops.__all__}
_CLASSES |= {"Spec": Spec}  # a value of `Function(returns=)`
_CLASSES |= {kind.__name__: kind for kind in (BucketSize, BySchedule, LargestSize, RandomSizes)}
_FUNCTION = "function"  # name of the parameter that takes a user's function
_NAMES = {"op": "of"}  # parameters with other names in files, where "op" names the class
_DEEPEST = 16  # lists and ops inside of each other
_MOST_OPS = 1000
_MOST = 1 << 22  # bytes of a file: 1,000 lookup tables


@checked
def save_ops(path: str | os.PathLike[str], ops: Sequence[Any]) -> None:
    """Save a list of ops as readable JSON, committed by atomic rename after fsync.

    Functions are saved by their import path, and must be defined in a module.

    Args:
        path (str | os.PathLike[str]): The file, in a folder that exists.
        ops (Sequence[Op | Callable]): The list.

    Raises:
        ConfigError: If an entry is no op of fastfeed, a function has no import path, or the file
            cannot be written.

    Example:
        >>> ff.save_ops("ops.json", ff.recipes.imagenet_train(224))
        >>> ff.load_ops("ops.json") == ff.recipes.imagenet_train(224)
        True
    """
    save_document(path, document(ops), "list of ops")


@checked_early
def load_ops(path: str | os.PathLike[str], *, allow_functions: bool = False) -> list[Any]:
    """Read a list of ops that `save_ops` or `Transform.save` wrote.

    Args:
        path (str | os.PathLike[str]): The file.
        allow_functions (bool): Import the functions that the file names, which runs code; otherwise
            a file that names one is refused. Default: False.

    Returns:
        The ops, equal to those saved.

    Raises:
        ConfigError: If the file cannot be read, is not such a list, is of a newer version, or names
            a function that is not allowed or cannot be imported.

    Example:
        >>> ff.save_ops("ops.json", [ff.Resize(256), ff.CenterCrop(224)])
        >>> ff.load_ops("ops.json")
        [Resize(size=256, filter='bilinear'), CenterCrop(size=224)]
    """
    return load_document(path, "list of ops", "save_ops", allow_functions)[0]


def document(ops: Any) -> dict[str, Any]:
    """The content of a file: versions, and every op by name with all of its arguments."""
    if not isinstance(ops, Sequence) or isinstance(ops, str):
        raise ConfigError.of("ops", "a list of ops such as [Resize(224)]", ops)
    listed = []
    for k, op in enumerate(map(as_op, ops)):
        if not isinstance(op, public_ops.OPS):
            advice = "write it with its arguments" if isinstance(op, type) else ""
            raise ConfigError.of(f"ops[{k}]", "an op of fastfeed, such as Resize(224)", op, advice)
        listed.append(plain(op, f"ops[{k}]"))
    _check_count(listed)
    return {"fastfeed": __version__, "format": FORMAT, "meaning": MEANING, "ops": listed}


def save_document(path: str | os.PathLike[str], content: Mapping[str, Any], what: str) -> None:
    """Write `document`, maybe with more keys: a line for each key and op, ops last."""
    lines = []
    for key, value in sorted(content.items(), key=lambda item: item[0] == "ops"):
        text = json.dumps(value, allow_nan=False)
        if key == "ops" and value:
            listed = [json.dumps(op, allow_nan=False) for op in value]
            text = "[\n  " + ",\n  ".join(listed) + "\n ]"
        lines.append(f" {json.dumps(key)}: {text}")
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    save_file(path, text.encode(), what, ConfigError)


def load_document(
    path: str | os.PathLike[str], what: str, writer: str, allow_functions: bool
) -> tuple[list[Any], dict[str, Any]]:
    """Ops and content of a file; what, writer: its content and its function, for messages."""
    content = load_json(path, what, writer, ConfigError, _MOST)
    return read_document(content, os.fspath(path), what, writer, allow_functions)


def read_document(
    content: Mapping[str, Any], where: str, what: str, writer: str, allow_functions: bool = False
) -> tuple[list[Any], dict[str, Any]]:
    """The ops of a `document`, and its other values; where: its name, for messages."""
    _check_version(content, where)
    wrong = next(
        (f"it has no {key!r}" for key in _KEYS if key not in content),
        next((f"it has {key!r}" for key in content if key not in (*_KEYS, *_MORE)), ""),
    )
    if not wrong and not isinstance(content["ops"], list):
        wrong = f"its 'ops' must be a list, got {printable(repr(content['ops']))}"
    if wrong:
        raise ConfigError(f"{where} is not a saved {what}: {wrong}; pass what {writer} wrote")
    try:
        _check_count(content)
        ops = [
            _value(entry, f"ops[{k}]", allow_functions) for k, entry in enumerate(content["ops"])
        ]
        for k, op in enumerate(ops):
            if not hasattr(op, "kind"):
                raise ConfigError.of(f"ops[{k}]", "an op", op)
        values = {key: _value(content[key], key, False) for key in content if key != "ops"}
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", field=error.field) from error
    return ops, values


def _check_version(content: Mapping[str, Any], where: str) -> None:
    """Refuse a file that this version cannot read with the same pixels."""
    writer = content.get("fastfeed", "")
    if not isinstance(writer, str):
        raise ConfigError.of(f"{where}: fastfeed", "a version", writer)
    for key, mine in (("format", FORMAT), ("meaning", MEANING)):
        value = content.get(key, mine)
        if type(value) is not int or value < 1:
            raise ConfigError.of(f"{where}: {key}", "an integer >= 1", value)
        if value > mine or (key == "meaning" and value != mine):
            because = "" if key == "format" else ", so that some ops give other pixels"
            raise ConfigError(
                f"{where} has {key} {value} of fastfeed {printable(writer)}, and fastfeed"
                f" {__version__} has {mine}{because}; use that version"
            )


def plain(value: Any, where: str) -> Any:
    """A value of an op as JSON has it: lists, objects with the name of an op, texts and numbers."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, where) for item in value]
    if isinstance(value, Mapping) and "op" not in value:
        return {name: plain(item, where) for name, item in value.items()}
    name = type(value).__name__
    if _CLASSES.get(name) is not type(value):
        raise ConfigError(
            f"{where} must hold ops of fastfeed, numbers and texts to be saved, got"
            f" {printable(repr(value))}; use a Function instead",
            field="ops",
        )
    return {"op": name} | {
        _NAMES.get(argument, argument): import_path(item, f"{where} {name} function")
        if argument == _FUNCTION
        else plain(item, where)
        for argument, item in _arguments(value).items()
    }


def _arguments(op: Any) -> Mapping[str, Any]:
    """Arguments of the constructor by name: the fields, unless the op has `arguments`."""
    own = getattr(op, "arguments", None)
    if own is not None:
        return own
    return {field.name: getattr(op, field.name) for field in dataclasses.fields(op)}


def _check_count(content: Any) -> None:
    """Refuse more ops than a list that somebody wrote has: each costs time to check."""
    if (count := _count(content)) > _MOST_OPS:
        raise ConfigError(f"it has {count:,} ops and other objects, more than {_MOST_OPS:,}")


def _count(value: Any, depth: int = 0) -> int:
    """The objects in a value of JSON, which may not be too deep."""
    if depth > _DEEPEST:
        raise ConfigError(f"it has ops inside of ops more than {_DEEPEST} levels deep")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict) + sum(_count(item, depth + 1) for item in inner)


def _value(entry: Any, where: str, allow_functions: bool) -> Any:
    """The value that `plain` wrote; lists become tuples."""
    if isinstance(entry, list):
        return tuple(_value(item, where, allow_functions) for item in entry)
    if not isinstance(entry, dict):
        return entry
    if "op" not in entry:
        return {name: _value(item, where, allow_functions) for name, item in entry.items()}
    name = entry["op"]
    if not isinstance(name, str) or name not in _CLASSES:
        hint = name_hint(name, _CLASSES) if isinstance(name, str) else ""
        raise ConfigError(
            f"{where} must be an op of fastfeed {__version__}, got {printable(repr(name))}"
            f"{hint or '; a newer version may have it'}"
        )
    place = f"{where} {name}"
    arguments: dict[str, str] = {written: argument for argument, written in _NAMES.items()}
    values = {
        arguments.get(key) or key: _function(item, f"{place} function", allow_functions)
        if key == _FUNCTION
        else _value(item, place, allow_functions)
        for key, item in entry.items()
        if key != "op"
    }
    return _make_op(_CLASSES[name], values, place)


def _function(name: Any, place: str, allow_functions: bool) -> Any:
    if not isinstance(name, str):
        raise ConfigError.of(place, "'module:function'", name)
    if not allow_functions:
        raise ConfigError(
            f"{place} is {printable(repr(name))}, which would be imported, and so run; pass"
            " allow_functions=True if you trust the file",
            field="allow_functions",
        )
    return find_function(name, place)


def _make_op(kind: type, values: dict[str, Any], place: str) -> Any:
    """The op with these arguments, all of which its constructor has to know and to accept."""
    parameters = inspect.signature(kind).parameters
    for name in values:
        if name not in parameters:
            hint = option_hint(name, parameters) or f"; it takes {', '.join(parameters)}"
            raise ConfigError(f"{place} has no argument {printable(repr(name))}{hint}")
    for name, parameter in parameters.items():
        starred = parameter.kind is parameter.VAR_POSITIONAL
        if name not in values and parameter.default is parameter.empty:
            raise ConfigError(f"{place} needs {name!r}")
        if starred and not isinstance(values[name], tuple):
            raise ConfigError.of(f"{place} {name}", "a list", values[name])
    given = {name: values[name] for name in parameters if name in values}
    arguments = inspect.BoundArguments(inspect.signature(kind), given)  # type: ignore[arg-type]
    try:
        return kind(*arguments.args, **arguments.kwargs)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}", field=error.field) from error
