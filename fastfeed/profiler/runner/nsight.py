"""Nsight Systems on this machine: where it is, and its reports as SQLite.

`nsys` is seldom on PATH. The package of Debian and Ubuntu lacks the way from `nsys` to its importer, so `nsys profile`
leaves a .qdstrm there, and importing it is done here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastfeed.errors import TraceError

__all__ = ["INSTALL", "export", "find", "imported", "importer", "version"]

INSTALL = (
    "install Nsight Systems (developer.nvidia.com/nsight-systems, or apt-get install nsight-systems) or set NSYS to its"
    " nsys program"
)
ROOT = Path("/")
_FOLDERS = (  # of later releases first; within one, the greatest version
    "opt/nvidia/nsight-systems*/*/bin",
    "opt/nvidia/nsight-systems*/*/target-linux-*",
    "opt/nvidia/nsight-systems*/bin",
    "usr/local/cuda*/bin",
    "usr/local/cuda*/nsight-systems-*/bin",
    "opt/nvidia/hpc_sdk/Linux_*/*/profilers/Nsight_Systems/bin",
    "usr/lib/nsight-systems/bin",
    "usr/lib/*/nsight-systems/target-linux-*",
)
_VERSION = re.compile(rb"(?:Tegra Profiler Report|Nsight Systems Stream) (\d+)[@.](\d+)[@.](\d+)")
_STREAM = b"Nsight Systems Stream"


def find() -> Path | None:
    """The nsys program: $NSYS, else that on PATH, else the newest in its usual places. TraceError if $NSYS is wrong."""
    given = os.environ.get("NSYS")
    if given:
        path = Path(given).expanduser()
        path = path / "nsys" if path.is_dir() else path
        if not _runs(path):
            raise TraceError(f"NSYS must name the nsys program or the folder that holds it, got {given!r}")
        return path
    on_path = shutil.which("nsys")
    return Path(on_path) if on_path else next(_installed(), None)


def _installed() -> Iterator[Path]:
    for pattern in _FOLDERS:
        folders = sorted(ROOT.glob(pattern), key=_versions, reverse=True)
        yield from (folder / "nsys" for folder in folders if _runs(folder / "nsys"))


def _versions(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def version(nsys: Path) -> str:
    """`2023.4.4.54`; "" where it does not say."""
    try:
        done = _run([nsys, "--version"])
    except TraceError:
        return ""
    found = re.search(r"version\s+(\d+(?:\.\d+)+)", done.stdout)
    return found[1] if found else ""


def importer(nsys: Path) -> Path | None:
    """The program of this nsys that makes a report of a .qdstrm."""
    for program in (nsys.absolute(), nsys.resolve()):
        for folder in program.parents[:4]:
            for below in ("", "nsight-systems/", "lib/nsight-systems/"):
                found = sorted(one for one in folder.glob(f"{below}host-*/QdstrmImporter") if _runs(one))
                if found:
                    return found[0]
    return None


def export(report: Path, into: Path, nsys: Path | None = None) -> Path:
    """The SQLite export of a .nsys-rep, .qdrep or .qdstrm, made in the folder `into`.

    The report is only read. TraceError, with nsys's own words, where there is no nsys or it refuses.
    """
    nsys = nsys or _needed(report)
    source = imported(report, into, nsys) if _is_stream(report) else report
    made = into / f"{report.stem}.sqlite"
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={made}"]
    if "--include-blobs" in _run([nsys, "export", "--help"]).stdout:  # what NCCL says of each collective
        command.append("--include-blobs=true")
    done = _run([*command, source], into)
    if done.returncode or not made.is_file():
        raise TraceError(_refused(nsys, report, done))
    return made


def imported(stream: Path, into: Path, nsys: Path | None = None) -> Path:
    """The .nsys-rep of a .qdstrm, made in the folder `into`. TraceError as of `export`."""
    nsys = nsys or _needed(stream)
    program = importer(nsys)
    if program is None:
        raise TraceError(
            f"{stream} is a raw recording of Nsight Systems, and {nsys} comes without its QdstrmImporter; install all"
            " of Nsight Systems, not its command line alone, or import the file where it was recorded"
        )
    if stream.parent.resolve() != into.resolve():  # the importer writes into what it reads
        stream = Path(shutil.copyfile(stream, into / stream.name))
    made = into / f"{stream.stem}.nsys-rep"
    made.unlink(missing_ok=True)
    done = _run([program, "-i", stream, "-o", made], into)
    if done.returncode or not made.is_file():
        raise TraceError(_refused(nsys, stream, done))
    return made


def _needed(report: Path) -> Path:
    nsys = find()
    if nsys is None:
        raise TraceError(
            f"{report} is a report of Nsight Systems{_written_by(report)}, which only its own nsys can open; {INSTALL},"
            f" or export it where it was recorded: nsys export --type sqlite {report.name}"
        )
    return nsys


def _is_stream(report: Path) -> bool:
    return _STREAM in _head(report)


def _written_by(report: Path) -> str:
    """` 2025.5.1`, the version in a report's first line; "" of the oldest, which do not say."""
    found = _VERSION.search(_head(report))
    return f" {b'.'.join(found.groups()).decode()}" if found else ""


def _head(report: Path) -> bytes:
    try:
        with report.open("rb") as file:
            return file.read(256)
    except OSError as error:
        raise TraceError(f"{report} cannot be read: {error.strerror}; check the path and its permissions") from error


def _refused(nsys: Path, report: Path, done: subprocess.CompletedProcess[str]) -> str:
    """nsys's own sentence, and what to do about it: a newer report needs a newer nsys."""
    said = [line.strip() for part in (done.stderr, done.stdout) for line in re.split(r"[\r\n]+", part)]
    said = [line for line in said if line and "%" not in line]  # progress
    telling = [line for line in said if re.search(r"newer|error|invalid|fail|cannot|not ", line, re.I)]
    words = " ".join((telling or said[-1:])[:2]) or f"it ended with code {done.returncode} and without a word"
    newer = _written_by(report)
    ours = version(nsys)
    if newer and ours and _versions(Path(newer)) > _versions(Path(ours)):
        return (
            f"{report} was written by Nsight Systems{newer}, and {nsys} is the older {ours} ({words}); install"
            f" Nsight Systems{newer} or later, or export it where it was recorded:"
            f" nsys export --type sqlite {report.name}"
        )
    return f"{nsys} cannot read {report}: {words}; record it again if it is damaged, else {INSTALL}"


def _run(command: Sequence[str | Path], scratch: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, **({"TMPDIR": str(scratch)} if scratch else {}))
    try:
        return subprocess.run(
            [str(word) for word in command], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False,
        )  # fmt: skip
    except OSError as error:
        raise TraceError(f"{command[0]} cannot be started: {error.strerror}; {INSTALL}") from error
