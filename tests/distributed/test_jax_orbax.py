"""JAX with Orbax: a checkpoint holds the feed's position, for any number of processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import ranks_at_work as at_work
from helpers.needs import needs

pytestmark = [pytest.mark.slow, needs("jax", "orbax", "grain")]


def test_two_processes_become_one_and_then_three(tmp_path: Path) -> None:
    """Each run resumes within an epoch of three steps, or after it, and ends as one process does."""
    order = at_work.order(3, global_batch=12)
    for done, size in enumerate((2, 1, 3)):
        steps = 2 * done + 2
        address = f"localhost:{at_work.ports(1)[0]}"
        common = size, address, tmp_path / "run", 2
        ranks = at_work.told([at_work.work("jax_orbax.py", rank, *common) for rank in range(size)])
        for rank, told in enumerate(ranks):
            at_work.same(told, at_work.trained(steps, global_batch=12))
            assert told["world"].startswith(f"rank {rank} of {size} ")
            assert told["position"] == list(divmod(steps, 3))
            share = 12 // size
            part = order[steps][rank * share : (rank + 1) * share]
            assert told["next"] == part, "restored as an iterator of Grain's"
            if done:
                text = "cannot restore: global_batch was 12, this feed has 24, so the order would"
                assert told["refused"].startswith(text)
