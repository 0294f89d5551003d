"""What the runner knows of the machine: how to install nsys here, other profilers at work, GPUs of
nvprof.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastfeed.profiler.runner import environment, foreground, recorder
from fastfeed.profiler.runner.foreground import unrunnable


@pytest.mark.parametrize(
    ("release", "says"),
    [
        ("ID=debian\n", "enable non-free, then: apt-get install nsight-systems"),
        ('NAME="Pop!_OS"\nID=pop\nID_LIKE="ubuntu debian"\n', "(multiverse)"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install nsight-systems"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "zypper install nsight-systems"),
        ("ID=nixos\n", "from developer.nvidia.com/nsight-systems"),
        (None, "from developer.nvidia.com/nsight-systems"),
    ],
)
def test_says_how_to_install_nsys(tmp_path: Path, release: str | None, says: str):
    path = tmp_path / "os-release"
    if release is not None:
        path.write_text(release)
    assert says in environment.system(path)


def test_sees_another_profiler():
    assert environment.active_profiler({"PATH": "/bin"}) is None
    assert environment.active_profiler({"CUDA_INJECTION64_PATH": ""}) is None
    assert (
        environment.active_profiler({"CUDA_INJECTION64_PATH": "/x.so"})
        == "CUDA_INJECTION64_PATH=/x.so"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "echo 'Tesla V100, 7.0'; echo 'NVIDIA H200, 9.0'",
            {"Tesla V100": 7.0, "NVIDIA H200": 9.0},
        ),
        ("echo 'Field \"compute_cap\" is not a valid field to query.'", {}),
        ("echo 'No devices were found'; exit 6", {}),
    ],
)
def test_asks_the_driver_for_its_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: dict
):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert environment.capabilities() == found
    program.unlink()
    assert environment.capabilities() == {}


def test_finds_nvprof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "_NVPROF", ())
    assert environment.nvprof({"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path / "cuda")}) is None
    (tmp_path / "cuda" / "bin").mkdir(parents=True)
    for place in (tmp_path / "cuda" / "bin" / "nvprof", tmp_path / "nvprof"):
        place.touch()
        place.chmod(0o755)
        assert (
            environment.nvprof({"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path / "cuda")})
            == place
        )


def test_says_what_a_shell_would_say_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").touch()
    assert unrunnable(["true"]) is None
    assert unrunnable(["./run.sh"]) == (
        126,
        "cannot run ./run.sh: it is not executable; try: chmod +x ./run.sh",
    )
    assert (unrunnable(["./absent"]) or (0,))[0] == 127
    assert unrunnable([str(tmp_path)]) == (
        126,
        f"cannot run {tmp_path}: it is a folder; name a program after --",
    )


def test_processes_with_names_of_any_bytes():
    """A process may call itself anything, also what is no UTF-8 and looks like the end of a
    name.
    """
    code = (
        "import sys; open('/proc/self/comm', 'wb').write(b'a) Z \\xff\\xfe'); print(1, flush=True);"
        " sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdout.readline()
        assert foreground.runs(process.pid) and foreground.processor_time(process.pid) >= 0
        assert foreground.parents(process.pid) == [process.pid]
        assert process.pid in foreground.descendants(os.getpid())
        process.communicate()
    assert not foreground.runs(process.pid) and foreground.processor_time(process.pid) == 0


def test_an_nsys_that_only_writes_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Copying a large recording to a slow file system takes no processor time: its growth is work
    too.
    """
    now, log, output = [1000.0], tmp_path / "nsys.log", tmp_path / "out" / "trace"
    output.parent.mkdir()
    monkeypatch.setattr(recorder, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(recorder, "runs", lambda _: False)
    monkeypatch.setattr(recorder, "_of_nsys", lambda *_: {1})
    monkeypatch.setattr(recorder, "processor_time", lambda _: 7)
    written = partial(recorder._written, tmp_path, log, output)
    monitor = recorder._CommandMonitor(
        foreground.Foreground(), tmp_path / "pid", log, [], lambda: None, written
    )
    monitor._ancestors = [1]
    for size in range(1, 6):
        output.with_suffix(".nsys-rep").write_bytes(bytes(size))
        assert not monitor._hangs_at_its_end(1)
        now[0] += 100
    assert not monitor._hangs_at_its_end(1)
    log.write_text("Processing events...")  # messages are no work
    now[0] += 100
    assert monitor._hangs_at_its_end(1)


def test_folders_that_nsys_removes_meanwhile_are_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    scratch, output = tmp_path / "scratch", tmp_path / "out" / "trace [1]"
    for folder in (scratch / "session", scratch / "kept", output.parent):
        folder.mkdir(parents=True)
        (folder / "data").write_bytes(bytes(100))
    output.with_name("trace [1].nsys-rep").write_bytes(bytes(7))
    scandir = os.scandir

    def removed(path: str | os.PathLike[str] = ".") -> Any:
        if os.path.basename(path) == "session":
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", removed)
    assert recorder._written(scratch, scratch / "nsys.log", output) == 107
