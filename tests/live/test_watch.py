"""Looks at feeds: rows, windows, processors, GPUs, the screen, JSON."""

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import urllib.request
from contextlib import contextmanager
from itertools import pairwise
from unittest import mock

import pytest
from helpers.commands import command_line
from helpers.fake_nvml import FakeNvml
from helpers.live_pages import Trainer
from rich.console import Console

from fastfeed.live.cpu import cpu_use, read_cpu
from fastfeed.live.document import document
from fastfeed.live.nvml import Gpus
from fastfeed.live.page import WAITING
from fastfeed.live.screen import screen, sparkline
from fastfeed.live.states import State
from fastfeed.live.watch import Monitor


@pytest.fixture
def trainer(tmp_path):
    return Trainer(tmp_path)


def looks(tmp_path, trainer, gpus=None, pid=None):
    return Monitor([str(tmp_path)], pid, gpus, clock=lambda: trainer.now)


def text(view, width, **options):
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(screen(view, width, ascii_only=options.get("legacy_windows", False)))
    return console.file.getvalue()


def test_states_follow_within_twenty_seconds(tmp_path, trainer):
    watch = looks(tmp_path, trainer)
    states = []
    for wait in [0.0] * 20 + [0.4] * 20 + [0.0] * 20:
        trainer.train(1, wait)
        states.append(watch.look().rows[0].judgment.state)
    assert states[19] is State.FED
    assert states[39] is State.SEVERE
    assert states[59] is State.FED
    changes = sum(a is not b for a, b in pairwise(states))
    assert changes <= 8  # over TIGHT and STARVED, never back and forth


def test_a_trainer_that_was_killed_waits_no_longer(tmp_path, trainer, monkeypatch):
    """The page still says that it waits, and the clock runs on."""
    watch = looks(tmp_path, trainer)
    for _ in range(15):
        trainer.train(1, 0.2)
        watch.look()
    trainer.enter(WAITING)
    monkeypatch.setattr("fastfeed.live.watch.is_alive", lambda identity: False)
    trainer.now += 5_000_000_000
    (row,) = watch.look().rows
    assert row.short.wait == pytest.approx(0.2)
    assert "its last sign was 5 s ago" in row.judgment.reason
    for _ in range(7):
        trainer.now += 1_000_000_000
        view = watch.look()
    assert view.rows[0].short.wait is None
    assert view.rows[0].waits[-1] is None
    assert document(view)["feeds"][0]["waiting"] is None
    assert "100.0%" not in text(view, 80)


def test_a_figure_says_of_how_many_seconds_it_is(tmp_path, trainer):
    """Until it has been watched for ten, and for a minute."""
    watch = looks(tmp_path, trainer)
    watch.look()
    trainer.train(2, 0.31)
    view = watch.look()
    exact = document(view)["feeds"][0]["exact"]
    assert (exact["wait"], exact["window_seconds"]) == (0.31, 2.0)
    assert (exact["wait_10s"], exact["wait_60s"]) == (None, None)
    assert "waits 31.0% in 2 s" in text(view, 80)
    assert "31.0% in 2 s" in text(view, 160)
    assert "60 s" not in text(view, 80)
    for _ in range(29):
        trainer.train(2, 0.31)
        view = watch.look()
    exact = document(view)["feeds"][0]["exact"]
    assert (exact["wait_10s"], exact["wait_60s"], exact["window_seconds"]) == (0.31, 0.31, 10.0)
    assert "waits 31.0% in 10 s, 31.0% in 60 s" in text(view, 80)
    assert " in " not in text(view, 160).splitlines()[2]
    rare = looks(tmp_path, trainer)
    rare.look()
    trainer.train(30, 0.31)
    view = rare.look()
    assert document(view)["feeds"][0]["exact"]["wait_10s"] is None
    assert "waits 31.0% in 30 s" in text(view, 80)


