"""Pythons that wheels are built for: those that run.

Version managers put shims on PATH for others.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT

SCRIPT = ROOT / "packaging" / "wheels.py"
pytestmark = [
    pytest.mark.skipif(not SCRIPT.is_file(), reason="not in a source tree"),
    pytest.mark.skipif(os.name == "nt", reason="shims are shell scripts"),
]
SHIMS = {
    "python3.10": '#!/bin/sh\necho "pyenv: python3.10: command not found" >&2\nexit 127\n',
    "python3.11": "\x7fELF, but not for this machine",
    "python3.12": '#!/bin/sh\necho "/usr/bin/python3.12: No module named pip" >&2\nexit 1\n',
    "python3.13": '#!/bin/sh\necho "pip 26.0 (python 3.13)"\n',
}
REASONS = {
    "python3.10": "does not run pip (pyenv: python3.10: command not found)",
    "python3.11": "does not run ([Errno 8] Exec format error",
    "python3.12": "does not run pip (/usr/bin/python3.12: No module named pip)",
    "python3.13": "",
    "python3.14": "is not on PATH",
}


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name, content in SHIMS.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    spec = importlib.util.spec_from_file_location("wheels", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", REASONS)
def test_why_a_python_cannot_be_used(wheels: ModuleType, tmp_path: Path, name: str) -> None:
    path, problem = wheels.usable(name)
    assert problem.startswith(REASONS[name]) and bool(problem) == bool(REASONS[name])
    assert path == ("" if name == "python3.14" else str(tmp_path / name))


def test_the_others_are_built(
    wheels: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    class Stop(Exception):
        """Enough is known."""

    def built(python: str, *_: object) -> None:
        asked.append(python)
        raise Stop

    (tmp_path / "nasm").write_text("#!/bin/sh\n")
    (tmp_path / "nasm").chmod(0o755)
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(wheels, "tools", lambda folder: folder)
    monkeypatch.setattr(wheels, "commit_time", lambda: "0")
    monkeypatch.setattr(wheels, "built", built)
    monkeypatch.setattr(
        sys, "argv", ["wheels.py", "--work", str(tmp_path / "work"), "--python", *REASONS]
    )
    with pytest.raises(Stop):
        wheels.main()
    assert asked == [str(tmp_path / "python3.13")]
    assert capsys.readouterr().out.count("No wheel for python3.1") == 4
    monkeypatch.setattr(sys, "argv", ["wheels.py", "--python", "python3.10", "python3.12"])
    with pytest.raises(SystemExit, match=r"none of python3\.10, python3\.12 can be used"):
        wheels.main()
