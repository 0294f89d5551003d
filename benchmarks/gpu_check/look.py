"""What is here: GPUs, their driver, packages.

Asked of programs and of a process of its own; nothing is imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

PROBE_SECONDS = 120
LEAST_DRIVER = 580  # that wheels for CUDA 13 run with
_QUERY = "name,driver_version,memory.total,memory.free,compute_cap"
_NAMES = (
    "numpy",
    "cv2",
    "PIL",
    "torch",
    "torchvision",
    "jax",
    "keras",
    "cupy",
    "fastfeed",
    "nvidia.dali",
    "nvidia.nvimgcodec",
)
_PROBE = f"""
import importlib.util, json
def here(name):
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return False
print(json.dumps([name for name in {_NAMES!r} if here(name)]))
"""


@dataclass(slots=True)
class Machine:
    """What steps may count on."""

    gpus: list[dict[str, str]] = field(default_factory=list)
    modules: set[str] = field(default_factory=set)
    sentences: list[str] = field(default_factory=list)  # for people: what is missing
    no_dali: str = ""  # empty, or the sentence: an old driver, or a kit for other GPUs

    def lacks(self, needs: tuple[str, ...], stand_in: bool) -> str:
        """Empty, or why a step with these needs cannot run here."""
        for need in needs:
            if need == "gpu" and not self.gpus and not stand_in:
                return "no GPU is here"
            if need == "gpus" and len(self.gpus) < 2 and not stand_in:
                return f"two GPUs or more are needed, {len(self.gpus) or 'none'} here"
            if need == "DALI" and self.no_dali and not stand_in:
                return self.no_dali
            names = {"DALI": ("nvidia.dali", "nvidia.nvimgcodec"), "gpu": (), "gpus": ()}.get(
                need, (need,)
            )
            absent = [name for name in names if name not in self.modules]
            if absent:
                return f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not here"
        return ""


def look(environ: dict[str, str], stand_in: bool, folder: Path, packed_for: str = "") -> Machine:
    """Ask the machine. folder: an empty one, or Python would find packages where the call was made;
    packed_for: the compute capability that the kit is for, "" for all.
    """
    found = Machine()
    try:
        found.modules = _modules(environ, folder)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        found.sentences.append(
            f"which packages are here is not known ({type(error).__name__}): only steps that need"
            " none will run"
        )
    rows, reason = _smi()
    found.gpus = rows
    if stand_in:
        found.gpus = []
        found.sentences.append(
            "stand-in: everything runs on the processor, no figure says anything of a GPU"
        )
    elif not rows:
        found.sentences.append(f"no GPU is here ({reason}): only what needs none will run")
    for row in found.gpus:
        driver, name = row.get("driver_version", ""), row.get("name", "the GPU")
        version = _number(driver.split(".")[0])
        if version is None:
            found.sentences.append(
                f"nvidia-smi does not tell the driver's version ({driver or 'nothing'}): taken"
                " as new"
            )
        elif version < LEAST_DRIVER:
            found.no_dali = (
                f"driver {driver} is older than packages for CUDA 13 want ({LEAST_DRIVER} or"
                " newer): DALI, nvImageCodec and nvJPEG are left out"
            )
            found.sentences.append(found.no_dali)
        if packed_for and row.get("compute_cap", packed_for) != packed_for:
            found.no_dali = (
                f"the kit was packed for GPUs of compute capability {packed_for}, {name} has"
                f" {row['compute_cap']}: DALI and nvImageCodec are left out; pack it with another"
                " --gpu, or without"
            )
            found.sentences.append(found.no_dali)
        free, total = (_number(row.get(name, "")) for name in ("memory.free", "memory.total"))
        if free is None or total is None:
            told = " and ".join(
                row.get(key) or "nothing" for key in ("memory.free", "memory.total")
            )
            found.sentences.append(
                f"nvidia-smi does not tell how much memory of {name} is free ({told})"
            )
        elif free < 0.5 * total:
            found.sentences.append(
                f"{name} has {free / 1e3:.1f} of {total / 1e3:.1f} GB free: someone else computes"
                " on it, so rates are too low and some steps may run out of memory"
            )
    return found


def _number(text: str) -> float | None:
    """The number that a cell begins with; None for "[N/A]", "[Unknown Error]" and the like."""
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return None


def _modules(environ: dict[str, str], folder: Path) -> set[str]:
    command = [sys.executable, "-c", _PROBE]
    done = subprocess.run(
        command,
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PROBE_SECONDS,
        check=False,
    )
    return set(json.loads(done.stdout))


def _smi() -> tuple[list[dict[str, str]], str]:
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi: {type(error).__name__}"
    if done.returncode:
        return (
            [],
            (
                "nvidia-smi:"
                f" {(done.stdout + done.stderr).strip().splitlines()[:1] or done.returncode}"
            ),
        )
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return [
        dict(zip(_QUERY.split(","), (c.strip() for c in line.split(",")), strict=False))
        for line in lines
    ], ""
