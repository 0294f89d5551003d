"""Installs fastfeed where nothing can be built, and runs it: `make wheel-test`, `make test-lowest`.

A virtual environment, PATH with nothing else (no compiler, no CMake), wheels only, a folder outside
this tree: the decode tests, a Keras fit, a preprocessing job, an analysis (smoke.py). An archive of
the source is tested too; it must end in an installation that plans jobs and analyzes traces.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from release import version

ROOT = Path(__file__).resolve().parents[1]
TEST_NEEDS = ("pytest>=8.2", "pytest-timeout>=2.3", "hypothesis>=6.100")
MORE_NEEDS = ("aiohttp", "requests", "opencv-python-headless")  # the newest: of MORE_TESTS
SMOKE_NEEDS = ("keras>=3.3", "jax>=0.4.30")  # jax: the smallest backend of Keras
TESTS = ("tests/decode", "tests/project/test_import.py", "tests/project/test_dependencies.py")
# without the interpreter's lock: no Keras, which a job needs
FREE_NEEDS = (
    "numpy>=2.0",
    "pillow>=12.0",
    "fsspec>=2025.5",
    "google-crc32c>=1.5",
    "rich>=13.0",
    "typer>=0.18",
    "jax>=0.4.30",
)
FREE_TESTS = (
    "tests/decode/test_executor.py",
    "tests/feed/test_feed.py",
    "tests/runtime",
    "tests/adapters/test_jax.py",
)
# of the oldest dependencies
MORE_TESTS = ("tests/ops", "tests/sampling", "tests/storage", "tests/sources", "tests/cli")
# what pip and Python may see of this machine
KEPT = (
    "HOME",
    "LANG",
    "TMPDIR",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)
KEPT_ON_WINDOWS = ("SYSTEMROOT", "TEMP", "TMP", "USERPROFILE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "what", nargs="?", type=Path, help="wheel or archive; default: the wheel in dist/ that fits"
    )
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument(
        "--lowest", action="store_true", help="the oldest dependencies that pyproject.toml allows"
    )
    parser.add_argument("--no-smoke", action="store_true", help="no Keras, no jobs")
    parser.add_argument(
        "--free-threaded", action="store_true", help="a Python without the interpreter's lock"
    )
    arguments = parser.parse_args()
    pure = arguments.what is not None and arguments.what.name.endswith(".tar.gz")
    tests = () if pure else TESTS + MORE_TESTS if arguments.lowest else TESTS
    tests = FREE_TESTS if arguments.free_threaded else tests
    smoke = not (arguments.no_smoke or arguments.lowest or arguments.free_threaded)
    needs = [
        *(TEST_NEEDS if tests else ()),
        *(SMOKE_NEEDS if smoke else ()),
        *((*lowest(), *MORE_NEEDS) if arguments.lowest else ()),
    ]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fastfeed-clean-") as name:
        room = Path(name)
        if arguments.free_threaded:
            run = environment(room, arguments.python)
            pip = ("python", "-m", "pip", "install", "-q", "--only-binary", ":all:")
            # google-crc32c is slower there, in Python, as it has no wheel either
            run(*pip, "--no-binary", "google-crc32c", *needs, *FREE_NEEDS)
            wheel = arguments.what or free_threaded(ROOT / "dist")
            run(*pip, "--no-deps", str(wheel.resolve()))
            run("python", "-c", "import fastfeed._native, sys; assert not sys._is_gil_enabled()")
        else:
            run = installation(room, arguments.python, arguments.what, needs)
        installed = time.monotonic()
        if tests:
            shutil.copytree(
                ROOT / "tests",
                room / "tree" / "tests",
                ignore=shutil.ignore_patterns("__pycache__"),
            )
            shutil.copytree(ROOT / "docs", room / "tree" / "docs")  # tests compare what they say
            shutil.copy(ROOT / "pyproject.toml", room / "tree")  # pytest's settings
            # warnings of other packages' newest or oldest versions are no errors here
            options = ["-q", "-m", "not slow", "-o", "filterwarnings=default"]
            # those of commands, which only the oldest dependencies see, are called by shells
            run(
                "python",
                "-m",
                "pytest",
                *options,
                *tests,
                cwd=room / "tree",
                path=os.defpath * arguments.lowest,
            )
        tested = time.monotonic()
        if smoke:
            (room / "work").mkdir()
            script = str(shutil.copy(ROOT / "packaging" / "smoke.py", room))
            run("python", script, *(["--no-kernel"] if pure else []), cwd=room / "work")
    seconds = (installed - begun, tested - installed, time.monotonic() - tested)
    print("It works: {:.0f} s to install, {:.0f} s of tests, {:.0f} s of jobs.".format(*seconds))


def lowest() -> list[str]:
    """Requirements with each dependency, and PyArrow, at the oldest allowed release series."""
    text = (ROOT / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    extra = re.search(r"^parquet = .*$", text, re.MULTILINE)
    assert block and extra, "pyproject.toml has no dependencies"
    return [
        f"{name}=={least}.*"
        for name, least in re.findall(r'"([\w-]+)>=([\d.]+)"', block[1] + extra[0])
    ]


def fitting(dist: Path, python: str) -> Path:
    """The wheel of this tree's version for a Python, and not one of that name from a registry."""
    code = "import platform, sys; print('%d%02d' % sys.version_info[:2], platform.machine())"
    python_version, machine = subprocess.check_output([python, "-c", code], text=True).split()
    tag = {"310": "cp310-cp310", "311": "cp311-cp311"}.get(python_version, "cp312-abi3")
    wheels = [
        wheel
        for wheel in sorted(dist.glob(f"fastfeed-{version(ROOT)}-*.whl"))
        if f"-{tag}-" in wheel.name and wheel.stem.endswith(machine.lower())
    ]
    if not wheels:
        sys.exit(
            f"{dist} must have a wheel of {version(ROOT)} for {tag} on {machine}; run make wheel,"
            " or pass one."
        )
    return wheels[-1]


