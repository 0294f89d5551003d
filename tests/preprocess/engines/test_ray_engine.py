"""Shards done by a cluster of three nodes: the same files as here, whichever node or driver dies on
the way.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.needs import LazyModule, needs
from helpers.preprocess.deadly import HostileTask, written_results
from helpers.preprocess.job_driver import RECIPE
from helpers.preprocess.outcomes import photographs, tree
from helpers.preprocess.waiting import WaitingTask, alive, started_pieces, until
from helpers.ray_nodes import TESTS, Nodes, ray_nodes

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.preprocess import Metadata, Selection
from fastfeed.preprocess.job.job import run
from fastfeed.preprocess.workers.supervisor import WorkerDied, WorkerLimits

engines = LazyModule("fastfeed.preprocess.engines.ray")
pytestmark = [pytest.mark.slow, needs("ray")]

RULES = WorkerLimits(memory=1 << 27, timeout_s=1.0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with ray_nodes() as nodes:
        yield nodes


@pytest.fixture
def nodes(cluster: Nodes) -> Iterator[Nodes]:
    cluster.restore()
    yield cluster
    assert not engines.ray.is_initialized(), "the engine leaves what it began"


def test_samples_that_kill_are_the_only_ones_lost(nodes: Nodes, tmp_path: Path) -> None:
    fates = {4: "segfault", 13: "exit", 25: "hang", 31: "memory", 44: "kill once"}
    outcomes = list(
        engines.RayEngine(nodes.address, rules=RULES).run(
            HostileTask(str(tmp_path), fates), range(6)
        )
    )
    assert sorted(outcome.piece for outcome in outcomes) == list(range(6))
    assert [outcome.error for outcome in outcomes] == [None] * 6
    bad = {4: "worker_crash", 13: "worker_crash", 25: "timeout", 31: "oom"}
    assert written_results(tmp_path) == dict.fromkeys(range(60), "good") | bad


def test_pieces_of_a_node_that_dies_are_done_elsewhere(nodes: Nodes, tmp_path: Path) -> None:
    lost = []

    def power_cut() -> None:
        until(lambda: len(started_pieces(tmp_path)) == 3)  # one on each node
        lost.extend(one for one in started_pieces(tmp_path) if one.node in nodes.workers)
        nodes.kill(lost[0].node)
        until(lambda: not alive(lost[0].pid))
        (tmp_path / "go").touch()

    killer = threading.Thread(target=power_cut)
    killer.start()
    try:
        outcomes = list(
            engines.RayEngine(nodes.address, rules=RULES).run(
                WaitingTask(str(tmp_path), 3), range(9)
            )
        )
    finally:
        killer.join()
    assert [outcome.error for outcome in outcomes] == [None] * 9
    assert len(list(tmp_path.glob("done-*"))) == 9
    tries = Counter(one.piece for one in started_pieces(tmp_path))
    assert tries == dict.fromkeys(range(9), 1) | {lost[0].piece: 2}, (
        "what was not lost was done once"
    )


def test_closing_ends_what_is_under_way(nodes: Nodes, tmp_path: Path) -> None:
    outcomes = engines.RayEngine(nodes.address, rules=RULES).run(
        WaitingTask(str(tmp_path), 2), [2, 0, 1]
    )
    assert next(outcomes).piece == 2
    until(lambda: len(started_pieces(tmp_path)) == 3)
    outcomes.close()  # type: ignore[attr-defined]
    until(lambda: not any(alive(one.pid) for one in started_pieces(tmp_path) if one.piece < 2))
    assert not list(tmp_path.glob("done-[01]"))


def test_a_piece_that_takes_its_ray_process_along_is_given_up(nodes: Nodes, tmp_path: Path) -> None:
    outcomes = {
        o.piece: o
        for o in engines.RayEngine(nodes.address, rules=RULES).run(
            WaitingTask(str(tmp_path), 0, 1), range(3)
        )
    }
    assert outcomes[0].error is None and outcomes[2].error is None
    assert isinstance(outcomes[1].error, WorkerDied)
    assert "Ray lost piece 1 4 times, last: WorkerCrashedError" in str(outcomes[1].error)
    assert len([one for one in started_pieces(tmp_path) if one.piece == 1]) == 4


def test_no_node_has_room(nodes: Nodes, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"needs a node with 1 CPU and \d+\.\d GB of memory, and .* 1 CPU and .*; add",
    ):
        list(
            engines.RayEngine(nodes.address, rules=WorkerLimits(1 << 45), patience_s=0.5).run(
                HostileTask(str(tmp_path)), [0]
            )
        )


def test_processes_that_call_a_function_have_the_gpus_that_ray_assigns(
    nodes: Nodes, tmp_path: Path
) -> None:
    source = str(photographs(tmp_path / "source", 12, bad=0))
    recipe = replace(RECIPE, metadata=Metadata(extras="helpers.preprocess.gpu_function:visible"))
    recipe = replace(recipe, choice=Selection(dedupe="exact"))  # the survey needs none
    engine = f"ray:{nodes.address}"
    report = run(source, tmp_path / "out", recipe, engine=engine, gpus_per_worker=1, memory="400MB")
    assert report.complete and report.shards == 3
    shards = ff.TarShards(str(tmp_path / "out/*.tar"), label=None, columns=["json"])
    columns = [m["columns"] for m in shards.columns(np.arange(len(shards)))["json"]]
    assert {column["gpus"] for column in columns} == {"0"}  # each node has one, and names it so
    lacking = engines.RayEngine(nodes.address, rules=RULES, gpus_per_worker=2, patience_s=0.5)
    with pytest.raises(ConfigError, match=r"with 1 CPU, 2 GPU and .* 1 CPU, 1 GPU and .*; add"):
        run(source, tmp_path / "none", recipe, engine=lacking)


@pytest.mark.parametrize("gpus", [-1, 1.5, float("nan"), float("inf")])
def test_numbers_of_gpus(gpus: float) -> None:
    with pytest.raises(ConfigError, match="gpus_per_worker must be a fraction below 1, or a whole"):
        engines.RayEngine(gpus_per_worker=gpus)


def test_the_ray_of_this_process_is_used_and_left_running(nodes: Nodes, tmp_path: Path) -> None:
    engines.ray.init(nodes.address, log_to_driver=False, logging_level="error")
    try:
        (outcome,) = engines.RayEngine("never.read:1", rules=RULES).run(
            HostileTask(str(tmp_path)), [0]
        )
        assert outcome.error is None and engines.ray.is_initialized()
    finally:
        engines.ray.shutdown()


def test_a_node_and_the_driver_die_and_the_files_are_the_same(nodes: Nodes, tmp_path: Path) -> None:
    source = str(photographs(tmp_path / "source", 60, bad=2))
    run(source, tmp_path / "local", RECIPE, workers=2)
    target = tmp_path / "ray"
    code = (
        "import sys; from helpers.preprocess.job_driver import RECIPE\nfrom"
        " helpers.preprocess.waiting import SlowSource\nfrom fastfeed.preprocess.inputs.source_spec"
        " import open_input; from fastfeed.preprocess.job.job import"
        " run\nrun(SlowSource(open_input(sys.argv[1]).source, 0.1), sys.argv[2], RECIPE,"
        " engine='ray:' + sys.argv[3])\n"
    )
    command = [sys.executable, "-c", code, source, str(target), nodes.address]
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    ) as driver:
        until(lambda: len(list(target.glob("__job/records/shard-*.json"))) >= 2)
        nodes.kill(nodes.workers[0])
        until(lambda: len(list(target.glob("__job/records/shard-*.json"))) >= 4)
        driver.send_signal(signal.SIGKILL)
    report = run(source, target, RECIPE, engine=engines.RayEngine(nodes.address, rules=RULES))
    assert report.complete and 0 < report.shards_now < report.shards and len(report.bad) == 2
    assert tree(target) == tree(tmp_path / "local")


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "nowhere.invalid:6379"])
def test_no_cluster_at_the_address(address: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"no Ray cluster answers at .*; start one with `ray start --head`, or use",
    ):
        list(engines.RayEngine(address).run(HostileTask(str(tmp_path)), [0]))


def test_no_cluster_at_the_address_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(
        ConfigError, match=r"no Ray cluster answers at 127.0.0.1:9: .*Connection refused"
    ):
        list(engines.RayEngine().run(HostileTask(str(tmp_path)), [0]))


@pytest.mark.parametrize("address", ["", "somewhere", "host:name"])
def test_what_is_no_address_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='a Ray address is "auto", "local"'):
        list(engines.RayEngine(address).run(HostileTask(str(tmp_path)), [0]))
