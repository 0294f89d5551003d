"""`to_jax`, in a process of its own because JAX's threads and its number of devices stay in one."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

pytestmark = needs("jax")

PROGRAMS = [Path(__file__).with_name(name) for name in ("jax_checks.py", "jax_gpu_checks.py")]
CHECKS = [
    name
    for path in PROGRAMS
    for name in re.findall(r"^def (check_\w+)", path.read_text(), re.MULTILINE)
]


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning"]
    # it has no wheels for free-threaded Pythons, and says that it is slow
    command += ["-W", "ignore::RuntimeWarning:google_crc32c"]
    found: dict[str, str] = {}
    for path in PROGRAMS:
        done = subprocess.run(
            [*command, str(path)], capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found |= json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", CHECKS)
def test_jax(results, name):
    assert results[name] == ""
