"""`make gpu-kit`: parts that travel, and the runner on the other machine. No GPU, no packages: steps here are toys."""

import importlib
import json
import os
import subprocess
import sys
import time
import zipfile
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
json.dump(found | {"state": "ok", "figures": {"first": 1, "second": 2}}, open(told.out, "w"))
"""
SMI = """#!/bin/sh
echo "NVIDIA H200, {driver}, 143771 MiB, {free} MiB"
"""


@pytest.fixture
def kit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.gpu_kit.{name}")


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
    manifest = kit("pack").packed(folder, files, 0.001, "{}.{}".format(*sys.version_info[:2]))
    return folder, manifest


@pytest.fixture
def call(kit, monkeypatch, tmp_path, packed, capsys):
    """One call of run.py with toy steps: call(steps, *options) -> (exit code, what it printed, results by step)."""
    run, table = kit("run"), kit("table")
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys" / "toy_step.py").write_text(TOY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "toys"))
    monkeypatch.setattr(kit("process"), "STEP", "toy_step")
    monkeypatch.setattr(run, "KIT", packed[0])
    monkeypatch.setattr(kit("unpack"), "kernel_loads", lambda *_: "")

    def called(steps, *options):
        rows = tuple(table.Step(name, "toy", f"what {name} asks", needs, 5, 1) for name, needs in steps.items())
        monkeypatch.setattr(run, "STEPS", rows)
        folders = ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "work")]
        code = run.main([*folders, *options])
        found = {name: json.loads((tmp_path / "results" / f"{name}.json").read_text()) for name in steps}
        return code, capsys.readouterr().out, found

    return called


@pytest.fixture
def smi(monkeypatch, tmp_path):
    """A fake nvidia-smi in front of all programs."""

    def put(driver="580.159.04", free=140000):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "nvidia-smi").write_text(SMI.format(driver=driver, free=free))
        (folder / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return put


def test_parts_are_small_and_give_the_same_files_back(kit, packed, files, tmp_path):
    folder, manifest = packed
    assert [part["bytes"] for part in manifest["parts"].values()] == [1000, 1000, 1000, 710]
    complete, lost = kit("parts").extract(folder, manifest, kit("parts").arrived(folder, manifest), tmp_path / "out")
    assert not lost and [path.read_bytes() for path in complete] == [path.read_bytes() for path in files]


def test_a_missing_part_costs_only_the_files_in_it(kit, packed, tmp_path):
    folder, manifest = packed
    parts, kept = kit("parts"), (folder / "part-01").read_bytes()
    (folder / "part-01").unlink()
    faults = parts.arrived(folder, manifest)
    assert faults["part-01"] == f"part-01 has not arrived: copy it to {folder} and run the same command again."
    complete, lost = parts.extract(folder, manifest, faults, tmp_path / "out")
    assert [path.name for path in complete] == ["one.bin", "small.bin", "last.bin"] and list(lost) == ["large.bin"]
    (folder / "part-01").write_bytes(kept)
    for name in ("part-00", "part-03"):  # what an earlier call unpacked needs no part any more
        (folder / name).unlink()
    complete, lost = parts.extract(folder, manifest, parts.arrived(folder, manifest), tmp_path / "out")
    assert [path.name for path in complete] == ["one.bin", "small.bin", "last.bin"] and list(lost) == ["large.bin"]


def test_a_damaged_part_is_one_sentence_and_the_steps_run(call, packed):
    folder, _ = packed
    content = bytearray((folder / "part-02").read_bytes())
    content[500] ^= 1
    (folder / "part-02").write_bytes(content)
    code, said, found = call({"plain": (), "wants": ("no_such_module",)})
    assert said.splitlines().count("part-02 is damaged (its SHA-256 is not the manifest's): copy it again.") == 1
    assert found["plain"]["state"] == "ok" and found["wants"]["state"] == "not run" and code == 2
    assert found["wants"]["reason"].startswith("no_such_module is not here; part-02 is damaged")


def test_no_manifest_and_changed_code_are_said(call, packed):
    folder, _ = packed
    changed = folder / "benchmarks" / "gpu_kit" / "marks.py"
    changed.write_text(changed.read_text() + "\n")
    assert "benchmarks/gpu_kit/marks.py is not as it was packed" in call({"plain": ()})[1]
    (folder / "manifest.json").write_text("{")
    assert "manifest.json is damaged" in call({"plain": ()})[1]
    (folder / "manifest.json").unlink()
    assert "manifest.json is missing" in call({"plain": ()})[1]


def test_no_gpu_is_one_sentence_and_the_rest_runs(call, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    code, said, found = call({"plain": (), "on-gpu": ("gpu",), "many": ("gpus",)})
    assert said.count("no GPU is here (nvidia-smi: FileNotFoundError): only what needs none will run\n") == 1
    assert (found["plain"]["state"], found["on-gpu"]["reason"]) == ("ok", "no GPU is here") and code == 2
    assert found["many"]["reason"] == "two GPUs or more are needed, none here"


def test_an_old_driver_leaves_out_what_needs_a_newer_one(call, smi, kit, monkeypatch):
    smi(driver="535.230.02")
    monkeypatch.setattr(kit("machine"), "_modules", lambda *_: {"nvidia.dali", "nvidia.nvimgcodec"})
    _, said, found = call({"on-gpu": ("gpu",), "dali": ("DALI",)})
    sentence = "driver 535.230.02 is older than packages for CUDA 13 want (580 or newer)"
    assert said.count(f"\n{sentence}") + said.startswith(sentence) == 1
    assert found["on-gpu"]["state"] == "ok" and found["dali"]["reason"].startswith(sentence)


def test_a_gpu_that_others_fill_is_said(call, smi):
    smi(free=9000)
    _, said, found = call({"on-gpu": ("gpu",)})
    assert "NVIDIA H200 has 9.0 of 143.8 GB free: someone else computes on it" in said
    assert found["on-gpu"]["state"] == "ok"


def test_dali_that_is_absent_is_said_and_tried_again_when_it_came(call, smi, kit, monkeypatch):
    smi()
    monkeypatch.setattr(kit("machine"), "_modules", lambda *_: {"torch"})
    code, _, found = call({"plain": (), "dali": ("torch", "DALI")})
    assert found["dali"]["reason"] == "nvidia.dali and nvidia.nvimgcodec are not here" and code == 2
    monkeypatch.setattr(kit("machine"), "_modules", lambda *_: {"torch", "nvidia.dali", "nvidia.nvimgcodec"})
    code, said, found = call({"plain": (), "dali": ("torch", "DALI")})
    assert found["dali"]["state"] == "ok" and "[plain] ok, from an earlier call" in said and code == 0


def test_a_step_that_hangs_is_ended_with_all_it_started(call, kit, monkeypatch, tmp_path):
    monkeypatch.setattr(kit("process"), "_GRACE", 1)
    code, _, found = call({"hangs": (), "plain": ()}, "--limit", "3")
    assert found["hangs"]["state"] == "stopped" and found["hangs"]["figures"] == {"first": 1} and code == 1
    assert found["hangs"]["reason"] == "it took longer than its limit of 3 s and was ended"
    assert found["plain"]["state"] == "ok"
    for _ in range(200):  # the process that adopted the child has to notice, too
        state = Path("/proc", (tmp_path / "work" / "child").read_text(), "status")
        if not state.exists() or "State:\tZ" in state.read_text():
            return
        time.sleep(0.05)
    raise AssertionError("the process that the step had started still runs")


def test_a_step_that_dies_has_a_reason_and_keeps_its_figures(call):
    code, _, found = call({"dies": (), "plain": ()})
    assert found["dies"]["state"] == "failed" and found["dies"]["figures"] == {"first": 1} and code == 1
    assert found["dies"]["reason"] == "its process ended with 9: something awful"
    assert found["plain"]["figures"] == {"first": 1, "second": 2}


def test_nothing_runs_twice_unless_asked(call, tmp_path):
    steps = {"one": (), "two": (), "three": ()}
    ran = lambda: (tmp_path / "work" / "ran").read_text().split()  # noqa: E731
    call(steps)
    call(steps)
    assert ran() == ["one", "two", "three"]
    call(steps, "--from", "two")
    assert ran()[3:] == ["two", "three"]
    call(steps, "--only", "one")
    assert ran()[5:] == ["one"]
    (tmp_path / "results" / "two.started").touch()  # a call that was killed while this step ran
    call(steps)
    assert ran()[6:] == ["two"]


def test_packages_of_the_folder_of_the_call_are_not_taken(call, monkeypatch, tmp_path):
    """It may be the repository's, with a fastfeed that has no kernel."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "toy_step.py").write_text("raise SystemExit(5)")
    monkeypatch.chdir(tmp_path / "here")
    assert call({"plain": ()})[2]["plain"]["state"] == "ok"