def free_threaded(dist: Path) -> Path:
    """The newest wheel of this tree's version for Pythons without the interpreter's lock."""
    wheels = sorted(
        dist.glob(f"fastfeed-{version(ROOT)}-*-cp31?t-*.whl"),
        key=lambda wheel: wheel.stat().st_mtime,
    )
    if not wheels:
        sys.exit(
            f"{dist} must have a wheel of {version(ROOT)} for Python without the interpreter's lock"
            " (cp313t, cp314t); run make wheel with such a Python in PYTHONS, or pass one."
        )
    return wheels[-1]


def environment(room: Path, python: str) -> Callable[..., None]:
    """A function that runs a program of the new environment and exits if it fails."""
    subprocess.run([python, "-m", "venv", str(room / "venv")], check=True)
    bin_folder = room / "venv" / ("Scripts" if os.name == "nt" else "bin")
    kept = KEPT + (KEPT_ON_WINDOWS if os.name == "nt" else ())
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    environ |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    # PYTHONUTF8: files are read as on Linux, whatever the code page of Windows is
    environ |= {"PATH": str(bin_folder), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
    environ |= {"CC": "no-compiler", "CXX": "no-compiler"}  # CMake also looks where PATH does not

    def run(program: str, *command: str, cwd: Path = room, path: str = "") -> None:
        env = environ | {"PATH": os.pathsep.join(filter(None, [environ["PATH"], path]))}
        code = subprocess.run(
            [str(bin_folder / program), *command], check=False, env=env, cwd=cwd
        ).returncode
        if code:
            sys.exit(f"{program} {' '.join(command)} in the clean room: exit code {code}.")

    return run


def installation(
    room: Path, python: str, what: Path | None, needs: list[str]
) -> Callable[..., None]:
    """Installs it with what it needs; the function of the environment."""
    run = environment(room, python)
    options = ["--only-binary", ":all:"]
    what = what or fitting(ROOT / "dist", python)
    if what.name.endswith(".tar.gz"):
        options += ["--no-binary", "fastfeed", str(what.resolve())]
    else:
        options += [str(what.resolve())]
    run("python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *options, *needs)
    return run


if __name__ == "__main__":
    main()
