"""Commands that start ranks: how each rank gets its own recording.

torchrun starts every rank with the interpreter that PYTHON_EXEC names, so that is where the
recorder goes. Others take a program after their options; the recorder is put before it. A launcher
that is not understood is recorded whole: one recording of all the processes it starts on this
machine.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# options without a value; every other option of these launchers has one, two where _TWO says so
_MPI = re.compile(
    r"allow-run-as-root|(no)?oversubscribe|display-\w+|report-\w+|tag-output|timestamp(-output)?|q|quiet|v|verbose|nolocal|"
    r"noprefix|use-hwthread-cpus|by(node|slot|core)|pernode|(enable|disable)-recovery|do-not-launch|debug-daemons|l|s|"
    r"leave-session-attached|index-argv-by-rank|show-progress|merge-stderr-to-stdout|novm|continuous|prepend-rank|"
    r"bind-to-(core|socket|none)|g?env(all|none)|print-\w+(-\w+)*"
)
_SRUN = re.compile(
    r"overlap|label|no-kill|pty|quiet|unbuffered|verbose|contiguous|kill-on-bad-exit|overcommit|oversubscribe|preserve-env|"
    r"test-only|spread-job|use-min-nodes|disable-status|hold|immediate|reboot|exact|exclusive|interactive|nice|propagate|"
    r"no-allocate|[lkQuvKOsEXHIZ]+"
)
_HOROVOD = re.compile(
    r"verbose|v|disable-cache|(use-)?(gloo|mpi|jsrun)|(no-)?(autotune|hierarchical-all(reduce|gather)|stall-check)|"
    r"mpi-threads-disable|timeline-mark-cycles|check-build"
)
_FLAGS: dict[str, re.Pattern[str]] = dict.fromkeys(
    ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"), _MPI
)
_FLAGS |= {"srun": _SRUN, "horovodrun": _HOROVOD}
_TWO = {"mca", "gmca", "prtemca", "pmixmca", "env", "genv"}
_PROGRAM_OPTIONS = {"--no-python", "--no_python", "--run-path", "--run_path"}
_TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_WHOLE = ("accelerate", "deepspeed", "ray", "composer", "parallel", "jsrun", "aprun", "flux")
_WHOLE += ("colossalai",)


@dataclass(frozen=True, slots=True)
class Launch:
    """A launcher's command, and the indices in it at which the ranks' programs begin."""

    name: str
    by: str  # "interpreter", "program"; "whole": ranks cannot be reached one by one
    programs: tuple[int, ...] = ()  # indexes into the command

    def wrapped(self, command: Sequence[str], recorder: Sequence[str]) -> list[str]:
        """The command with the recorder before each program."""
        wrapped = list(command)
        for index in reversed(self.programs):
            wrapped[index:index] = recorder
        return wrapped


def detect_launcher(command: Sequence[str]) -> Launch | None:
    """The launcher that a command uses; None for an ordinary program."""
    name = os.path.basename(command[0])
    if name == "torchrun" or _module(command) in _TORCH_MODULES:
        has_program = not _PROGRAM_OPTIONS.isdisjoint(command)
        return Launch("torchrun", "whole" if has_program else "interpreter")
    if name in _FLAGS:
        programs = _programs(command, _FLAGS[name])
        return Launch(name, "program" if programs else "whole", programs)
    return Launch(name, "whole") if name in _WHOLE else None


def interpreter(command: Sequence[str]) -> str:
    """The Python that torchrun would start ranks with: the one that it runs in itself."""
    if os.path.basename(command[0]).startswith("python"):
        return shutil.which(command[0]) or command[0]
    script = Path(shutil.which(command[0]) or command[0])
    try:
        with script.open("rb") as file:
            first = file.readline(4096).decode(errors="replace")
    except OSError:
        first = ""
    words = first[2:].split() if first.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = words[1:]
    sibling = script.resolve().with_name("python")
    return (shutil.which(words[0]) if words and "python" in words[0] else None) or str(sibling)


def _module(command: Sequence[str]) -> str:
    """`torch.distributed.run` of `python -u -m torch.distributed.run`."""
    if not os.path.basename(command[0]).startswith("python"):
        return ""
    for index, word in enumerate(command[1:-1], 1):
        if word == "-m":
            return command[index + 1]
        if not word.startswith("-"):
            break
    return ""


def _programs(command: Sequence[str], flags: re.Pattern[str]) -> tuple[int, ...]:
    """Indices where programs begin: after the options, and again after each `:` of MPI.

    Empty if that is not certain.
    """
    programs: list[int] = []
    index = 1
    while index < len(command):
        word = command[index]
        option = word.lstrip("-")
        if not word.startswith("-"):
            if shutil.which(word) is None:
                return ()  # not what we take it for: a value of an option that we do not know
            programs.append(index)
            if ":" not in command[index:]:
                break
            index = command.index(":", index) + 1
            continue
        # srun -n4
        attached = not word.startswith("--") and len(option) > 1 and option[1:].isdigit()
        if "=" in word or flags.fullmatch(option) or attached:
            index += 1
        else:
            index += 3 if option in _TWO else 2
    return tuple(programs)
