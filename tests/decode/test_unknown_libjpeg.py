"""A kernel that takes libjpeg for a version that it does not know: libjpeg decodes alone, and
`doctor` says so.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import ROOT
from helpers import jpegs

from fastfeed.runtime.extension import is_built

pytestmark = pytest.mark.skipif(not is_built(), reason=jpegs.NO_KERNEL)


def run(code: str) -> subprocess.CompletedProcess[str]:
    environ = dict(os.environ, FASTFEED_LIBJPEG="9.9.0")
    command = [sys.executable, "-c", f"import sys\n{code}"]
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=500, check=False
    )


@pytest.mark.parametrize(
    "tests",
    [
        ["tests/decode/test_native.py", "-k", "begin or orientation"],
        pytest.param(
            ["tests/decode/test_native.py", "tests/decode/test_recode.py"], marks=pytest.mark.slow
        ),
    ],
    ids=["some", "all"],
)
def test_the_decode_tests_pass(tests: list[str]) -> None:
    done = run(
        "import fastfeed._native as native, pytest\nassert"
        " native.libjpeg_huffman_reason()\nsys.exit(pytest.main(['-p', 'no:xdist', '-p',"
        f" 'no:cacheprovider', '-m', 'not slow', *{tests}]))"
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_doctor_says_that_libjpeg_decodes_alone() -> None:
    done = run("sys.argv[1:] = ['doctor']\nfrom fastfeed.cli import main\nmain()")
    text = " ".join(done.stdout.split())
    assert "libjpeg-turbo 9.9.0 is not one of the known versions, 2.0 to 3.2" in text, (
        done.stdout + done.stderr
    )
