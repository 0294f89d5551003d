"""Trainers of every framework whose costs are known, in simulated time, unchanged under
FASTFEED_PROVE.
"""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

FRAMEWORKS = {  # packages, and how many proofs in CI and of all: Keras takes longer
    "keras-tensorflow": (("keras", "tensorflow"), 8, 20),
    "keras-jax": (("keras", "jax"), 0, 20),
    "keras-torch": (("keras", "torch"), 0, 20),
    "torch": (("torch",), 10, 70),
    "jax": (("jax",), 10, 70),
}
SCRIPT = Path(__file__).with_name("scripted_session.py")


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_truth_is_in_nine_of_ten_intervals(every: bool):
    """200 proofs of unchanged trainers; every one ends its trainer, and nothing is saved.

    Of intervals of 95 %, 180 of 200 or more hold the truth in 998 of 1,000 such series, and 23 of
    28 or more in nearly all.
    """
    held, total, first = Counter(), 0, 0
    for name, (packages, some, proofs) in FRAMEWORKS.items():
        count = proofs if every else some
        if count and all(map(importlib.util.find_spec, packages)):
            command = [sys.executable, "-W", "ignore", str(SCRIPT), name, str(first), str(count)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
            assert done.returncode == 0, (name, done.stderr[-3000:])
            held.update(json.loads(done.stdout.splitlines()[-1]))
            total += count
        first += proofs
    if not held:
        pytest.skip(
            "Keras, JAX and PyTorch missing: make test TORCH=torch==2.13.0 brings all that"
            " tests use"
        )
    least, mean = (0.9, 0.93) if every else (0.8, 0.9)
    assert min(held.values()) >= least * total, held
    assert sum(held.values()) >= mean * total * len(held), held
