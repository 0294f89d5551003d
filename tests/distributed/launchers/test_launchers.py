"""Two ranks, started as each launcher starts them, get the global batches of one rank between them.

Run for real: mpirun, torchrun (with gloo), horovodrun where it is installed. Only their
environment, in two real
processes: srun, which needs a cluster; TF_CONFIG and JAX, which people and clouds set; and
Horovod's, since pip builds it from source. Without MPI's headers `pip install horovod` fails; with
HOROVOD_WITHOUT_MPI=1 version 0.28.1 builds, and its horovodrun sets what is written here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import walk_rank
from conftest import environment
from helpers.needs import require

pytestmark = pytest.mark.slow

LIMIT_S = 120  # ends a hang
HERE = Path(__file__).parent
RANK = str(HERE / "walk_rank.py")

# (arguments, more environment) of each process to start
Commands = list[tuple[list[str], dict[str, str]]]


def mpirun(folder: Path) -> Commands:
    if shutil.which("mpirun") is None:
        pytest.skip(
            "no mpirun; `make test` installs it where it may, else: apt-get install openmpi-bin"
        )
    # tests run as root in containers, and on machines of one core
    options = ["-np", "2", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    return [(["mpirun", *options, sys.executable, RANK, str(folder)], {})]


def torchrun(folder: Path) -> Commands:
    require("torch")
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
    ]
    return [([*launcher, RANK, str(folder), "--gloo"], {"OMP_NUM_THREADS": "1"})]


def horovodrun(folder: Path) -> Commands:
    found = shutil.which("horovodrun")
    if found is None:
        pytest.skip(
            "no horovodrun: Horovod has no wheels and does not build for this PyTorch unchanged; its"
            " variables are run by hand"
        )
    launcher = [str(Path(found).with_name("python")), str(HERE / "horovod_launch.py")]
    return [([*launcher, sys.executable, RANK, str(folder)], {})]


def by_hand(environ: Callable[[int], dict[str, str]]) -> Callable[[Path], Commands]:
    """Two processes with the variables that a launcher would have set."""
    return lambda folder: [
        ([sys.executable, RANK, str(folder)], environ(rank)) for rank in range(2)
    ]


def env(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split())


def horovod_environ(rank: int) -> dict[str, str]:
    return env(
        f"HOROVOD_RANK={rank} HOROVOD_SIZE=2 HOROVOD_LOCAL_RANK={rank} HOROVOD_LOCAL_SIZE=2"
        " HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=1 HOROVOD_CONTROLLER=gloo"
        " HOROVOD_CPU_OPERATIONS=gloo HOROVOD_HOSTNAME=localhost"
    )


def srun_environ(rank: int) -> dict[str, str]:
    return env(
        "SLURM_JOB_ID=1 SLURM_JOB_NAME=train SLURM_NTASKS=2 SLURM_NPROCS=2 SLURM_TASKS_PER_NODE=2"
        " SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1"
        f" SLURM_STEP_TASKS_PER_NODE=2 SLURM_NODEID=0 SLURM_PROCID={rank} SLURM_LOCALID={rank}"
    )


def tf_config(rank: int) -> dict[str, str]:
    cluster = {"worker": ["localhost:12345", "localhost:23456"]}
    return {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})
    }


def jax(rank: int) -> dict[str, str]:
    return env(f"JAX_PROCESS_ID={rank} JAX_NUM_PROCESSES=2 JAX_COORDINATOR_ADDRESS=localhost:12345")


# how the ranks are started, and what the feed calls it
LAUNCHERS: dict[str, tuple[Callable[[Path], Commands], str]] = {
    "mpirun": (mpirun, "Open MPI"),
    "torchrun": (torchrun, "torchrun"),
    "horovodrun": (horovodrun, "Horovod"),
    "environment of horovodrun": (by_hand(horovod_environ), "Horovod"),
    "environment of srun": (by_hand(srun_environ), "Slurm"),
    "TF_CONFIG": (by_hand(tf_config), "TF_CONFIG"),
    "variables of JAX": (by_hand(jax), "JAX"),
}


def run(commands: Commands) -> None:
    """All at once, to their end; with what they said where one fails."""
    started = [
        subprocess.Popen(
            arguments,
            env=environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a launcher that hangs ends with all of its ranks
        )
        for arguments, more in commands
    ]
    try:
        for process in started:
            said, _ = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, (
                f"{process.args} ended with {process.returncode}:\n{said}"
            )
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.parametrize("name", LAUNCHERS)
def test_two_ranks_get_the_batches_of_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, found_by = LAUNCHERS[name]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")  # of a machine where others have the rest
    run(launcher(tmp_path))
    ranks = sorted(
        (json.loads(file.read_text()) for file in tmp_path.iterdir()),
        key=lambda rank: rank["world"],
    )

    # JAX's variables say nothing about the machine
    local = [[0, 1], [0, 1]] if found_by == "JAX" else [[0, 2], [1, 2]]
    assert [rank["world"] for rank in ranks] == [[0, 2, *local[0]], [1, 2, *local[1]]]
    assert all(rank["found_by"].startswith(f"{found_by}: ") for rank in ranks), ranks[0]["found_by"]

    # one GPU per rank; JAX's variables do not tell the ranks of one machine apart:
    # docs/launching.md
    pinned = ["4", "4"] if found_by == "JAX" else ["4", "6"]
    assert [(rank["gpu"], rank["visible"]) for rank in ranks] == [(gpu, gpu) for gpu in pinned]

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    # this process has other tests to run
    monkeypatch.setattr(walk_rank.ff, "pin_gpu", lambda: None)
    alone = walk_rank.walk()
    assert alone["world"] == [0, 1, 0, 1]
    for epoch in range(walk_rank.EPOCHS):
        first, second = (rank["ids"][epoch] for rank in ranks)
        assert len(first) == len(second) == walk_rank.SAMPLES // walk_rank.GLOBAL_BATCH
        assert [[*a, *b] for a, b in zip(first, second, strict=True)] == alone["ids"][epoch]
        assert sorted(id for step in first + second for id in step) == list(
            range(walk_rank.SAMPLES)
        )