def test_a_call_ends_within_its_budget_and_the_next_one_resumes(call):
    code, said, found = call({"one": (), "two": ()}, "--budget", "10.5")
    assert {one["state"] for one in found.values()} == {"not run"} and code == 2
    assert "run the same command again" in said and "0 of 2 steps have a result" in said
    code, said, _ = call({"one": (), "two": ()})
    assert code == 0 and "2 of 2 steps have a result" in said


def test_a_wheel_whose_kernel_does_not_load_does_not_travel(kit, tmp_path):
    for name, text, want in (
        ("good", "", ""),
        ("bad", "raise ImportError('undefined symbol: f')", "undefined symbol: f"),
    ):
        wheel = tmp_path / f"{name}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("fastfeed/__init__.py", "")
            archive.writestr("fastfeed/_native.py", text)
        own = os.path.realpath(sys.executable)  # not the virtual environment, which may hold a fastfeed of its own
        found = kit("pack")._loads(own, wheel, tmp_path / name)
        assert found == f"ImportError: {want}" if want else not found


def test_the_runner_needs_nothing_but_the_standard_library(packed):
    folder, _ = packed
    command = [sys.executable, "-I", "-S", str(folder / "run.py"), "--report"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "0 of 20 steps have a result" in done.stdout, done.stderr


def test_wheels_share_the_namespace_of_nvidia_and_stay_in_their_folder(kit, tmp_path):
    unpack, site = kit("unpack"), tmp_path / "site"
    for name, inner in (
        ("a", "nvidia/first/__init__.py"),
        ("b", "b-1.data/purelib/nvidia/second.py"),
        ("c", "../c.py"),
    ):
        with zipfile.ZipFile(tmp_path / f"{name}-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("nvidia/__init__.py", "")
            wheel.writestr(inner, f"name = {name!r}\n")
    wrong = unpack.wheels(sorted(tmp_path.glob("*.whl")), site)
    assert len(wrong) == 1 and "c-1-py3-none-any.whl could not be unpacked" in wrong[0] and "lies outside" in wrong[0]
    other = tmp_path / "other"
    (other / "nvidia" / "third").mkdir(parents=True)
    (other / "nvidia" / "third" / "__init__.py").touch()
    (other / "nvidia" / "__init__.py").touch()
    program = "import nvidia.first, nvidia.second, nvidia.third; print(nvidia.second.name)"
    environ = dict(os.environ, PYTHONPATH=f"{site}{os.pathsep}{other}")
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "b\n", done.stderr


def test_marks_are_met_missed_or_not_measured_and_never_by_a_stand_in(kit):
    judged = kit("marks").judged
    results = {
        "kernel": {"figures": {"imagenet, plain": {"16": {"images_per_second": 17000.0}}}},
        "train-torch": {
            "figures": {"resnet50, kernel": {"4": {"real / synthetic": 0.97}, "8": {"real / synthetic": 1.0}}}
        },
        "profile": {"figures": {"starved": {"right": True}, "healthy": {"right": True}}},
        "faults": {"state": "failed", "reason": "hybrid: 3 bad files not named", "figures": {"hybrid": {}}},
    }
    said = list(judged(results).values())
    assert said == [
        "not measured",
        "met: 17,000",
        "missed: 0.970 with 4 threads",
        "not measured",
        "met: starved: right, healthy: right",
        "missed: hybrid: 3 bad files not named",
    ]
    assert set(judged({name: one | {"stand_in": True} for name, one in results.items()}).values()) == {"not measured"}


def test_speed_up_and_efficiency_by_number_of_gpus(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    scaling = importlib.import_module("benchmarks.gpu_check.scaling")
    rows = {1: {"synthetic": 100.0, "real": 90.0}, 2: {"synthetic": 180.0, "real": 144.0}, 4: {"error": "rank 3 ended"}}
    found = scaling.summary(rows)
    assert found["2"]["synthetic speed-up"] == 1.8 and found["2"]["real efficiency"] == 0.8
    assert found["2"]["real / synthetic"] == 0.8 and found["4"] == {"error": "rank 3 ended"}
