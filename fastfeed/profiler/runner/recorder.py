"""One command under one profiler: what runs on a rank, or at a desk."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastfeed.errors import TraceError
from fastfeed.profiler.runner import injection
from fastfeed.profiler.runner.foreground import (
    Foreground,
    descendants,
    parents,
    processor_time,
    runs,
)
from fastfeed.profiler.runner.settings import RecordingSettings

SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm", ".nvprof")
FRAMEWORK_SUFFIXES = (".torch.json.gz", ".xplane.pb")
# stdin, stdout and stderr of the command come to nsys as 7, 8, 9: dash takes no two digits
_FIRST = 7
_AGENTS_S = 3.0  # they take a tenth of it
START_S = 60.0  # for nsys to begin the command; it takes less than one
# for nsys to end after the command, while it neither computes nor writes; it may import for minutes
END_S = 120.0
# processors that nsys takes at least while it imports; one that hangs may still look around
_BUSY = 0.01
_TICKS = os.sysconf("SC_CLK_TCK")  # of processor time, per second
_MIN_FREE = 1 << 30  # bytes; a recording of an hour can take that


@dataclass(frozen=True, slots=True)
class RunResult:
    code: int
    notes: tuple[str, ...] = ()


def without_profiler(settings: RecordingSettings, environ: Mapping[str, str]) -> RunResult:
    """Run the command with no profiler but its own feeds' timelines."""
    with Foreground() as front:
        return RunResult(front.run(settings.command, environ))


def under_framework(
    settings: RecordingSettings, name: str, environ: Mapping[str, str]
) -> RunResult:
    """Run the command, whose own Python records its steps with its framework's profiler."""
    with injection.injected(settings, settings.tool, name) as recorder:
        with Foreground() as front:
            code = front.run(settings.command, recorder.environment(environ))
        return RunResult(code, recorder.notes(code))


def under_nsys(settings: RecordingSettings, name: str, environ: Mapping[str, str]) -> RunResult:
    """Run the command under nsys, into `name`.nsys-rep, or .qdstrm without an importer.

    TraceError if nsys does not start the command.
    """
    assert settings.nsys is not None
    output = settings.out / name
    options = supported_options(settings.nsys)
    with _scratch() as scratch, injection.injected(settings, "nvtx", name) as marks:
        log = scratch / "nsys.log"
        env = {**environ, "TMPDIR": str(scratch), "FASTFEED_PID": str(scratch / "pid")}
        pipes = {"FASTFEED_OUT": _pipe(1), "FASTFEED_ERR": _pipe(2)}
        env |= {"FASTFEED_TMPDIR": environ.get("TMPDIR", ""), **pipes, **marks.variables()}
        # where nsys keeps the streams to itself they are pipes
        env.setdefault("PYTHONUNBUFFERED", "1")
        command = nsys_command(
            settings.nsys, options, output, settings.command, settings.delay, settings.duration
        )
        with Foreground() as front, _open_log(log) as number, _startup_lock() as release:
            written = partial(_written, scratch, log, output)
            pipe_paths = [path for path in pipes.values() if path]
            monitor = _CommandMonitor(front, scratch / "pid", log, pipe_paths, release, written)
            code = front.run(
                command,
                env,
                started=monitor.pid,
                apart=True,
                actions=_streams(number),
                idle=monitor.look,
            )
            code = monitor.wait_for_command(code)
            _wait_for_agents(front)
        if monitor.pid() is None:
            raise TraceError(
                f"nsys did not start the command: {_disk_full(scratch, 'TMPDIR') or last_line(log)}"
            )
        if not recordings(settings.out, name) and not _recover(scratch, output):
            return RunResult(code, (monitor.why_ended or _no_recording(settings, log),))
        return RunResult(code, marks.notes(code))


def under_nvprof(
    settings: RecordingSettings, name: str, environ: Mapping[str, str], nvprof: Path
) -> RunResult:
    """Run the command under nvprof, into `name`.<pid>.nvprof for each process that used a GPU."""
    with _scratch() as scratch, Foreground() as front:
        command = nvprof_command(nvprof, settings.out / name, settings.command)
        code = front.run(command, {**environ, "TMPDIR": str(scratch)})
    if recordings(settings.out, name):
        return RunResult(code)
    return RunResult(
        code, ("nvprof left no recording: no process of the command used a GPU that it supports",)
    )


def recordings(out: Path, name: str) -> list[Path]:
    """Files that a profiler wrote under this name, in the best form available."""
    for suffix in (".nsys-rep", ".qdrep", ".qdstrm", *FRAMEWORK_SUFFIXES):
        if (out / f"{name}{suffix}").exists():
            return [out / f"{name}{suffix}"]
    return sorted(out.glob(f"{name}.*.nvprof"))


