"""The tests that each wheel of a release must pass in its clean room also run where there is no
POSIX and no /proc.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from conftest import ROOT
from project.test_release import script

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "packaging").is_dir(), reason="not in a source tree"),
]

SUSPECT = re.compile(
    r"\b(fcntl|resource|pwd|fork|memfd_create|sched_\w+|statvfs|SIG[A-Z]+|setitimer)\b|/proc/"
)
# in the process of pytest alone, before it reads the tests: what it starts is this system's
PROGRAM = """
import asyncio, builtins, ctypes, io, multiprocessing.connection, os, platform, shutil, signal, socket, subprocess, sys
import sysconfig, tempfile, uuid
import cv2, fsspec, google_crc32c, numpy, PIL.Image, pytest, rich, typer  # they know each system themselves

GONE = {
    os: "fork forkpty register_at_fork memfd_create sched_getaffinity sched_setaffinity statvfs",
    signal: "SIGALRM SIGHUP SIGUSR1 setitimer pthread_sigmask",
}

class Blocked:
    def find_spec(self, name, *_):
        if name in ("fcntl", "resource", "pwd", "grp"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

class Elsewhere:
    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self):
        for name in ("fcntl", "resource", "pwd", "grp"):
            sys.modules.pop(name, None)
        sys.meta_path.insert(0, Blocked())
        for module, names in GONE.items():
            for name in names.split():
                delattr(module, name)
        builtins.open = io.open = self.open
        sysconfig.get_config_vars()
        import hypothesis.strategies
        sys.platform = "elsewhere"

    def __init__(self):
        self.opened = io.open

    def open(self, path, *args, **more):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.opened(path, *args, **more)

options = ["-p", "no:xdist", "-m", "not slow", "-o", "timeout_method=thread", *sys.argv[1:]]
sys.exit(pytest.main(options, plugins=[Elsewhere()]))
"""


@pytest.fixture
def tests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))
    return list(script("clean_room").TESTS)


def run(*arguments: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *arguments]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_all_are_collected(tests: list[str]) -> None:
    run("--collect-only", "-q", *tests)


def test_those_that_name_what_is_missing_skip_it(tests: list[str]) -> None:
    files = [
        path
        for name in tests
        for path in sorted([ROOT / name, *(ROOT / name).rglob("*.py")])
        if path.is_file()
    ]
    suspects = [str(path) for path in files if SUSPECT.search(path.read_text("utf-8"))]
    assert suspects, "no file names what Windows or macOS lack"
    run(*suspects)
