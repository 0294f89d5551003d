"""`make gpu-kit-dry`: every step runs on the processor, and says that it is a stand-in.

CI has a job that runs it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

pytestmark = [pytest.mark.nightly, needs("nvidia", "torch", "jax", "keras")]
ROOT = Path(__file__).parents[2]


def test_every_step_runs_and_says_that_it_is_a_stand_in(tmp_path):
    """All of it within its own budget of five minutes: a step for which no time is left is not
    ok.
    """
    command = [sys.executable, "-m", "benchmarks.gpu_check.kit.dry", "--copy-to", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-4000:]
    told = json.loads((tmp_path / "gpu.json").read_text())
    assert told["where"].startswith("stand-in") and set(told["marks"].values()) == {"not measured"}
    steps = dict(told["steps"])
    if steps["nvjpeg"]["state"] == "not run":  # no CUDA toolkit is here, and none of its packages
        assert f"nvjpeg was not run: {steps.pop('nvjpeg')['reason']}" in done.stdout
    assert {name: one["state"] for name, one in steps.items()} == dict.fromkeys(steps, "ok")
    for name, one in steps.items():
        assert one["stand_in"] and one["where"].startswith("stand-in") and one["figures"], name
    page = (tmp_path / "gpu.md").read_text()
    assert all(f"## {name} (stand-in)" in page for name in steps)
    assert "nvjpeg" not in steps or "no GPU is here" in json.dumps(steps["nvjpeg"]["figures"])
