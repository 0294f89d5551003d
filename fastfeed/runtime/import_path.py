"""Functions of users by import path, "module:function", as files and command lines name them."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from typing import Any

from fastfeed.errors import ConfigError

__all__ = ["error_text", "find_function", "import_path"]


def find_function(name: str, what: str) -> Callable[..., Any]:
    """Import the function that "module:function" names. ConfigError.

    what: the argument that holds the name, for messages; its last word is the field.
    """
    field = what.split()[-1]
    module, _, path = name.partition(":")
    if not module or not path:
        raise ConfigError.of(what, "'module:function'", name)
    try:
        found = importlib.import_module(module)
    except Exception as error:  # the user's code
        advice = "; set PYTHONPATH to its folder" if isinstance(error, ImportError) else ""
        raise ConfigError(
            f"{what} must name a module that can be imported: {module} raised"
            f" {error_text(error)}{advice}",
            field=field,
        ) from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(
            f"{what} must name a function: {module} has none called {path!r}", field=field
        )
    return found


def import_path(function: Any, what: str) -> str:
    """Name a function as "module:function", by which other processes can import it.

    ConfigError for a lambda, a function inside another one, a script's or notebook's, or an
    object that is called.
    """
    module, path = (getattr(function, name, "") for name in ("__module__", "__qualname__"))
    reason = "is an object without a name in a module"
    if module == "__main__":
        reason = "belongs to the program itself, which others cannot import"
    elif "<lambda>" in str(path):
        reason = "is a lambda"
    elif "<locals>" in str(path):
        reason = "is defined inside another function"
    elif isinstance(module, str) and module and isinstance(path, str) and path:
        name = f"{module}:{path}"
        if find_function(name, what) is function:
            return name
        reason = f"is not what {name} names"
    raise ConfigError(
        f"{what} must have an import path, got {function!r}, which {reason}; move it into a module"
        " and define it there with def",
        field=what.split()[-1],
    )


def error_text(error: BaseException) -> str:
    """Type, text and line of an error in the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
