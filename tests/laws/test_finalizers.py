"""What holds for every `__del__`: it works when the interpreter ends, where names of its module are
None.
"""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import pytest

import fastfeed

ROOT = Path(fastfeed.__file__).parent


def finalizers() -> dict[str, ast.AST]:
    """Each assignment or function called `__del__` in the package."""
    found: dict[str, ast.AST] = {}
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "__del__" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            named = isinstance(node, ast.FunctionDef) and node.name == "__del__"
            stored = isinstance(node, ast.Name) and node.id == "__del__"
            if named or stored:
                found[f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"] = node
    return found


FINALIZERS = finalizers()


def test_some_are_there() -> None:
    assert len(FINALIZERS) >= 3


@pytest.mark.parametrize("where", FINALIZERS)
def test_no_finalizer_needs_a_name_of_its_module(where: str) -> None:
    function = FINALIZERS[where]
    assert isinstance(function, ast.FunctionDef), "an alias hides what it needs"
    own = {argument.arg for argument in function.args.args}
    names = [
        node for part in function.body for node in ast.walk(part) if isinstance(node, ast.Name)
    ]
    own |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    used = {name.id for name in names}
    assert used - own - set(vars(builtins)) == set(), "bind it as the default of an argument"
