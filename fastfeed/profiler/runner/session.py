"""A whole run: choose the profiler, start the ranks, gather their files."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from fastfeed.errors import ConfigError, TraceError
from fastfeed.profiler.runner import environment, recorder
from fastfeed.profiler.runner.foreground import hold_streams, unrunnable
from fastfeed.profiler.runner.injection import FRAMEWORKS
from fastfeed.profiler.runner.launchers import Launch, detect_launcher, interpreter
from fastfeed.profiler.runner.output_folder import check_previous, prepare_folder, remove_previous
from fastfeed.profiler.runner.settings import TIMELINE, Recording, Settings, rank_of


def record(settings: Settings, environ: Mapping[str, str] = os.environ) -> Recording:
    """Run the command under a profiler and gather its recordings.

    ConfigError before it is started, if at all.
    """
    rank, notes = rank_of(environ), []
    settings, tool = _choose(settings, environ, notes)
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
        result = record_rank(replace(settings, tool=tool), names[0], env)
        code = result.code
        notes += result.notes
        if names == ["trace"] and tool in ("auto", *FRAMEWORKS):
            names += _ranks_in(settings.out)  # the command may have started ranks itself
    for name in names:
        notes += _notes_of(settings.out / f"{name}.notes")
    traces = [path for name in names for path in _import_recordings(settings, name, notes)]
    pattern = "timeline*.jsonl" if rank is None or launch else f"timeline.rank{rank}.jsonl"
    timelines = sorted({*settings.out.glob(pattern), *settings.out.glob("timeline.jsonl")})
    return Recording(code, tool, tuple(traces), tuple(timelines), tuple(notes))


def record_rank(settings: Settings, name: str, environ: Mapping[str, str]) -> recorder.RunResult:
    """Run the command of one rank. If the profiler does not start it, it runs without."""
    hold_streams()
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
    settings: Settings, environ: Mapping[str, str], notes: list[str]
) -> tuple[Settings, str]:
    """The profiler to use, "" for none."""
    from fastfeed.profiler.runner import nsight

    active = environment.active_profiler(environ)
    if active is not None:
        notes.append(
            f"this process runs under a profiler already ({active}): recording only feed timelines"
        )
        return settings, ""
    if settings.tool in FRAMEWORKS:
        return settings, settings.tool
    step_options = settings.step_options()
    is_chosen = settings.tool in ("nsys", "nvprof") or settings.nsys is not None
    if step_options and is_chosen:
        raise ConfigError(
            f"only a framework's profiler takes {step_options}; leave it out, or use --with torch,"
            " jax or tensorflow"
        )
    if settings.tool == "nvprof":
        return settings, _nvprof(environ)
    nsys = settings.nsys or nsight.find()
    if nsys is None and settings.tool == "nsys":
        raise ConfigError(
            f"nsys was not found: {environment.system()}; or record with --with auto, without nsys"
        )
    if nsys is None or step_options or not (is_chosen or environment.has_gpu()):
        return settings, settings.tool  # the profiler of the framework that trains
    if not os.access(nsys, os.X_OK) or nsys.is_dir():
        raise ConfigError(f"--nsys must name the program nsys of Nsight Systems, got {nsys}")
    return replace(settings, nsys=nsys.absolute(), tool="nsys"), "nsys"


def _nvprof(environ: Mapping[str, str]) -> str:
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
    return "nvprof"


def _ranks(settings: Settings, launch: Launch, env: dict[str, str]) -> int:
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


def _import_recordings(settings: Settings, name: str, notes: list[str]) -> list[Path]:
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
    return sorted({name for name in stems if name.lstrip("rankpid").isdigit()}, key=_number)


def _notes_of(path: Path) -> list[str]:
    """The notes of a rank's recorder."""
    try:
        notes = json.loads(path.read_text())
        path.unlink()
    except (OSError, ValueError):
        return []
    return [f"{path.stem}: {note}" for note in notes]


def _number(name: str) -> int:
    return int(name.lstrip("rankpid"))


def main(arguments: list[str]) -> int:
    """Record one rank and return its program's exit code.

    Its notes go to a file next to the recording.
    """
    settings = replace(Settings.from_json(arguments[0]), command=tuple(arguments[1:]))
    problem = unrunnable(settings.command)
    if problem is not None:
        print(f"fastfeed: {problem[1]}", file=sys.stderr)
        return problem[0]
    rank = rank_of(os.environ)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
