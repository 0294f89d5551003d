"""Command lines of the profilers: light, and never an option that this version refuses."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fastfeed.errors import TraceError

__all__ = ["SHIM", "last_line", "nsys_command", "nvprof_command", "options_of"]

# Gives the command the streams of the terminal instead of nsys's pipes, if those arrived, and says
# which process it is. What it could not say that of has not begun, and may be run without nsys.
# Only builtins: PATH is the command's affair. Pipes are opened here by their paths: nsys's agents
# would keep what they inherit, and a reader would wait for them.
SHIM = """\
if [ -n "$FASTFEED_OUT" ]; then
    if ( : >"$FASTFEED_OUT" ) 2>/dev/null; then exec 8>"$FASTFEED_OUT"; else exec 8>&-; fi
fi
if [ -n "$FASTFEED_ERR" ]; then
    if ( : >"$FASTFEED_ERR" ) 2>/dev/null; then exec 9>"$FASTFEED_ERR"; else exec 9>&-; fi
fi
if ( : <&7 >&8 2>&9 ) 2>/dev/null; then how=direct; exec <&7 >&8 2>&9 7<&- 8>&- 9>&-; else how=piped; fi
echo $$ $how >"$FASTFEED_PID" || exit 125
if [ -n "$FASTFEED_TMPDIR" ]; then TMPDIR=$FASTFEED_TMPDIR; export TMPDIR; else unset TMPDIR; fi
if [ -n "$FASTFEED_PYTHON" ]; then PYTHONPATH=$FASTFEED_PYTHON${PYTHONPATH:+:$PYTHONPATH}; export PYTHONPATH; fi
unset FASTFEED_PID FASTFEED_TMPDIR FASTFEED_OUT FASTFEED_ERR FASTFEED_PYTHON
exec "$@"
"""
_EMPTY = (
    "Processing [",
    "usage:",
    "Try 'nsys",
    "Importer error status",
    "Unable to retrieve the importer",
    "Generat",
)
# (option as `nsys profile --help` names it, arguments), each given only where it is known
_LIGHT = (
    ("trace", ("--trace=cuda,nvtx",)),
    (
        "sample",
        ("--sample=none",),
    ),  # CPU sampling needs rights that containers lack, and large files
    ("cpuctxsw", ("--cpuctxsw=none",)),
    ("force-overwrite", ("--force-overwrite=true",)),
    (
        "wait",
        ("--wait=primary",),
    ),  # a daemon that the command leaves behind does not hold the recording up
    ("kill", ("--kill=none",)),  # the end of a recording is not the end of the command
    ("stats", ("--stats=false",)),
)


def options_of(nsys: Path) -> frozenset[str]:
    """The options that `nsys profile` of this version knows, without their dashes."""
    try:
        result = subprocess.run(
            [nsys, "profile", "--help"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise TraceError(f"cannot run {nsys}: {error}; name another nsys with --nsys") from error
    options = frozenset(re.findall(r"--([a-z][a-z-]+)", result.stdout + result.stderr))
    if "output" not in options:
        raise TraceError(
            f"{nsys} is not Nsight Systems: it does not explain `profile --help`; name another with"
            " --nsys"
        )
    return options


def nsys_command(
    nsys: Path,
    options: frozenset[str],
    output: Path,
    command: Sequence[str],
    delay: int,
    duration: int,
) -> list[str]:
    """`nsys profile ... command`."""
    flags = [flag for option, flags in _LIGHT if option in options for flag in flags]
    if delay:
        flags.append(f"--delay={delay}")
    if duration:
        flags.append(f"--duration={duration}")
    name = str(output).replace("%", "%%")  # %p and %q{} mean something to nsys
    return [str(nsys), "profile", *flags, f"--output={name}", "/bin/sh", "-c", SHIM, "sh", *command]


def nvprof_command(nvprof: Path, output: Path, command: Sequence[str]) -> list[str]:
    """`nvprof ... command`: one file for each process that used the GPU."""
    name = str(output).replace("%", "%%")
    return [
        str(nvprof),
        "--profile-child-processes",
        "--force-overwrite",
        "--export-profile",
        f"{name}.%p.nvprof",
        *command,
    ]


def last_line(log: Path) -> str:
    """What a profiler said last, for a sentence about its failure."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except OSError:
        lines = []
    messages = [line for line in lines if line and not line.startswith(_EMPTY)]
    return messages[-1].rstrip(".") if messages else "it said nothing"
