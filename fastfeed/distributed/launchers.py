"""Ranks by the environment variables of each launcher.

`LAUNCHERS` is the order of priority: the inner launcher wins, because it numbered this process,
while the outer ones only describe the machine.

- torchrun, then Horovod, before MPI and Slurm: both are started *by* `mpirun` or `srun` and split
  each of their tasks.
- MPI before Slurm: `mpirun` starts one `srun` task per node and several ranks inside it.
- JAX and TF_CONFIG, set by hand or by the cloud for one process, before Slurm's step, which
  describes the job.
- SageMaker and SkyPilot last: they number machines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from fastfeed.errors import ConfigError

Environ = Mapping[str, str]


SHELLS = frozenset({"bash", "sh", "zsh", "tcsh", "csh", "ksh", "dash", "fish"})


# Slurm's own steps (batch script, interactive shell, extern, pending) are numbered down from 2**32.
FIRST_SPECIAL_STEP = 0xFFFFFFF0


# TensorFlow numbers the chief (formerly master) first, then the workers; other tasks do not train.
TRAINING_TASKS = ("chief", "master", "worker")


class LauncherNumbers(NamedTuple):
    """The numbers that a launcher gave, not checked yet."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    found_by: str = ""  # the variables read
    variable: str = ""  # the one that has the rank


def torchrun(environ: Environ) -> LauncherNumbers | None:
    """torchrun, DeepSpeed, Accelerate, PyTorchJob: RANK and WORLD_SIZE, mostly LOCAL_RANK."""
    pair = [name for name in ("RANK", "WORLD_SIZE") if _is_set(environ, name)]
    hints = [
        name
        for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID")
        if _is_set(environ, name)
    ]
    # Either name alone is common for other things (sbatch scripts export WORLD_SIZE and leave the
    # rank to srun), and some tools export LOCAL_RANK=-1. MASTER_ADDR is not evidence for the same
    # reason.
    if not pair or (len(pair) == 1 and not hints):
        return None
    # DeepSpeed says LOCAL_SIZE
    local_size = "LOCAL_SIZE" if _is_set(environ, "LOCAL_SIZE") else "LOCAL_WORLD_SIZE"
    found = from_variables("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", local_size, environ)
    # an sbatch script that exports RANK=$SLURM_PROCID gives all tasks of its srun the rank 0
    same_size = environ.get("SLURM_STEP_NUM_TASKS") == environ.get("WORLD_SIZE")
    task = environ.get("SLURM_PROCID", "0")
    elastic = _is_set(environ, "TORCHELASTIC_RUN_ID")
    if found is not None and found.rank == 0 and same_size and task != "0" and not elastic:
        raise ConfigError(
            f"RANK must be SLURM_PROCID where srun and WORLD_SIZE number {environ['WORLD_SIZE']}"
            f" processes, got RANK=0 and SLURM_PROCID={task}; unset RANK and WORLD_SIZE, which a"
            " batch script has exported for all tasks alike, or pass"
            " Feed(world=ff.World(rank, size, local_rank, local_size))",
            field="RANK",
        )
    return found


def pmi(environ: Environ) -> LauncherNumbers | None:
    """MPICH and Intel MPI (Hydra), Cray PALS: PMI_RANK and PMI_SIZE."""
    local_rank = "MPI_LOCALRANKID"
    local_size = "MPI_LOCALNRANKS"
    if not _is_set(environ, local_rank):
        # `srun --mpi=pmi2` sets PMI_RANK as well; Slurm's entry below knows more (local rank,
        # interactive shells).
        half = _is_set(environ, "PMI_RANK") != _is_set(environ, "PMI_SIZE")
        same = all(
            environ.get(ours) == environ.get(theirs)
            for ours, theirs in (("PMI_RANK", "SLURM_PROCID"), ("PMI_SIZE", "SLURM_STEP_NUM_TASKS"))
        )
        if _is_set(environ, "SLURM_STEP_NUM_TASKS") and (half or same):
            return None
        # Cray PALS
        local_rank = "PMI_LOCAL_RANK"
        local_size = "PMI_LOCAL_SIZE"
    return from_variables("PMI", "PMI_RANK", "PMI_SIZE", local_rank, local_size, environ)