@pytest.mark.parametrize("step_s", [-3600, -3, 86_400])
def test_a_clock_that_steps_changes_times_of_day_alone(tmp_path, trainer, step_s):
    day = 1_800_000_000.0
    steady = looks(tmp_path, trainer)
    stepping = Monitor([str(tmp_path)], clock=lambda: trainer.now, wall=lambda: day)
    for second in range(30):
        day += 1 + step_s * (second == 15)
        trainer.train(1, 0.1)
        view, expected = stepping.look(), steady.look()
        assert view.wall_s == day
        assert view.rows[0].short == expected.rows[0].short
        assert view.rows[0].waits == expected.rows[0].waits
        assert view.rows[0].judgment.state is expected.rows[0].judgment.state
    assert view.rows[0].judgment.state is State.STARVED


def test_the_windows_and_the_remedy(tmp_path, trainer):
    watch = looks(tmp_path, trainer)
    for second in range(70):
        trainer.train(1, 0.0 if second < 40 else 0.2)
        view = watch.look()
    (row,) = view.rows
    assert row.short.wait == pytest.approx(0.2)
    assert row.long.wait == pytest.approx(0.1, abs=0.01)
    assert row.short.need == pytest.approx(100)
    assert row.short.delivered == pytest.approx(80)
    assert row.remedy is not None  # which one depends on what else this machine does
    assert len(row.waits) == 34  # of two seconds each, since the first look


def test_the_slowest_rank_comes_first_and_has_its_gpu(tmp_path):
    one, two = Trainer(tmp_path, 0), Trainer(tmp_path, 1)
    nvml = FakeNvml(devices=2, gpm={2: 71.0, 40: 93.0, 21: 1000.0})
    watch = looks(tmp_path, two, Gpus(nvml))
    for _ in range(5):
        one.now = two.now
        two.train(2, 0.5)
        one.train(2, 0.0)
        view = watch.look()
    assert [row.page_file.page.identity["rank"] for row in view.rows] == [1, 0]
    assert [row.gpu.index for row in view.rows] == [1, 0]
    shown = text(view, 160)
    assert re.search(r"train rank 1 pid \d+ 0:100/125 .* 71% +- +93% +1.0 GB/s", shown)
    assert "SEVERE: waits 50% of the time for batches" in shown
    assert "exact (the feed's own)" in shown


def test_the_gpu_on_which_the_process_computes(tmp_path, trainer):
    nvml = FakeNvml(devices=4, pids={3: [os.getpid()]})
    trainer.train(1)
    assert looks(tmp_path, trainer, Gpus(nvml)).look().rows[0].gpu.index == 3


