"""Facts about a machine that `fastfeed doctor` reports."""

from __future__ import annotations

from dataclasses import dataclass

from fastfeed.cli.doctor.kernel import KernelInfo
from fastfeed.distributed.world import World

__all__ = ["Advice", "GpuInfo", "MachineReport"]


@dataclass(frozen=True, slots=True)
class GpuInfo:
    name: str
    memory: int | None  # bytes; None where the GPU shares the machine's memory


@dataclass(frozen=True, slots=True)
class MachineReport:
    """Everything `fastfeed doctor` knows. None or an empty collection: not available."""

    fastfeed: str | None
    python: str
    platform: str
    cores: int  # of the machine
    cores_affinity: int  # that this process may run on
    cores_quota: float | None  # cgroup limit, in cores
    memory: int | None  # bytes of the machine
    memory_limit: int | None  # bytes, cgroup limit
    open_files: tuple[int, int] | None  # (soft, hard) limit of descriptors, -1 is none
    pillow: str | None
    codecs: dict[str, str]  # Pillow's libraries, with versions
    kernel: KernelInfo | None  # our JPEG kernel
    dali: dict[str, str]
    frameworks: dict[str, str]
    world: World | None
    world_error: str | None
    gpus: tuple[GpuInfo, ...] = ()
    no_gpu: str | None = None  # why none was found
    driver: str | None = None
    vips: str | None = None  # pyvips
    cuda: tuple[int, int] | None = None  # newest CUDA that the driver runs
    package_manager: str | None = None  # that could install what the kernel is compiled with
    # folder of indexes and tables, its bytes, and how many it may have
    cache: tuple[str, int, int] | None = None
    advice: tuple[Advice, ...] = ()
    next: str | None = None  # a command to try; None: something has to be fixed first


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation.

    `problem`: feeds do not work until it is followed. `optional`: fine without it.
    """

    text: str
    command: str | None = None
    problem: bool = False
    optional: bool = False
