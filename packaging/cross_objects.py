"""Compiles the native extension's sources for systems that are not here: objects alone, nothing is
linked or run.

    python packaging/cross_objects.py [--target aarch64-macos.11.0 ...] [--work FOLDER]

zig (the package ziglang) has the C and C++ headers of macOS and of Windows with MinGW. The headers
of libjpeg-turbo and Highway are those of this machine. What includes Python.h (module.cpp,
bind_*.cpp) is left out: its headers differ.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wheels import ROOT

TARGETS = ("aarch64-macos.11.0", "x86_64-macos.11.0", "x86_64-windows-gnu")
ZIG = "ziglang==0.17.1"
NATIVE = ROOT / "fastfeed" / "native"
HEADERS = ("jpeglib.h", "jerror.h", "jmorecfg.h", "x86_64-linux-gnu/jconfig.h", "jconfig.h", "hwy")
FLAGS = (
    "-std=c++17",
    "-O1",
    "-Wall",
    "-Wextra",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-DHWY_WANT_AVX3_DL",
)
FLAGS += (
    "-DHWY_BROKEN_EMU128=1",
    "-DHWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128|HWY_RVV)",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--target", nargs="*", default=TARGETS, help="as zig calls it: processor-system"
    )
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "cross", help="folder for zig and the objects"
    )
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    zig, headers = _zig(work), _headers(work)
    sources = [
        path
        for path in sorted(NATIVE.rglob("*.cpp"))
        if path.stem != "module" and path.stem[:5] != "bind_"
    ]
    failures = 0
    for target in arguments.target:
        objects = work / target
        objects.mkdir(parents=True, exist_ok=True)
        command = [
            str(zig),
            "-m",
            "ziglang",
            "c++",
            "-target",
            target,
            *FLAGS,
            f"-I{NATIVE}",
            f"-I{headers}",
            "-c",
        ]

        def compiled(path: Path, command: list[str] = command, objects: Path = objects) -> str:
            out = objects / f"{path.stem}.o"
            done = subprocess.run(
                [*command, str(path), "-o", str(out)], capture_output=True, text=True, check=False
            )
            return (
                "" if done.returncode == 0 else f"{path.relative_to(NATIVE)}:\n{done.stderr[:2000]}"
            )

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            faults = [fault for fault in pool.map(compiled, sources) if fault]
        print(f"{target}: {len(sources) - len(faults)} of {len(sources)} sources compile")
        print("\n".join(faults), end="\n" if faults else "", flush=True)
        failures += len(faults)
    sys.exit(1 if failures else 0)


def _zig(work: Path) -> Path:
    """A Python with the package ziglang."""
    python = work / "tools" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(work / "tools")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", ZIG], check=True)
    return python


def _headers(work: Path) -> Path:
    """Only what native code includes: the other headers of this machine must not be seen."""
    folder = work / "include"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in HEADERS:
        found = Path("/usr/include") / name
        if found.is_dir():
            shutil.copytree(found, folder / found.name)
        elif found.exists():
            shutil.copy(found, folder)
    return folder


if __name__ == "__main__":
    main()
