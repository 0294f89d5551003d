"""Recording by the program's own framework: which steps, under which name, and how runs end that do
not go to plan.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import environment
from helpers.profiler import fake_torch
from helpers.profiler.signalled import when_ready

from fastfeed.errors import ConfigError
from fastfeed.profiler.attribution.host_code.names import parse
from fastfeed.profiler.runner.session import record
from fastfeed.profiler.runner.settings import Recording, RecordingSettings

Run = Callable[..., Recording]

TRAIN = """
    import os, sys, torch
    optimizer = torch.optim.Optimizer()
    def train(steps):
        for _ in range(steps):
            optimizer.step()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NSYS", raising=False)
    # else nsys, if installed
    monkeypatch.setattr("fastfeed.profiler.runner.environment.has_gpu", lambda: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    fake_torch.install(tmp_path / "site")
    return tmp_path


@pytest.fixture
def run(here: Path) -> Run:
    """Record Python code that has the stand-in for PyTorch."""

    def run(
        code: str, tool: str = "auto", environ: dict[str, str] | None = None, **settings: Any
    ) -> Recording:
        command = (sys.executable, "-c", textwrap.dedent(TRAIN) + textwrap.dedent(code))
        environ = environment(PYTHONPATH=str(here / "site"), **environ or {})
        recording = record(RecordingSettings(command, here / "out", tool, **settings), environ)
        assert not list((here / "scratch").iterdir())
        return recording

    return run


def marks(path: Path) -> list[str]:
    return json.loads(path.read_text())


def steps(first: int, last: int) -> list[str]:
    return [f"ProfilerStep#{number}" for number in range(first, last)]


def test_the_default_skips_ten_steps_and_records_thirty(
    run: Run, here: Path, capfd: pytest.CaptureFixture[str]
):
    done = run("train(100); print('out'); print('err', file=sys.stderr); sys.exit(7)")
    trace = here / "out" / "trace.torch.json.gz"
    assert (done.code, done.traces, done.notes) == (7, (trace,), ())
    assert marks(trace) == steps(10, 40)
    assert capfd.readouterr() == ("out\n", "err\n")
    assert [path.name for path in (here / "out").iterdir()] == ["trace.torch.json.gz"]


def test_the_window_can_be_set(run: Run):
    assert marks(run("train(100)", skip_steps=2, record_steps=3).traces[0]) == steps(2, 5)


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("train(20)", 0),
        ("train(20); raise ValueError('of the program')", 1),
        ("train(20); sys.exit(5)", 5),
    ],
)
def test_a_program_that_ends_within_the_window_leaves_what_was_recorded(
    run: Run, code: str, ended: int
):
    done = run(code)
    assert (done.code, done.notes) == (ended, ())
    assert marks(done.traces[0]) == steps(10, 21)


def test_ctrl_c_leaves_what_was_recorded(here: Path):
    code = (
        textwrap.dedent(TRAIN)
        + "train(20); print('ready', flush=True); import time; time.sleep(60)"
    )
    settings = RecordingSettings((sys.executable, "-c", code), here / "out", "torch")
    environ = environment(PYTHONPATH=str(here / "site"))
    out, err = when_ready(settings, lambda process: process.send_signal(signal.SIGINT), environ)
    assert out == "" and "KeyboardInterrupt" in err
    assert '"code": 130' in err and "trace.torch.json.gz" in err


def test_a_long_recording_ends_after_five_steps(run: Run):
    limit = "sys.modules['fastfeed_recorder.window']._MAX_S = -1.0"
    assert marks(run(f"{limit}\ntrain(100)").traces[0]) == steps(10, 15)


@pytest.mark.parametrize(
    ("calls", "notes"),
    [(1000, ()), (100, ("functions are not recorded, because a step calls too many of them",))],
)
def test_functions_that_a_step_calls_bound_the_recording(
    run: Run, calls: int, notes: tuple[str, ...]
):
    code = f"""
        sys.modules['fastfeed_recorder.window']._MAX_CALLS = {calls}
        for _ in range(100):
            list(map(lambda number: number, range(100)))
            optimizer.step()
        sys.exit(sys.getprofile() is not None)
    """
    done = run(code)
    assert (done.code, done.notes) == (0, notes)
    assert len(marks(done.traces[0])) == (30 if notes else 9)


def test_says_that_the_command_ended_before_the_recording_began(run: Run):
    done = run("train(100)", delay=60)
    assert done.notes == (
        "no training step was recorded: the command ended within --delay 60; lower it",
    )


