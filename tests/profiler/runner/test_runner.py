"""Running a command under nsys: its exit code, streams and signals are as without; what is recorded
is kept.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import environment
from helpers.products import in_turn
from helpers.profiler import fake_nsys
from helpers.profiler.signalled import RUN, when_ready

from fastfeed.errors import ConfigError
from fastfeed.profiler import analysis
from fastfeed.profiler.reports import page
from fastfeed.profiler.runner import recorder
from fastfeed.profiler.runner.session import record
from fastfeed.profiler.runner.settings import Recording, RecordingSettings

Run = Callable[..., Recording]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NSYS", raising=False)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    return tmp_path


@pytest.fixture
def run(here: Path) -> Iterator[Run]:
    """Record Python code; afterwards nothing temporary is left."""

    def run(
        code: str, delay: int = 0, duration: int = 0, force: bool = False, **settings: object
    ) -> Recording:
        program = fake_nsys.install(here / f"nsys{len(list(here.iterdir()))}", **settings)
        command = (sys.executable, "-c", textwrap.dedent(code))
        return record(
            RecordingSettings(command, here / "out", "nsys", delay, duration, program, force)
        )

    yield run
    assert left(here) == []


def left(here: Path) -> list[str]:
    """Temporary files, but for the lock that the nsys of one machine take in turn."""
    return [path.name for path in (here / "scratch").iterdir() if path.suffix != ".lock"]


@pytest.mark.parametrize("code", [7, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 255))])
def test_returns_the_code_of_the_command(run: Run, here: Path, code: int):
    done = run(f"import sys; sys.exit({code})")
    assert done.code == code
    assert done.traces == (here / "out" / "trace.nsys-rep",) and not done.notes
    assert done.traces[0].read_bytes() == fake_nsys.REPORT
    assert [path.name for path in (here / "out").iterdir()] == [
        "trace.nsys-rep"
    ]  # the raw one is imported, and gone


def test_returns_the_signal_that_killed_it(run: Run):
    assert run("import os; os.kill(os.getpid(), 9)").code == 137


@pytest.mark.parametrize("streams", [True, False])
def test_the_command_has_the_streams_of_the_terminal(
    run: Run, capfd: pytest.CaptureFixture[str], streams: bool
):
    done = run(
        "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", streams=streams
    )
    out, err = capfd.readouterr()
    assert done.code == 3
    if streams:
        assert (out, err) == ("out\n", "err\n")  # and not a word of nsys
    else:
        assert "out\n" in out and "err\n" in out  # through nsys's pipe


def test_the_command_sees_its_own_environment(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    run("import json, os; open('env', 'w').write(json.dumps(dict(os.environ)))")
    seen = (here / "env").read_text()
    assert '"TMPDIR": "/var/tmp"' in seen and "FASTFEED_PID" not in seen
    assert f'"FASTFEED_TIMELINE": "{here}/out/timeline.jsonl"' in seen


def test_an_old_nsys_gets_no_option_that_it_refuses(run: Run):
    assert run("raise SystemExit(5)", options=["trace", "output", "delay"]).code == 5


def test_the_end_of_the_recording_is_not_the_end_of_the_command(run: Run, here: Path):
    done = run("import sys, time; time.sleep(0.5); open('end', 'w'); sys.exit(4)", duration=1)
    assert done.code == 4 and (here / "end").exists() and done.traces


def test_says_that_the_command_ended_before_the_recording_began(run: Run):
    done = run("pass", delay=60)
    assert done.code == 0 and not done.traces
    assert done.notes == (
        "nsys left no recording: did the command end within --delay 60? Lower it",
    )


def test_says_what_nsys_said_where_nothing_was_recorded(run: Run):
    assert run("pass", records=False).notes == ("nsys left no recording: it printed nothing",)


def test_says_that_a_disk_is_full(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch):
    full = shutil.disk_usage("/")._replace(free=3 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    said = f"{here}/out has 3 MiB free; free some space, or set --out"
    assert run("pass", records=False).notes == (f"nsys left no recording: {said}",)
    assert re.fullmatch(
        rf"nsys did not start the command: {here}/scratch/\S+ has 3 MiB free; free some space, or"
        r" set TMPDIR; .*",
        run("pass", starts=False).notes[0],
    )


def test_says_where_the_timeline_goes(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FASTFEED_TIMELINE", "mine.jsonl")
    assert run("pass").notes == (
        f"FASTFEED_TIMELINE is {here}/out/timeline.jsonl in this run, not mine.jsonl",
    )


def test_the_command_runs_where_nsys_does_not_start_it(run: Run):
    done = run("raise SystemExit(6)", starts=False)
    assert done.code == 6
    assert done.notes == (
        "nsys did not start the command: Agent launcher failed; it ran without a profiler",
    )


def test_a_recording_that_cannot_be_imported_is_kept(run: Run, here: Path):
    done = run("raise SystemExit(2)", torn=True)
    assert done.code == 2 and not done.traces
    assert (here / "out" / "trace.qdstrm").exists()
    assert "trace.qdstrm: File is corrupted" in done.notes[0]


def test_the_command_runs_where_nsys_hangs(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recorder, "START_S", 0.5)
    done = run("raise SystemExit(8)", hangs=True)
    assert done.code == 8
    assert done.notes == (
        "nsys did not start the command: it printed nothing; it ran without a profiler",
    )


def test_an_nsys_that_does_not_end_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recorder, "END_S", 0.5)
    monkeypatch.setattr(recorder, "_BUSY", 0.5)
    # an idle command is waited for
    done = run("import time; time.sleep(1.5); raise SystemExit(8)", stays=True)
    assert done.code == 137  # nsys has taken the command's with it
    assert done.notes == (
        "nsys left no recording: it hung after the command had ended, and was killed",
    )


def test_the_command_runs_once_where_its_start_cannot_be_told(
    run: Run, here: Path, capfd: pytest.CaptureFixture[str]
):
    assert run("open('count', 'a').write('x')", full=True).code == 0
    assert (here / "count").read_text() == "x"


HANDLED = """
import signal, sys, time
def handle(number, frame):
    time.sleep(0.3)  # saves a checkpoint; nsys is gone by then
    print("handled", number, flush=True)
    sys.exit(11)