def jax(environ: Environ) -> LauncherNumbers | None:
    """JAX_PROCESS_ID and JAX_NUM_PROCESSES, as passed to `jax.distributed.initialize`."""
    both = _is_set(environ, "JAX_PROCESS_ID") and _is_set(environ, "JAX_NUM_PROCESSES")
    if not both and not _is_set(environ, "JAX_COORDINATOR_ADDRESS"):
        return None
    return from_variables("JAX", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", None, None, environ)


def tf_config(environ: Environ) -> LauncherNumbers | None:
    """TF_CONFIG's cluster: chief (or master), then workers; other tasks are alone."""
    if not _is_set(environ, "TF_CONFIG"):
        return None
    try:
        config = json.loads(environ["TF_CONFIG"])
        cluster = {
            str(kind): _addresses(tasks) for kind, tasks in (config.get("cluster") or {}).items()
        }
        if not cluster:
            return None  # TensorFlow, too, takes this for no cluster at all
        kind = str(config["task"]["type"])
        index = int(config["task"]["index"])
        if kind not in TRAINING_TASKS:
            return LauncherNumbers(
                found_by=f"TF_CONFIG: task {kind} {index} does not train, so it is alone"
            )
        host = _host(cluster[kind][index])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError.of(
            "TF_CONFIG",
            'like {"cluster": {"worker": ["host:port"]}, "task": {"type": "worker",'
            ' "index": 0}}, with the task in the cluster',
            environ["TF_CONFIG"],
            "correct it or unset TF_CONFIG",
        ) from error
    tasks = [
        (name, i, _host(at))
        for name in TRAINING_TASKS
        for i, at in sorted(cluster.get(name, {}).items())
    ]
    local = [(name, i) for name, i, address in tasks if address == host]
    return LauncherNumbers(
        rank=[(name, i) for name, i, _ in tasks].index((kind, index)),
        size=len(tasks),
        local_rank=local.index((kind, index)),
        local_size=len(local),
        found_by=(
            f"TF_CONFIG: task {kind} {index}, {len(tasks)} training tasks, {len(local)} on {host}"
        ),
    )


def slurm(environ: Environ) -> LauncherNumbers | None:
    """A task of an `srun` step.

    A batch script or interactive shell is a single process, whatever its allocation.
    """
    if not _is_set(environ, "SLURM_STEP_NUM_TASKS"):
        if not _is_set(environ, "SLURM_JOB_ID"):
            return None
        return LauncherNumbers(
            found_by=(
                f"Slurm: SLURM_JOB_ID={environ['SLURM_JOB_ID']} without an srun step, so it is"
                " alone"
            )
        )
    step = _integer(environ, "SLURM_STEP_ID", "Slurm") if _is_set(environ, "SLURM_STEP_ID") else 0
    if step >= FIRST_SPECIAL_STEP:
        return LauncherNumbers(
            found_by=(
                f"Slurm: SLURM_STEP_ID={step}, a batch script or an interactive shell, so it is"
                " alone"
            )
        )
    size = _integer(environ, "SLURM_STEP_NUM_TASKS", "Slurm")
    if size > 1 and _is_set(environ, "SLURM_PTY_PORT"):
        # `srun --pty` sets SLURM_PTY_PORT and every later srun inherits it. Only step 0 of a job
        # that is itself named after a shell is surely the shell. The name without the port proves
        # nothing: `srun bash train.sh` has it too.
        name = environ.get("SLURM_JOB_NAME", "")
        if step == 0 and name in SHELLS:
            return LauncherNumbers(
                found_by=(
                    f"Slurm: SLURM_JOB_NAME={name} with srun --pty, an interactive shell, so it is"
                    " alone"
                )
            )
        raise ConfigError(
            f"SLURM_STEP_NUM_TASKS must be 1 under SLURM_PTY_PORT (srun --pty), got {size}, which"
            " may be this shell's or a step's; in a shell, start it with `srun --pty -n 1`; before"
            " a step, `unset SLURM_PTY_PORT`",
            field="SLURM_STEP_NUM_TASKS",
        )
    found = from_variables(
        "Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", None, environ
    )
    if found is not None and not _is_set(environ, "SLURM_LOCALID"):
        raise ConfigError(
            f"SLURM_LOCALID must be set inside an srun step, got {found.found_by}; pass every"
            " SLURM_* variable on, for example into the container, or unset SLURM_STEP_NUM_TASKS",
            field="SLURM_LOCALID",
        )
    return found


def sagemaker(environ: Environ) -> LauncherNumbers | None:
    """A machine of a SageMaker job: its place in SM_HOSTS."""
    if not _is_set(environ, "SM_HOSTS") or not _is_set(environ, "SM_CURRENT_HOST"):
        return None
    try:
        hosts = sorted(json.loads(environ["SM_HOSTS"]))
        rank = hosts.index(environ["SM_CURRENT_HOST"])
    except (ValueError, TypeError) as error:
        raise ConfigError.of(
            "SM_HOSTS",
            f"a JSON list with SM_CURRENT_HOST={environ['SM_CURRENT_HOST']} in it",
            environ["SM_HOSTS"],
            "let SageMaker set both, or unset SM_HOSTS",
        ) from error
    found_by = f"SageMaker: machine {rank} of SM_HOSTS, one process per machine assumed"
    return LauncherNumbers(rank, len(hosts), found_by=found_by, variable="SM_HOSTS")


def from_variables(
    launcher: str,
    rank: str,
    size: str,
    local_rank: str | None,
    local_size: str | None,
    environ: Environ,
) -> LauncherNumbers | None:
    """A launcher with one number per variable; `rank`, `size`, ... are the names of the variables.

    Missing local numbers are taken from the srun step if it has the same rank and size. Otherwise
    no local rank means one process per machine, and no local size means one machine; `found_by`
    says so.
    """
    names_set = [name for name in (rank, size) if _is_set(environ, name)]
    if not names_set:
        return None
    if len(names_set) == 1:
        missing = size if names_set == [rank] else rank
        raise ConfigError(
            f"{missing} must be set when {names_set[0]} is, got"
            f" {names_set[0]}={environ[names_set[0]]} alone; set both as {launcher} does, or unset"
            f" {names_set[0]}",
            field=missing,
        )
    names = [
        name for name in (rank, size, local_rank, local_size) if name and _is_set(environ, name)
    ]
    n = {name: _integer(environ, name, launcher) for name in names}
    found_by = f"{launcher}: " + " ".join(f"{name}={n[name]}" for name in names)

    local = n.get(local_rank or "")
    local_count = n.get(local_size or "")
    if (local is None or local_count is None) and environ.get("SLURM_PROCID") == str(n[rank]):
        counted = _slurm_tasks_here(environ, n[size])
        if counted is not None:
            local, local_count = counted
            found_by += " SLURM_STEP_TASKS_PER_NODE={SLURM_STEP_TASKS_PER_NODE}".format(**environ)
    if local is None:
        local = 0
        local_count = 1
        found_by += ", one process per machine assumed" if n[size] > 1 else ""
    elif local_count is None:
        local_count = n[size]
        found_by += ", one machine assumed" if n[size] > 1 else ""
    return LauncherNumbers(n[rank], n[size], local, local_count, found_by, rank)


def tasks_per_node(text: str) -> tuple[int, ...]:
    """Slurm's run-length list, one count per node: "2(x3),1" is (2, 2, 2, 1)."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", part.strip())
        if match is None:
            raise ConfigError.of(
                "SLURM_STEP_TASKS_PER_NODE",
                'counts like "2(x3),1"',
                text,
                "let srun set it, or unset it",
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)


LAUNCHERS: dict[str, Callable[[Environ], LauncherNumbers | None]] = {
    "torchrun": torchrun,
    "Horovod": partial(
        from_variables,
        "Horovod",
        "HOROVOD_RANK",
        "HOROVOD_SIZE",
        "HOROVOD_LOCAL_RANK",
        "HOROVOD_LOCAL_SIZE",
    ),
    "Open MPI": partial(
        from_variables,
        *("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ),
    "MVAPICH2": partial(
        from_variables,
        *("MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
        *("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ),
    "PMI": pmi,
    "JAX": jax,
    "TF_CONFIG": tf_config,
    "Slurm": slurm,
    "SageMaker": sagemaker,
    "SkyPilot": partial(
        from_variables, "SkyPilot", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", None, None
    ),
}


def _is_set(environ: Environ, name: str) -> bool:
    return bool(environ.get(name, "").strip())  # `export RANK=` means unset


def _integer(environ: Environ, name: str, launcher: str) -> int:
    text = environ[name].strip()
    if not re.fullmatch(r"-?[0-9]+", text):
        raise ConfigError.of(name, "an integer", text, f"let {launcher} set it, or unset {name}")
    return int(text)


def _slurm_tasks_here(environ: Environ, size: int) -> tuple[int, int] | None:
    """(local rank, tasks on this node) of the srun step, if it has `size` ranks."""
    if environ.get("SLURM_STEP_NUM_TASKS") != str(size):
        return None
    if not all(
        _is_set(environ, name)
        for name in ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID")
    ):
        return None
    counts = tasks_per_node(environ["SLURM_STEP_TASKS_PER_NODE"])
    node = _integer(environ, "SLURM_NODEID", "Slurm")
    if not 0 <= node < len(counts):
        raise ConfigError.of(
            "SLURM_NODEID",
            f"in [0, {len(counts)}), as"
            f" SLURM_STEP_TASKS_PER_NODE={environ['SLURM_STEP_TASKS_PER_NODE']} says",
            node,
            "let srun set both, or unset SLURM_NODEID",
        )
    return _integer(environ, "SLURM_LOCALID", "Slurm"), counts[node]


def _addresses(tasks: list[str] | dict[str, str]) -> dict[int, str]:
    """TF_CONFIG lists a job's tasks, or maps indices to addresses where some are missing."""
    if isinstance(tasks, Mapping):
        return {int(index): str(at) for index, at in tasks.items()}
    if not isinstance(tasks, list):
        raise TypeError(f"a job of TF_CONFIG's cluster must be a list, got {tasks!r}")
    return dict(enumerate(map(str, tasks)))


def _host(address: str) -> str:
    return address.rsplit("/", 1)[-1].rsplit(":", 1)[0]
