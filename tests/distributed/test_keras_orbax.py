"""A run of Keras that resumes inside an epoch from its own OrbaxCheckpoint ends as undisturbed."""

from __future__ import annotations

from pathlib import Path

import pytest
import ranks_at_work as at_work
from helpers.needs import needs

pytestmark = [pytest.mark.slow, needs("keras", "jax", "orbax")]


def test_a_run_resumes_inside_an_epoch_from_the_steps_of_the_optimizer(tmp_path: Path):
    [told] = at_work.told([at_work.work("keras_orbax.py", tmp_path / "checkpoints")])
    assert told["resumed"] == 6 and told["epoch"] == 2
    at_work.same(told, at_work.trained(steps=10))