signal.signal(signal.SIGTERM, handle); signal.signal(signal.SIGINT, handle)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("how", "number"), in_turn(["nsys", "plain"], [signal.SIGTERM, signal.SIGINT])
)
def test_signals_reach_the_command_and_it_may_exit_cleanly(
    here: Path, how: str, number: signal.Signals
):
    program = fake_nsys.install(here / "nsys") if how == "nsys" else None
    environ = environment(
        **({} if program else {"CUDA_INJECTION64_PATH": "held"}), TMPDIR=str(here / "scratch")
    )
    settings = RecordingSettings(
        (sys.executable, "-c", HANDLED), here / "out", "auto", nsys=program
    )
    out, err = when_ready(settings, lambda process: process.send_signal(number), environ)
    assert out == f"handled {int(number)}\n"
    assert '"code": 11' in err
    assert ("trace.nsys-rep" in err) == (how == "nsys")
    assert left(here) == []


def test_a_command_that_nsys_leaves_behind_is_waited_for(here: Path):
    """As when a job's manager signals every process of it."""
    program = fake_nsys.install(here / "nsys")
    code = "import os; open('nsys.pid', 'w').write(str(os.getppid()))\n" + HANDLED.replace(
        "SIGTERM", "SIGUSR1"
    )
    settings = RecordingSettings((sys.executable, "-c", code), here / "out", "nsys", nsys=program)
    # nsys hands it on, and ends at once
    out, err = when_ready(
        settings, lambda _: os.kill(int((here / "nsys.pid").read_text()), signal.SIGINT)
    )
    assert out == "handled 2\n" and '"code": 11' in err and "trace.nsys-rep" in err


def test_nothing_waits_for_what_nsys_leaves_behind(here: Path):
    program = fake_nsys.install(here / "nsys", lingers=60)
    settings = RecordingSettings(
        (sys.executable, "-c", "import sys; print(1); sys.exit(3)"),
        here / "out",
        "nsys",
        nsys=program,
    )
    done = subprocess.run(
        [sys.executable, "-c", RUN, settings.as_json()],
        capture_output=True,
        env=environment(),
        text=True,
        timeout=40,
    )
    assert done.stdout == "1\n" and '"code": 3' in done.stderr and "trace.nsys-rep" in done.stderr


def test_a_reader_that_has_gone(here: Path):
    """`fastfeed profile -- command | true`: the command's first write fails, as it does without
    nsys.
    """
    program = fake_nsys.install(here / "nsys")
    settings = RecordingSettings(
        ("sh", "-c", "trap '' PIPE; echo 1 || exit 9"), here / "out", "nsys", nsys=program
    )
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        command = [sys.executable, "-c", RUN, settings.as_json()]
        done = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, env=environment(), text=True, timeout=40
        )
    assert '"code": 9' in done.stderr and "trace.nsys-rep" in done.stderr


