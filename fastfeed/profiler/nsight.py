"""The Nsight Systems of this machine: where it is, and its reports as SQLite.

Debian's and Ubuntu's packages put no `nsys` on PATH, and their `nsys profile` stops at the raw .qdstrm because it does
not find its own importer; the importer lies in the folder for the host and works when it is called directly.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from glob import glob
from pathlib import Path

from fastfeed.errors import TraceError

__all__ = ["export", "find", "imported", "importer", "version"]

_USUAL = (
    "/usr/lib/nsight-systems/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/nsight-systems*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "/opt/nvidia/hpc_sdk/*/*/profilers/Nsight_Systems/bin/nsys",
)
_HINT = "name another nsys with NSYS=path"


def find(environ: Mapping[str, str] = os.environ) -> Path | None:
    """NSYS of the environment, `nsys` on PATH, or the newest in the usual folders; None where there is none."""
    named = environ.get("NSYS")
    if named:
        found = shutil.which(named, path=environ.get("PATH"))
        return Path(found) if found else None
    found = shutil.which("nsys", path=environ.get("PATH"))
    if found:
        return Path(found)
    usual = [path for pattern in _USUAL for path in glob(pattern) if os.path.isfile(path) and os.access(path, os.X_OK)]
    return Path(max(usual, key=_numbers)) if usual else None


def version(nsys: Path) -> tuple[int, ...]:
    """(2022, 4, 2, 1) of "NVIDIA Nsight Systems version 2022.4.2.1-df9881f"; empty where it does not say."""
    found = re.search(r"version (\d+(?:\.\d+)+)", _run([str(nsys), "--version"], 60)[1])
    return tuple(map(int, found[1].split("."))) if found else ()


def importer(nsys: Path) -> Path | None:
    """QdstrmImporter of the same Nsight Systems."""
    root = nsys.resolve().parent
    for folder in (nsys.absolute().parent, *nsys.absolute().parents[1:3], root, *root.parents[:2]):
        for found in sorted(glob(f"{folder}/host-linux-*/QdstrmImporter")):
            return Path(found)
    found = shutil.which("QdstrmImporter")
    return Path(found) if found else None


def imported(raw: Path, into: Path) -> Path:
    """A raw .qdstrm as a .nsys-rep in the folder `into`."""
    nsys = _found(raw)
    program = importer(nsys)
    if program is None:
        raise TraceError(
            f"{raw} is a raw recording, and Nsight Systems at {nsys} has no QdstrmImporter; install its host package "
            "(nsight-systems, not only its target part), or import it on another machine: QdstrmImporter -i FILE"
        )
    made = into / f"{raw.stem}.nsys-rep"
    code, said = _run([str(program), "--input-file", str(raw), "--output-file", str(made), "--force-overwrite"], None)
    if code or not made.exists():
        made.unlink(missing_ok=True)
        raise TraceError(f"{raw} cannot be imported by {program}: {_reason(said, code)}; {_hint(raw)}")
    return made


def export(report: Path, into: Path) -> Path:
    """A .nsys-rep, .qdrep or .qdstrm as SQLite, in the folder `into`."""
    nsys = _found(report)
    if report.suffix == ".qdstrm":
        report = imported(report, into)
    made = into / f"{report.stem}.sqlite"
    command = [str(nsys), "export", "--type=sqlite", f"--output={made}", "--force-overwrite=true", str(report)]
    code, said = _run(command, None)
    if code or not made.exists():
        newer = re.search(r"Version number is invalid: (\d+)@(\d+)@(\d+)", said)
        if newer or "newer than" in said:
            what = f"by Nsight Systems {'.'.join(newer.groups())}" if newer else "by a newer Nsight Systems"
            mine = ".".join(map(str, version(nsys))) or "older"
            raise TraceError(f"{report} was recorded {what}, and nsys here is {mine}; update it, or {_HINT}")
        raise TraceError(f"{report} cannot be exported by {nsys}: {_reason(said, code)}; {_hint(report)}")
    return made


def _found(report: Path) -> Path:
    nsys = find()
    if nsys is None:
        raise TraceError(
            f"{report} is a report of Nsight Systems, which only its own nsys can read, and there is none here; install "
            "it, set NSYS=path, or export where it was recorded: nsys export --type sqlite FILE"
        )
    return nsys


def _run(command: list[str], timeout: float | None) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise TraceError(f"cannot run {command[0]}: {error}; {_HINT}") from error
    return done.returncode, f"{done.stdout}\n{done.stderr}"


def _reason(said: str, code: int) -> str:
    """The last thing it said that is not its progress."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", said)]
    lines = [line for line in lines if line and not re.match(r"(Processing|Exporting \d+ events|usage:|Try ')", line)]
    return lines[-1].rstrip(".") if lines else f"it ended with exit code {code}"


def _hint(report: Path) -> str:
    free = shutil.disk_usage(report.parent).free
    return f"{report.parent} has {free >> 20} MiB free" if free < 1 << 30 else "record it again"


def _numbers(path: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", path)))
