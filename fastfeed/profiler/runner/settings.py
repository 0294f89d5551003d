"""Settings of a recording, and its results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

TIMELINE = "FASTFEED_TIMELINE"  # where feeds write theirs
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
RANKS += ("HOROVOD_RANK", "PALS_RANKID", "JAX_PROCESS_ID", "SLURM_PROCID")
_STEP_OPTIONS = ("skip_steps", "record_steps", "stop_after")


@dataclass(frozen=True, slots=True)
class RecordingSettings:
    command: tuple[str, ...]
    out: Path  # absolute: the command may change its folder
    tool: str = "auto"  # auto, nsys, nvprof, torch, jax, tensorflow; "" none
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
        """Non-default options that only a framework's profiler takes, joined; "" for none."""
        changed = [
            f"--{field.name.replace('_', '-')}"
            for field in fields(self)
            if field.name in _STEP_OPTIONS and getattr(self, field.name) != field.default
        ]
        return " and ".join(changed)

    @classmethod
    def from_json(cls, text: str) -> RecordingSettings:
        fields = json.loads(text)
        nsys = fields.pop("nsys")
        settings = cls(**fields | {"command": tuple(fields["command"]), "out": Path(fields["out"])})
        return replace(settings, nsys=Path(nsys) if nsys else None)


@dataclass(frozen=True, slots=True)
class Recording:
    """Results of one run of the recorded command."""

    code: int  # the command's, as a shell has it
    tool: str  # as in RecordingSettings; "" if only timelines were written
    traces: tuple[Path, ...] = ()  # of GPU work, one per rank
    timelines: tuple[Path, ...] = ()  # of feeds
    notes: tuple[str, ...] = ()  # sentences for the user


def launcher_rank(environ: Mapping[str, str]) -> int | None:
    """The global rank that a launcher gave this process, None outside of one."""
    for name in RANKS:
        if environ.get(name, "").isdigit():
            return int(environ[name])
    return None
