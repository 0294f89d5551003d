"""Functions that are called when the program has imported a module, and not before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["install"]

Callback = Callable[[Any], None]


def install(callbacks: Mapping[str, Callback], attempt: Callable[..., Any]) -> None:
    """Call `attempt(callbacks[name], module)` after the first import of each module."""
    sys.meta_path.insert(0, _Finder(dict(callbacks), attempt))


class _Finder:
    """Finds the named modules as the other finders do, with a loader that calls back."""

    def __init__(self, callbacks: dict[str, Callback], attempt: Callable[..., Any]) -> None:
        self._callbacks = callbacks
        self._attempt = attempt

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._callbacks:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec: Any = next((spec for spec in specs if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self._loaded)
        return spec

    def _loaded(self, module: Any) -> None:
        callback = self._callbacks.pop(module.__name__, None)
        if callback is not None:
            self._attempt(callback, module)


class _Loader:
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