class _CommandMonitor:
    """The command's process and its parents: targets of signals, survivors of nsys."""

    def __init__(
        self,
        front: Foreground,
        path: Path,
        log: Path,
        pipes: Sequence[str],
        begun: Callable[[], None],
        written: Callable[[], int],  # bytes of nsys's files
    ) -> None:
        self._front = front
        self._path = path
        self._log = log
        self._pipes = pipes
        self._begun = begun
        self._written = written
        self._deadline = time.monotonic() + START_S
        self._work = (0, 0)  # processor time, and bytes of nsys's files
        self._worked_at = 0.0
        self._ancestors: list[int] = []
        self.why_ended = ""  # by us
        self._piped = False
        self._copied = 0  # bytes of the log that the terminal has

    def pid(self) -> int | None:
        """None as long as the command has not begun."""
        if not self._ancestors:
            with contextlib.suppress(OSError, ValueError):
                pid, how = self._path.read_text().split()
                self._piped = how == "piped"
                self._ancestors = parents(int(pid))
                self._begun()
        return self._ancestors[0] if self._ancestors else None

    def look(self, child: int = 0) -> None:
        """Notice the start; show output of nsys's pipes if the command has no other streams."""
        if self.pid() is None:
            self._wake()
            if child and time.monotonic() > self._deadline:
                self._deadline += START_S
                with contextlib.suppress(ProcessLookupError):
                    # it hangs, and holds locks that a signal would wait for
                    os.kill(child, signal.SIGKILL)
        elif child and self._hangs_at_its_end(child):
            self.why_ended = (
                "nsys left no recording: it hung after the command had ended, and was killed"
            )
            for pid in _of_nsys(child, self._front):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self._piped:
            with self._log.open("rb") as file:
                file.seek(self._copied)
                new = file.read()
            self._copied += len(new)
            if sys.stdout:
                sys.stdout.buffer.write(new)
                sys.stdout.flush()

    def _hangs_at_its_end(self, child: int) -> bool:
        """True if the command has ended and the rest of nsys does nothing."""
        if runs(self._ancestors[0]):
            return False
        now = time.monotonic()
        work = sum(map(processor_time, _of_nsys(child, self._front)))
        # copying a large recording to a slow file system takes next to no processor time
        written = self._written()
        is_busy = abs(work - self._work[0]) > _BUSY * END_S * _TICKS
        if is_busy or written != self._work[1] or not self._worked_at:
            self._work = (work, written)
            self._worked_at = now
        return now - self._worked_at > END_S

    def _wake(self) -> None:
        """Open and close pipes to wake their writers, which then see that a reader has gone."""
        for path in self._pipes:
            with contextlib.suppress(OSError):  # /proc is hidden, or it is another user's pipe
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))

    def wait_for_command(self, code: int) -> int:
        """Wait for a command that nsys left behind, for its exit code; otherwise that of nsys."""
        self.look()
        for pid in list(self._ancestors):
            adopted = self._front.wait(pid, started=self.pid, apart=True, idle=self.look)
            if adopted is not None:
                self.look()
                return adopted
        return code


def _wait_for_agents(front: Foreground) -> None:
    """Wait for nsys's agents, within limits: two instances of nsys disturb each other."""
    deadline = time.monotonic() + _AGENTS_S
    while any(map(_is_nsys, front.orphans())) and time.monotonic() < deadline:
        # killing one would leave locks in /dev/shm, and every later nsys would fail
        time.sleep(0.02)


def _of_nsys(child: int, front: Foreground) -> set[int]:
    """A child that is waited for, and the processes of nsys below it and among our orphans."""
    return {child, *filter(_is_nsys, {*descendants(child), *front.orphans()})}


def _written(scratch: Path, log: Path, output: Path) -> int:
    """Bytes of nsys's files, messages excluded: its scratch folder, and the recording."""
    size = 0
    files = (os.path.join(folder, name) for folder, _, names in os.walk(scratch) for name in names)
    for path in (*files, *glob.glob(f"{glob.escape(str(output))}.*")):
        with contextlib.suppress(OSError):  # it has just been removed
            size += os.lstat(path).st_size if path != str(log) else 0
    return size


