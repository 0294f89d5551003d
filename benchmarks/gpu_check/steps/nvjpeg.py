"""The JPEG engine itself, by a small program in C++ that is compiled here:
benchmarks/gpu_check/nvjpeg_probe.cpp.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.parts.setting import NotRun, Wrong
from benchmarks.gpu_check.steps.inventory import libraries

SOURCE = Path(__file__).parents[1] / "parts" / "nvjpeg_probe.cpp"
# of CUDA 13: the second is in a package of its own
_HEADERS = (
    "cuda_runtime_api.h",
    "crt/host_defines.h",
)
_FIRST = 0.6  # share of the time for the first set
_ROWS = 20  # timed ones on ImageNet-size files; fewer on large ones


def run(context: Any) -> None:
    program, environ = compiled(context.work)
    context.note("program", "compiled, linked with libnvjpeg and libcudart")
    sets = context.setting().sets
    for number, (name, folder) in enumerate(sets.items(), 1):
        with context.part(1.0 if number == len(sets) else _FIRST):
            if not _asked(context, program, environ, name, folder):
                return


def _asked(context: Any, program: Path, environ: dict[str, str], name: str, folder: Path) -> bool:
    """Ask about one set; whether there is a GPU."""
    share = max(0.1, min(1.0, 0.25 * context.seconds / _ROWS))
    command = [str(program), str(folder), str(share)]
    limit = max(5.0, context.left())
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=limit, check=False
        )
        said, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        said, code = (error.stdout or b"").decode(errors="replace"), -1
        context.left_out.append(f"nvjpeg, {name}: rows after {limit:.0f} s")
    rows = [
        json.loads(line)
        for line in said.splitlines()
        if line.startswith("{") and line.endswith("}")
    ]
    found = {f"{row.pop('row')}{_where(row)}": row for row in rows}
    context.note(name, found)
    if code == 2:  # no GPU, in the program's own words
        if context.stand_in:
            return False
        raise NotRun(next((row["reason"] for row in rows if "reason" in row), "no GPU is here"))
    if code > 0 or code < -1:
        reason = next((row["reason"] for row in rows if "reason" in row), f"it ended with {code}")
        raise Wrong([f"{name}: {reason}"], context.figures)
    return True


def _where(row: dict[str, Any]) -> str:
    return f", batch {row['batch']}, {row['threads']} threads" if "batch" in row else ""


def compiled(work: Path) -> tuple[Path, dict[str, str]]:
    """(the program, its environment); NotRun where a compiler, a header or a library is missing."""
    headers, shared = libraries("*/include/nvjpeg.h"), libraries("*/lib/libnvjpeg.so*")
    if not headers or not shared:
        raise NotRun("nvjpeg.h and libnvjpeg are not here: they are in the package nvidia-nvjpeg")
    includes, runtime = _toolkit()
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise NotRun("no C++ compiler is here")
    program = work / "nvjpeg_probe"
    command = [
        compiler,
        "-O2",
        "-std=c++17",
        str(SOURCE),
        f"-I{headers[0].parent}",
        "-isystem",
        str(includes),
    ]
    command += [str(shared[0]), str(runtime), "-pthread", "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise Wrong([f"it does not compile: {done.stderr.strip()[:1500]}"], {})
    found = [
        str(shared[0].parent),
        str(runtime.parent),
        *filter(None, [os.environ.get("LD_LIBRARY_PATH")]),
    ]
    return program, dict(os.environ, LD_LIBRARY_PATH=os.pathsep.join(found))


def _toolkit() -> tuple[Path, Path]:
    """(folder of CUDA's headers, its runtime library): of a toolkit, or of the wheels that PyTorch
    came with.
    """
    nvcc = shutil.which("nvcc")
    homes = [
        os.environ.get("CUDA_HOME"),
        "/usr/local/cuda",
        *([str(Path(nvcc).resolve().parents[1])] if nvcc else []),
    ]
    roots = [Path(home) for home in homes if home]
    spec = importlib.util.find_spec("nvidia")
    for location in (spec.submodule_search_locations or []) if spec else []:
        roots += [*sorted(Path(location).glob("cu*")), Path(location) / "cuda_runtime"]
    headers = [
        root / "include"
        for root in roots
        if all((root / "include" / name).is_file() for name in _HEADERS)
    ]
    shared = [
        path
        for root in roots
        for kind in ("lib64", "lib")
        for path in sorted((root / kind).glob("libcudart.so*"))
    ]
    if not headers or not shared:
        raise NotRun(
            "CUDA's headers and libcudart are not here: they are in a CUDA toolkit, or in"
            " nvidia-cuda-runtime and nvidia-cuda-crt"
        )
    return headers[0], shared[0]
