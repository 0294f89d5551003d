"""What CI runs: tests that need an environment of their own get it, and CI continues where it
cannot be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import conftest
import pytest
from conftest import ROOT, environment

SCRIPT = ROOT / ".ci" / "run"
pytestmark = [
    pytest.mark.skipif(not SCRIPT.is_file(), reason="not in a source tree"),
    pytest.mark.skipif(
        shutil.which("bash") is None, reason="needs bash, which .ci/run is written for"
    ),
]
MAKE = """#!/bin/sh
[ "$1" = nsys ] && exit 1
[ "$1" = test-ci ] && echo "datasets: $FASTFEED_TEST_DATASETS_PYTHON" >> "$SAID"
exit 0
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def run(folder: Path, python: str) -> str:
    """What the tests are told of `datasets`; `python` is the interpreter that makes
    environments.
    """
    program(folder / ".ci" / "run", SCRIPT.read_text())
    program(folder / "bin" / "make", MAKE)
    program(folder / "bin" / "python", python)
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("FASTFEED_")
    }
    environ |= {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "SAID": str(folder / "said"),
        "PYTHON": "python",
    }
    done = subprocess.run(
        ["bash", folder / ".ci" / "run"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return (folder / "said").read_text().strip()


def test_an_environment_that_is_there_is_used(tmp_path: Path) -> None:
    python = tmp_path / "build/datasets-env/bin/python"
    program(python, "#!/bin/sh\nexit 0\n")
    assert run(tmp_path, "#!/bin/sh\nexit 1\n") == f"datasets: {python}"


def test_one_is_made(tmp_path: Path) -> None:
    inner = tmp_path / "build/datasets-env/bin/python"
    made = (
        f"mkdir -p {inner.parent} && printf '#!/bin/sh\\n[ \"$1\" = -m ]\\n' > {inner} && chmod +x"
        f" {inner}"
    )
    assert run(tmp_path, f"#!/bin/sh\n{made}\n") == f"datasets: {inner}"


def test_ci_continues_without_it(tmp_path: Path) -> None:
    assert run(tmp_path, "#!/bin/sh\nexit 1\n") == "datasets:"


def test_ci_continues_where_the_package_cannot_be_had(tmp_path: Path) -> None:
    inner = tmp_path / "build/datasets-env/bin/python"
    made = (
        f"mkdir -p {inner.parent} && printf '#!/bin/sh\\nexit 1\\n' > {inner} && chmod +x {inner}"
    )
    assert run(tmp_path, f"#!/bin/sh\n{made}\n") == "datasets:"


SESSION = """
import pathlib, pytest

@pytest.fixture(scope="module", params=["fails", "starts"])
def session(request):
    with open(pathlib.Path(__file__).with_name("started"), "a") as file:
        file.write(request.param + "\\n")
    assert request.param == "starts", "no backend"

@pytest.mark.parametrize("number", range(4))
def test_of_the_session(session, number):
    pass
"""


@pytest.mark.slow
def test_a_session_that_fails_is_started_twice_whatever_the_number_of_its_tests(tmp_path: Path):
    (tmp_path / "test_session.py").write_text(SESSION)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "--reruns", "1", "-q", tmp_path],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    started = (tmp_path / "started").read_text().split()
    assert started == ["fails", "fails", "starts"], done.stdout
    assert "4 passed, 4 errors, 4 rerun" in done.stdout
    assert done.stdout.count("AssertionError: no backend") >= 4


def test_a_thread_that_is_left_behind_fails_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "LEAK_S", 0.0)
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="fastfeed-left")
    thread.start()
    try:
        assert conftest._left_threads() == ["fastfeed-left"]
        assert conftest._left_threads() == []
    finally:
        end.set()
        thread.join()
