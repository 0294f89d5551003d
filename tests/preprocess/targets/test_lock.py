"""Temporary files are swept when their process has ended, and only then."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fastfeed.preprocess.targets import lock
from fastfeed.preprocess.targets.lock import has_ended, temporary_name
from fastfeed.preprocess.targets.target import open_target

NAME = (
    "import sys; from fastfeed.preprocess.targets.lock import temporary_name;"
    " print(temporary_name(), flush=True);"
)


@pytest.fixture
def child():
    """A process that has said its name, and lives until its stdin is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", NAME + "sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def test_a_living_process_keeps_its_files_and_a_dead_one_does_not(child, tmp_path):
    name = child.stdout.readline().strip()
    target = open_target(tmp_path)
    folder = tmp_path / "__tmp" / name / "deep"
    folder.mkdir(parents=True)
    (folder / "0").write_bytes(b"1")
    target.attempt().create("mine").write(b"2")
    assert not has_ended(name) and target.sweep() == 0 and folder.exists()
    child.kill()
    # it is a zombie now: its parent has not asked yet
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(name)
    child.wait()
    assert has_ended(name)
    assert target.sweep() == 1
    assert len(os.listdir(tmp_path / "__tmp")) == 1  # this process's own
    assert target.sweep(everything=True) == 1 and os.listdir(tmp_path) == []


def test_a_process_of_the_same_number_is_another(child):
    host, pid, machine, random = child.stdout.readline().strip().rsplit("-", 3)
    boot, space, start = machine.split(".")
    assert not has_ended(f"{host}-{pid}-{boot}.{space}.{start}-{random}")
    assert has_ended(f"{host}-{pid}-{boot}.{space}.{int(start) - 1}-{random}")


def test_a_process_of_another_boot_may_be_of_a_clone_of_this_machine():
    host, pid, machine, random = temporary_name().rsplit("-", 3)
    boot, space, start = machine.split(".")
    other = "0" * 8 if boot != "0" * 8 else "1" * 8
    assert not has_ended(f"{host}-{pid}-{other}.{space}.{start}-{random}")


def test_what_cannot_be_known_from_here_stays():
    host, _, machine, random = temporary_name().rsplit("-", 3)
    boot, space, start = machine.split(".")
    gone = 2**22 + 7  # above the largest number that processes get
    assert has_ended(f"{host}-{gone}-{boot}.{space}.{start}-{random}")
    assert not has_ended(f"other{host}-{gone}-{boot}.{space}.{start}-{random}")  # another machine's
    # another container's
    assert not has_ended(f"{host}-{gone}-{boot}.{int(space) + 1}.{start}-{random}")
    assert not has_ended("notes.txt")


def test_without_proc_no_process_is_known_to_have_ended(monkeypatch):
    """Two containers of one host name share a folder: a number that is free in one of them may live
    in the other.
    """
    monkeypatch.setattr(lock, "process_state", lambda pid: ("?", ""))
    monkeypatch.setattr(lock, "machine", lambda: ("", ""))
    mine = temporary_name()
    assert not has_ended(mine)
    host, _, machine, random = mine.rsplit("-", 3)
    assert not has_ended(f"{host}-{2**22 + 7}-{machine}-{random}")


def test_names_are_new_each_time_whatever_the_host_is_called(monkeypatch):
    monkeypatch.setattr(lock, "_host", lambda: "rack-7-node-3.example")
    names = {temporary_name() for _ in range(50)}
    assert (
        len(names) == 50
        and not any(map(has_ended, names))
        and not any("/" in name for name in names)
    )
