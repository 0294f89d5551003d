"""Keeps training GPUs busy: images and shards in, augmented batches out, in any framework.

    import fastfeed as ff

    feed = ff.Feed(ff.ImageFolder("photos/train"), [ff.RandomResizedCrop(224)], batch=256)
    model.fit(feed.to_keras(), epochs=90)

The public names are listed once, in `__init__.pyi`, for type checkers and for this file; ops list
their own. Each is loaded when it is first used; importing the package loads nothing.
"""

import ast  # nothing slower: not even typing and pathlib, which cost as much as all the rest
import importlib
import os


def _public() -> dict[str, str]:
    """The public names, each with the module that holds it; a submodule has an empty string."""
    with open(os.path.splitext(__file__)[0] + ".pyi", encoding="utf-8") as stub:
        imports = [node for node in ast.parse(stub.read()).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


_PUBLIC = _public()
_OPS = _PUBLIC.pop("*")  # the module whose own list of names is public, too


def __getattr__(name: str) -> object:
    if name == "__all__":
        return [*_PUBLIC, *importlib.import_module(f"fastfeed.{_OPS}").__all__]
    module = _PUBLIC.get(name, None if name.startswith("_") else _OPS)
    if module is None or (
        module == _OPS and name not in importlib.import_module(f"fastfeed.{_OPS}").__all__
    ):
        hint = "" if name.startswith("_") else _hint(name)
        raise AttributeError(f"module 'fastfeed' has no attribute {name!r}{hint}")
    held = importlib.import_module(f"fastfeed.{module or name}")
    value = getattr(held, name) if module else held
    globals()[name] = value
    return value


def _hint(name: str) -> str:
    return importlib.import_module("fastfeed.familiar").name_hint(name, __dir__())


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))  # type: ignore[arg-type]
