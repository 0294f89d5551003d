"""Checks of arguments of public classes and functions: known names, values of annotated types."""

from __future__ import annotations

import functools
import inspect
import numbers
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

from fastfeed.errors import ConfigError, FastfeedError
from fastfeed.familiar import option_hint
from fastfeed.printable import printable

_Public = TypeVar("_Public", bound=Callable[..., Any])
_UNIONS = (typing.Union, types.UnionType)
_LISTS = (tuple, list, Sequence)
_NO_LISTS = (str, bytes, Mapping)
_ITERATED = (*_LISTS, Iterable)
_WORDS = {
    None: "None",
    type(None): "None",
    bool: "True or False",
    int: "an integer",
    float: "a number",
    str: "a text",
    os.PathLike: "a path",
    tuple: "a tuple",
    list: "a list",
    Sequence: "a list",
    dict: "a dict",
    Mapping: "a dict",
    MutableMapping: "a dict",
    Callable: "a function",
}
_PLURALS = {
    str: "texts",
    int: "integers",
    float: "numbers",
    type(None): "None",
    os.PathLike[str]: "paths",
}


class UnknownOption(ConfigError, TypeError):
    """An argument that a function does not have."""


def check_count(
    name: str, value: Any, least: int = 1, most: int | None = 2**31, advice: str = ""
) -> int:
    """An integer in [least, most], as an int; ConfigError for anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ConfigError.of(name, f"an integer >= {least}", value, advice)
    count = int(value)
    if most is not None and count > most:
        raise ConfigError(f"{name} must be at most {most}, got {count}", field=name)
    return count


def checked(public: _Public) -> _Public:
    """Refuse unknown and mistyped arguments of a public class or function, as a decorator.

    Types are those of the annotations: flags, numbers, texts, paths, literals, and classes of
    fastfeed. Anything else in an annotation is left to the function. So is a wrong type at first,
    since its own errors say more; this one refuses what it would have accepted.
    """
    return _checked(public, early=False)


def checked_early(public: _Public) -> _Public:
    """Refuse wrong flags before anything is read or changed; otherwise as `checked`."""
    return _checked(public, early=True)


def _checked(public: Any, early: bool) -> Any:
    function: Any = public.__init__ if isinstance(public, type) else public
    name = public.__qualname__

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found = _problem(name, function, args, kwargs)
        if found is None:
            return function(*args, **kwargs)
        problem, is_sure = found
        if not (is_sure and early) and not isinstance(problem, UnknownOption):
            _own_error(function, args, kwargs)
        raise problem

    if isinstance(public, type):
        public.__init__ = wrapper  # type: ignore[misc]
        return public
    return wrapper


def _own_error(function: Any, args: Any, kwargs: Any) -> None:
    """Raise the function's own error for wrong arguments, if it has one."""
    try:
        made = function(*args, **kwargs)
    except FastfeedError:
        raise
    except Exception:  # any, of a wrong argument: ours says more
        return
    made = args[0] if function.__name__ == "__init__" else made
    getattr(made, "close", lambda: None)()  # a feed has threads


@functools.cache
def _parameters(function: Any) -> dict[str, Any]:
    """Types of parameters by name, in order; `Any` if unknown. That of `*names` keeps its star."""
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, str):
            try:
                kind = eval(kind, function.__globals__)
            except Exception:  # a name for type checkers alone
                kind = Any
        if parameter.kind is parameter.VAR_KEYWORD:
            kind = ...
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        found[star + parameter.name] = kind
    return found


