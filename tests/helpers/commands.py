"""How tests run Python as a program of its own, and `fastfeed` in this process or a forked one."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

from typer.main import get_command
from typer.testing import CliRunner as _CliRunner

from fastfeed.cli import app, main
from fastfeed.errors import FastfeedError

# Options of Python: warnings are errors, but for those that old versions of Typer cause by
# importing names of Click that a later Click is going to remove.
STRICT = ("-W", "error", "-W", "ignore::DeprecationWarning:typer")


_built = functools.cache(get_command)  # builds all commands, which takes longer than most of them


class CliRunner(_CliRunner):
    """Typer's, which builds the commands of an app once."""

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command in this process."""
        with mock.patch("typer.testing._get_command", _built):
            return super().invoke(*args, **kwargs)


def fastfeed(*words: str) -> tuple[int, str]:
    """Exit code, and all that is printed or raised."""
    done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        if not isinstance(done.exception, FastfeedError):
            raise done.exception
        return 2, str(done.exception)
    return done.exit_code, done.output


def command_line(*words: object) -> subprocess.CompletedProcess[str]:
    """What `fastfeed` in this process prints, and its exit code, as its script calls it."""
    arguments = list(map(str, words))
    printed, errors = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        mock.patch.object(sys, "argv", ["fastfeed", *arguments]),
        mock.patch("typer.main.get_command", _built),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, printed.getvalue(), errors.getvalue())


# "full", "left" (no one reads) or "closed": streams of a program; else a file that is read later
_FORKING = """
import gc, json, os, sys, tempfile

def place(number, stream, file):
    if stream == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), number)
    elif stream == "left":
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, number)
    elif stream == "closed":
        os.close(number)
        setattr(sys, {1: "stdout", 2: "stderr"}[number], None)
    else:
        os.dup2(file.fileno(), number)

exec(sys.argv[1])
gc.collect()
gc.freeze()
for line in sys.stdin:
    program, words, stdout, stderr, cwd, environ = json.loads(line)
    printed, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(cwd)
        place(1, stdout, printed)
        place(2, stderr, errors)
        printed.close()
        errors.close()
        sys.argv = ["fastfeed", *words]
        exec(program)
        sys.exit(0)
    result = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
    for file in (printed, errors):
        with file:
            file.seek(0)
            result.append(file.read().decode())
    print(json.dumps(result), flush=True)
"""


_COMMANDS = """
import contextlib, importlib, io, pkgutil
import fastfeed.cli, fastfeed.profiler
from fastfeed.cli import app, main

with contextlib.redirect_stdout(io.StringIO()):  # what help imports
    app(["--help"], standalone_mode=False)
for package in (fastfeed.cli, fastfeed.profiler):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""


class ForkedPrograms:
    """Programs in processes forked from one that has run `imports`.

    Each has streams, an exit code and an end of the interpreter of its own, without importing
    everything again.
    """

    def __init__(self, imports: str, *options: str, **environ: str) -> None:
        self._environ = environ
        self._process = subprocess.Popen(
            [sys.executable, *options, "-c", _FORKING, imports],
            env=os.environ | environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        program: str,
        *words: object,
        stdout: str = "",
        stderr: str = "",
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run code with `words` in sys.argv; `stdout`, `stderr`: "full", "left" or "closed"."""
        assert self._process.stdin and self._process.stdout
        arguments = list(map(str, words))
        environ = os.environ | self._environ  # as it is now: fixtures change it
        request = [program, arguments, stdout, stderr, str(cwd or Path.cwd()), environ]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        code, printed, errors = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, printed, errors)

    def end(self) -> None:
        """Let the process end."""
        assert self._process.stdin
        self._process.stdin.close()


class ForkedCommands(ForkedPrograms):
    """`fastfeed` in such processes; a context manager."""

    def __init__(self, *options: str, **environ: str) -> None:
        super().__init__(_COMMANDS, *STRICT, *options, **environ)

    def __call__(
        self, *words: object, before: str = "", **streams: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, with what `run` takes; `before`: code to run."""
        return self.run(f"{before}\nmain()", *words, **streams)

    def __enter__(self) -> ForkedCommands:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate()
