"""Functions that are called when the program has imported a module, and not before."""

from __future__ import annotations

import functools
import importlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

VARIABLE = "FASTFEED_AFTER_IMPORT"  # functions by module, as JSON
Callback = Callable[[Any], None]


def install(callbacks: Mapping[str, Callback], attempt: Callable[..., Any]) -> None:
    """Call `attempt(callbacks[name], module)` after the first import of each module."""
    sys.meta_path.insert(0, _Finder(dict(callbacks), attempt))


def install_named(functions: str | None) -> None:
    """Call functions by their names, which are imported only then.

    Args:
        functions: JSON, {module: "package.module:function"}; None: no functions.
    """
    if functions:
        named = {
            module: functools.partial(_call, function)
            for module, function in json.loads(functions).items()
        }
        install(named, _attempt)


def _call(function: str, module: Any) -> None:
    owner, _, name = function.partition(":")
    getattr(importlib.import_module(owner), name)(module)


def _attempt(function: Callback, module: Any) -> None:
    try:
        function(module)
    except Exception as error:  # the program runs on
        sys.stderr.write(
            f"fastfeed: loaders other than a Feed cannot be measured in this process: {error}\n"
        )


class _Finder:
    """Finds the named modules as the other finders do, with a loader that calls back."""

    def __init__(self, callbacks: dict[str, Callback], attempt: Callable[..., Any]) -> None:
        self._callbacks = callbacks
        self._attempt = attempt

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._callbacks:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        others = (finder for finder in behind if hasattr(finder, "find_spec"))
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec: Any = next((spec for spec in specs if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _NotifyingLoader(spec.loader, self._loaded)
        return spec

    def _loaded(self, module: Any) -> None:
        callback = self._callbacks.pop(module.__name__, None)
        if callback is not None:
            self._attempt(callback, module)


class _NotifyingLoader:
    """The module's own loader, and a call when it has loaded."""

    def __init__(self, loader: Any, loaded: Callback) -> None:
        self._loader = loader
        self._loaded = loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._loaded(module)