def _is_nsys(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(("nsys", "Qdstrm"))
    except OSError:
        return False


@contextlib.contextmanager
def _startup_lock() -> Iterator[Callable[[], None]]:
    """Let one nsys at a time begin its command: several at once hang at times."""
    path = Path(tempfile.gettempdir()) / f"fastfeed-nsys-{os.getuid()}.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:  # then without
        lock = -1
    deadline = time.monotonic() + START_S
    while lock >= 0:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)

    def begun() -> None:
        nonlocal lock
        if lock >= 0:
            os.close(lock)
            lock = -1

    try:
        yield begun
    finally:
        begun()


@contextlib.contextmanager
def _open_log(log: Path) -> Iterator[int]:
    """A descriptor above those that the command's streams take."""
    with log.open("wb") as file:
        number = fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 20)
    try:
        yield number
    finally:
        os.close(number)


def _pipe(number: int) -> str:
    """The path of a stream that is a pipe, else "": a reopened file loses its position."""
    return f"/proc/{os.getpid()}/fd/{number}" if stat.S_ISFIFO(os.fstat(number).st_mode) else ""


def _streams(log: int) -> list[tuple]:
    """The terminal's streams at numbers that nsys hands on, nsys's own messages into the log."""
    piped = [number for number in (1, 2) if _pipe(number)]
    copies = [(number, number + _FIRST) for number in range(3) if number not in piped]
    # nsys takes no number that we mean to use
    logged = [*((0, number + _FIRST) for number in piped), (log, 1), (log, 2)]
    return [
        *((os.POSIX_SPAWN_DUP2, *pair) for pair in copies),
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        *((os.POSIX_SPAWN_DUP2, *pair) for pair in logged),
    ]


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for this rank's profiler: several that share one get in each other's way."""
    with tempfile.TemporaryDirectory(prefix="fastfeed-", ignore_cleanup_errors=True) as path:
        yield Path(path)


def _recover(scratch: Path, output: Path) -> bool:
    """Move a recording that nsys left in its scratch folder; False without one."""
    for path in scratch.glob("nsys-report-*"):
        if path.suffix in SUFFIXES:
            moved = output.with_name(output.name + path.suffix)
            try:
                shutil.move(path, moved)
                return True
            except OSError:  # no room
                moved.unlink(missing_ok=True)
    return False


def _no_recording(settings: RecordingSettings, log: Path) -> str:
    """Why there is no recording."""
    full = _disk_full(settings.out, "--out")
    if full:
        return f"nsys left no recording: {full}"
    if settings.delay:
        return (
            f"nsys left no recording: did the command end within --delay {settings.delay}? Lower it"
        )
    return f"nsys left no recording: {last_line(log)}"


def _disk_full(folder: Path, name: str) -> str:
    """Advice for a disk that is nearly full; "" with enough space."""
    free = shutil.disk_usage(folder).free
    if free >= _MIN_FREE:
        return ""
    return f"{folder} has {free >> 20} MiB free; free some space, or set {name}"


SHIM = Path(__file__).with_name("streams.sh").read_text("utf-8")


_EMPTY = ("Processing [", "usage:", "Try 'nsys", "Importer error status", "Generat")
_EMPTY += ("Unable to retrieve the importer",)


# flag of `nsys profile` and its value, each given only if this version knows it
_LIGHT = {
    "trace": "cuda,nvtx",
    "sample": "none",  # CPU sampling needs rights that containers lack, and large files
    "cpuctxsw": "none",
    "force-overwrite": "true",
    "wait": "primary",  # a daemon that the command leaves behind does not hold the recording up
    "kill": "none",  # the end of a recording is not the end of the command
    "stats": "false",
}


def supported_options(nsys: Path) -> frozenset[str]:
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
    """Command line of `nsys profile` around the command."""
    flags = [f"--{name}={value}" for name, value in _LIGHT.items() if name in options]
    if delay:
        flags.append(f"--delay={delay}")
    if duration:
        flags.append(f"--duration={duration}")
    name = str(output).replace("%", "%%")  # %p and %q{} mean something to nsys
    return [str(nsys), "profile", *flags, f"--output={name}", "/bin/sh", "-c", SHIM, "sh", *command]


def nvprof_command(nvprof: Path, output: Path, command: Sequence[str]) -> list[str]:
    """`nvprof ... command`: one file for each process that used the GPU."""
    name = str(output).replace("%", "%%")
    flags = ["--profile-child-processes", "--force-overwrite", "--export-profile"]
    return [str(nvprof), *flags, f"{name}.%p.nvprof", *command]


def last_line(log: Path) -> str:
    """A profiler's last message, for a sentence about its failure."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except OSError:
        lines = []
    messages = [line for line in lines if line and not line.startswith(_EMPTY)]
    return messages[-1].rstrip(".") if messages else "it printed nothing"
