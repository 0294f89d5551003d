"""The table of ports in docs/coming_from.md."""

from __future__ import annotations

import ast
import re

from conftest import ROOT
from helpers.ports import HELPERS, NEEDS, PORTS


def test_the_table_counts_lines() -> None:
    """Code lines of `feeds` and `targets`, at most half of the original's, as the docs tell."""
    assert {path.stem for path in PORTS.glob("*.py")} - HELPERS == NEEDS.keys()
    page = (ROOT / "docs" / "coming_from.md").read_text()
    rows = re.findall(
        r"^\| \[[^]]+\]\(\S+\) \| `(\w+)\.py` \| (\d+) \| (\d+) \|", page, re.MULTILINE
    )
    assert {name for name, _, _ in rows} == NEEDS.keys()
    for name, there, here in rows:
        tree = ast.parse((PORTS / f"{name}.py").read_text())
        own = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        text = (PORTS / f"{name}.py").read_text().splitlines()
        lines = sum(
            bool(line.strip())
            for node in own
            if node.name != "main"
            for line in text[node.lineno - 1 : node.end_lineno]
        )
        assert (name, int(here)) == (name, lines)
        assert 2 * lines <= int(there), name
