"""A kernel that takes libjpeg for a version that it does not know: libjpeg decodes alone, and `doctor` says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from fastfeed.decode import is_built

# compiles the whole kernel
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not (ROOT / "fastfeed" / "native").is_dir(), reason="not in a source tree"),
    pytest.mark.skipif(not is_built(), reason="the kernel is not built, so it may not be possible here"),
]
# an editable installation would come before the folder
ONLY_THE_FOLDER = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != "ScikitBuildRedirectingFinder"]
import fastfeed._native as native
assert native.__file__.startswith(sys.argv[1]), native.__file__
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the package and this kernel."""
    folder = tmp_path_factory.mktemp("unknown")
    settings = ("cmake.define.FASTFEED_UNKNOWN_LIBJPEG=ON", f"build-dir={folder / 'build'}")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder / "site"), str(ROOT)]
    command += [f"--config-settings={one}" for one in settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No matching distribution found for scikit-build-core" in done.stderr:
        pytest.skip("no package index is reachable, which has the build tools")
    assert done.returncode == 0, done.stderr[-4000:]
    assert list((folder / "site" / "fastfeed").glob("_native*")), "built without its kernel"
    yield folder / "site"
    shutil.rmtree(folder, ignore_errors=True)


def run(site: Path, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = dict(os.environ, PYTHONPATH=str(site), PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, "-W", "ignore", "-c", ONLY_THE_FOLDER + code, str(site)]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=900, check=False)


def test_the_decode_tests_pass(site: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__", "fuzz"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    tests = ["tests/decode/test_native.py", "tests/decode/test_recode.py"]
    done = run(site, f"import pytest\nsys.exit(pytest.main(['-p', 'no:xdist', '-m', 'not slow', *{tests}]))", tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_doctor_says_that_libjpeg_decodes_alone(site: Path, tmp_path: Path) -> None:
    done = run(site, "sys.argv[1:] = ['doctor']\nfrom fastfeed.cli import main\nmain()", tmp_path)
    text = " ".join(done.stdout.split())
    assert "libjpeg-turbo 9.9.0 is not one of the known versions, 2.0 to 3.2" in text, done.stdout + done.stderr