def test_stop_after_ends_the_program(run: Run):
    done = run(
        "train(100); print('not reached'); sys.exit(9)",
        skip_steps=1,
        record_steps=2,
        stop_after=True,
    )
    assert (done.code, marks(done.traces[0])) == (0, steps(1, 3))


@pytest.mark.parametrize(
    ("code", "ended", "why"),
    [
        (
            "train(7)",
            0,
            "the command took 7 training steps, and the first 10 are skipped; lower --skip-steps",
        ),
        ("pass", 0, "the command imports PyTorch and takes no training step"),
        (
            "train(20); os._exit(3)",
            3,
            "the command ended without its exit handlers while its steps were recorded",
        ),
        (
            "train(20); os.kill(os.getpid(), 9)",
            137,
            "the command was ended by SIGKILL while its steps were recorded",
        ),
        (
            "train(2); os.kill(os.getpid(), 11)",
            139,
            "the command was ended by SIGSEGV before its training steps",
        ),
    ],
)
def test_says_why_there_is_no_recording(run: Run, code: str, ended: int, why: str):
    done = run(code)
    assert (done.code, done.traces) == (ended, ())
    assert len(done.notes) == 1 and done.notes[0].startswith(
        f"no training step was recorded: {why}"
    )


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            ("true",),
            (
                "the command runs no Python 3.9 or later that reads PYTHONPATH; to record programs"
                " of other"
            ),
        ),
        (
            (sys.executable, "-E", "-c", "pass"),
            "the command runs no Python 3.9 or later that reads PYTHONPATH",
        ),
        (
            (sys.executable, "-c", "pass"),
            "the command imports neither PyTorch, JAX, TensorFlow nor Keras",
        ),
    ],
)
def test_says_that_the_command_does_not_train(here: Path, command: tuple[str, ...], why: str):
    done = record(RecordingSettings(command, here / "out"), environment())
    assert (done.code, done.traces) == (0, ())
    assert len(done.notes) == 1 and done.notes[0].startswith(
        f"no training step was recorded: {why}"
    )


def test_another_framework_than_the_one_wanted(run: Run):
    note = "the command trains with PyTorch, got --with jax; use --with torch or --with auto"
    assert run("train(20)", tool="jax").notes == (f"no training step was recorded: {note}",)


def test_a_recorder_that_fails_leaves_the_program_alone(
    run: Run, capfd: pytest.CaptureFixture[str]
):
    done = run("train(20); print('trained')", environ={"FAILS": "1"})
    assert (done.code, done.traces) == (0, ())
    assert done.notes == ("the recording failed: no room for a buffer",)
    assert capfd.readouterr() == ("trained\n", "")


def test_a_trace_that_cannot_be_written_leaves_no_part(run: Run, here: Path):
    done = run(
        "def fail(self, path): open(path, 'w'); raise OSError('disk full')\n"
        "torch.profiler.profile.export_chrome_trace = fail; train(50)"
    )
    assert (done.code, done.notes) == (0, ("the recording failed: disk full",))
    assert not list((here / "out").iterdir())


def test_steps_back_when_the_program_profiles_itself(run: Run):
    done = run("train(20)\nwith torch.profiler.profile(): train(20)")
    assert done.code == 0 and marks(done.traces[0]) == steps(10, 21)
    assert done.notes == (
        (
            "the program profiles itself with torch.profiler, which ended the recording; fastfeed"
            " analyze reads its trace"
        ),
    )
    done = run("with torch.profiler.profile(): train(20)")
    assert (done.code, done.traces) == (0, ())
    assert (
        "the program profiles itself with torch.profiler; fastfeed analyze reads its trace"
        in done.notes[0]
    )


def test_the_environments_own_sitecustomize_is_imported(
    run: Run, here: Path, capfd: pytest.CaptureFixture[str]
):
    (here / "site" / "sitecustomize.py").write_text("print('own')")
    code = """
        import sitecustomize
        print(sitecustomize.__file__, [folder for folder in sys.path if 'injected' in folder])
    """
    run(code)
    assert capfd.readouterr().out == f"own\n{here}/site/sitecustomize.py []\n"


def test_recordings_do_not_take_the_recorder_for_a_function_of_the_program(
    run: Run, capfd: pytest.CaptureFixture[str]
):
    run(
        "print(sys.modules['fastfeed_recorder.window'].RecordingWindow._advance.__code__.co_filename)"
    )
    file = capfd.readouterr().out.strip()
    assert file == "<frozen-fastfeed>" and not parse(f"{file}(3): mark").is_users


