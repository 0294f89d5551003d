"""Functions that are called when the program has imported a module, and not before."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["install"]

Callback = Callable[[Any], None]


def install(callbacks: Mapping[str, Callback], failed: Callable[[Exception], None]) -> None:
    """Call `callbacks[name](module)` after the first import of each module; `failed` with what such a call raises."""
    sys.meta_path.insert(0, _Finder(dict(callbacks), failed))


class _Finder:
    """Finds the named modules as the other finders do, with a loader that calls back."""

    def __init__(self, callbacks: dict[str, Callback], failed: Callable[[Exception], None]) -> None:
        self._callbacks = callbacks
        self._failed = failed

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        callback = self._callbacks.pop(name, None)  # the search below does not come back here
        if callback is None:
            return None
        spec: Any = importlib.util.find_spec(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, callback, self._failed)
        return spec


class _Loader:
    """The module's own loader, and a call when it has loaded."""

    def __init__(self, loader: Any, callback: Callback, failed: Callable[[Exception], None]) -> None:
        self._loader = loader
        self._callback = callback
        self._failed = failed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            self._callback(module)
        except Exception as error:
            self._failed(error)
