"""`make gpu-kit-dry`: all of it here, on the processor, with tiny sizes; no figure of it says anything of a GPU.

A kit is packed in small parts, taken to another folder, one part is kept back at first, and every step runs.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gpu_kit import pack

__all__ = ["main"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="gpu-kit-dry", description=__doc__)
    parser.add_argument("--budget", type=float, default=280, help="seconds that the steps may take")
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
        # first without the last part: said in one sentence, and a step that needs nothing of it runs
        first = subprocess.run(
            [*command, "--only", "inventory"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
        print(first.stdout + first.stderr, flush=True)
        if f"{last} has not arrived" not in first.stdout or "[inventory] ok" not in first.stdout:
            print("gpu-kit-dry: a missing part was not said, or the inventory did not run", flush=True)
            return 1
        shutil.move(Path(folder) / last, kit / last)
        command += ["--budget", str(options.budget), "--limit", str(options.budget / 2)]
        command += ["--only", options.only] if options.only else []
        command += ["--copy-to", str(options.copy_to)] if options.copy_to else []
        done = subprocess.run(command, cwd=folder, check=False)
        if not options.only and done.returncode:
            for log in sorted((kit / "results").glob("*.log")):
                if (found := parts_state(kit, log.stem)) in ("failed", "stopped"):
                    print(f"--- {log.stem}, {found}\n{log.read_text()[-3000:]}", flush=True)
    print(f"gpu-kit-dry: {time.monotonic() - started:.0f} s; stand-ins all of it", flush=True)
    return done.returncode


def parts_state(kit: Path, step: str) -> str:
    """Of a step's result."""
    from benchmarks.gpu_kit.process import read

    return (read(kit / "results" / f"{step}.json") or {}).get("state", "not run")


if __name__ == "__main__":
    sys.exit(main())
