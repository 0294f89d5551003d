"""`to_jax`, in a process of its own because JAX's threads and its number of devices stay in one."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

pytestmark = needs("jax")

PROGRAM = Path(__file__).with_name("jax_checks.py")
CHECKS = re.findall(r"^def (check_\w+)", PROGRAM.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CHECKS)
def test_jax(results, name):
    assert results[name] == ""
