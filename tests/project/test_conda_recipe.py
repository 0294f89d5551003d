"""The recipe for conda-forge asks for what pyproject.toml asks for, under conda-forge's names."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from project.test_release import script

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")
RECIPE = ROOT / "packaging" / "conda" / "recipe.yaml"
pytestmark = pytest.mark.skipif(not RECIPE.is_file(), reason="not in a source tree")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A release of version 0.2.0, with its archive."""
    (tmp_path / "fastfeed").mkdir()
    (tmp_path / "fastfeed" / "version.py").write_text('__version__ = "0.2.0"\n')
    (tmp_path / "packaging" / "conda").mkdir(parents=True)
    shutil.copy(RECIPE, tmp_path / "packaging" / "conda")
    (tmp_path / "fastfeed-0.2.0.tar.gz").write_bytes(b"an archive")
    return tmp_path


def array(name: str) -> dict[str, str]:
    """Requirements of an array in pyproject.toml: name -> the least version."""
    block = re.search(rf"^{name} = \[(.*?)\]$", (ROOT / "pyproject.toml").read_text(), re.M | re.S)
    assert block, name
    return dict(re.findall(r'"([\w-]+)>=([\d.]+)"', block[1]))


def least(requirements: list[Any]) -> dict[str, str]:
    return {
        name: version.removeprefix(">=")
        for name, _, version in (str(need).partition(" ") for need in requirements)
    }


def test_what_it_needs_is_what_the_project_needs() -> None:
    requirements = yaml.safe_load(RECIPE.read_text())["requirements"]
    assert least(requirements["run"]) == array("dependencies") | {"python": "${{ python_min }}"}
    host = least(requirements["host"])
    assert {name: host[name] for name in array("requires")} == array("requires")
    assert {"libjpeg-turbo", "libwebp-base", "libhwy", "pip", "python"} == host.keys() - array(
        "requires"
    )
    assert {'${{ compiler("c") }}', '${{ compiler("cxx") }}', "ninja"} <= set(
        map(str, requirements["build"])
    )


def test_the_oldest_python_is_that_of_the_project() -> None:
    recipe, project = yaml.safe_load(RECIPE.read_text()), (ROOT / "pyproject.toml").read_text()
    oldest = recipe["context"]["python_min"]
    assert f'requires-python = ">={oldest}"' in project
    assert recipe["build"]["skip"] == [f'match(python, "<{oldest}")']


def test_licences_and_tests_are_in_the_source() -> None:
    recipe = yaml.safe_load(RECIPE.read_text())
    for name in recipe["about"]["license_file"]:
        assert (ROOT / name).is_file(), name
    for name in recipe["tests"][1]["files"]["source"]:
        assert (ROOT / name).exists(), name
    for test in re.findall(r"tests/[\w/.]+", " ".join(recipe["tests"][1]["script"])):
        assert (ROOT / test).exists(), test


def test_version_and_hash_come_from_the_release(tree: Path) -> None:
    release = script("release")
    text = release.recipe(tree, tree / "fastfeed-0.2.0.tar.gz", "octo-cat")
    recipe = yaml.safe_load(text)
    assert recipe["context"]["version"] == "0.2.0"
    assert recipe["source"]["sha256"] == hashlib.sha256(b"an archive").hexdigest()
    assert "@" not in text and recipe["extra"]["recipe-maintainers"] == ["octo-cat"]
    with pytest.raises(
        ValueError,
        match=r"must be fastfeed-0.2.0.tar.gz, got fastfeed-0.1.9.tar.gz; run make sdist",
    ):
        release.recipe(tree, tree / "fastfeed-0.1.9.tar.gz", "octo-cat")
    for handle in ("", "@MAINTAINER@", "two words", "-x"):
        with pytest.raises(
            ValueError, match=r"the maintainer must be a handle on GitHub, such as octocat, got"
        ):
            release.recipe(tree, tree / "fastfeed-0.2.0.tar.gz", handle)