def test_processes_that_are_started_later_are_left_alone(
    run: Run, here: Path, capfd: pytest.CaptureFixture[str]
):
    code = """
        import subprocess
        train(20)
        show = "import os; print(os.environ['PYTHONPATH'], 'FASTFEED_RECORD' in os.environ)"
        subprocess.run([sys.executable, '-c', show])
    """
    assert marks(run(code).traces[0]) == steps(10, 21)
    assert capfd.readouterr().out == f"{here}/site False\n"


def test_a_program_that_starts_the_one_that_trains(run: Run):
    code = """
        import subprocess
        train = "import torch; optimizer = torch.optim.Optimizer(); [optimizer.step() for _ in range(50)]"
        sys.exit(subprocess.run(['sh', '-c', f'{sys.executable} -c "{train}"; exit 3']).returncode)
    """
    done = run(code)
    assert (done.code, done.notes) == (3, ())
    assert marks(done.traces[0]) == steps(10, 40)


def test_forked_children(run: Run):
    """Workers of the process that trains are left alone; a child of one that does not train is
    recorded.
    """
    worker = "if not os.fork(): train(5); sys.exit()\nos.wait()"
    assert marks(run(f"train(20)\n{worker}\ntrain(2)").traces[0]) == steps(10, 23)
    done = run("if not os.fork(): train(50); sys.exit()\nos.wait()")
    assert marks(done.traces[0]) == steps(10, 40) and not done.notes


def test_ranks_that_the_program_starts_have_a_recording_each(run: Run, here: Path):
    code = """
        for rank in '01':
            os.environ['RANK'] = rank
            if not os.fork(): train(50); sys.exit()
        os.wait(); os.wait()
    """
    done = run(code)
    assert done.traces == tuple(here / "out" / f"rank{rank}.torch.json.gz" for rank in range(2))


def test_one_optimizer_counts_until_it_is_gone(run: Run):
    code = """
        other = torch.optim.Optimizer()
        for _ in range(5): optimizer.step(); other.step(); other.step()
        del optimizer
        for _ in range(10): other.step()
    """
    assert marks(run(code, skip_steps=1, record_steps=20).traces[0]) == steps(1, 16)


def test_a_recording_is_replaced_by_the_next(run: Run, here: Path):
    run("train(50)")
    (here / "out" / "trace.json.gz").write_text("mine")
    done = run("pass")
    assert not done.traces and [path.name for path in (here / "out").iterdir()] == ["trace.json.gz"]


def test_nsys_is_chosen_where_there_is_a_gpu(here: Path, monkeypatch: pytest.MonkeyPatch):
    from helpers.profiler import fake_nsys

    monkeypatch.setenv("NSYS", str(fake_nsys.install(here / "nsys")))
    assert record(RecordingSettings(("true",), here / "out"), os.environ).tool == "auto"
    monkeypatch.setattr("fastfeed.profiler.runner.environment.has_gpu", lambda: True)
    assert record(RecordingSettings(("true",), here / "out"), os.environ).tool == "nsys"
    assert (
        record(RecordingSettings(("true",), here / "out", stop_after=True), os.environ).tool
        == "auto"
    )
    with pytest.raises(
        ConfigError, match="only a framework's profiler takes --skip-steps and --stop-after"
    ):
        record(
            RecordingSettings(("true",), here / "out", "nsys", skip_steps=3, stop_after=True),
            os.environ,
        )


def test_ranks_of_a_launcher_have_a_recording_each(run: Run, here: Path):
    launcher = here / "mpirun"
    launcher.write_text(
        '#!/bin/sh\nfor OMPI_COMM_WORLD_RANK in 0 1; do export OMPI_COMM_WORLD_RANK; "$@"; done\n'
    )
    launcher.chmod(0o755)
    program = textwrap.dedent(TRAIN) + "train(int(os.environ['OMPI_COMM_WORLD_RANK']) * 50)"
    command = (str(launcher), sys.executable, "-c", program)
    done = record(
        RecordingSettings(command, here / "out"), environment(PYTHONPATH=str(here / "site"))
    )
    assert done.traces == (here / "out" / "rank1.torch.json.gz",)
    assert done.notes == (
        (
            "rank0: no training step was recorded: the command imports PyTorch and takes no"
            " training step"
        ),
    )
