"""Finds Nsight Systems on this machine, and exports its reports to SQLite.

`nsys` is seldom on PATH. The package of Debian and Ubuntu lacks the way from `nsys` to its
importer, so `nsys profile` leaves a .qdstrm there, and importing it is done here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from fastfeed.errors import TraceError

INSTALL = (
    "install Nsight Systems (developer.nvidia.com/nsight-systems, or apt-get install"
    " nsight-systems) or set NSYS to its nsys program"
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
# what it prints of fields that it lacks
_DUMP = re.compile(r"libprotobuf|ProtobufUtils|Can't parse message of type")
_STREAM = b"Nsight Systems Stream"
_ERROR = re.compile(r"newer|error|invalid|fail|cannot|not ", re.I)


def find() -> Path | None:
    """The nsys program: $NSYS, else that on PATH, else the newest in its usual places.

    TraceError if $NSYS is wrong.
    """
    configured = os.environ.get("NSYS")
    if configured:
        path = Path(configured).expanduser()
        path = path / "nsys" if path.is_dir() else path
        if not _runs(path):
            raise TraceError(
                f"NSYS must name the nsys program or the folder that holds it, got {configured!r}"
            )
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
    """The version, such as `2023.4.4.54`; "" if nsys does not report it."""
    try:
        result = _run([nsys, "--version"])
    except TraceError:
        return ""
    match = re.search(r"version\s+(\d+(?:\.\d+)+)", result.stdout)
    return match[1] if match else ""


def importer(nsys: Path) -> Path | None:
    """The program of this nsys that makes a report of a .qdstrm."""
    folders = (*nsys.absolute().parents[:4], *nsys.resolve().parents[:4])
    for folder in folders:
        for subfolder in ("", "nsight-systems/", "lib/nsight-systems/"):
            programs = sorted(folder.glob(f"{subfolder}host-*/QdstrmImporter"))
            if program := next(filter(_runs, programs), None):
                return program
    return None


def export(report: Path, into: Path, nsys: Path | None = None) -> Path:
    """The SQLite export of a .nsys-rep, .qdrep or .qdstrm, made in the folder `into`.

    The report is only read. Raises a TraceError if nsys is missing or fails, with the message of
    nsys.
    """
    nsys = nsys or _require_nsys(report)
    source = imported(report, into, nsys) if _STREAM in _head(report) else report
    output = into / f"{report.stem}.sqlite"
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={output}"]
    if "--include-blobs" in _run([nsys, "export", "--help"]).stdout:
        command.append("--include-blobs=true")  # has payloads of NCCL's collectives
    result = _run([*command, source], into)
    if result.returncode or not output.is_file():
        raise TraceError(_refusal(nsys, report, result))
    return output


def imported(stream: Path, into: Path, nsys: Path | None = None) -> Path:
    """The .nsys-rep of a .qdstrm, made in the folder `into`. TraceError as of `export`."""
    nsys = nsys or _require_nsys(stream)
    program = importer(nsys)
    if program is None:
        raise TraceError(
            f"{stream} is a raw recording of Nsight Systems, and {nsys} comes without its"
            " QdstrmImporter; install all of Nsight Systems, not its command line alone, or import"
            " the file where it was recorded"
        )
    if stream.parent.resolve() != into.resolve():  # the importer writes into what it reads
        stream = Path(shutil.copyfile(stream, into / stream.name))
    output = into / f"{stream.stem}.nsys-rep"
    output.unlink(missing_ok=True)
    result = _run([program, "-i", stream, "-o", output], into)
    if result.returncode or not output.is_file():
        raise TraceError(_refusal(nsys, stream, result))
    return output


def _require_nsys(report: Path) -> Path:
    nsys = find()
    if nsys is None:
        raise TraceError(
            f"{report} is a report of Nsight Systems{_written_by(report)}, which only its own nsys"
            f" can open; {INSTALL}, or export it where it was recorded: nsys export --type sqlite"
            f" {report.name}"
        )
    return nsys


def _written_by(report: Path) -> str:
    """The version in a report's first line, as ` 2025.5.1`; "" for the oldest, which have none."""
    match = _VERSION.search(_head(report))
    return f" {b'.'.join(match.groups()).decode()}" if match else ""


def _head(report: Path) -> bytes:
    try:
        with report.open("rb") as file:
            return file.read(256)
    except OSError as error:
        raise TraceError(
            f"{report} cannot be read: {error.strerror}; check the path and its permissions"
        ) from error


def _refusal(nsys: Path, report: Path, result: subprocess.CompletedProcess[str]) -> str:
    """The message of nsys, with advice: a newer report needs a newer nsys."""
    installed = version(nsys)
    lines = map(str.strip, re.split(r"[\r\n]+", f"{result.stderr}\n{result.stdout}"))
    lines = [line for line in lines if line and "%" not in line]  # progress
    if any(_DUMP.search(line) for line in lines):
        program = f"{nsys}, version {installed}," if installed else f"{nsys}"
        return (
            f"{report} cannot be opened by {program} as it does not know all that the report holds:"
            " a newer Nsight Systems wrote it, or it is damaged; install the version that wrote it"
            " or a later one, or export it where it was recorded: nsys export --type sqlite"
            f" {report.name}"
        )
    errors = [line for line in lines if _ERROR.search(line)]
    message = " ".join((errors or lines[-1:])[:2])
    message = message or f"it ended with code {result.returncode} and without a word"
    report_version = _written_by(report)
    is_newer = _versions(Path(report_version)) > _versions(Path(installed))
    if report_version and installed and is_newer:
        return (
            f"{report} was written by Nsight Systems{report_version}, and {nsys} is the older"
            f" {installed} ({message}); install Nsight Systems{report_version} or later, or export"
            f" it where it was recorded: nsys export --type sqlite {report.name}"
        )
    return (
        f"{nsys} cannot read {report}: {message}; record it again if it is damaged, else {INSTALL}"
    )


def _run(
    command: Sequence[str | Path], scratch: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, **({"TMPDIR": str(scratch)} if scratch else {}))
    try:
        return subprocess.run(
            [str(word) for word in command],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise TraceError(f"{command[0]} cannot be started: {error.strerror}; {INSTALL}") from error
