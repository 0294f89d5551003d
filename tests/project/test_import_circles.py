"""No module depends on itself, not through annotations or names in strings either.

Folders of the native extension form no circle of includes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from conftest import ROOT

_INCLUDE = re.compile(r'^#include "(\w+)/', re.MULTILINE)
_NAME = re.compile(r"fastfeed(?:\.\w+)+")


def test_modules_form_no_circle() -> None:
    modules = {_dotted(path): path for path in sorted((ROOT / "fastfeed").rglob("*.py"))}
    del modules["fastfeed"]  # the public names, loaded on first use: above all else
    graph = {name: set(_uses(name, path, modules)) - {name} for name, path in modules.items()}
    _refuse_circles(graph)


def test_native_folders_form_no_circle() -> None:
    native = ROOT / "fastfeed" / "native"
    graph: dict[str, set[str]] = {}
    for path in [*native.rglob("*.cpp"), *native.rglob("*.h")]:
        folder = path.relative_to(native).parts[0]
        graph.setdefault(folder, set()).update(_INCLUDE.findall(path.read_text()))
        graph[folder].discard(folder)
    assert {"batch", "decode", "image"} <= graph.keys()
    _refuse_circles(graph)


def _refuse_circles(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" <- ".join(error.args[1])) from None


def test_a_name_in_a_string_and_an_import_for_types_count(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    package = "fastfeed"  # not written out: test_imports_resolve looks for fastfeed.b
    path.write_text(
        f"if TYPE_CHECKING:\n    from {package}.b import B\n"
        "TABLE = {'c': 'fastfeed.c:call'}\n"
        "f'fastfeed.backends.{name}.backend'\n"
    )
    known = ["fastfeed.b", "fastfeed.c", "fastfeed.backends.cpu.backend", "fastfeed.backends"]
    modules = dict.fromkeys(known, path)
    assert sorted(_uses("fastfeed.a", path, modules)) == [
        "fastfeed.b",
        "fastfeed.backends.cpu.backend",
        "fastfeed.c",
    ]


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _uses(name: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Modules that a module imports, or names in strings other than docstrings."""
    tree = ast.parse(path.read_text())
    apart = {  # docstrings, and parts of f-strings
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr | ast.JoinedStr)
        for part in ast.iter_child_nodes(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
            yield from inner or {node.module} & modules.keys()
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & modules.keys()
        elif isinstance(node, ast.JoinedStr):
            pattern = "".join(
                re.escape(part.value) if isinstance(part, ast.Constant) else r"\w+"
                for part in node.values
            )
            if pattern.startswith(r"fastfeed\."):
                yield from (module for module in modules if re.fullmatch(pattern, module))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in apart
            and (match := _NAME.match(node.value))
        ):
            yield from {match[0]} & modules.keys()
