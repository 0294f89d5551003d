"""Run the parts in turn; a table, and one JSON object.

`python -m benchmarks.gpu_check --help` from the repository.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# share of time
PARTS = {
    "photos": 0.05,
    "rates": 0.42,
    "steps": 0.17,
    "faults": 0.16,
    "agree": 0.14,
    "overlap": 0.06,
}
NEEDS_GPU = ("steps", "overlap")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="gpu_check", description=sys.modules["benchmarks.gpu_check"].__doc__
    )
    parser.add_argument(
        "--minutes", type=float, default=7.5, help="time budget; what comes later is shortened"
    )
    parser.add_argument("--images", type=Path, help="a folder of JPEGs, instead of made ones")
    parser.add_argument(
        "--parts", default=",".join(PARTS), help="which of them, by name; photos always"
    )
    parser.add_argument(
        "--cpu", action="store_true", help="on the processor: what can be checked without a GPU"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    unknown = set(options.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--parts: no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    _prepare(options.cpu)
    # a part that hangs must not hang the machine: what has been found so far is in --out
    faulthandler.dump_traceback_later(60 * options.minutes * 1.3 + 60, exit=True, file=sys.stdout)
    report = checked(options)
    faulthandler.cancel_dump_traceback_later()
    table(report)
    print(json.dumps(report))
    _write(report, options.out)
    return ended(report, options.cpu)


def ended(report: dict[str, Any], cpu: bool) -> int:
    """0: every part is ok, or needs a GPU that was not expected here."""

    def fine(name: str, part: dict[str, Any]) -> bool:
        return part["ok"] is True or (cpu and name in NEEDS_GPU and part["ok"] == "not run")

    return 0 if all(fine(*named) for named in report["parts"].items()) else 1


def checked(options: argparse.Namespace) -> dict[str, Any]:
    """The report."""
    from benchmarks.gpu_check import bare, machine
    from benchmarks.gpu_check.setting import Setting

    stand_ins = bare.fill()
    reason = "asked to run on the processor (--cpu)" if options.cpu else machine.gpu_here()
    from fastfeed.decode import NativeEngine, is_built
    from fastfeed.distributed.cores import cores_for
    from fastfeed.distributed.world import World

    folder = Path(tempfile.mkdtemp(prefix="gpu-check-", dir=_fast_folder()))
    setting = Setting(
        not reason, options.quick, cores_for(World(0, 1, 0, 1)), folder, options.images
    )
    report: dict[str, Any] = {
        "check": "fastfeed on a GPU",
        "on": "gpu" if setting.gpu else "processor",
        "quick": options.quick,
        "minutes": options.minutes,
        "kernel": is_built(),
        "fastfeed": str(Path(sys.modules[NativeEngine.__module__].__file__ or "").parents[1]),
        "stand_ins": stand_ins,
        "machine": machine.described() | {"cores_used": setting.cores},
        "versions": machine.versions(),
        "parts": {},
        "left_out": setting.left_out,
    }
    print(
        f"gpu-check on the {report['on']}{f': {reason}' if reason else ''}; kernel: {is_built()}",
        flush=True,
    )
    if not setting.gpu and not options.cpu:
        print("no GPU: only what needs none will run", flush=True)
    wanted = [name for name in PARTS if name in options.parts.split(",") or name == "photos"]
    try:
        deadline = time.perf_counter() + 60 * options.minutes
        for number, name in enumerate(wanted):
            shares = [PARTS[other] for other in wanted[number:]]
            left = deadline - time.perf_counter()
            setting.until = time.perf_counter() + left * shares[0] / sum(shares)
            report["parts"][name] = one(name, setting, reason, left)
            _write(report, options.out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report


def one(name: str, setting: Any, reason: str, left: float) -> dict[str, Any]:
    """What one part found, whatever happens in it."""
    from benchmarks.gpu_check.setting import NotRun

    print(f"[{name}] {max(left, 0):.0f} s left of all", flush=True)
    start = time.perf_counter()
    found: dict[str, Any]
    try:
        if name in NEEDS_GPU and not setting.gpu:
            raise NotRun(f"needs a GPU: {reason}")
        if left < 5:
            setting.left_out.append(name)
            raise NotRun("the time budget is spent; a GPU run needs --minutes 7.5 or more")
        figures = importlib.import_module(f"benchmarks.gpu_check.{name}").run(setting)
        found = {"ok": True, "figures": figures}
    except NotRun as why:
        found = {"ok": "not run", "reason": str(why)}
    except Exception as error:
        found = {
            "ok": False,
            "reason": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
        }
        found |= {"figures": error.figures} if hasattr(error, "figures") else {}
        traceback.print_exc()
    found["seconds"] = round(time.perf_counter() - start, 1)
    print(f"[{name}] {_word(found)} after {found['seconds']:.0f} s", flush=True)
    return found


def table(report: dict[str, Any]) -> None:
    """For people."""
    print(f"\n{'part':8} {'':8} {'seconds':>8}  found")
    for name, part in report["parts"].items():
        lines = [part["reason"].split("\n", 1)[0][:500]] if "reason" in part else []
        lines += _flat(part["figures"]) if "figures" in part else []
        print(f"{name:8} {_word(part):8} {part['seconds']:8.1f}  {lines[0] if lines else ''}")
        for line in lines[1:]:
            print(f"{'':27} {line}")
    if report["left_out"]:
        print(f"left out for time: {'; '.join(report['left_out'])}")
    print(flush=True)


def _flat(figures: Any, at: str = "") -> list[str]:
    if isinstance(figures, dict) and any(isinstance(value, dict) for value in figures.values()):
        return [line for key, value in figures.items() for line in _flat(value, f"{at}{key}: ")]
    if isinstance(figures, dict):
        return [at + ", ".join(f"{key} {value}" for key, value in figures.items())]
    return [f"{at}{figures}"]


def _word(part: dict[str, Any]) -> str:
    return {True: "ok", False: "FAILED"}.get(part["ok"], part["ok"])


def _write(report: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.write_text(json.dumps(report, indent=1) + "\n")


def _fast_folder() -> str | None:
    """Memory-backed where it can be written, else $TMPDIR."""
    shared = "/dev/shm"
    if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 2 << 30:
        return shared
    return None


def _prepare(cpu: bool) -> None:
    """Before anything is imported: an installed fastfeed comes before this tree, which has no
    kernel; GPUs, memory.
    """
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT] + [
        str(ROOT)
    ]
    # JAX shares the GPU with PyTorch and DALI
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["JAX_PLATFORMS"] = "cpu"


if __name__ == "__main__":
    sys.exit(main())
