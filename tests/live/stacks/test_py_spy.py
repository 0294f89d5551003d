"""A process that is sampled by py-spy, and each reason why one cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from helpers.commands import fastfeed

from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.live.nvml import Gpus
from fastfeed.live.stacks import watch
from fastfeed.live.stacks.watch import explain, find_py_spy, record, watch_stacks

GONE = 999_999_999
DENIED = "Error: Permission denied (os error 13)\n\nStack backtrace:\n   0: anyhow\n"
TRAINER = """\
import ctypes, queue, threading, time
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER: any process may sample it
ready = queue.Queue(2)
def produce():
    while True:
        time.sleep(0.02)
        ready.put(0)
threading.Thread(target=produce, daemon=True).start()
def batches():
    while True:
        yield ready.get()
def train():
    for batch in batches():
        print(flush=True)
train()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only root may sample")
def test_a_trainer_without_a_feed(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFEED_LIVE", str(tmp_path))
    (tmp_path / "train.py").write_text(TRAINER)
    with subprocess.Popen(
        [sys.executable, tmp_path / "train.py"], stdout=subprocess.PIPE
    ) as trainer:
        try:
            assert trainer.stdout is not None
            trainer.stdout.readline()
            code, output = fastfeed("watch", str(trainer.pid), "--seconds", "1", "--json")
        finally:
            trainer.kill()
    if "needs py-spy" in output or "cannot be sampled" in output:
        pytest.skip(output)
    assert code == 0, output
    data = json.loads(output)
    first = data["functions"][0]
    assert (first["kind"], first["function"]["name"], first["below"]["name"]) == (
        "input",
        "Queue.get",
        "train",
    )
    assert first["below"]["text"] == "for batch in batches():"
    assert data["fastfeed_watch_sampled"] == 1
    assert data["samples"] >= first["samples"] > 0
    assert data["hung"] is False


SCRIPT = """\
#!{python}
import sys
words = sys.argv[1:]
output, pid = words[words.index("--output") + 1], words[words.index("--pid") + 1]
sys.stderr.write({message!r})
if {stacks!r}:
    open(output, "w").write({stacks!r}.format(pid=pid))
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A py-spy that writes these stacks and this message."""

    def write(stacks: str, message: str) -> str:
        program = tmp_path / "py-spy"
        program.write_text(SCRIPT.format(python=sys.executable, stacks=stacks, message=message))
        program.chmod(0o755)
        monkeypatch.setattr("fastfeed.live.stacks.watch.find_py_spy", lambda: str(program))
        return str(program)

    return write


@pytest.mark.skipif(os.name == "nt", reason="a script is no program there")
def test_the_report(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFEED_LIVE", str(tmp_path))
    stand_in(
        "thread ({pid}): MainThread;train (/code/train.py:3);save (/code/\x1b.py:2) 9\n",
        "Samples: 9 Errors: 2\n",
    )
    code, output = fastfeed("watch", str(os.getpid()))
    assert code == 0, output
    assert "9 samples of the main thread in 5 s" in output
    assert "2 samples failed" in output
    assert "\x1b" not in output
    stand_in("thread (1): loader;train (/code/train.py:3) 9\n", "")
    with pytest.raises(ConfigError, match="has no main thread that runs Python"):
        watch_stacks(os.getpid(), 1, Gpus(nvml="no_such_module"))


@pytest.mark.skipif(os.name == "nt", reason="a script is no program there")
def test_no_sample(stand_in):
    program = stand_in("", "Error: Unsupported version of Python: 3.99\n\nStack backtrace:\n")
    with pytest.raises(
        ConfigError,
        match=r"py-spy took no sample of process \d+: Error: Unsupported version of Python",
    ):
        record(os.getpid(), 1, 100, lambda: None, program)


@pytest.mark.skipif(os.name == "nt", reason="a script is no program there")
def test_a_program_that_is_no_py_spy(stand_in, tmp_path):
    program = stand_in("train (/code/train.py:3) 9\n", "")
    with pytest.raises(
        ConfigError,
        match=r"py-spy wrote no stacks of threads but 'train \(/code/train.py:3\) 9'; install",
    ):
        record(os.getpid(), 1, 100, lambda: None, program)
    (tmp_path / "py-spy").write_text("#!/no/python\n")
    with pytest.raises(
        ConfigError, match="py-spy cannot be run: No such file or directory; install py-spy again"
    ):
        record(os.getpid(), 1, 100, lambda: None, program)


def test_an_older_py_spy_that_lacks_an_option():
    message = (
        "error: unexpected argument '--nonblocking' found\n\nFor more information, try '--help'.\n"
    )
    assert explain(message, os.getpid()).endswith(
        "error: unexpected argument '--nonblocking' found"
    )


def test_without_py_spy(monkeypatch):
    monkeypatch.setattr(watch.shutil, "which", lambda *_, **__: None)
    with pytest.raises(MissingExtra, match=r"needs py-spy: pip install 'fastfeed\[watch\]'"):
        find_py_spy()


def test_a_process_that_is_gone():
    with pytest.raises(ConfigError, match=f"there is no process {GONE}"):
        watch_stacks(GONE, 1, Gpus(nvml="no_such_module"))
    assert explain("Error: No such process (os error 3)", os.getpid()).endswith(
        "ended before it could be sampled"
    )
    assert explain(DENIED.replace("Permission denied (os error 13)", "?"), GONE).endswith(
        "could be sampled"
    )


def test_a_process_that_is_not_python():
    text = explain("Error: Failed to find python version from target process\n", os.getpid())
    assert f"process {os.getpid()} is not a Python process" in text


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="users have no numbers there")
def test_a_process_that_may_not_be_sampled(tmp_path, monkeypatch):
    scope = tmp_path / "proc/sys/kernel/yama/ptrace_scope"
    scope.parent.mkdir(parents=True)
    scope.write_text("1\n")
    (tmp_path / "proc/7").mkdir()
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert f"it belongs to another user (number {owner})" in explain(DENIED, 7, tmp_path)
    (tmp_path / "proc/7").rmdir()
    assert "kernel.yama.ptrace_scope = 1" in explain(DENIED, 7, tmp_path)
    (tmp_path / ".dockerenv").touch()
    assert "--cap-add=SYS_PTRACE" in explain(
        "Error: Operation not permitted (os error 1)", 7, tmp_path
    )
