"""`make gpu-kit-dry`: all of it here, on the processor, with tiny sizes; no figure of it says
anything of a GPU.

A kit is packed in small parts, taken to another folder, one part is kept back at first, and every
step runs. All of it must fit into the budget. A step that needs what only machines with a GPU or a
compiler have is named with its reason.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.kit import pack
from benchmarks.gpu_check.process import read
from benchmarks.gpu_check.table import STEPS

# step -> what its reason must name: CUDA's headers, its library, nvJPEG's, or a compiler, which
# only some machines have
MAY_BE_ABSENT = {
    "nvjpeg": ("libcudart are not here", "libnvjpeg are not here", "no C++ compiler is here")
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="gpu-kit-dry", description=__doc__)
    parser.add_argument("--budget", type=float, default=300, help="seconds that all of it may take")
    parser.add_argument("--only", help="these steps alone")
    parser.add_argument("--copy-to", type=Path, help="put the page and the JSON there")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-kit-dry-") as folder:
        kit = Path(folder) / "kit"
        own = "{}.{}".format(*sys.version_info[:2])
        told = pack.packed(kit, [pack.source(Path(folder)), pack.toy_wheel(Path(folder))], 0.5, own)
        last = max(told["parts"])
        shutil.move(kit / last, Path(folder) / last)
        command = [sys.executable, str(kit / "run.py"), "--stand-in", "--at-once", "2"]
        # first without the last part: said in one sentence, and a step that needs nothing of it
        # runs
        first = subprocess.run(
            [*command, "--only", "inventory"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        print(first.stdout + first.stderr, flush=True)
        if f"{last} has not arrived" not in first.stdout or "[inventory] ok" not in first.stdout:
            print(
                "gpu-kit-dry: a missing part was not said, or the inventory did not run", flush=True
            )
            return 1
        shutil.move(Path(folder) / last, kit / last)
        left = options.budget - (time.monotonic() - started)
        command += ["--budget", f"{left:.0f}", "--limit", f"{left / 2:.0f}"]
        command += ["--only", options.only] if options.only else []
        command += ["--copy-to", str(options.copy_to)] if options.copy_to else []
        code = subprocess.run(command, cwd=folder, check=False).returncode
        states = {step.name: read(kit / "results" / f"{step.name}.json") or {} for step in STEPS}
        for name, found in states.items():
            if found.get("state") in ("failed", "stopped"):
                print(f"--- {name}, {found['state']}\n{_log(kit, name)[-3000:]}", flush=True)
    print(
        f"gpu-kit-dry: {time.monotonic() - started:.0f} s of {options.budget:.0f}; stand-ins all"
        " of it",
        flush=True,
    )
    return ended(code, states, bool(options.only))


def ended(code: int, states: dict[str, dict[str, Any]], some: bool = False) -> int:
    """The exit status, of run.py's: 2, that steps have no result, is none where only those say so
    that may.
    """
    if code != 2 or some:
        return code
    for name, found in states.items():
        if found.get("state", "not run") != "not run":
            continue
        reason = found.get("reason", "not reached")
        print(f"gpu-kit-dry: {name} was not run: {reason}", flush=True)
        if not any(what in reason for what in MAY_BE_ABSENT.get(name, ())):
            return code
    return 0


def _log(kit: Path, step: str) -> str:
    path = kit / "results" / f"{step}.log"
    return path.read_text(errors="replace") if path.is_file() else ""


if __name__ == "__main__":
    sys.exit(main())
