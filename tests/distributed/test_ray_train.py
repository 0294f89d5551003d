"""Ray Train's trainers on a cluster of three nodes, with a feed in each worker."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ranks_at_work as at_work
from helpers.needs import needs, require
from helpers.preprocess.waiting import until
from helpers.ray_nodes import Nodes, ray_nodes

pytestmark = [pytest.mark.slow, needs("ray", "torch", "pyarrow", "pandas", "pydantic")]

STEPS = at_work.SAMPLES // 8


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch, ray_nodes() as nodes:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield nodes


def start(nodes: Nodes, folder: Path, framework: str, **config: Any) -> Any:
    config |= {"address": nodes.address, "folder": str(folder), "framework": framework}
    return at_work.work("ray_loops.py", json.dumps(config))


def notes(folder: Path) -> list[dict[str, Any]]:
    """What the workers have written, each line with the position at which its attempt began."""
    found = []
    for file in folder.glob("seen-*.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        found += [{"from": lines[0]["begins"], **line} for line in lines]
    return found


def check(folder: Path, begins: list[list[int]], workers: list[int]) -> None:
    """Each sample once in what counts of all attempts, and the weights of a process alone."""
    lines = notes(folder)
    assert sorted({tuple(line["from"]) for line in lines}) == [tuple(begin) for begin in begins]
    labels = defaultdict(list)
    for number, begin in enumerate(begins):
        own = [line for line in lines if line["from"] == begin]
        firsts = [line for line in own if "begins" in line]
        assert [line["size"] for line in firsts] == [workers[number]] * workers[number]
        after = begins[number + 1] if number + 1 < len(begins) else [at_work.EPOCHS, 0]
        for line in own:
            if "at" in line and line["at"] < after:
                labels[tuple(line["at"])] += line["labels"]
    wanted = {divmod(i, STEPS): sorted(ids) for i, ids in enumerate(at_work.order())}
    assert {at: sorted(ids) for at, ids in labels.items()} == wanted
    told = [json.loads(file.read_text()) for file in folder.glob("weights-*.json")]
    assert len(told) == workers[-1]
    for weights in told:
        at_work.same(weights, at_work.trained())


@pytest.mark.parametrize(
    "framework",
    [
        "torch",
        pytest.param("tensorflow", marks=pytest.mark.nightly),
        pytest.param("jax", marks=pytest.mark.nightly),
    ],
)
def test_a_worker_fails_and_the_run_resumes_at_the_checkpoint(
    framework: str, nodes: Nodes, tmp_path: Path
) -> None:
    require(framework)
    ends = {"[0, 0]": ([0, 3], "fail")}
    driver = start(nodes, tmp_path, framework, workers=2, cpus=0.5, ends=ends)
    ((code, _, said),) = at_work.ended([driver])
    assert code == 0, said[-4000:]
    check(tmp_path, [[0, 0], [0, 2]], [2, 2])
    worlds = {line["world"] for line in notes(tmp_path) if "world" in line}
    assert worlds == {f"rank {i} of 2 (local {i} of 2), found by Ray Train" for i in range(2)}
    refused = {line["refused"] for line in notes(tmp_path) if "refused" in line}
    assert ("prepare_data_loader of Ray Train would" in refused.pop()) == (framework == "torch")


@pytest.mark.nightly
@pytest.mark.parametrize("elastic", [True, False])
def test_a_node_is_lost_and_the_run_ends_with_the_weights_of_one_without_a_break(
    elastic: bool, nodes: Nodes, tmp_path: Path
) -> None:
    """With two workers and then three again, or three that wait for a third node."""

    nodes.restore()
    snapshot = tmp_path / "run" / "checkpoint_manager_snapshot.json"

    def paused(begin: list[int], workers: int, checkpoints: int) -> None:
        """All have come to the pause, and Ray knows what they have reported on the way."""

        def all_are() -> bool:
            ends = [line for line in notes(tmp_path) if line["from"] == begin and "ends" in line]
            return len(ends) == workers and snapshot.exists()

        until(all_are, at_work.LIMIT_S)
        # each of them, and the latest
        until(lambda: snapshot.read_text().count('"checkpoint_dir_name"') == checkpoints + 1)

    ends: dict[str, Any] = {"[0, 0]": ([0, 3], "pause")}
    if elastic:
        ends["[0, 2]"] = ([1, 1], "pause")
    workers = [1, 3] if elastic else 3
    with start(nodes, tmp_path, "torch", workers=workers, cpus=1, ends=ends) as driver:
        try:
            paused([0, 0], 3, 1)
            nodes.kill(nodes.workers[0])
            if elastic:
                paused([0, 2], 2, 3)
            nodes.restore()
            ((code, _, said),) = at_work.ended([driver])
        finally:
            driver.kill()
    assert code == 0, said[-4000:]
    if elastic:
        check(tmp_path, [[0, 0], [0, 2], [1, 0]], [3, 2, 3])
    else:
        check(tmp_path, [[0, 0], [0, 2]], [3, 3])
