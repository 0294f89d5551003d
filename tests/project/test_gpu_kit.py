"""`make gpu-kit`: parts that travel, and the runner on the other machine.

No GPU, no packages: steps here are toys.
"""

# ruff: noqa: F811  fixtures
import importlib
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from helpers.gpu_kits import call, files, kit, packed, smi  # noqa: F401  fixtures

ROOT = Path(__file__).parents[2]


def test_parts_are_small_and_give_the_same_files_back(kit, packed, files, tmp_path):
    folder, manifest = packed
    assert [part["bytes"] for part in manifest["parts"].values()] == [1000, 1000, 1000, 710]
    complete, lost = kit("kit.parts").extract(
        folder, manifest, kit("kit.parts").arrived(folder, manifest), tmp_path / "out"
    )
    assert not lost and [path.read_bytes() for path in complete] == [
        path.read_bytes() for path in files
    ]


def test_a_missing_part_costs_only_the_files_in_it(kit, packed, tmp_path):
    folder, manifest = packed
    parts, kept = kit("kit.parts"), (folder / "part-01").read_bytes()
    (folder / "part-01").unlink()
    faults = parts.arrived(folder, manifest)
    assert (
        faults["part-01"]
        == f"part-01 has not arrived: copy it to {folder} and run the same command again."
    )
    complete, lost = parts.extract(folder, manifest, faults, tmp_path / "out")
    assert [path.name for path in complete] == ["one.bin", "small.bin", "last.bin"] and list(
        lost
    ) == ["large.bin"]
    (folder / "part-01").write_bytes(kept)
    for name in ("part-00", "part-03"):  # what an earlier call unpacked needs no part any more
        (folder / name).unlink()
    complete, lost = parts.extract(
        folder, manifest, parts.arrived(folder, manifest), tmp_path / "out"
    )
    assert [path.name for path in complete] == ["one.bin", "small.bin", "last.bin"] and list(
        lost
    ) == ["large.bin"]


def test_a_step_that_hangs_is_ended_with_all_it_started(call, kit, monkeypatch, tmp_path):
    process, child = kit("process"), tmp_path / "work" / "child"

    class Patient(subprocess.Popen):
        """On a machine of any speed: the limit begins once the step hangs, and no other step
        reaches it.
        """

        def wait(self, timeout=None):
            if timeout == 3 and "hangs" in self.args:
                while self.poll() is None and not (child.is_file() and child.read_text()):
                    time.sleep(0.01)
                return super().wait(0.1)
            return super().wait(None if timeout == 3 else timeout)

    monkeypatch.setattr(process.subprocess, "Popen", Patient)
    monkeypatch.setattr(process, "_GRACE", 1)
    code, _, found = call({"hangs": (), "plain": ()}, "--limit", "3")
    assert (
        found["hangs"]["state"] == "stopped"
        and found["hangs"]["figures"] == {"first": 1}
        and code == 1
    )
    assert found["hangs"]["reason"] == "it took longer than its limit of 3 s and was ended"
    assert found["plain"]["state"] == "ok"
    for _ in range(200):  # the process that adopted the child has to notice, too
        state = Path("/proc", child.read_text(), "status")
        if not state.exists() or "State:\tZ" in state.read_text():
            return
        time.sleep(0.05)
    raise AssertionError("the process that the step had started still runs")


def test_a_step_that_dies_has_a_reason_and_keeps_its_figures(call):
    code, _, found = call({"dies": (), "plain": ()})
    assert (
        found["dies"]["state"] == "failed"
        and found["dies"]["figures"] == {"first": 1}
        and code == 1
    )
    assert found["dies"]["reason"] == "its process ended with 9: something awful"
    assert found["plain"]["figures"] == {"first": 1, "second": 5}


def test_a_step_that_crashes_says_where(call):
    _, _, found = call({"crashes": ()})
    reason = found["crashes"]["reason"]
    assert reason.startswith(
        "its process ended with -11: Fatal Python error: Segmentation fault, File "
    )
    assert "toy_step.py" in reason and found["crashes"]["figures"] == {"first": 1}


def test_a_pace_shortens_every_step(call):
    """Also the time below which it is not begun: of 13 s the report has 10."""
    code, _, found = call({"plain": ()}, "--pace", "0.4", "--budget", "13")
    assert 0 < found["plain"]["figures"]["second"] <= 2 and code == 0
    found = call({"plain": ()}, "--only", "plain", "--budget", "13")[2]
    assert found["plain"]["state"] == "not run"
    found = call({"plain": ()}, "--only", "plain", "--pace", "0.4")[2]
    assert found["plain"]["figures"]["second"] == 2


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
        # not the virtual environment, which may hold a fastfeed of its own
        own = os.path.realpath(sys.executable)
        found = kit("kit.pack")._loads(own, wheel, tmp_path / name)
        assert found == f"ImportError: {want}" if want else not found


