"""What the machine has: driver, instruction sets, counters that answer, JPEG engines, the rate of
copies to the GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

_SETS = ("avx2", "avx512f", "avx512bw", "avx512vbmi", "avx512_vbmi2", "avx512_vnni", "amx_tile")
_GPM = range(1, 128)  # ids asked one by one
_STATUS = {
    1: "not initialized: no GPU or driver",
    6: "execution failed",
    7: "not for this GPU",
    9: "not implemented here",
}


def run(context: Any) -> None:
    context.note("machine", described())
    context.note("versions", versions())
    flags = Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
    context.note("instruction sets", [name for name in _SETS if name in flags])
    looks = {"kernel": _kernel, "JPEG engines": engines, "NVML GPM": _gpm}
    looks["copies to the GPU, GB/s"] = lambda: _copies(context.stand_in)
    for name, look in looks.items():
        try:
            context.note(name, look())
        except Exception as error:  # one that cannot be asked must not hide the others
            context.note(name, f"not known: {type(error).__name__}: {error}"[:300])


def _kernel() -> dict[str, Any]:
    from fastfeed import _native as native  # type: ignore[attr-defined]

    return {
        "libjpeg-turbo": native.LIBJPEG_TURBO,
        "instruction sets": list(native.instruction_sets()),
    }


def libraries(pattern: str) -> list[Path]:
    """Libraries and headers in wheels of NVIDIA, below any `nvidia` on the path."""
    found = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in found.submodule_search_locations or []] if found else []
    return [path for root in roots for path in sorted(root.glob(pattern))]


def engines() -> dict[str, Any]:
    """As nvJPEG counts them, or why it does not."""
    candidates = [str(path) for path in libraries("*/lib/libnvjpeg.so*")] + [
        "libnvjpeg.so.13",
        "libnvjpeg.so.12",
    ]
    for name in candidates:
        try:
            nvjpeg = ctypes.CDLL(name)
        except OSError:
            continue
        handle, count, cores = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
        if status := nvjpeg.nvjpegCreateSimple(ctypes.byref(handle)):
            return {
                "library": Path(name).name,
                "engines": None,
                "reason": f"{_STATUS.get(status, 'status')} ({status})",
            }
        status = nvjpeg.nvjpegGetHardwareDecoderInfo(
            handle, ctypes.byref(count), ctypes.byref(cores)
        )
        nvjpeg.nvjpegDestroy(handle)
        if status or not count.value:
            return {
                "library": Path(name).name,
                "engines": 0,
                "reason": f"this GPU has no JPEG engine (status {status})",
            }
        return {"library": Path(name).name, "engines": count.value, "cores per engine": cores.value}
    return {"engines": None, "reason": "no libnvjpeg is here"}


def _gpm() -> dict[str, Any]:
    """Which of NVML's GPU performance metrics answer, over 0.2 s; 40 to 47 are the load of the JPEG
    engines.
    """
    import pynvml as nv

    nv.nvmlInit()
    device = nv.nvmlDeviceGetHandleByIndex(0)
    if not nv.nvmlGpmQueryDeviceSupport(device).isSupportedDevice:
        return {"supported": False}
    first, last = nv.nvmlGpmSampleAlloc(), nv.nvmlGpmSampleAlloc()
    nv.nvmlGpmSampleGet(device, first)
    time.sleep(0.2)
    nv.nvmlGpmSampleGet(device, last)
    answers: dict[int, float] = {}
    for number in _GPM:
        asked = nv.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nv.NVML_GPM_METRICS_GET_VERSION, 1
        asked.sample1, asked.sample2 = first, last
        asked.metrics[0].metricId = number
        try:
            nv.nvmlGpmMetricsGet(asked)
        except nv.NVMLError:
            continue
        if asked.metrics[0].nvmlReturn == nv.NVML_SUCCESS:
            answers[number] = round(asked.metrics[0].value, 3)
    for sample in (first, last):
        nv.nvmlGpmSampleFree(sample)
    busy = {number: value for number, value in answers.items() if value}
    return {"supported": True, "ids that answer": _ranges(list(answers)), "not zero": busy}


def _ranges(numbers: list[int]) -> str:
    """[1, 2, 3, 40] -> "1-3, 40"."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][1] + 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return ", ".join(f"{first}-{last}" if first < last else str(first) for first, last in groups)


def _copies(stand_in: bool) -> dict[str, Any]:
    import torch

    size = (4 if stand_in else 256) << 20
    device = torch.device("cpu" if stand_in else "cuda")
    there = torch.empty(size, dtype=torch.uint8, device=device)
    rates: dict[str, Any] = {"cores": len(os.sched_getaffinity(0))}
    for name, pinned in (("pinned", True), ("pageable", False)):
        here = torch.ones(size, dtype=torch.uint8, pin_memory=pinned and not stand_in)
        there.copy_(here)
        best = float("inf")
        for _ in range(5):
            if not stand_in:
                torch.cuda.synchronize()
            start = time.perf_counter()
            there.copy_(here, non_blocking=True)
            if not stand_in:
                torch.cuda.synchronize()
            best = min(best, time.perf_counter() - start)
        rates[name] = round(size / best / 1e9, 2)
    return rates


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