@pytest.mark.parametrize("width", [20, 40, 80, 109, 110, 144, 145, 200])
def test_no_line_is_wider_than_the_screen(tmp_path, trainer, width):
    watch = looks(tmp_path, trainer, Gpus(FakeNvml(gpm={2: 10.0})))
    for _ in range(15):
        trainer.train(1, 0.3)
        view = watch.look()
    lines = text(view, width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert "SEVERE" in text(view, width)


def test_terminals_without_unicode(tmp_path, trainer):
    trainer.train(1, 0.3)
    console = Console(file=io.StringIO(), width=60)
    console.print(screen(looks(tmp_path, trainer).look(), 60, ascii_only=True))
    assert console.file.getvalue().isascii()
    assert sparkline([None, 0.0, 0.5, 1.0], 4) == " ▁▅█"
    assert sparkline([0.0] * 100, 7) == "▁" * 7
    assert sparkline([0.0] * 60 + [1.0] * 60, 10) == "▁" * 5 + "█" * 5  # all minutes fit


def test_a_name_cannot_steer_the_terminal(tmp_path):
    trainer = Trainer(tmp_path, name="\x1b[2Jbad")
    trainer.train(1)
    assert "\x1b" not in text(looks(tmp_path, trainer).look(), 120)


def test_json_is_labeled_by_evidence(tmp_path, trainer):
    watch = looks(tmp_path, trainer, Gpus(FakeNvml(gpm={2: 10.0})))
    for _ in range(3):
        trainer.train(5, 0.25)
        view = watch.look()
    (feed,) = (data := json.loads(json.dumps(document(view))))["feeds"]
    assert data["fastfeed_watch"] == 1
    assert feed["state"] == "SEVERE"
    assert feed["exact"]["wait_10s"] == 0.25
    assert feed["exact"]["need_images_per_second"] == pytest.approx(106.67, abs=0.01)
    assert feed["estimate"]["gpu"]["sm"] == 0.1
    assert feed["framework"] == {"step_ms": None}
    assert {"host", "pid", "rank", "world", "reason", "remedy", "alive"} <= feed.keys()


def test_no_feeds(tmp_path):
    assert "No feed is running" in text(Monitor([str(tmp_path / "nowhere")]).look(), 80)


def proc(root, pid, seconds, state="S", idle=0, throttled=None):
    ticks = os.sysconf("SC_CLK_TCK")
    (root / f"proc/{pid}").mkdir(parents=True, exist_ok=True)
    fields = [state, *["0"] * 10, f"{int(seconds * ticks)}", "0", *["0"] * 30]
    (root / f"proc/{pid}/stat").write_text(f"{pid} (a ) name) {' '.join(fields)}")
    (root / "proc/stat").write_text(
        f"cpu {int(seconds * 2 * ticks)} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1\ncpu1 1\nctxt 1\n"
    )
    if throttled is not None:
        (root / f"proc/{pid}/cgroup").write_text("0::/job\n")
        (root / "sys/fs/cgroup/job").mkdir(parents=True, exist_ok=True)
        (root / "sys/fs/cgroup/job/cpu.max").write_text("150000 100000\n")
        (root / "sys/fs/cgroup/job/cpu.stat").write_text(
            f"nr_periods 100\nnr_throttled {throttled}\nusage_usec 5\n"
        )


def test_processors_of_a_process(tmp_path):
    proc(tmp_path, 7, 10.0)
    before = read_cpu([7], 0, tmp_path)
    proc(tmp_path, 7, 11.5)
    use = cpu_use(before, read_cpu([7], int(1e9), tmp_path))
    assert (use.cores, use.others, use.usable, use.machine, use.throttled) == (1.5, 1.5, 2, 2, None)


def test_a_quota_that_throttles(tmp_path):
    proc(tmp_path, 7, 10.0, throttled=0)
    before = read_cpu([7], 0, tmp_path)
    (tmp_path / "sys/fs/cgroup/job/cpu.stat").write_text("nr_periods 200\nnr_throttled 37\n")
    use = cpu_use(before, read_cpu([7], int(1e9), tmp_path))
    assert (use.quota, use.usable, use.throttled) == (1.5, 1.5, 0.37)


def test_a_stopped_process_and_one_that_is_gone(tmp_path):
    proc(tmp_path, 7, 1.0, state="T")
    assert read_cpu([7], 0, tmp_path).stopped
    gone = read_cpu([8], 0, tmp_path)
    assert (gone.process_s, gone.stopped, gone.quota) == (None, False, None)
    assert cpu_use(gone, gone).cores is None


def watch_command(folder, *arguments, **environment):
    with mock.patch.dict(os.environ, {"FASTFEED_LIVE": str(folder)} | environment):
        return command_line("watch", *arguments)


def test_the_command(tmp_path, trainer):
    trainer.train(1)
    once = watch_command(tmp_path, "--once", COLUMNS="40")
    assert once.returncode == 0, once.stderr
    assert "train" in once.stdout
    assert max(len(line) for line in once.stdout.splitlines()) <= 40
    data = json.loads(watch_command(tmp_path, os.getpid(), "--once", "--json").stdout)
    assert data["feeds"][0]["pid"] == os.getpid()


@contextmanager
def going_on(folder, *arguments, **streams):
    """The command, until the test is done with it."""
    environment = os.environ | {
        "FASTFEED_LIVE": str(folder),
        "PYTHONUNBUFFERED": "1",
        "TERM": "xterm",
    }
    for name in ("COLUMNS", "LINES"):  # the terminal's own size
        environment.pop(name, None)
    command = [
        sys.executable,
        "-c",
        "from fastfeed.cli import main; main()",
        "watch",
        "--every",
        "0.2",
        *arguments,
    ]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a shell's background job ignores it
        **streams,
    ) as watch:
        try:
            yield watch
        finally:
            watch.kill()


