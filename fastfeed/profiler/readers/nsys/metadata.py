"""Reads the metadata of an export: version, clock, machine, environment, lost records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastfeed.profiler.model.trace import Thread
from fastfeed.profiler.readers.nsys.database import NsysDatabase

_FACTS = {"cpu_count": "CpuCores", "driver": "NvDriverVersion", "os": "OsDescription"}
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
_RANKS += ("SLURM_PROCID",)
_WORLDS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")
_LOST = re.compile(r"\b(dropped|lost|discarded|overflow\w*|not all\b.*\bcollected)\b", re.I)
_LOST_COUNT = re.compile(  # "3 CUDA events were dropped", "dropped CUPTI records: 3"
    r"(\d+)(?:\s+[a-z]+){0,4}?\s+(?:dropped|lost|discarded)|(?:dropped|lost|discarded)\D{0,40}?(\d+)",
    re.I,
)
_GPU_RECORDS = re.compile(r"\b(cuda|cupti|gpu|kernels?)\b", re.I)
_ERROR = 3  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL


@dataclass(frozen=True, slots=True)
class Metadata:
    """`world` is 0 where unknown."""

    version: str
    wall_ns: int | None
    host: str
    env: Mapping[str, str]  # of the program that nsys started
    dropped: int
    notes: tuple[str, ...]
    facts: Mapping[str, Any]
    world: int


def read_metadata(db: NsysDatabase) -> Metadata:
    """Read all metadata of a recording, without its events."""
    exported = dict(db.pairs("META_DATA_EXPORT") or db.pairs("EXPORT_META_DATA"))
    system = dict(db.pairs("TARGET_INFO_SYSTEM_ENV"))
    capture = db.pairs("META_DATA_CAPTURE")
    env = _environment(capture, system)
    dropped, notes = _losses(db)
    facts: dict[str, Any] = {}
    for key, name in _FACTS.items():
        if system.get(name):
            facts[key] = system[name] if (number := _number(system[name])) is None else number
    command = _command(capture)
    if command:
        facts["command"] = command
    product = exported.get("EXPORT_PRODUCT_VERSION", "")
    schema = exported.get("EXPORT_SCHEMA_VERSION", "")
    version = " ".join(filter(None, (product, f"schema {schema}" if schema else "")))
    wall, monotonic = _clock(db, exported)
    if monotonic is not None:
        facts["monotonic_ns"] = monotonic  # the machine's steady clock at this trace's time 0
    world = next(filter(None, (_number(env.get(name, "")) for name in _WORLDS)), 0)
    if world:
        facts["world_size"] = world
    return Metadata(version, wall, system.get("Hostname", ""), env, dropped, notes, facts, world)


def ranks(
    metadata: Metadata,
    path: Path,
    users: Sequence[int],
    threads: Sequence[Thread],
    communicators: Mapping[int, tuple[int, int]],
) -> dict[int, int]:
    """Index of a process to its rank, for the `users` of GPUs, where the file leaves no doubt.

    nsys names the main thread of an MPI program by its rank. Else one process has the rank that its
    launcher put into the environment (a program that starts ranks itself has none), or the one in
    the file's name; and of several, NCCL says who is who (`joined`: rank in, and size of, the
    largest communicator), as long as no two say the same.
    """
    mpi = {
        thread.process: int(thread.name[9:])
        for thread in threads
        if re.fullmatch(r"MPI Rank \d+", thread.name)
    }
    sizes = {communicators[user][1] for user in users if user in communicators}
    nccl = {
        user: communicators[user][0] for user in users if user in communicators and len(sizes) == 1
    }
    if len(users) > 1:
        for by_source in (mpi, nccl):
            ranks = {user: by_source[user] for user in users if user in by_source}
            if len(set(ranks.values())) == len(users):
                return ranks
        return {}
    of_env = (_number(metadata.env.get(name, "")) for name in _RANKS)
    of_nccl = nccl.get(users[0]) if sizes == {metadata.world} else None
    for rank in (mpi.get(users[0]), *of_env, of_nccl, _rank_in_name(path)):
        if rank is not None:
            return {users[0]: rank}
    return {}


def _rank_in_name(path: Path) -> int | None:
    """`run_rank3.sqlite`: 3. Only where the name says rank; a bare number can be anything."""
    numbers = re.findall(r"(?<![a-z])rank[._=-]?(\d+)(?!\d)", path.name, re.I)
    return int(numbers[0]) if len(numbers) == 1 else None


def _number(text: str) -> int | None:
    """A count or a rank; None for what is none, such as ten thousand digits."""
    return int(text) if text.isdecimal() and len(text) < 19 else None


def _environment(capture: list[tuple[str, str]], system: Mapping[str, str]) -> dict[str, str]:
    """Variables of process 0: a row each, `NAME="value"`; older versions have one text."""
    lines = [value for name, value in capture if name == "PROCESS_0:ENVIRONMENT_VARIABLE"]
    lines = lines or system.get("DeviceEnvironment", "").split(";")
    pairs = (line.partition("=") for line in lines)
    return {name: value.strip('"') for name, _, value in pairs if name}


def _command(capture: list[tuple[str, str]]) -> str:
    words = [value for name, value in capture if name == "PROCESS_0:COMMAND"]
    arguments = [
        (int(name.rpartition("_")[2]), value)
        for name, value in capture
        if re.fullmatch(r"PROCESS_0:ARGUMENT_\d+", name)
    ]
    return " ".join([*words, *(value for _, value in sorted(arguments))])


def _clock(db: NsysDatabase, exported: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Nanoseconds of the wall clock and of the steady clock at time 0.

    An export can shift its times.
    """
    table = "TARGET_INFO_SESSION_START_TIME"
    wall, monotonic = next(iter(db.records(table, ["utcEpochNs", "systemClockNs"])), (None, None))
    if not wall:
        return None, None
    shift = exported.get("EXPORT_PARAM_TIME_SHIFT", "0")
    shift_ns = int(shift) if re.fullmatch(r"-?\d+", shift) else 0
    if exported.get("EXPORT_PARAM_TIME_NORMALIZE", "").lower() == "true":
        # its times are those of the wall clock already
        return (-shift_ns, monotonic - wall - shift_ns if monotonic else None)
    return wall - shift_ns, monotonic - shift_ns if monotonic else None


def _losses(db: NsysDatabase) -> tuple[int, tuple[str, ...]]:
    """Number of lost records of the GPU and its calls, and other diagnostics in nsys's words."""
    table = "DIAGNOSTIC_EVENT"
    if not db.has(table, "text"):
        return 0, ()
    lost, notes = 0, {}
    for level, text in db.records(table, ["severity"], ["text"]):
        words = " ".join((text or "").split())
        number = _LOST_COUNT.search(re.sub(r"(?<=\d),(?=\d{3})", "", words))
        count = int(number[1] or number[2]) if number else 1
        if _LOST.search(words) and count:
            notes[f"nsys: {words}"] = None
            lost += count if _GPU_RECORDS.search(words) else 0
        elif level == _ERROR:
            notes[f"nsys: {words}"] = None
    return lost, tuple(notes)[:5]
