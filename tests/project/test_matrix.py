"""docs/frameworks.md says nothing that no test shows: every yes names one, and every test that is
named exists.
"""

from __future__ import annotations

import ast
import re

import pytest
from conftest import ROOT

TEXT = (ROOT / "docs" / "frameworks.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("|")
]
TESTS = {cells[0]: cells[1].strip("`") for cells in ROWS if len(cells) == 2 and "::" in cells[1]}
HEADER, *MATRIX = [cells for cells in ROWS if len(cells) > 2 and set(cells[0]) != {"-"}]
CELLS = {
    f"{cells[0]}: {name}": cell
    for cells in MATRIX
    for name, cell in zip(HEADER[1:], cells[1:], strict=True)
}


def test_the_matrix_is_whole() -> None:
    assert len(HEADER) == 11 and len(MATRIX) == 7
    for name, cell in CELLS.items():
        assert re.fullmatch(r"yes \[\w+\]|no( \[\w+\])?|native|not tested", cell), (
            f"{name}: {cell!r}"
        )


def test_every_reference_is_to_a_test_and_every_test_is_referred_to() -> None:
    assert set(re.findall(r"\[(\w\d+)\]", TEXT)) == set(TESTS)


@pytest.mark.parametrize("name", TESTS.values())
def test_a_test_that_is_named_exists(name: str) -> None:
    path, _, function = name.partition("::")
    function, _, case = function.partition("[")
    source = ROOT / path
    assert source.is_file(), f"{path} is gone"
    names = {
        node.name
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert function in names, f"{path} has no {function}"
    if case:
        near = "".join(
            file.read_text() for file in source.parent.glob("*.py") if file.name != "test_matrix.py"
        )
        assert case.rstrip("]") in near, f"{path}: {function} has no case {case}"
