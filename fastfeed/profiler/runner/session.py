"""A whole run: choose the profiler, start the ranks, gather their files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastfeed.errors import ConfigError, TraceError
from fastfeed.profiler.runner import environment, recorder
from fastfeed.profiler.runner.foreground import open_closed_streams, unrunnable
from fastfeed.profiler.runner.injection import FRAMEWORKS
from fastfeed.profiler.runner.output_folder import check_previous, prepare_folder, remove_previous
from fastfeed.profiler.runner.settings import TIMELINE, Recording, RecordingSettings, launcher_rank

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


def record(settings: RecordingSettings, environ: Mapping[str, str] = os.environ) -> Recording:
    """Run the command under a profiler and gather its recordings.

    ConfigError before it is started, if at all.
    """
    rank = launcher_rank(environ)
    notes = []
    settings = _choose(settings, environ, notes)
    tool = settings.tool
    launch = detect_launcher(settings.command) if tool else None
    prepare_folder(settings.out)
    if not settings.force:
        check_previous(settings.out, None if launch else rank)
    # other machines may be at work in the folder already
    if not (launch and environ.get("SLURM_NNODES", "1") != "1"):
        remove_previous(settings.out, None if launch else rank)
    env = {**environ, TIMELINE: str(settings.out / "timeline.jsonl")}
    if environ.get(TIMELINE):
        notes.append(f"{TIMELINE} is {env[TIMELINE]} in this run, not {environ[TIMELINE]}")
    if launch and launch.by != "whole":
        code = _ranks(settings, launch, env)
        names = _ranks_in(settings.out)
        if not names:
            notes.append(f"no rank was recorded: {launch.name} ended before it started one")
    else:
        if launch and tool == "nsys":
            notes.append(f"all processes that {launch.name} starts here are in one recording")
        names = ["trace" if rank is None or launch else f"rank{rank}"]
        result = record_rank(settings, names[0], env)
        code = result.code
        notes += result.notes
        if names == ["trace"] and tool in ("auto", *FRAMEWORKS):
            names += _ranks_in(settings.out)  # the command may have started ranks itself
    for name in names:
        notes += _take_notes(settings.out / f"{name}.notes")
    traces = [path for name in names for path in _import_recordings(settings, name, notes)]
    pattern = "timeline*.jsonl" if rank is None or launch else f"timeline.rank{rank}.jsonl"
    timelines = sorted({*settings.out.glob(pattern), *settings.out.glob("timeline.jsonl")})
    return Recording(code, tool, tuple(traces), tuple(timelines), tuple(notes))


def record_rank(
    settings: RecordingSettings, name: str, environ: Mapping[str, str]
) -> recorder.RunResult:
    """Run the command of one rank. If the profiler does not start it, it runs without."""
    open_closed_streams()
    try:
        if settings.tool == "nsys":
            return recorder.under_nsys(settings, name, environ)
        if settings.tool in ("auto", *FRAMEWORKS):
            return recorder.under_framework(settings, name, environ)
        if settings.tool == "nvprof":
            nvprof = environment.nvprof(environ)
            if nvprof is None:
                raise TraceError("nvprof is not on this machine")
            return recorder.under_nvprof(settings, name, environ, nvprof)
    except TraceError as error:
        result = recorder.without_profiler(settings, environ)
        return replace(result, notes=(f"{error}; it ran without a profiler", *result.notes))
    return recorder.without_profiler(settings, environ)


def _choose(
    settings: RecordingSettings, environ: Mapping[str, str], notes: list[str]
) -> RecordingSettings:
    """The settings with the profiler to use, "" for none."""
    from fastfeed.profiler.runner import nsight

    active = environment.active_profiler(environ)
    if active is not None:
        notes.append(
            f"this process runs under a profiler already ({active}): recording only feed timelines"
        )
        return replace(settings, tool="")
    if settings.tool in FRAMEWORKS:
        return settings
    step_options = settings.step_options()
    is_chosen = settings.tool in ("nsys", "nvprof") or settings.nsys is not None
    if step_options and is_chosen:
        raise ConfigError(
            f"only a framework's profiler takes {step_options}; leave it out, or use --with torch,"
            " jax or tensorflow"
        )
    if settings.tool == "nvprof":
        _check_nvprof(environ)
        return settings
    nsys = settings.nsys or nsight.find()
    if nsys is None and settings.tool == "nsys":
        raise ConfigError(
            f"nsys was not found: {environment.system()}; or record with --with auto, without nsys"
        )
    if nsys is None or step_options or not (is_chosen or environment.has_gpu()):
        return settings  # the profiler of the framework that trains
    if not os.access(nsys, os.X_OK) or nsys.is_dir():
        raise ConfigError(f"--nsys must name the program nsys of Nsight Systems, got {nsys}")
    return replace(settings, nsys=nsys.absolute(), tool="nsys")


def _check_nvprof(environ: Mapping[str, str]) -> None:
    if environment.nvprof(environ) is None:
        raise ConfigError(
            "--with nvprof needs nvprof, which CUDA 12 and older have and newer do not; use --with"
            " nsys"
        )
    unsupported = {name: cap for name, cap in environment.capabilities().items() if cap >= 8}
    if unsupported:
        name, cap = next(iter(unsupported.items()))
        raise ConfigError(
            f"--with nvprof needs GPUs of compute capability 7.x or lower, {name} has {cap}; use"
            " --with nsys"
        )


def _ranks(settings: RecordingSettings, launch: Launch, env: dict[str, str]) -> int:
    """Run a launcher whose ranks each record themselves."""
    spec = replace(settings, command=()).as_json()
    rank = [sys.executable, "-m", "fastfeed.profiler.runner.session", spec]
    if launch.by == "program":
        return recorder.without_profiler(
            replace(settings, command=tuple(launch.wrapped(settings.command, rank))), env
        ).code
    with _script([*rank, env.get("PYTHON_EXEC") or interpreter(settings.command)]) as python:
        return recorder.without_profiler(settings, env | {"PYTHON_EXEC": str(python)}).code


@contextlib.contextmanager
def _script(command: list[str]) -> Iterator[Path]:
    """A program that runs a command with its own arguments added."""
    with tempfile.TemporaryDirectory(prefix="fastfeed-") as folder:
        path = Path(folder) / "python"
        path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        yield path


def _import_recordings(settings: RecordingSettings, name: str, notes: list[str]) -> list[Path]:
    """The recordings of a rank in the form to keep; raw ones are imported."""
    from fastfeed.profiler.runner import nsight

    recordings = []
    for path in recorder.recordings(settings.out, name):
        if path.suffix == ".qdstrm":
            try:
                recordings.append(nsight.imported(path, settings.out, settings.nsys))
            except TraceError as error:
                notes.append(str(error))
            else:
                path.unlink()
        else:
            recordings.append(path)
    return recordings


def _ranks_in(out: Path) -> list[str]:
    """Names of the recorded ranks, in their order."""
    stems = [path.name.split(".")[0] for kind in ("rank", "pid") for path in out.glob(f"{kind}*.*")]
    numbers = {name: name.lstrip("rankpid") for name in stems}
    return sorted(
        (name for name in numbers if numbers[name].isdigit()), key=lambda name: int(numbers[name])
    )


def _take_notes(path: Path) -> list[str]:
    """The notes of a rank's recorder."""
    try:
        notes = json.loads(path.read_text())
        path.unlink()
    except (OSError, ValueError):
        return []
    return [f"{path.stem}: {note}" for note in notes]