@pytest.fixture
def taken():
    """A port in use."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def in_use(option, port):
    return (
        f"{option} cannot listen on 127.0.0.1:{port}: Address already in use; choose another port"
    )


@pytest.mark.parametrize("option", ["--web", pytest.param("--prometheus", marks=pytest.mark.slow)])
def test_a_port_in_use_stops_nothing_else(tmp_path, trainer, taken, option):
    trainer.train(1)
    with going_on(tmp_path, "--json", option, f":{taken}") as watch:
        assert watch.stderr.readline() == f"{in_use(option, taken)}\n"
        assert [len(json.loads(watch.stdout.readline())["feeds"]) for _ in range(2)] == [1, 1]


def test_one_port_of_two_in_use(tmp_path, trainer, taken):
    trainer.train(1)
    with going_on(tmp_path, "--prometheus", f":{taken}", "--web", ":0") as watch:
        assert watch.stderr.readline() == f"{in_use('--prometheus', taken)}\n"
        url = watch.stderr.readline().strip()
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert b"fastfeed watch" in answer.read()


def test_the_screen_says_that_a_port_is_in_use_and_what_is_served(tmp_path, trainer, taken):
    """It hides what was printed before."""
    trainer.train(1)
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 50, 200, 0, 0))
        with going_on(tmp_path, "--web", f":{taken}", "--prometheus", "0.0.0.0:0", stdout=slave):
            shown, wanted = (
                "",
                ("choose another port", "anyone who can reach", f"pid {os.getpid()}"),
            )
            while not all(text in shown for text in wanted):
                assert select.select([master], [], [], 60)[0], shown
                shown += os.read(master, 4096).decode(errors="replace")
                assert len(shown) < 1 << 20, shown[-5000:]
    finally:
        os.close(master)
        os.close(slave)


def test_serving_alone_needs_its_port(tmp_path, taken):
    result = watch_command(tmp_path, "--web", f":{taken}")
    assert (result.returncode, result.stderr) == (2, f"fastfeed: {in_use('--web', taken)}\n")
    both = watch_command(tmp_path, "--web", f":{taken}", "--prometheus", f":{taken}")
    assert both.returncode == 2
    assert both.stderr.count("choose another port") == 2


def test_metrics_and_the_page_may_share_a_port(tmp_path, trainer):
    trainer.train(1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with going_on(tmp_path, "--web", f":{port}", "--prometheus", f":{port}") as watch:
        assert [watch.stderr.readline() for _ in range(2)] == [
            f"http://127.0.0.1:{port}/metrics\n",
            f"http://127.0.0.1:{port}/\n",
        ]


@pytest.mark.parametrize("term", [pytest.param("dumb", marks=pytest.mark.slow), None])
def test_without_a_terminal_screens_follow_each_other(tmp_path, trainer, term):
    trainer.train(1)
    environment = os.environ | {
        "FASTFEED_LIVE": str(tmp_path),
        "PYTHONUNBUFFERED": "1",
        "TERM": term or "",
    }
    if term is None:
        del environment["TERM"]
    command = [
        sys.executable,
        "-c",
        "from fastfeed.cli import main; main()",
        "watch",
        "--every",
        "0.2",
    ]
    screens = 0
    lines = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a shell's background job ignores it
    ) as watch:
        try:
            while screens < 3:
                lines.append(watch.stdout.readline())
                assert lines[-1], watch.stderr.read()
                screens += "rank 0" in lines[-1]
            watch.send_signal(signal.SIGINT)
            rest, errors = watch.communicate(timeout=60)
        finally:
            watch.kill()
    assert "\x1b" not in "".join(lines) + rest
    assert errors == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["999999999", "--once"], "there is no process 999999999"),
        (["--seconds", "3"], "--seconds samples one process"),
        (["/nowhere/at/all", "--once"], "PID or FOLDER must be"),
        (["--every", "nan"], "--every"),
    ],
)
def test_what_is_refused(tmp_path, arguments, message):
    result = watch_command(tmp_path, *arguments)
    assert result.returncode == 2
    assert message in result.stderr.splitlines()[-1]