def test_the_runner_needs_nothing_but_the_standard_library(packed):
    folder, _ = packed
    command = [sys.executable, "-I", "-S", str(folder / "run.py"), "--report"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "0 of 21 steps have a result" in done.stdout, done.stderr


def test_wheels_share_the_namespace_of_nvidia_and_stay_in_their_folder(kit, tmp_path):
    unpack, site = kit("kit.unpack"), tmp_path / "site"
    for name, inner in (
        ("a", "nvidia/first/__init__.py"),
        ("b", "b-1.data/purelib/nvidia/second.py"),
        ("c", "../c.py"),
    ):
        with zipfile.ZipFile(tmp_path / f"{name}-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("nvidia/__init__.py", "")
            wheel.writestr(inner, f"name = {name!r}\n")
    wrong = unpack.wheels(sorted(tmp_path.glob("*.whl")), site)
    assert (
        len(wrong) == 1
        and "c-1-py3-none-any.whl could not be unpacked" in wrong[0]
        and "lies outside" in wrong[0]
    )
    other = tmp_path / "other"
    (other / "nvidia" / "third").mkdir(parents=True)
    (other / "nvidia" / "third" / "__init__.py").touch()
    (other / "nvidia" / "__init__.py").touch()
    program = "import nvidia.first, nvidia.second, nvidia.third; print(nvidia.second.name)"
    environ = dict(os.environ, PYTHONPATH=f"{site}{os.pathsep}{other}")
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "b\n", done.stderr


def test_marks_are_met_missed_or_not_measured_and_never_by_a_stand_in(kit):
    judged = kit("marks").judged
    results = {
        "kernel": {"figures": {"imagenet, plain": {"16": {"images_per_second": 17000.0}}}},
        "train-torch": {
            "figures": {
                "resnet50, kernel": {
                    "4": {"real / synthetic": 0.97},
                    "8": {"real / synthetic": 1.0},
                }
            }
        },
        "profile": {"figures": {"starved": {"right": True}, "healthy": {"right": True}}},
        "faults": {
            "state": "failed",
            "reason": "hybrid: 3 bad files not named",
            "figures": {"hybrid": {}},
        },
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
    assert set(
        judged({name: one | {"stand_in": True} for name, one in results.items()}).values()
    ) == {"not measured"}


def test_speed_up_and_efficiency_by_number_of_gpus(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    scaling = importlib.import_module("benchmarks.gpu_check.parts.scaling")
    rows = {
        1: {"synthetic": 100.0, "real": 90.0},
        2: {"synthetic": 180.0, "real": 144.0},
        4: {"error": "rank 3 ended"},
    }
    found = scaling.summary(rows)
    assert found["2"]["synthetic speed-up"] == 1.8 and found["2"]["real efficiency"] == 0.8
    assert found["2"]["real / synthetic"] == 0.8 and found["4"] == {"error": "rank 3 ended"}


def test_the_dry_run_brings_its_own_pytorch():
    """A clean clone has none: `make test` does without."""
    done = subprocess.run(
        ["make", "-n", "gpu-kit-dry"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pinned = "torch==2.13.0"
    assert f"pip --disable-pip-version-check install -q {pinned}\n" in done.stdout
    assert pinned in (ROOT / ".ci" / "run").read_text()
    for package in ("nvidia-cuda-runtime", "nvidia-cuda-crt"):
        assert package in done.stdout


def test_the_dry_run_forgives_a_machine_without_cuda_and_nothing_else(kit, capsys):
    ended = kit("kit.dry").ended
    absent = {
        "state": "not run",
        "reason": "CUDA's headers and libcudart are not here: they are in a CUDA toolkit",
    }
    states = {"kernel": {"state": "ok"}, "nvjpeg": absent}
    assert ended(2, states) == 0
    assert (
        "gpu-kit-dry: nvjpeg was not run: CUDA's headers and libcudart are not here"
        in capsys.readouterr().out
    )
    assert ended(1, states) == 1, "another step failed"
    assert (
        ended(2, states | {"train-torch": {"state": "not run", "reason": "torch is not here"}}) == 2
    )
    late = {
        "state": "not run",
        "reason": "2 s are left of this call, it needs 3: run the same command again",
    }
    assert ended(2, states | {"nvjpeg": late}) == 2
    assert ended(2, states | {"oom": {}}) == 2
    assert ended(0, {"kernel": {"state": "ok"}}) == 0
