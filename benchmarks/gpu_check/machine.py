"""What a result page must say of the machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["described", "gpu_here", "versions"]

PACKAGES = (
    "numpy",
    "opencv-python-headless",
    "pillow",
    "torch",
    "jax",
    "jaxlib",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "nvidia-dali-cuda130",
    "nvidia-dali-cuda120",
    "nvidia-nvimgcodec-cu13",
    "nvidia-nvimgcodec-cu12",
    "nvidia-nvjpeg",
    "keras",
)
_QUERY = "name,driver_version,memory.total,pstate,clocks.max.sm,power.limit"


def gpu_here() -> str:
    """Empty, or why there is no GPU to check."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed, which this check talks to the GPU through"
    if not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    return ""


def described() -> dict[str, Any]:
    """Hardware and driver."""
    found: dict[str, Any] = {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
    }
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return found | {"gpus": f"not known: nvidia-smi: {type(error).__name__}"}
        if done.returncode == 0:
            found["gpus"] = [
                dict(zip(_QUERY.split(","), _cells(line), strict=False))
                for line in _lines(done.stdout)
            ]
    return found


def versions() -> dict[str, str | None]:
    """Of packages, Python, CUDA and fastfeed's commit; None for what is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    try:
        import torch

        found["cuda of torch"] = torch.version.cuda
    except ImportError:
        pass
    root = Path(__file__).parents[2]
    command = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found["commit"] = done.stdout.strip() or None
    except OSError:
        found["commit"] = None
    return found


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
