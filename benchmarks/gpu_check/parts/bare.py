"""Stand-ins for packages that fastfeed imports for remote storage and TFRecords, and that nothing
here uses.

They are among fastfeed's requirements, but a machine without a package registry may lack them.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

ABSENT = ("fsspec", "fsspec.core", "fsspec.asyn", "fsspec.spec", "google_crc32c")


def fill() -> list[str]:
    """Put a stand-in wherever one is missing; their names."""
    filled: list[str] = []
    for name in ABSENT:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = _StandIn(name)
            filled.append(name)
    return filled


class _StandIn(ModuleType):
    """Gives a class for every name that is imported from it; the class cannot be used."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_: object, **__: object) -> None:
            raise ImportError(f"{self.__name__} is not installed here")

        return type(name, (), {"__init__": refuse})
