"""Names that tests, benchmarks, examples and packaging import from this repository exist.

One broken import would end a whole run when tests are collected. Programs in strings count.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from conftest import ROOT

_FROM = re.compile(
    r"\bfrom ((?:fastfeed|helpers|benchmarks|conftest)\b[\w.]*) import +(\([^)]*\)|[\w, ]+)"
)
_NATIVE = "fastfeed._native"  # in C++
_READERS = ("tests", "benchmarks", "examples", "packaging", "docs")


def test_every_import_of_this_repository_resolves() -> None:
    paths = [path for folder in _READERS for path in sorted((ROOT / folder).rglob("*.py"))]
    broken = {
        (path, module, name)
        for path in paths
        for module, name in _imports(path.read_text("utf-8"))
        if not _resolves(module, name)
    }
    assert not broken, "\n".join(
        f"{path.relative_to(ROOT)}: {module} has no {name}" for path, module, name in sorted(broken)
    )
    assert len(paths) > 300


def test_no_two_test_files_have_one_name() -> None:
    """Pytest refuses the second one, and runs none of its tests."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name, count in names.items() if count > 1]


def test_broken_imports_are_found_in_code_and_in_strings() -> None:
    start = "from"  # not written out, as the text of this file is searched, too
    text = (
        f"{start} fastfeed import Feed, Fed\n"
        f"{start} helpers.photos import (\n    jpeg as one,  # why\n    jpag,\n)\n"
        f"run('{start} fastfeed.profiler import read; {start} helpers import clock')\n"
        f"{start} fastfeed.sources.base import Located, Source\n"
    )
    missing = [name for module, name in _imports(text) if not _resolves(module, name)]
    assert missing == ["Fed", "jpag", "clock"]


def _imports(text: str) -> Iterator[tuple[str, str]]:
    for module, names in _FROM.findall(text):
        for name in re.sub(r"#.*", "", names).strip("() \n").split(","):
            if name.strip():
                yield module, name.split()[0]


def _resolves(module: str, name: str) -> bool:
    if module == _NATIVE or f"{module}.{name}" == _NATIVE:
        return True
    return _path(f"{module}.{name}") is not None or name in _names(module)


@cache
def _path(module: str) -> Path | None:
    root = ROOT if module.startswith(("fastfeed", "benchmarks")) else ROOT / "tests"
    path = root.joinpath(*module.split("."))
    if path.with_suffix(".py").is_file():
        return path.with_suffix(".py")
    if (path / "__init__.py").is_file():
        return path / "__init__.py"
    return path if path.is_dir() else None


@cache
def _names(module: str) -> frozenset[str]:
    """Names that a module binds, or loads on demand by a string in it."""
    path = _path(module)
    if path is None or path.is_dir():
        return frozenset()
    tree = ast.parse(path.read_text("utf-8"))
    if path.with_suffix(".pyi").is_file():
        tree.body += ast.parse(path.with_suffix(".pyi").read_text("utf-8")).body
    names = set(_bound(tree, module))
    if "__getattr__" in names:
        names |= {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
    return frozenset(names)


def _bound(block: ast.AST, module: str) -> Iterator[str]:
    """Names bound in a block, but not in the functions and classes of it."""
    for node in ast.iter_child_nodes(block):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            relative = f"{module}.{node.module}" if node.level else node.module or ""
            yield from _names(relative)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        else:
            yield from _bound(node, module)
