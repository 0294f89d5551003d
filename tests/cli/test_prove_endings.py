"""How a proof ends: with its trainer, its processes and its files gone, whatever went wrong."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from helpers.needs import needs
from helpers.prove_command import FASTFEED, LONG, clean, refused, run, trainer

from fastfeed.system.processes import process_exists, process_state

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="Windows cannot send the signals that end a run"),
]


@pytest.fixture
def prove(tmp_path):
    """Runs the command on a trainer with this body."""
    return lambda body, *options, code=0, **more: run(
        tmp_path, [sys.executable, str(trainer(tmp_path, body))], *options, code=code, **more
    )


def wait_until(holds):
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(holds)


def is_gone(pid):
    return not process_exists(pid) or process_state(pid)[0] in ("Z", "X")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.nightly),
        (signal.SIGINT, 130),
    ],
)
def test_a_proof_that_is_ended_ends_its_trainer_and_leaves_no_files(tmp_path, number, code):
    """The trainer is started by a shell, which passes no signal on."""
    path = trainer(
        tmp_path, "import os\nopen('pid', 'w').write(str(os.getpid()))\n" + "time.sleep(600)"
    )
    (tmp_path / "temporary").mkdir()
    command = [*FASTFEED, "--", "/bin/sh", "-c", f"'{sys.executable}' '{path}'; true"]
    env = clean(TMPDIR=str(tmp_path / "temporary"))
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # nohup and the like let it be ignored
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and pid.read_text())
    assert list((tmp_path / "temporary").iterdir())
    if number == signal.SIGINT:  # as a terminal does
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    assert process.wait(60) == code
    assert is_gone(int(pid.read_text()))
    assert not list((tmp_path / "temporary").iterdir())


def test_a_trainer_that_is_killed(prove):
    body = "import os, signal\nfor batch in feed(): os.kill(os.getpid(), signal.SIGKILL)"
    done = prove(body, code=2)
    words = (
        "the command was killed by SIGKILL, as the system does when memory runs out before its"
        " proof was complete"
    )
    assert words in done.stderr and "message is above" not in done.stderr


def test_what_a_trainer_prints_is_passed_on_as_it_is(prove):
    body = """
        sys.stdout.buffer.write(b"\\xff\\xfe not UTF-8\\n" + b"x" * 3_000_000 + b"\\n")
        sys.stdout.flush()
        train = feed()
        for epoch in range(1000):
            for batch in train:
                time.sleep(0.001)
    """
    done = prove(body, "--json")
    assert json.loads(done.stdout)["rounds"] >= 4
    assert "not UTF-8" in done.stderr and "x" * 3_000_000 in done.stderr


def test_a_second_program_after_the_proof_is_not_measured(tmp_path):
    """A script that trains, and then evaluates: what was proved stays."""
    path = trainer(tmp_path, LONG)
    (tmp_path / "twice.py").write_text(
        "import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable,"
        f" {str(path)!r}])\n"
    )
    done = run(tmp_path, [sys.executable, "twice.py"], "--json")
    assert json.loads(done.stdout)["rounds"] >= 4
    assert (
        "ends here, as the proof is complete" in done.stderr
        and "ended by itself" not in done.stderr
    )


def test_two_processes_of_the_same_rank(tmp_path):
    path = trainer(tmp_path, LONG.replace("0.001", "0.05"))
    (tmp_path / "both.py").write_text(
        f"import subprocess, sys\nboth = [subprocess.Popen([sys.executable, {str(path)!r}]) for _"
        " in range(2)]\ncodes = [process.wait() for process in"
        " reversed(both)]\nsys.exit(max(codes))\n"
    )
    done = run(tmp_path, [sys.executable, "both.py"], "--seconds", "30", code=2)
    last = done.stderr.strip().splitlines()[-1]
    assert "both train as rank 0; start them with torchrun" in last


def test_a_feed_that_is_not_measured_is_iterated_as_ever(prove):
    body = """
        train, other = feed("train"), feed("other")
        unlabeled = other.batches(epoch=3, start=2, epochs=None)
        first = next(unlabeled)
        assert (first.epoch, first.step) == (3, 2), first
        for batch in train:
            assert next(unlabeled).epoch >= 3
    """
    assert json.loads(prove(body, "--feed", "train", "--json").stdout)["rounds"] >= 4


def test_feeds_without_a_name_are_no_names(prove):
    done = prove("list(feed())", "--feed", "train", code=2)
    assert (
        "no feed is named 'train'; the command iterated Arrays (without a name): --feed takes a"
        " name" in done.stderr
    )


def test_a_batch_of_another_feed_to_see_its_shape(prove):
    body = """
        next(iter(feed()))
        train = feed()
        for epoch in range(100):
            for batch in train:
                pass
        print("to the end")
    """
    last = prove(body, code=2).stderr.strip().splitlines()[-1]
    assert (
        "gave 1 batch, and then another one gave 200; say which of them to measure with --feed NAME"
        in last
    )


def test_a_variable_that_is_empty_is_not_set(prove):
    body = (
        "import os\nos.environ['FASTFEED_PROVE'] = ''\nassert len(list(feed())) == 16 and"
        " feed().state()"
    )
    assert "ended without taking a batch" in prove(body, code=2).stderr


@pytest.mark.parametrize("value", ["nan", "0.1", "soon"])
def test_seconds_must_be_seconds(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "--seconds" in refused("--seconds", value)


@pytest.mark.parametrize("ranks", ["0", "-1", "1,,2", "", "2000", "9" * 5000, "1.5"])
def test_numbers_of_ranks(ranks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "--ranks must be numbers of processes such as 1,2,4,8" in refused(f"--ranks={ranks}")


def test_a_table_keeps_what_was_measured_before_an_error(prove):
    body = "import os\nif os.environ['WORLD_SIZE'] == '2': sys.exit(7)\n" + textwrap.dedent(LONG)
    done = prove(body, "--ranks", "1,2,1", "--json", code=2)
    assert [row["ranks"] for row in json.loads(done.stdout)["ranks"]] == [1]
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith("fastfeed: with 2 ranks: the command ended with exit code 7")
    )


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
def test_a_folder_that_cannot_be_written(prove, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    done = prove("raise SystemExit('it ran')", "--html", "closed/a.html", code=2)
    assert (
        "cannot write closed/a.html: Permission denied" in done.stderr
        and "it ran" not in done.stderr
    )


def test_a_rank_that_fails_is_said_to_have_failed(prove):
    body = "import os\nif os.environ['RANK'] == '1': os._exit(3)\n" + textwrap.dedent(LONG)
    last = prove(body, "--ranks", "2", code=2).stderr.strip().splitlines()[-1]
    assert last.startswith(
        "fastfeed: with 2 ranks: the command ended with exit code 3 before it took a batch"
    )


def test_steps_that_were_not_counted_are_not_said(prove):
    body = "import os\nfor number, batch in enumerate(feed()):\n    if number == 50: os._exit(5)"
    last = prove(body, code=2).stderr.strip().splitlines()[-1]
    assert last.startswith(
        "fastfeed: the command ended with exit code 5 before its proof was complete"
    )


def test_a_name_that_no_terminal_can_show(prove, tmp_path):
    body = LONG.replace("feed()", "feed('\\x1b[31m\\udcff')")
    done = prove(body, "--html", "a.html")
    assert "\\x1b[31m\\xff, batch 4" in done.stdout and "\x1b" not in done.stdout
    assert "\\x1b[31m" in (tmp_path / "a.html").read_text("utf-8")


def test_no_folder_for_temporary_files(tmp_path, monkeypatch):
    """All that tempfile tries: the variables, /tmp and the like, the current folder."""
    program = (
        "import sys, tempfile; tempfile._candidate_tempdir_list = lambda: ['/nowhere']; sys.argv[0]"
        " = 'fastfeed'; from fastfeed.cli import main; main()"
    )
    command = [
        sys.executable,
        "-c",
        program,
        "prove",
        "--",
        sys.executable,
        "-c",
        "print('it ran')",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=clean()
    )
    assert done.returncode == 2 and "set TMPDIR to a folder with room" in done.stderr
    assert "Traceback" not in done.stderr and "it ran" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_the_page_is_written_where_standard_output_is_full(tmp_path):
    path = trainer(tmp_path, LONG)
    command = [*FASTFEED, "--seconds", "1", "--html", "a.html", "--", sys.executable, str(path)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
            env=clean(),
        )
    assert done.returncode == 2 and "cannot write to standard output: No space left" in done.stderr
    assert "Is it the input" in (tmp_path / "a.html").read_text()


@needs("torch")
def test_torch_does_not_save_what_a_loop_over_the_feed_has_trained(prove, tmp_path):
    body = """
        import torch
        for batch in feed():
            torch.save(torch.zeros(1), "weights.pt")
    """
    done = prove(body, code=2)
    assert "torch.save is refused during a proof" in done.stderr
    assert not (tmp_path / "weights.pt").exists()
