"""What to record, and what came of it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from fastfeed.errors import ConfigError

__all__ = ["RANKS", "TIMELINE", "Recording", "Settings", "free_folder", "prepare_folder", "rank_of"]

TIMELINE = "FASTFEED_TIMELINE"  # where feeds write theirs
RANKS = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "HOROVOD_RANK",
)
RANKS += ("PALS_RANKID", "JAX_PROCESS_ID", "SLURM_PROCID")
_STEP_OPTIONS = ("skip_steps", "record_steps", "stop_after")


@dataclass(frozen=True, slots=True)
class Settings:
    command: tuple[str, ...]
    out: Path  # absolute: the command may change its folder
    tool: str = "auto"  # auto, nsys, nvprof, torch, jax, tensorflow
    delay: int = 0  # seconds before recording begins
    duration: int = 0  # seconds of recording; 0: to the end
    nsys: Path | None = None
    force: bool = False  # replace files in `out` that have our names and that others wrote
    skip_steps: int = 10  # of training, before a framework's profiler records
    record_steps: int = 30  # of training, that it records
    stop_after: bool = False  # end the command when they are recorded

    def as_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    def step_options(self) -> str:
        """Options that only a framework's profiler takes and that differ from their defaults; ""
        for none.
        """
        changed = [
            field.name for field in fields(self) if getattr(self, field.name) != field.default
        ]
        return " and ".join(
            f"--{name.replace('_', '-')}" for name in changed if name in _STEP_OPTIONS
        )

    @classmethod
    def from_json(cls, text: str) -> Settings:
        fields = json.loads(text)
        nsys = fields.pop("nsys")
        settings = cls(**fields | {"command": tuple(fields["command"]), "out": Path(fields["out"])})
        return replace(settings, nsys=Path(nsys) if nsys else None)


@dataclass(frozen=True, slots=True)
class Recording:
    """What a run of the command left behind."""

    code: int  # the command's, as a shell has it
    tool: str  # as of Settings; "" where there are only timelines
    traces: tuple[Path, ...] = ()  # of GPU work, one per rank
    timelines: tuple[Path, ...] = ()  # of feeds
    notes: tuple[str, ...] = ()  # sentences for the user


def rank_of(environ: Mapping[str, str]) -> int | None:
    """The global rank that a launcher gave this process, None outside of one."""
    for name in RANKS:
        if environ.get(name, "").isdigit():
            return int(environ[name])
    return None


def free_folder(environ: Mapping[str, str]) -> Path:
    """A folder for a run that names none.

    All ranks of a job get the same, runs at a desk a new one each.
    """
    first = Path("fastfeed-profile").absolute()
    job = environ.get("SLURM_JOB_ID") or environ.get("TORCHELASTIC_RUN_ID")
    if rank_of(environ) is not None:
        return first.with_name(f"{first.name}-{job}") if job and job != "none" else first
    count = 1
    while (folder := first if count == 1 else first.with_name(f"{first.name}-{count}")).exists():
        count += 1
    return folder


def prepare_folder(out: Path) -> None:
    """Make the folder, and be sure that it can be written."""
    probe = out / f".fastfeed-{os.getpid()}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        full = " or free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise ConfigError(
            f"cannot write a recording into {out}: {error.strerror}; name another folder with"
            f" --out{full}"
        ) from error