def _problem(
    name: str, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[ConfigError, bool] | None:
    """The error for these arguments, and whether it is sure, as it is for flags."""
    parameters = _parameters(function)
    if ... in parameters.values():
        return None
    own = [parameter for parameter in parameters if parameter != "self"]
    for option in kwargs:
        if option not in parameters:
            hint = option_hint(option, own) or f"; it takes {', '.join(own)}"
            text = f"{name}() has no argument {option!r}{hint}"
            return UnknownOption(text, field=option), True
    positions = list(parameters)
    starred = next((name for name in positions if name.startswith("*")), None)
    if starred is not None:
        first = positions.index(starred)
        positions[first:] = [starred] * (len(args) - first)
    for option, value in (*zip(positions, args, strict=False), *kwargs.items()):
        kind = parameters[option]
        if not _fits(value, kind) or _is_empty_path(value, kind):
            flag = kind is bool or bool in typing.get_args(kind)
            return (
                ConfigError(
                    f"{name}: {option} must be {_words(kind)}, got {printable(repr(value))}",
                    field=option,
                ),
                flag,
            )
    return None


def _is_empty_path(value: Any, kind: Any) -> bool:
    """Test for "" in the place of a path, which would be the current folder."""
    kinds = [typing.get_origin(one) for one in typing.get_args(kind)]
    return isinstance(value, str) and not value and os.PathLike in kinds


def _fits(value: Any, kind: Any) -> bool:
    """Test a value against an annotation; True for annotations that are not understood."""
    origin = typing.get_origin(kind)
    if origin in _UNIONS:
        return any(_fits(value, one) for one in typing.get_args(kind))
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in typing.get_args(kind))
    if kind in (None, type(None)):
        return value is None
    if kind is bool:
        return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
    if kind in (int, float):
        number = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, number) and not _fits(value, bool)
    if kind is os.PathLike or origin is os.PathLike:
        return hasattr(value, "__fspath__")
    if origin in _ITERATED:
        can_be_iterated = isinstance(value, Iterable) or hasattr(type(value), "__getitem__")
        is_list = can_be_iterated and not (origin in _LISTS and isinstance(value, _NO_LISTS))
        return is_list and _entries_fit(value, typing.get_args(kind))
    if origin in (dict, Mapping, MutableMapping):
        return isinstance(value, Mapping) and all(
            _entries_fit(list(entries), (one,))
            for entries, one in zip((value, value.values()), typing.get_args(kind), strict=False)
        )
    if origin is Callable:
        return callable(value)
    if isinstance(kind, type) and (kind is str or _is_plain(kind)):
        return isinstance(value, kind)
    return True


def _entries_fit(value: Any, kinds: Sequence[Any]) -> bool:
    """Test one entry of every type against annotations; those of iterators are not read.

    kinds: one for all, alone or before an ellipsis; otherwise one for each entry.
    """
    is_array = type(value).__name__ == "ndarray" and value.ndim
    if not (is_array or isinstance(value, (list, tuple))) or not kinds:
        return True
    if len(kinds) > 1 and kinds[-1] is not ...:
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    several = value[:1] if is_array else value  # entries of an array have one type
    return all(
        _fits(entry, kinds[0]) for entry in {type(entry): entry for entry in several}.values()
    )


def _is_plain(kind: type) -> bool:
    checks_nothing = getattr(kind, "_is_protocol", False)
    checks_names = getattr(kind, "_is_runtime_protocol", False)
    return kind.__module__.startswith("fastfeed.") and (checks_names or not checks_nothing)


def _words(kind: Any) -> str:
    """Words for a type in an error."""
    if typing.get_origin(kind) in _UNIONS:
        return " or ".join(dict.fromkeys(map(_words, typing.get_args(kind))))
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    origin = typing.get_origin(kind) or kind
    word = _WORDS[origin] if origin in _WORDS else getattr(origin, "__name__", str(origin))
    kinds = typing.get_args(kind) if origin in _LISTS else ()
    if not kinds:
        return word
    entries = [_PLURALS.get(one) for one in typing.get_args(kinds[0]) or kinds[:1]]
    if None in entries:
        return word
    count = f"{len(kinds)} " if origin is tuple and kinds[-1] is not ... else ""
    return f"{word} of {count}{' or '.join(map(str, entries))}"
