"""Every list of what the tests need names the plugins whose options pyproject.toml sets: pytest
refuses others.
"""

from __future__ import annotations

import re

import pytest
from conftest import ROOT
from project.test_release import script

PROJECT = ROOT / "pyproject.toml"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "packaging").is_dir(), reason="not in a source tree"),
]
OWN = {"addopts", "filterwarnings", "markers", "pythonpath", "testpaths"}  # of pytest itself
PLUGINS = {"timeout": "pytest-timeout"}


def plugins() -> set[str]:
    """Of the options that are set; KeyError for one that neither table above has."""
    section = (
        PROJECT.read_text("utf-8").partition("[tool.pytest.ini_options]")[2].partition("\n[")[0]
    )
    options = set(re.findall(r"^(\w+) = ", section, re.M))
    assert options & OWN, "no options found"
    return {PLUGINS[option] for option in options - OWN}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[ <>=\[;]", need)[0] for need in requirements}


def recipe() -> list[str]:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")
    tests = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text("utf-8"))[
        "tests"
    ]
    return [need for test in tests if "script" in test for need in test["requirements"]["run"]]


def extra() -> list[str]:
    block = re.search(r"^dev = \[(.*?)^\]", PROJECT.read_text("utf-8"), re.M | re.S)
    assert block
    return re.findall(r'"([^"]+)"', block[1])


LISTS = {
    "conda recipe": recipe,
    "clean_room": lambda: script("clean_room").TEST_NEEDS,
    "aarch64": lambda: script("aarch64").TEST_NEEDS,
    "dev extra": extra,
}


@pytest.mark.parametrize("needs", LISTS.values(), ids=LISTS)
def test_plugins(needs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))  # its scripts import each other
    missing = plugins() - names(list(needs()))
    assert not missing, f"these tests would end with 'Unknown config option': add {missing}"


def test_a_missing_free_threaded_wheel_is_said(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))
    clean_room = script("clean_room")
    with pytest.raises(
        SystemExit,
        match=r"must have a wheel of .* without the interpreter's lock .* run make wheel",
    ):
        clean_room.free_threaded(tmp_path)
    version = clean_room.version(ROOT)
    (tmp_path / f"fastfeed-{version}-cp312-abi3-linux_x86_64.whl").touch()
    wheel = tmp_path / f"fastfeed-{version}-cp314-cp314t-linux_x86_64.whl"
    wheel.touch()
    assert clean_room.free_threaded(tmp_path) == wheel
