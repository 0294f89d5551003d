"""A kit of small parts, toy steps and a made-up nvidia-smi, for tests of `make gpu-kit`:
fixtures.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOY = """
import argparse, json, os, subprocess, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("name")
for option in ("--out", "--work", "--seconds"):
    parser.add_argument(option)
parser.add_argument("--stand-in", action="store_true")
told = parser.parse_args()
found = {"step": told.name, "state": "running", "stand_in": told.stand_in, "figures": {"first": 1}}
json.dump(found, open(told.out, "w"))
open(os.path.join(told.work, "ran"), "a").write(told.name + "\\n")
if told.name == "hangs":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(os.path.join(told.work, "child"), "w").write(str(child.pid))
    time.sleep(600)
if told.name == "dies":
    print("something awful", flush=True)
    os._exit(9)
if told.name == "crashes":
    os.kill(os.getpid(), 11)
json.dump(found | {"state": "ok", "figures": {"first": 1, "second": float(told.seconds)}}, open(told.out, "w"))
"""
SMI = """#!/bin/sh
echo "NVIDIA H200, {driver}, 143771 MiB, {free} MiB, {capability}"
"""


@pytest.fixture
def kit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.gpu_check.{name}")


@pytest.fixture
def files(tmp_path):
    found = []
    for name, size in (("one.bin", 10), ("large.bin", 2500), ("small.bin", 300), ("last.bin", 900)):
        found.append(tmp_path / name)
        found[-1].write_bytes(os.urandom(size))
    return found


@pytest.fixture
def packed(kit, files, tmp_path):
    """A kit of four files in four parts of 1,000 bytes; (folder, manifest)."""
    folder = tmp_path / "kit"
    manifest = kit("kit.pack").packed(folder, files, 0.001, "{}.{}".format(*sys.version_info[:2]))
    return folder, manifest


@pytest.fixture
def call(kit, monkeypatch, tmp_path, packed, capsys):
    """One call of run.py with toy steps: call(steps, *options) -> (exit code, what it printed,
    results by step).
    """
    run, table = kit("run"), kit("table")
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys" / "toy_step.py").write_text(TOY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "toys"))
    monkeypatch.setattr(kit("process"), "STEP", "toy_step")
    monkeypatch.setattr(run, "KIT", packed[0])
    monkeypatch.setattr(kit("kit.unpack"), "kernel_loads", lambda *_: "")

    def called(steps, *options):
        rows = tuple(
            table.Step(name, "toy", f"what {name} asks", needs, 5, 4)
            for name, needs in steps.items()
        )
        monkeypatch.setattr(run, "STEPS", rows)
        folders = ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "work")]
        code = run.main([*folders, *options])
        found = {
            name: json.loads((tmp_path / "results" / f"{name}.json").read_text()) for name in steps
        }
        return code, capsys.readouterr().out, found

    return called


@pytest.fixture
def smi(monkeypatch, tmp_path):
    """A fake nvidia-smi in front of all programs."""

    def put(driver="580.159.04", free=140000, capability="9.0"):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "nvidia-smi").write_text(
            SMI.format(driver=driver, free=free, capability=capability)
        )
        (folder / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return put
