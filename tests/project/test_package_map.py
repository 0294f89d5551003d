"""The map of the package: every folder is on it, with its modules one step further in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "fastfeed"
MAP = (PACKAGE / "README.md").read_text()
FOLDERS = [
    path
    for path in sorted(PACKAGE.iterdir())
    if (path / "__init__.py").exists() or path.name == "native"
]


def test_a_page_holds_the_map() -> None:
    assert len(MAP.splitlines()) <= 75


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_folder_has_a_row(folder: Path) -> None:
    assert len(re.findall(rf"^\| \[?`{folder.name}/`", MAP, re.M)) == 1


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_row_of_a_package_names_the_folders_in_it(folder: Path) -> None:
    [row] = re.findall(rf"^\| \[?`{folder.name}/`.*$", MAP, re.M)
    inner = [path.name for path in folder.iterdir() if (path / "__init__.py").exists()]
    assert [name for name in inner if f"`{name}/`" not in row] == []


def test_the_folders_of_the_native_extension_are_named_and_stay_out_of_wheels() -> None:
    text = (PACKAGE / "native" / "README.md").read_text()
    folders = [path.name for path in (PACKAGE / "native").iterdir() if path.is_dir()]
    assert [name for name in folders if f"`{name}/`" not in text] == []
    assert (
        'wheel.exclude = ["fastfeed/native/**", "fastfeed/README.md"]'
        in (ROOT / "pyproject.toml").read_text()
    )
