"""Every launcher's environment as it really looks, who wins over whom, and the text of every
error.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
import random

import pytest

from fastfeed.distributed.launchers import LAUNCHERS, tasks_per_node
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError


def env(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split())


TORCHRUN = env(
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 GROUP_WORLD_SIZE=2"
    " ROLE_RANK=5 ROLE_NAME=default MASTER_ADDR=gpu001 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none"
    " TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0"
)
DEEPSPEED = env(
    "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_SIZE=2 CROSS_RANK=1 CROSS_SIZE=2 MASTER_ADDR=gpu001"
    " MASTER_PORT=29500"
)
PYTORCHJOB = {
    "RANK": "2",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "train-master-0",
    "MASTER_PORT": "23456",
}
HOROVOD = env(
    "HOROVOD_RANK=6 HOROVOD_SIZE=8 HOROVOD_LOCAL_RANK=2 HOROVOD_LOCAL_SIZE=4 HOROVOD_CROSS_RANK=1 "
    "HOROVOD_CROSS_SIZE=2 HOROVOD_CONTROLLER=gloo HOROVOD_CPU_OPERATIONS=gloo"
)
OPENMPI = env(
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1"
    " OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 OMPI_UNIVERSE_SIZE=4 PMIX_RANK=3"
)
MVAPICH2 = env(
    "MV2_COMM_WORLD_RANK=2 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=0"
    " MV2_COMM_WORLD_LOCAL_SIZE=2"
)
HYDRA = env("PMI_RANK=7 PMI_SIZE=8 PMI_FD=8 MPI_LOCALRANKID=3 MPI_LOCALNRANKS=4 HYDI_CONTROL_FD=6")
PALS = {
    "PMI_RANK": "5",
    "PMI_SIZE": "8",
    "PMI_LOCAL_RANK": "1",
    "PMI_LOCAL_SIZE": "4",
    "PALS_NODEID": "1",
}
JAX = {"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234"}
SBATCH = env(
    "SLURM_JOB_ID=200505 SLURM_JOB_NAME=train SLURM_NTASKS=7 SLURM_TASKS_PER_NODE=2(x3),1"
    " SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_JOB_NUM_NODES=4 SLURM_GTIDS=0"
)
SRUN = SBATCH | env(
    "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=7 SLURM_STEP_NUM_NODES=4"
    " SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NODEID=2"
)
PTY = SRUN | {
    "SLURM_PTY_PORT": "34889",
    "SLURM_PTY_WIN_COL": "236",
    "SLURM_PTY_WIN_ROW": "64",
    "SLURM_PROCID": "0",
}
VERTEX = {
    "TF_CONFIG": json.dumps(
        {
            "cluster": {"chief": ["pool0-0:2222"], "worker": ["pool1-0:2222", "pool1-1:2222"]},
            "task": {"type": "worker", "index": 1, "trial": ""},
            "environment": "cloud",
            "job": "{}",
        }
    ),
    "CLUSTER_SPEC": '{"cluster": {"workerpool0": [], "workerpool1": []}, "task": {}}',
}
KUBEFLOW_JAX = JAX | env("JAX_PROCESS_ID=1 JAX_NUM_PROCESSES=2 JAX_COORDINATOR_PORT=6666")
KUBEFLOW_TORCH = env(
    "PET_NNODES=2 PET_NPROC_PER_NODE=4 PET_NODE_RANK=1 PET_MASTER_ADDR=a PET_MASTER_PORT=29400"
)
SAGEMAKER = {
    "SM_HOSTS": '["algo-1", "algo-2", "algo-10"]',
    "SM_CURRENT_HOST": "algo-2",
    "SM_NUM_GPUS": "4",
}
SKYPILOT = {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "3", "SKYPILOT_NODE_IPS": "a\nb\nc"}
BY_HAND = env("RANK=1 WORLD_SIZE=4 LOCAL_RANK=1")
TORCHRUN_FOUND = "torchrun: RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4"
TASKS = "SLURM_STEP_TASKS_PER_NODE=2(x3),1"
SPECIAL = "a batch script or an interactive shell, so it is alone"
SHELL = "with srun --pty, an interactive shell, so it is alone"
CLUSTER = {
    "chief": ["a:1"],
    "worker": ["a:2", "b:1", "b:2", "b:3"],
    "ps": ["c:1"],
    "evaluator": ["d:1"],
}


def tf(kind: str, index: int, cluster: object = None) -> dict[str, str]:
    config = {
        "cluster": CLUSTER if cluster is None else cluster,
        "task": {"type": kind, "index": index},
    }
    return {"TF_CONFIG": json.dumps(config)}


@pytest.mark.parametrize(
    ("environ", "world", "found_by"),
    [
        (TORCHRUN, World(5, 8, 1, 4), TORCHRUN_FOUND),
        (DEEPSPEED, World(3, 4, 1, 2), "torchrun: RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_SIZE=2"),
        (
            PYTORCHJOB,
            World(2, 4, 0, 1),
            "torchrun: RANK=2 WORLD_SIZE=4, one process per machine assumed",
        ),
        (
            BY_HAND,
            World(1, 4, 1, 4),
            "torchrun: RANK=1 WORLD_SIZE=4 LOCAL_RANK=1, one machine assumed",
        ),
        (
            HOROVOD,
            World(6, 8, 2, 4),
            "Horovod: HOROVOD_RANK=6 HOROVOD_SIZE=8 HOROVOD_LOCAL_RANK=2 HOROVOD_LOCAL_SIZE=4",
        ),
        (
            OPENMPI,
            World(3, 4, 1, 2),
            f"Open MPI: {' '.join(f'{name}={n}' for name, n in list(OPENMPI.items())[:4])}",
        ),
        (
            MVAPICH2,
            World(2, 4, 0, 2),
            f"MVAPICH2: {' '.join(f'{name}={n}' for name, n in MVAPICH2.items())}",
        ),
        (
            HYDRA,
            World(7, 8, 3, 4),
            "PMI: PMI_RANK=7 PMI_SIZE=8 MPI_LOCALRANKID=3 MPI_LOCALNRANKS=4",
        ),
        (PALS, World(5, 8, 1, 4), "PMI: PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=4"),
        (
            JAX,
            World(1, 2, 0, 1),
            "JAX: JAX_PROCESS_ID=1 JAX_NUM_PROCESSES=2, one process per machine assumed",
        ),
        (tf("worker", 2), World(3, 5, 1, 3), "TF_CONFIG: task worker 2, 5 training tasks, 3 on b"),
        (
            SRUN,
            World(5, 7, 1, 2),
            f"Slurm: SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=1 {TASKS}",
        ),
        (VERTEX, World(2, 3), "TF_CONFIG: task worker 1, 3 training tasks, 1 on pool1-1"),
        (
            KUBEFLOW_JAX,
            World(1, 2),
            "JAX: JAX_PROCESS_ID=1 JAX_NUM_PROCESSES=2, one process per machine assumed",
        ),
        # Kubeflow tells torchrun alone, which numbers the processes
        (KUBEFLOW_TORCH, World(), "default: no launcher in the environment"),
        (KUBEFLOW_TORCH | TORCHRUN, World(5, 8, 1, 4), TORCHRUN_FOUND),
        (
            SAGEMAKER,
            World(2, 3),
            "SageMaker: machine 2 of SM_HOSTS, one process per machine assumed",
        ),
        (
            SKYPILOT,
            World(1, 3),
            "SkyPilot: SKYPILOT_NODE_RANK=1 SKYPILOT_NUM_NODES=3, one process per machine assumed",
        ),
        (env("HOME=/root PATH=/bin"), World(), "default: no launcher in the environment"),
        # not every process in a job is a rank
        (SBATCH, World(), "Slurm: SLURM_JOB_ID=200505 without an srun step, so it is alone"),
        (
            SRUN | env("SLURM_STEP_ID=4294967291"),
            World(),
            f"Slurm: SLURM_STEP_ID=4294967291, {SPECIAL}",
        ),
        (
            PTY | env("SLURM_STEP_ID=4294967290"),
            World(),
            f"Slurm: SLURM_STEP_ID=4294967290, {SPECIAL}",
        ),
        (PTY | env("SLURM_JOB_NAME=bash"), World(), f"Slurm: SLURM_JOB_NAME=bash {SHELL}"),
        (
            PTY | env("SLURM_JOB_NAME=bash PMI_RANK=0 PMI_SIZE=7"),
            World(),
            f"Slurm: SLURM_JOB_NAME=bash {SHELL}",
        ),
        (tf("ps", 0), World(), "TF_CONFIG: task ps 0 does not train, so it is alone"),
        (tf("evaluator", 0), World(), "TF_CONFIG: task evaluator 0 does not train, so it is alone"),
    ],
)
def test_detects_every_launcher(environ: dict[str, str], world: World, found_by: str) -> None:
    found = World.detect(environ)
    assert found == world
    assert found.found_by == found_by
    assert found.gpu == found.local_rank


def test_reads_os_environ_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert World.detect() == World(5, 8, 1, 4)


def test_launchers_table_names_the_order() -> None:
    assert list(LAUNCHERS) == [
        "torchrun",
        "Horovod",
        "Open MPI",
        "MVAPICH2",
        "PMI",
        "JAX",
        "TF_CONFIG",
        "Slurm",
        "SageMaker",
        "SkyPilot",
    ]
    environs = [TORCHRUN, HOROVOD, OPENMPI, MVAPICH2, HYDRA, JAX, tf("worker", 1), SRUN]
    environs += [SAGEMAKER, SKYPILOT]
    names = list(LAUNCHERS)
    for (inner, first), (outer, second) in itertools.combinations(
        zip(names, environs, strict=True), 2
    ):
        found = World.detect(second | first).found_by
        assert found.startswith(f"{inner}:"), f"{inner} must win over {outer}, found {found}"


def test_slurm_tells_the_local_rank_that_a_launcher_leaves_out() -> None:
    # `srun --mpi=pmi2`, JAX scripts and hand-made exports number the ranks as Slurm does
    for text, name in [
        ("PMI_RANK=5 PMI_SIZE=7", "Slurm"),
        ("PMI_RANK=5", "Slurm"),
        ("RANK=5 WORLD_SIZE=7", "torchrun"),
        ("RANK=5 WORLD_SIZE=7 LOCAL_RANK=1", "torchrun"),
        ("JAX_PROCESS_ID=5 JAX_NUM_PROCESSES=7", "JAX"),
    ]:
        world = World.detect(SRUN | env(text))
        assert world == World(5, 7, 1, 2)
        assert world.found_by.startswith(f"{name}: ") and world.found_by.endswith(TASKS)
    # torchrun on each of 4 nodes: its ranks are not Slurm's tasks
    other = World.detect(SRUN | {"RANK": "9", "WORLD_SIZE": "16"})
    assert other == World(9, 16, 0, 1)


def test_slurm_multi_node_ranks_are_disjoint_and_complete() -> None:
    for counts, text in [((2, 2, 2, 1), "2(x3),1"), ((4,), "4"), ((1, 3, 3), "1,3(x2)")]:
        worlds = []
        for node, count in enumerate(counts):
            for local in range(count):
                rank = sum(counts[:node]) + local
                step = (
                    f"SLURM_STEP_NUM_TASKS={sum(counts)} SLURM_STEP_TASKS_PER_NODE={text}"
                    f" SLURM_PROCID={rank}"
                )
                step += f" SLURM_LOCALID={local} SLURM_NODEID={node}"
                world = World.detect(SRUN | env(step))
                assert (world.rank, world.local_rank, world.local_size) == (rank, local, count)
                worlds.append(world)
        assert [world.rank for world in worlds] == list(range(sum(counts)))
        assert {world.size for world in worlds} == {sum(counts)}


def test_slurm_shells_and_steps() -> None:
    one = env("SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_LOCALID=0 SLURM_NODEID=0")
    for name in ("bash", "interactive", "train"):
        assert World.detect(PTY | one | {"SLURM_JOB_NAME": name}) == World()
    assert World.detect(SRUN | {"SLURM_JOB_NAME": "bash"}) == World(
        5, 7, 1, 2
    )  # srun bash train.sh
    assert World.detect(SRUN | {"SLURM_JOB_NAME": "interactive"}) == World(
        5, 7, 1, 2
    )  # salloc, then srun
    assert World.detect(SRUN | HYDRA) == World(
        7, 8, 3, 4
    )  # mpirun starts its ranks inside one srun task per node
    # a script in each task may number by node; torchrun does as well
    assert World.detect(SRUN | env("RANK=3 WORLD_SIZE=7")).rank == 3
    assert World.detect(SRUN | env("RANK=0 WORLD_SIZE=7 TORCHELASTIC_RUN_ID=none")).rank == 0


def test_tf_config_numbers_tasks_as_tensorflow_does() -> None:
    assert World.detect(tf("chief", 0)) == World(0, 5, 0, 2)
    assert [World.detect(tf("worker", i)).rank for i in range(4)] == [1, 2, 3, 4]
    assert [World.detect(tf("worker", i)).local_rank for i in range(4)] == [1, 0, 1, 2]
    assert World.detect(tf("worker", 1, {"worker": ["h0:1", "h1:1"]})) == World(1, 2, 0, 1)
    assert World.detect(tf("master", 0, {"master": ["h0:1"], "worker": ["h1:1"]})) == World(0, 2)
    assert World.detect(tf("worker", 7, {"worker": {"3": "h0:1", "7": "h0:2"}})) == World(
        1, 2, 1, 2
    )
    assert World.detect({"TF_CONFIG": "{}"}).found_by.startswith("default")
    assert World.detect({"TF_CONFIG": '{"cluster": {}}'} | SRUN).found_by.startswith("Slurm")


# WORLD_SIZE with MASTER_ADDR is what sbatch scripts export before srun
LONE = (
    "RANK=3; WORLD_SIZE=4; WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1; LOCAL_RANK=-1; RANK="
    " WORLD_SIZE= LOCAL_RANK=0"
)
LONE += (
    "; JAX_COORDINATOR_ADDRESS=10.0.0.1:1234; JAX_NUM_PROCESSES=8; SLURM_NTASKS=4 SLURM_PROCID=2"
)


@pytest.mark.parametrize("text", LONE.split("; "))
def test_lone_variables_are_nobodys_launcher(text: str) -> None:
    assert World.detect(env(text)).found_by == "default: no launcher in the environment"


def alone(given: str, missing: str, launcher: str) -> str:
    name = given.split("=", maxsplit=1)[0]
    return (
        f"{missing} must be set when {name} is, got {given} alone; set both as {launcher} does, or"
        f" unset {name}"
    )


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        (env("RANK=1 LOCAL_RANK=1"), alone("RANK=1", "WORLD_SIZE", "torchrun")),
        (env("WORLD_SIZE=4 TORCHELASTIC_RUN_ID=none"), alone("WORLD_SIZE=4", "RANK", "torchrun")),
        (
            env("OMPI_COMM_WORLD_RANK=1"),
            alone("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE", "Open MPI"),
        ),
        (JAX | {"JAX_PROCESS_ID": ""}, alone("JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID", "JAX")),
        (SRUN | {"SLURM_PROCID": ""}, alone("SLURM_STEP_NUM_TASKS=7", "SLURM_PROCID", "Slurm")),
        (
            TORCHRUN | {"RANK": "abc"},
            "RANK must be an integer, got 'abc'; let torchrun set it, or unset RANK",
        ),
        (
            BY_HAND | {"RANK": "4"},
            (
                "torchrun: RANK=4 WORLD_SIZE=4 LOCAL_RANK=1, one machine assumed: rank must be in"
                " [0, 4), got 4; pass the global rank, not the local one, or unset RANK"
            ),
        ),
        (
            TORCHRUN | {"LOCAL_WORLD_SIZE": "0"},
            (
                "torchrun: RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=0: local_size must be"
                " in [1, 8], got 0; pass the processes on this machine, or unset RANK"
            ),
        ),
        (
            SRUN | {"SLURM_LOCALID": ""},
            (
                "SLURM_LOCALID must be set inside an srun step, got Slurm: SLURM_PROCID=5"
                " SLURM_STEP_NUM_TASKS=7, one process per machine assumed; pass every SLURM_*"
                " variable on, for example into the container, or unset SLURM_STEP_NUM_TASKS"
            ),
        ),
        (
            SRUN | env("RANK=0 WORLD_SIZE=7"),
            (
                "RANK must be SLURM_PROCID where srun and WORLD_SIZE number 7 processes, got RANK=0"
                " and SLURM_PROCID=5; unset RANK and WORLD_SIZE, which a batch script has exported"
                " for all tasks alike, or pass Feed(world=ff.World(rank, size, local_rank,"
                " local_size))"
            ),
        ),
        (
            SAGEMAKER | {"SM_CURRENT_HOST": "algo-3"},
            (
                'SM_HOSTS must be a JSON list with SM_CURRENT_HOST=algo-3 in it, got \'["algo-1",'
                ' "algo-2", "algo-10"]\'; let SageMaker set both, or unset SM_HOSTS'
            ),
        ),
        (
            SRUN | {"SLURM_NODEID": "4"},
            (
                f"SLURM_NODEID must be in [0, 4), as {TASKS} says, got 4; let srun set both, or"
                " unset SLURM_NODEID"
            ),
        ),
        (
            SRUN | {"SLURM_STEP_TASKS_PER_NODE": "2x3"},
            (
                "SLURM_STEP_TASKS_PER_NODE must be counts like \"2(x3),1\", got '2x3'; let srun set"
                " it, or unset it"
            ),
        ),
        (
            PTY | {"SLURM_JOB_NAME": "interactive"},
            (
                "SLURM_STEP_NUM_TASKS must be 1 under SLURM_PTY_PORT (srun --pty), got 7, which may"
                " be this shell's or a step's; in a shell, start it with `srun --pty -n 1`; before"
                " a step, `unset SLURM_PTY_PORT`"
            ),
        ),
    ],
)
def test_errors_name_the_variable_and_the_way_out(environ: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        World.detect(environ)
    assert str(caught.value) == text
    assert caught.value.field.isupper() and caught.value.field in text


@pytest.mark.parametrize(
    "value",
    [
        "worker 0",
        "[]",
        '{"cluster": ["a:1"]}',
        '{"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
    ],
)
def test_tf_config_error(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        World.detect({"TF_CONFIG": value})
    assert (
        str(caught.value)
        == 'TF_CONFIG must be like {"cluster": {"worker": ["host:port"]}, "task": {"type":'
        f' "worker", "index": 0}}}}, with the task in the cluster, got {value!r}; correct it or'
        " unset TF_CONFIG"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((4, 4), "rank must be in [0, 4), got 4; pass the global rank, not the local one"),
        ((-1, 4), "rank must be in [0, 4), got -1; pass the global rank, not the local one"),
        ((0, 0), "size must be >= 1, got 0; pass the number of processes in all"),
        ((True, 2), "rank must be an integer, got True; pass int(rank)"),
        ((0, "2"), "size must be an integer, got '2'; pass int(size)"),
        (
            (0, 4, 2, 2),
            (
                "local_rank must be in [0, 2), got 2; pass the rank on this machine, and local_size"
                " with it"
            ),
        ),
        ((0, 4, 0, 8), "local_size must be in [1, 4], got 8; pass the processes on this machine"),
        ((0, 4, 0, 0), "local_size must be in [1, 4], got 0; pass the processes on this machine"),
        ((0, 2, 0, 8, "", 3), "local_size must be in [1, 6], got 8; pass the processes on this"),
        ((0, 2, 0, 1, "", 0), "replicas must be >= 1, got 0; pass processes per rank"),
    ],
)
def test_world_checks_its_numbers(arguments: tuple, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        World(*arguments)
    assert str(caught.value).startswith(text)


def test_world_reads_aloud_and_is_a_value() -> None:
    assert str(World.detect(TORCHRUN)) == "rank 5 of 8 (local 1 of 4), found by torchrun"
    assert str(World(1, 4)) == "rank 1 of 4 (local 0 of 1)"
    assert str(World.detect({})) == "rank 0 of 1 (local 0 of 1), no launcher in the environment"
    assert World.detect(TORCHRUN) == World(5, 8, 1, 4)  # how it was found is no part of the value
    assert (
        pickle.loads(pickle.dumps(World.detect(TORCHRUN))).found_by
        == World.detect(TORCHRUN).found_by
    )
    assert dataclasses.replace(World(1, 4), rank=2) == World(2, 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        World().rank = 1  # pyright: ignore[reportAttributeAccessIssue]


def compressed(counts: list[int]) -> str:
    """Slurm's own writing of a list: runs as "count(xtimes)"."""
    runs = [(count, len(list(group))) for count, group in itertools.groupby(counts)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def test_tasks_per_node_reads_what_slurm_writes() -> None:
    assert tasks_per_node("2(x3),1") == (2, 2, 2, 1)
    assert tasks_per_node("8") == (8,)
    random_counts = random.Random(0)
    for _ in range(500):
        counts = [random_counts.randint(1, 3) for _ in range(random_counts.randint(1, 40))]
        assert tasks_per_node(compressed(counts)) == tuple(counts)
        assert tasks_per_node(",".join(map(str, counts))) == tuple(counts)


@pytest.mark.parametrize("text", ["", "2(x3", "2(x3),", "x3", "-1", "2(3)", "a", "2(x)", "1;2"])
def test_tasks_per_node_rejects_the_rest(text: str) -> None:
    with pytest.raises(ConfigError, match="SLURM_STEP_TASKS_PER_NODE must be counts like"):
        tasks_per_node(text)
