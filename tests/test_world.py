"""Every launcher's environment as it really looks, who wins over whom, and the text of every error."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
import random
import sys

import pytest

from fastfeed.errors import ConfigError
from fastfeed.world import LAUNCHERS, World, tasks_per_node


def env(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split())


TORCHRUN = env(
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 GROUP_WORLD_SIZE=2 ROLE_RANK=5 "
    "ROLE_NAME=default MASTER_ADDR=gpu001 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none "
    "TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0"
)
DEEPSPEED = env(
    "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_SIZE=2 CROSS_RANK=1 CROSS_SIZE=2 MASTER_ADDR=gpu001 MASTER_PORT=29500"
)
PYTORCHJOB = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "train-master-0", "MASTER_PORT": "23456"}
HOROVOD = env(
    "HOROVOD_RANK=6 HOROVOD_SIZE=8 HOROVOD_LOCAL_RANK=2 HOROVOD_LOCAL_SIZE=4 HOROVOD_CROSS_RANK=1 "
    "HOROVOD_CROSS_SIZE=2 HOROVOD_CONTROLLER=gloo HOROVOD_CPU_OPERATIONS=gloo"
)
OPENMPI = env(
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
    "OMPI_COMM_WORLD_NODE_RANK=1 OMPI_UNIVERSE_SIZE=4 PMIX_RANK=3"
)
MVAPICH2 = env("MV2_COMM_WORLD_RANK=2 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=0 MV2_COMM_WORLD_LOCAL_SIZE=2")
HYDRA = env("PMI_RANK=7 PMI_SIZE=8 PMI_FD=8 MPI_LOCALRANKID=3 MPI_LOCALNRANKS=4 HYDI_CONTROL_FD=6")
PALS = {"PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "4", "PALS_NODEID": "1"}
JAX = {"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234"}
SBATCH = env(
    "SLURM_JOB_ID=200505 SLURM_JOBID=200505 SLURM_JOB_NAME=train SLURM_NTASKS=7 SLURM_NPROCS=7 "
    "SLURM_TASKS_PER_NODE=2(x3),1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_JOB_NUM_NODES=4 "
    "SLURM_GTIDS=0"
)
SRUN = SBATCH | env(
    "SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NUM_TASKS=7 SLURM_STEP_NUM_NODES=4 "
    "SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NODEID=2"
)
PTY = SRUN | {"SLURM_PTY_PORT": "34889", "SLURM_PTY_WIN_COL": "236", "SLURM_PTY_WIN_ROW": "64", "SLURM_PROCID": "0"}
CLUSTER = {
    "chief": ["a:2222"],
    "worker": ["a:2223", "b:2222", "b:2223", "b:2224"],
    "ps": ["c:2222"],
    "evaluator": ["d:2222"],
}


def tf(kind: str, index: int, cluster: object = None) -> dict[str, str]:
    config = {"cluster": CLUSTER if cluster is None else cluster, "task": {"type": kind, "index": index}}
    return {"TF_CONFIG": json.dumps(config)}


@pytest.mark.parametrize(
    ("environ", "numbers", "found_by"),
    [
        (TORCHRUN, (5, 8, 1, 4), "torchrun: RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4"),
        (DEEPSPEED, (3, 4, 1, 2), "torchrun: RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_SIZE=2"),
        (PYTORCHJOB, (2, 4, 0, 1), "torchrun: RANK=2 WORLD_SIZE=4, one process per machine assumed"),
        (
            {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"},
            (1, 4, 1, 4),
            "torchrun: RANK=1 WORLD_SIZE=4 LOCAL_RANK=1, one machine assumed",
        ),
        (
            HOROVOD,
            (6, 8, 2, 4),
            "Horovod: HOROVOD_RANK=6 HOROVOD_SIZE=8 HOROVOD_LOCAL_RANK=2 HOROVOD_LOCAL_SIZE=4",
        ),
        (
            OPENMPI,
            (3, 4, 1, 2),
            "Open MPI: OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 "
            "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2",
        ),
        (
            MVAPICH2,
            (2, 4, 0, 2),
            "MVAPICH2: MV2_COMM_WORLD_RANK=2 MV2_COMM_WORLD_SIZE=4 "
            "MV2_COMM_WORLD_LOCAL_RANK=0 MV2_COMM_WORLD_LOCAL_SIZE=2",
        ),
        (HYDRA, (7, 8, 3, 4), "PMI: PMI_RANK=7 PMI_SIZE=8 MPI_LOCALRANKID=3 MPI_LOCALNRANKS=4"),
        (PALS, (5, 8, 1, 4), "PMI: PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=4"),
        (JAX, (1, 2, 0, 1), "JAX: JAX_PROCESS_ID=1 JAX_NUM_PROCESSES=2, one process per machine assumed"),
        (tf("worker", 2), (3, 5, 1, 3), "TF_CONFIG: task worker 2, 5 training tasks, 3 on b"),
        (
            SRUN,
            (5, 7, 1, 2),
            "Slurm: SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2(x3),1",
        ),
        ({"HOME": "/root", "PATH": "/bin"}, (0, 1, 0, 1), "default: no launcher in the environment"),
    ],
)
def test_detects_every_launcher(environ: dict[str, str], numbers: tuple[int, ...], found_by: str) -> None:
    world = World.detect(environ)
    assert (world.rank, world.size, world.local_rank, world.local_size) == numbers
    assert world.found_by == found_by
    assert world.gpu == world.local_rank


def test_reads_os_environ_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    assert World.detect() == World(5, 8, 1, 4)


def test_launchers_table_names_the_order() -> None:
    assert list(LAUNCHERS) == [
        "torchrun", "Horovod", "Open MPI", "MVAPICH2", "PMI", "JAX", "TF_CONFIG", "Slurm",
    ]  # fmt: skip
    environs = [TORCHRUN, HOROVOD, OPENMPI, MVAPICH2, HYDRA, JAX, tf("worker", 1), SRUN]
    names = list(LAUNCHERS)
    for (inner, first), (outer, second) in itertools.combinations(zip(names, environs, strict=True), 2):
        found = World.detect(second | first).found_by
        assert found.startswith(f"{inner}:"), f"{inner} must win over {outer}, found {found}"


def test_slurm_tells_the_local_rank_that_a_launcher_leaves_out() -> None:
    # `srun --mpi=pmi2`, JAX scripts and hand-made exports number the ranks as Slurm does
    here = "SLURM_STEP_TASKS_PER_NODE=2(x3),1"
    for environ, name in [
        ({"PMI_RANK": "5", "PMI_SIZE": "7"}, "Slurm"),
        ({"PMI_RANK": "5"}, "Slurm"),
        ({"RANK": "5", "WORLD_SIZE": "7"}, "torchrun"),
        ({"RANK": "5", "WORLD_SIZE": "7", "LOCAL_RANK": "1"}, "torchrun"),
        ({"JAX_PROCESS_ID": "5", "JAX_NUM_PROCESSES": "7"}, "JAX"),
    ]:
        world = World.detect(SRUN | environ)
        assert world == World(5, 7, 1, 2)
        assert world.found_by.startswith(f"{name}: ")
        assert world.found_by.endswith(here)
    # torchrun on each of 4 nodes: its ranks are not Slurm's tasks
    other = World.detect(SRUN | {"RANK": "9", "WORLD_SIZE": "16"})
    assert other == World(9, 16, 0, 1)


def test_slurm_multi_node_ranks_are_disjoint_and_complete() -> None:
    for counts, text in [((2, 2, 2, 1), "2(x3),1"), ((4,), "4"), ((1, 3, 3), "1,3(x2)")]:
        worlds = []
        for node, count in enumerate(counts):
            for local in range(count):
                rank = sum(counts[:node]) + local
                step = {
                    "SLURM_STEP_NUM_TASKS": str(sum(counts)), "SLURM_STEP_TASKS_PER_NODE": text,
                    "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(node),
                }  # fmt: skip
                world = World.detect(SRUN | step)
                assert (world.rank, world.local_rank, world.local_size) == (rank, local, count)
                worlds.append(world)
        assert [world.rank for world in worlds] == list(range(sum(counts)))
        assert {world.size for world in worlds} == {sum(counts)}


@pytest.mark.parametrize(
    ("environ", "found_by"),
    [
        (SBATCH, "Slurm: SLURM_JOB_ID=200505 without an srun step, so it is alone"),
        (
            SRUN | {"SLURM_STEP_ID": "4294967291"},
            "Slurm: SLURM_STEP_ID=4294967291, a batch script or an interactive shell, so it is alone",
        ),
        (
            PTY | {"SLURM_JOB_NAME": "interactive", "SLURM_STEP_ID": "4294967290"},
            "Slurm: SLURM_STEP_ID=4294967290, a batch script or an interactive shell, so it is alone",
        ),
        (
            PTY | {"SLURM_JOB_NAME": "bash"},
            "Slurm: SLURM_JOB_NAME=bash with srun --pty, an interactive shell, so it is alone",
        ),
        (tf("ps", 0), "TF_CONFIG: task ps 0 does not train, so it is alone"),
        (tf("evaluator", 0), "TF_CONFIG: task evaluator 0 does not train, so it is alone"),
    ],
)
def test_not_every_process_in_a_job_is_a_rank(environ: dict[str, str], found_by: str) -> None:
    world = World.detect(environ)
    assert world == World()
    assert world.found_by == found_by


def test_interactive_shell_with_one_task_is_alone_whatever_its_name() -> None:
    one = {
        "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
    }  # fmt: skip
    for name in ("bash", "interactive", "train"):
        assert World.detect(PTY | one | {"SLURM_JOB_NAME": name}) == World()


def test_srun_of_a_shell_script_is_a_step() -> None:
    assert World.detect(SRUN | {"SLURM_JOB_NAME": "bash"}) == World(5, 7, 1, 2)
    assert World.detect(SRUN | {"SLURM_JOB_NAME": "interactive"}) == World(5, 7, 1, 2)  # salloc, then srun


def test_pmi_under_a_slurm_shell_does_not_make_ranks() -> None:
    pmi = {"PMI_RANK": "0", "PMI_SIZE": "7"}
    assert World.detect(PTY | pmi | {"SLURM_JOB_NAME": "bash"}) == World()


def test_hydra_inside_slurm_counts_its_own_ranks() -> None:
    assert World.detect(SRUN | HYDRA) == World(7, 8, 3, 4)


def test_tf_config_numbers_tasks_as_tensorflow_does() -> None:
    order = [("chief", 0), ("worker", 0), ("worker", 1), ("worker", 2), ("worker", 3)]
    local = [(0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]
    for rank, ((kind, index), (local_rank, local_size)) in enumerate(zip(order, local, strict=True)):
        assert World.detect(tf(kind, index)) == World(rank, 5, local_rank, local_size)
    assert World.detect(tf("worker", 1, {"worker": ["h0:1", "h1:1"]})) == World(1, 2, 0, 1)
    assert World.detect(tf("master", 0, {"master": ["h0:1"], "worker": ["h1:1"]})) == World(0, 2)
    assert World.detect(tf("worker", 7, {"worker": {"3": "h0:1", "7": "h0:2"}})) == World(1, 2, 1, 2)
    assert World.detect({"TF_CONFIG": "{}"}).found_by.startswith("default")
    assert World.detect({"TF_CONFIG": '{"cluster": {}}'} | SRUN).found_by.startswith("Slurm")


@pytest.mark.parametrize(
    "environ",
    [
        {"RANK": "3"},
        {"WORLD_SIZE": "4"},
        {"WORLD_SIZE": "4", "MASTER_ADDR": "gpu001", "MASTER_PORT": "29500"},  # sbatch scripts, before srun
        {"LOCAL_RANK": "-1"},
        {"RANK": "", "WORLD_SIZE": " ", "LOCAL_RANK": "0"},
        {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234"},
        {"JAX_NUM_PROCESSES": "8"},
        {"SLURM_NTASKS": "4", "SLURM_PROCID": "2"},
    ],
)
def test_lone_variables_are_nobodys_launcher(environ: dict[str, str]) -> None:
    assert World.detect(environ).found_by == "default: no launcher in the environment"


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        (
            {"RANK": "1", "LOCAL_RANK": "1"},
            "WORLD_SIZE must be set when RANK is, got RANK=1 alone; set both as torchrun does, or unset RANK",
        ),
        (
            {"WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none"},
            "RANK must be set when WORLD_SIZE is, got WORLD_SIZE=4 alone; "
            "set both as torchrun does, or unset WORLD_SIZE",
        ),
        (
            TORCHRUN | {"RANK": "abc"},
            "RANK must be an integer, got 'abc'; let torchrun set it, or unset RANK",
        ),
        (
            HOROVOD | {"HOROVOD_LOCAL_SIZE": "2.0"},
            "HOROVOD_LOCAL_SIZE must be an integer, got '2.0'; let Horovod set it, or unset HOROVOD_LOCAL_SIZE",
        ),
        (
            {"RANK": "4", "WORLD_SIZE": "4", "LOCAL_RANK": "0"},
            "torchrun: RANK=4 WORLD_SIZE=4 LOCAL_RANK=0, one machine assumed: rank must be in [0, 4), got 4; "
            "pass the global rank, not the local one, or unset RANK",
        ),
        (
            TORCHRUN | {"LOCAL_WORLD_SIZE": "0"},
            "torchrun: RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=0: local_size must be in [1, 8], got 0; "
            "pass the processes on this machine, or unset RANK",
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "1"},
            "OMPI_COMM_WORLD_SIZE must be set when OMPI_COMM_WORLD_RANK is, got OMPI_COMM_WORLD_RANK=1 alone; "
            "set both as Open MPI does, or unset OMPI_COMM_WORLD_RANK",
        ),
        (
            {"JAX_NUM_PROCESSES": "8", "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234"},
            "JAX_PROCESS_ID must be set when JAX_NUM_PROCESSES is, got JAX_NUM_PROCESSES=8 alone; "
            "set both as JAX does, or unset JAX_NUM_PROCESSES",
        ),
        (
            {name: value for name, value in SRUN.items() if name != "SLURM_PROCID"},
            "SLURM_PROCID must be set when SLURM_STEP_NUM_TASKS is, got SLURM_STEP_NUM_TASKS=7 alone; "
            "set both as Slurm does, or unset SLURM_STEP_NUM_TASKS",
        ),
        (
            {name: value for name, value in SRUN.items() if name != "SLURM_LOCALID"},
            "SLURM_LOCALID must be set inside an srun step, got Slurm: SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=7, "
            "one process per machine assumed; pass every SLURM_* variable on, for example into the container, "
            "or unset SLURM_STEP_NUM_TASKS",
        ),
        (
            SRUN | {"SLURM_NODEID": "4"},
            "SLURM_NODEID must be in [0, 4), as SLURM_STEP_TASKS_PER_NODE=2(x3),1 says, got 4; "
            "let srun set both, or unset SLURM_NODEID",
        ),
        (
            SRUN | {"SLURM_STEP_TASKS_PER_NODE": "2x3"},
            "SLURM_STEP_TASKS_PER_NODE must be counts like \"2(x3),1\", got '2x3'; let srun set it, or unset it",
        ),
        (
            PTY | {"SLURM_JOB_NAME": "interactive"},
            "SLURM_STEP_NUM_TASKS must be 1 under SLURM_PTY_PORT (srun --pty), got 7, which may be this shell's or a "
            "step's; in a shell, start it with `srun --pty -n 1`; before a step, `unset SLURM_PTY_PORT`",
        ),
    ],
)
def test_errors_name_the_variable_and_the_way_out(environ: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        World.detect(environ)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "value",
    [
        "worker 0",
        "[]",
        "null",
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
    assert str(caught.value) == (
        'TF_CONFIG must be like {"cluster": {"worker": ["host:port"]}, "task": {"type": "worker", "index": 0}}, '
        f"with the task in the cluster, got {value!r}; correct it or unset TF_CONFIG"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((4, 4), "rank must be in [0, 4), got 4; pass the global rank, not the local one"),
        ((-1, 4), "rank must be in [0, 4), got -1; pass the global rank, not the local one"),
        ((0, 0), "size must be >= 1, got 0; pass the number of processes in all"),
        ((True, 2), "rank must be an integer, got True; pass int(rank)"),
        ((0, "2"), "size must be an integer, got '2'; pass int(size)"),
        ((0, 4, 2, 2), "local_rank must be in [0, 2), got 2; pass the rank on this machine, and local_size with it"),
        ((0, 4, 0, 8), "local_size must be in [1, 4], got 8; pass the processes on this machine"),
        ((0, 4, 0, 0), "local_size must be in [1, 4], got 0; pass the processes on this machine"),
    ],
)
def test_world_checks_its_numbers(arguments: tuple, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        World(*arguments)
    assert str(caught.value) == text


def test_world_reads_aloud_and_is_a_value() -> None:
    assert str(World.detect(TORCHRUN)) == "rank 5 of 8 (local 1 of 4), found by torchrun"
    assert str(World(1, 4)) == "rank 1 of 4 (local 0 of 1)"
    assert str(World.detect({})) == "rank 0 of 1 (local 0 of 1), no launcher in the environment"
    assert World.detect(TORCHRUN) == World(5, 8, 1, 4)  # how it was found is no part of the value
    assert pickle.loads(pickle.dumps(World.detect(TORCHRUN))).found_by == World.detect(TORCHRUN).found_by
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


def test_integer_limits_of_a_real_environment() -> None:
    # 10^5 ranks are no work: nothing is expanded but Slurm's list of nodes
    environ = SRUN | {
        "SLURM_STEP_NUM_TASKS": "100000", "SLURM_STEP_TASKS_PER_NODE": "8(x12500)", "SLURM_PROCID": "99999",
        "SLURM_LOCALID": "7", "SLURM_NODEID": "12499",
    }  # fmt: skip
    assert World.detect(environ) == World(99999, 100000, 7, 8)
    assert sys.getsizeof(World()) < 200