def main(arguments: list[str]) -> int:
    """Record one rank and return its program's exit code.

    Its notes go to a file next to the recording.
    """
    settings = replace(RecordingSettings.from_json(arguments[0]), command=tuple(arguments[1:]))
    problem = unrunnable(settings.command)
    if problem is not None:
        print(f"fastfeed: {problem[1]}", file=sys.stderr)
        return problem[0]
    rank = launcher_rank(os.environ)
    name = f"rank{rank}" if rank is not None else f"pid{os.getpid()}"
    # launchers hand the environment on to their own machine only
    result = record_rank(
        settings, name, {**os.environ, TIMELINE: str(settings.out / "timeline.jsonl")}
    )
    if result.notes:
        try:
            (settings.out / f"{name}.notes").write_text(json.dumps(result.notes))
        except OSError:  # a full disk: say it here
            print(
                *(f"fastfeed: {name}: {note}" for note in result.notes), sep="\n", file=sys.stderr
            )
    return result.code


@dataclass(frozen=True, slots=True)
class Launch:
    """A launcher's command, and the indices in it at which the ranks' programs begin.

    torchrun starts every rank with the interpreter that PYTHON_EXEC names, so that is where the
    recorder goes. Others take a program after their options; the recorder is put before it. A
    launcher that is not understood is recorded whole: one recording of all the processes it starts
    on this machine.
    """

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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
