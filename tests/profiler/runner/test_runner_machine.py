"""What the runner knows of the machine: how to install nsys here, other profilers at work, GPUs of nvprof."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastfeed.profiler.runner import surroundings, unrunnable


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
    assert says in surroundings.system(path)


def test_sees_another_profiler():
    assert surroundings.active_profiler({"PATH": "/bin"}) is None
    assert surroundings.active_profiler({"CUDA_INJECTION64_PATH": ""}) is None
    assert surroundings.active_profiler({"CUDA_INJECTION64_PATH": "/x.so"}) == "CUDA_INJECTION64_PATH=/x.so"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("echo 'Tesla V100, 7.0'; echo 'NVIDIA H200, 9.0'", {"Tesla V100": 7.0, "NVIDIA H200": 9.0}),
        ("echo 'Field \"compute_cap\" is not a valid field to query.'", {}),
        ("echo 'No devices were found'; exit 6", {}),
    ],
)
def test_asks_the_driver_for_its_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: dict):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert surroundings.capabilities() == found
    program.unlink()
    assert surroundings.capabilities() == {}


def test_finds_nvprof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(surroundings, "_NVPROF", ())
    assert surroundings.nvprof({"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path / "cuda")}) is None
    (tmp_path / "cuda" / "bin").mkdir(parents=True)
    for place in (tmp_path / "cuda" / "bin" / "nvprof", tmp_path / "nvprof"):
        place.touch()
        place.chmod(0o755)
        assert surroundings.nvprof({"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path / "cuda")}) == place


def test_says_what_a_shell_would_say_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").touch()
    assert unrunnable(["true"]) is None
    assert unrunnable(["./run.sh"]) == (126, "cannot run ./run.sh: it is not executable; try: chmod +x ./run.sh")
    assert (unrunnable(["./absent"]) or (0,))[0] == 127
    assert unrunnable([str(tmp_path)]) == (126, f"cannot run {tmp_path}: it is a folder; name a program after --")