def test_pipes_that_cannot_be_opened_again(here: Path):
    """/proc is hidden, or another user has made them: the command's output comes through nsys, and
    nothing else.
    """
    blind = "; ".join(
        [
            "from fastfeed.profiler.runner import foreground, recorder",
            "foreground._POLL_S = 0.001",  # so that the watch looks before nsys begins
            "recorder._pipe = lambda number: '/proc/0/fd/1'",
        ]
    )
    program = fake_nsys.install(here / "nsys")
    settings = RecordingSettings(
        (sys.executable, "-c", "import sys; print(1); sys.exit(3)"),
        here / "out",
        "nsys",
        nsys=program,
    )
    command = [sys.executable, "-c", f"{blind}\n{RUN}", settings.as_json()]
    done = subprocess.run(command, capture_output=True, env=environment(), text=True, timeout=40)
    assert '"code": 3' in done.stderr and "trace.nsys-rep" in done.stderr
    assert done.stdout.startswith("1\n") and "cannot" not in done.stdout


@pytest.mark.parametrize(
    "closed", ["<&- >&- 2>&-", *(pytest.param(s, marks=pytest.mark.slow) for s in (">&-", "2>&-"))]
)
def test_closed_streams(here: Path, closed: str):
    program = fake_nsys.install(here / "nsys")
    code = "import pathlib; print(1); pathlib.Path('ran').touch()"
    settings = RecordingSettings((sys.executable, "-c", code), here / "out", "nsys", nsys=program)
    command = [
        "sh",
        "-c",
        f'exec "$@" {closed}',
        "sh",
        sys.executable,
        "-c",
        RUN,
        settings.as_json(),
    ]
    done = subprocess.run(command, capture_output=True, env=environment(), text=True, timeout=40)
    assert (
        done.returncode == 0
        and (here / "ran").exists()
        and (here / "out" / "trace.nsys-rep").exists()
    )
    assert done.stdout.startswith("1\n") == (">&-" not in closed.split())


def test_what_an_earlier_run_left_is_replaced_and_nothing_else(run: Run, here: Path):
    out = here / "out"
    out.mkdir()
    for name in ("rank3.nsys-rep", "rank3.sqlite", "trace.json", "rank.py", "mine.nsys-rep"):
        (out / name).write_text("x")
    (out / "timeline.rank1.jsonl").write_text(
        '{"fastfeed_timeline": 1, "feed": "f3a9", "pid": 411}\n'
    )
    (out / "report.html").write_text(page.page(analysis.analyze([])))
    run("pass")
    assert sorted(path.name for path in out.iterdir()) == [
        "mine.nsys-rep",
        "rank.py",
        "trace.json",
        "trace.nsys-rep",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "report.html",
        "timeline.jsonl",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("timeline.rank1.jsonl", "trace.sqlite")
        ),
    ],
)
def test_files_of_others_with_our_names_are_kept_unless_forced(run: Run, here: Path, name: str):
    (here / "out").mkdir()
    foreign = here / "out" / name
    foreign.write_text('{"loss": 0.3}\n')
    with pytest.raises(
        ConfigError, match=f"has {name}, which fastfeed profile would replace .* add --force"
    ):
        run("open('ran', 'w')")
    assert foreign.read_text() == '{"loss": 0.3}\n' and not (here / "ran").exists()
    run("pass", force=True)
    assert not foreign.exists()


def test_the_first_rank_keeps_the_page_of_others(here: Path):
    page_ = here / "out" / "report.html"
    page_.parent.mkdir()
    page_.write_text("mine")
    settings = RecordingSettings(("true",), here / "out", nsys=fake_nsys.install(here / "nsys"))
    record(settings, os.environ | {"RANK": "1"})  # writes none
    with pytest.raises(ConfigError, match=r"has report.html"):
        record(settings, os.environ | {"RANK": "0"})


def test_refuses_before_anything_runs(here: Path):
    command = (sys.executable, "-c", "open('ran', 'w')")
    with pytest.raises(
        ConfigError, match=r"--nsys must name the program nsys of Nsight Systems, got .*absent"
    ):
        record(RecordingSettings(command, here / "out", nsys=here / "absent"))
    (here / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"cannot write a recording into .*file/out: .*; name another folder"
    ):
        record(
            RecordingSettings(command, here / "file" / "out", nsys=fake_nsys.install(here / "nsys"))
        )
    assert not (here / "ran").exists()


def test_takes_the_timeline_alone_under_another_profiler(here: Path):
    code = "import os; open(os.environ['FASTFEED_TIMELINE'], 'w').write('{}')"
    environ = {**os.environ, "NVTX_INJECTION64_PATH": "/x.so"}
    done = record(RecordingSettings((sys.executable, "-c", code), here / "out"), environ)
    held = "this process runs under a profiler already (NVTX_INJECTION64_PATH=/x.so)"
    said = f"{held}: recording only feed timelines"
    assert done == Recording(0, "", (), (here / "out" / "timeline.jsonl",), (said,))
