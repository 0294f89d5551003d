"""Every name of the package that README, docs and examples use can be imported."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("docs/**/*.py")),
    *sorted(ROOT.glob("examples/**/*.md")),
    *sorted(ROOT.glob("examples/**/*.py")),
]
IMPORT = re.compile(r"\bfrom (fastfeed[\w.]*) import (\([^)]*\)|[\w, ]+)")
# not "fastfeed.analysis/1"
DOTTED = re.compile(r"(?<![\w./-])(?:fastfeed|ff)((?:\.[A-Za-z_]\w*)+)(?![\w/-])")


def named(text: str) -> set[str]:
    """Dotted paths below `fastfeed` in a text, prose or code."""
    names = {f"fastfeed{match[1]}" for match in DOTTED.finditer(text)}
    for match in IMPORT.finditer(text):
        names |= {f"{match[1]}.{name}" for name in re.findall(r"(?:^|[(,])\s*(\w+)", match[2])}
    return names


NAMED = {name: path.relative_to(ROOT) for path in FILES for name in named(path.read_text("utf-8"))}


def resolve(name: str) -> Any:
    """The object behind a dotted path; modules are imported on the way."""
    value: Any = importlib.import_module("fastfeed")
    path = "fastfeed"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        value = getattr(value, part) if hasattr(value, part) else importlib.import_module(path)
    return value


def test_names_are_collected_from_prose_and_code():
    text = (
        "`ff.Arrays.mnist`, fastfeed.analysis/1, docs/fastfeed.md\nfrom fastfeed.a import (\n    B"
        " as b,\n    C,\n)"
    )
    assert named(text) == {"fastfeed.Arrays.mnist", "fastfeed.a", "fastfeed.a.B", "fastfeed.a.C"}
    assert {"fastfeed.Feed", "fastfeed.preprocess.Recipe", "fastfeed.decode.Recoder"} <= set(NAMED)
    assert len(NAMED) > 60


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_name_that_is_written_down_can_be_imported(name):
    try:
        resolve(name)
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{NAMED[name]} names {name}: {error}", pytrace=False)
