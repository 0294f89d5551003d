"""Profilers and GPUs that this machine offers a recording, and any profiler already active."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from glob import glob
from pathlib import Path

INSTALL = {  # distribution -> what gives it Nsight Systems
    "debian": "enable non-free, then: apt-get install nsight-systems",
    "ubuntu": (
        "apt-get install nsight-systems (multiverse), or nsight-systems-cli of NVIDIA's CUDA"
        " repository"
    ),
    "fedora": "add NVIDIA's CUDA repository, then: dnf install nsight-systems",
    "rhel": "add NVIDIA's CUDA repository, then: dnf install nsight-systems",
    "suse": "add NVIDIA's CUDA repository, then: zypper install nsight-systems",
    "arch": "pacman -S nsight-systems",
}
_PROFILER_VARIABLES = (
    "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
    "NSYS_PROFILING_SESSION_ID",
    "NV_COMPUTE_PROFILER_PERFWORKS_DIR",
)
_NVPROF = (
    "/usr/local/cuda*/bin/nvprof",
    "/usr/lib/nvidia-cuda-toolkit/bin/nvprof",
    "/opt/cuda*/bin/nvprof",
)


def system(release: Path = Path("/etc/os-release")) -> str:
    """Instructions for installing Nsight Systems on this distribution."""
    try:
        lines = dict(line.split("=", 1) for line in release.read_text().splitlines() if "=" in line)
    except OSError:
        lines = {}
    names = f"{lines.get('ID', '')} {lines.get('ID_LIKE', '')}".replace('"', "").split()
    hint = next(
        (INSTALL[name] for name in names if name in INSTALL),
        "get it from developer.nvidia.com/nsight-systems",
    )
    return f"install Nsight Systems ({hint}) or name its program with --nsys"


def active_profiler(environ: Mapping[str, str]) -> str | None:
    """The sign that this process runs under a profiler already: CUDA takes one at a time."""
    return next(
        (f"{name}={environ[name]}" for name in _PROFILER_VARIABLES if environ.get(name)), None
    )


def nvprof(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Path of nvprof, on PATH or in a CUDA toolkit's folder; None if it is not installed."""
    on_path = shutil.which("nvprof", path=environ.get("PATH"))
    homes = [
        f"{environ[name]}/bin/nvprof" for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)
    ]
    installed = [path for pattern in (*homes, *_NVPROF) for path in sorted(glob(pattern))]
    path = on_path or next((path for path in installed if os.access(path, os.X_OK)), None)
    return Path(path) if path else None


def has_gpu() -> bool:
    """True where NVIDIA's driver, or that of WSL, has made its devices."""
    return any(Path("/dev", name).exists() for name in ("nvidiactl", "dxg", "nvhost-ctrl-gpu"))


def capabilities() -> dict[str, float]:
    """Compute capability by name of GPU, from the driver; empty without GPU or driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    try:
        result = subprocess.run(
            [program, "--query-gpu=name,compute_cap", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return {
            name.strip(): float(cap)
            for name, _, cap in (row.rpartition(",") for row in result.stdout.splitlines())
        }
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}  # an old driver does not know compute_cap
