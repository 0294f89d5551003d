"""Steps of `make gpu-kit`: their order and time, what a machine lacks, and the arithmetic of what
they compare.
"""

import ctypes
import importlib
import json
import subprocess
import sys
import threading
import types
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "benchmarks" / "gpu_check" / "README.md").read_text()


@pytest.fixture
def kit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.gpu_check.{name}")


def on_one_gpu(kit):
    return [step for step in kit("table").STEPS if "gpus" not in step.needs]


def test_all_steps_fit_into_half_an_hour_with_the_transfers(kit):
    steps = on_one_gpu(kit)
    assert sum(step.seconds for step in steps) <= kit("table").MACHINE_SECONDS == 24 * 60
    assert all(step.least <= step.seconds and step.limit <= 540 for step in kit("table").STEPS)


def test_the_page_for_people_has_every_step_its_time_and_its_call(kit):
    for step in kit("table").STEPS:
        rows = [
            line
            for line in README.splitlines()
            if line.startswith("| `") and f"`{step.name}`" in line
        ]
        assert rows and rows[-1].rstrip(" |").split()[-1] == str(step.seconds), step.name
    calls = README.split("## Calls")[1].split("\n## ")[0]
    assert all(f"`{step.name}`" in calls for step in on_one_gpu(kit))


def test_every_documented_call_takes_its_results_along():
    """A machine may be taken back after any call."""
    calls = [line for line in README.splitlines() if "gpu-kit/run.py" in line and "python3" in line]
    assert len(calls) == 3 and all('--copy-to "$OUT"' in line for line in calls), calls


def test_without_a_gpu_every_step_that_wants_one_says_so_in_one_sentence(kit):
    """Packages may all be there: what would fail inside is not begun."""
    here = kit("look").Machine(modules={"numpy", "PIL", "cv2", "torch", "jax", "keras", "fastfeed"})
    here.modules |= {"nvidia.dali", "nvidia.nvimgcodec"}
    said = {step.name: here.lacks(step.needs, stand_in=False) for step in kit("table").STEPS}
    assert {name for name, reason in said.items() if not reason} == {
        "inventory",
        "photos",
        "kernel",
        "nvjpeg",
    }
    assert set(said.values()) == {"", "no GPU is here", "two GPUs or more are needed, none here"}
    assert not any(here.lacks(step.needs, stand_in=True) for step in kit("table").STEPS)


def test_what_does_not_need_dali_comes_with_the_first_part(kit):
    """Parts may arrive one at a time."""
    names = [package.split("==")[0] for package in kit("kit.contents").PACKAGES]
    first = names.index("astunparse")
    assert {"keras", "h5py", "typer", "nvidia-nvjpeg", "packaging"} <= set(names[:first])
    assert (
        names.index("nvidia-nvimgcodec-cu13") < names.index("nvidia-dali-cuda130") < len(names) - 1
    )


def wheel(folder, name, requires=()):
    path = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        lines = [f"Name: {name}", "Version: 1", *(f"Requires-Dist: {text}" for text in requires)]
        archive.writestr(f"{name}-1.dist-info/METADATA", "\n".join(lines) + "\n\nText.\n")
    return path


def test_a_package_that_another_needs_is_missed_before_the_journey(kit, tmp_path):
    requires = [
        "numpy>=2.0",
        "absl-py",
        "PyYAML>=5.2; python_version < '3.13'",
        'pyyaml-ft; python_version >= "3.13"',
    ]
    requires += [
        "h5py (>=3)",
        "colorama; platform_system == 'Windows'",
        'extra-thing; extra == "tests"',
        "wheel<1",
    ]
    wheels = [wheel(tmp_path, "keras", requires), wheel(tmp_path, "absl_py")]
    assert kit("kit.contents").lacking(wheels) == ["keras wants h5py", "keras wants pyyaml"]


def test_marks_of_steps_that_failed_are_not_measured(kit):
    """As found by a real call without a GPU: every net said why it had no figures, and the report
    ended in an error.
    """
    rows = {"resnet50, kernel": {"error": "RuntimeError: Found no NVIDIA driver on your system."}}
    said = kit("marks").judged({"train-torch": {"state": "failed", "figures": rows}})
    assert set(said.values()) == {"not measured"}


def test_a_gpu_without_the_jpeg_engine_says_so(kit, monkeypatch):
    inventory = kit("steps.inventory")
    for created, engines, text in (
        (0, 0, "this GPU has no JPEG engine (status 0)"),
        (7, 0, "not for this GPU (7)"),
    ):
        library = types.SimpleNamespace(
            nvjpegCreateSimple=lambda handle, status=created: status,
            nvjpegGetHardwareDecoderInfo=lambda handle, count, cores, n=engines: 0,
            nvjpegDestroy=lambda handle: 0,
        )
        monkeypatch.setattr(ctypes, "CDLL", lambda name, it=library: it)
        assert inventory.engines()["reason"] == text


def test_one_answer_that_fails_does_not_hide_the_others(kit, monkeypatch, tmp_path):
    inventory, notes = kit("steps.inventory"), {}
    monkeypatch.setattr(inventory, "_copies", lambda stand_in: 1 / 0)
    monkeypatch.setattr(inventory, "_gpm", lambda: {"supported": True})
    inventory.run(types.SimpleNamespace(note=notes.__setitem__, stand_in=False))
    assert notes["copies to the GPU, GB/s"] == "not known: ZeroDivisionError: division by zero"
    assert notes["NVML GPM"] == {"supported": True}


def look(time, waited, state="STARVED", sm=0.5):
    feed = {"exact": {"wait_seconds": waited}, "state": state, "estimate": {"gpu": {"sm": sm}}}
    return {"time": time, "feeds": [feed]}


def report(waited, idle, window=10_000):
    whole = {"input": {"total_ns": waited}, "window_ns": window, "budget": {"idle": idle}}
    return {"devices": [{"whole": whole}], "verdict": {"word": "severe"}}


def test_watch_and_the_profiler_are_compared_on_the_same_seconds(kit):
    compared = kit("steps.watched").compared
    lines = [look(99, 0.0), look(101, 5.0), look(105, 7.0), look(109, 9.0), look(112, 12.0)]
    found, wrong = compared(lines, report(4900, 5200), first=100.0, last=110.0, loop=0.51)
    assert (
        not wrong
        and found["waiting, by watch"] == 0.5
        and found["waiting, by the profiler"] == 0.49
    )
    assert (
        found["GPU busy, by the profiler"] == 0.48
        and found["multiprocessors at work, by watch"] == 0.5
    )
    _, wrong = compared(lines, report(2000, 5200), first=100.0, last=110.0, loop=0.3)
    assert wrong == [
        "watch says 50.0% waiting, the loop measured 30.0%",
        "watch says 50.0% waiting, the profiler 20.0%",
    ]
    _, wrong = compared(lines[:1], report(2000, 5200), first=100.0, last=110.0, loop=0.3)
    assert wrong == ["`fastfeed watch` saw the feed 0 times in 10 s"]
    assert compared(lines, {"error": "no kernels"}, 100.0, 110.0, 0.5)[1] == [
        "no report: no kernels"
    ]


@pytest.mark.slow
def test_photographs_are_made_without_opencv():
    """It may be missing where PyTorch is."""
    program = (
        "import sys, io; sys.modules['cv2'] = None\nfrom benchmarks.gpu_check.parts import photos\nfrom"
        " PIL import Image\nkind = photos.KINDS['imagenet']\nfiles = [photos.made(photos._base(k),"
        " kind, k) for k in range(3)]\nprint([Image.open(io.BytesIO(file)).size for file in files],"
        " min(map(len, files)) > 50_000)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[(375, 500), (500, 375), (500, 375)] True", done.stderr


def test_results_have_processor_time(kit, tmp_path):
    context = kit("step").Context("kernel", True, 1.0, tmp_path, tmp_path / "kernel.json")
    context.note("rates", {"1": 2.0})
    assert json.loads((tmp_path / "kernel.json").read_text())["cpu_seconds"] > 0


def test_without_photographs_a_step_says_what_to_run_and_is_tried_again(kit, tmp_path):
    """As when a machine was so slow that they were not made in time."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu_check.step",
        "kernel",
        "--out",
        str(tmp_path / "kernel.json"),
    ]
    subprocess.run(
        [*command, "--work", str(tmp_path), "--stand-in"], cwd=ROOT, check=True, capture_output=True
    )
    found = json.loads((tmp_path / "kernel.json").read_text())
    assert found["state"] == "not run" and found["reason"].startswith(
        "there are no photographs: run the step `photos`"
    )
    photos = next(step for step in kit("table").STEPS if step.name == "photos")
    assert photos.limit == max(step.limit for step in kit("table").STEPS)


def test_stand_ins_run_two_at_once_after_those_that_others_need(kit, monkeypatch, tmp_path):
    """Nothing is measured by them. On a GPU machine steps have it to themselves."""
    run, order, together = kit("run"), [], threading.Barrier(2, timeout=60)

    def one(step, *_):
        order.append(step.name)
        if step.name not in ("inventory", "photos"):
            together.wait()

    monkeypatch.setattr(run, "_one", one)
    monkeypatch.setattr(run, "_ready", lambda *_: ({}, {}))
    monkeypatch.setattr(run, "_reported", lambda *_: 0)
    monkeypatch.setattr(run.machine, "look", lambda *_: kit("look").Machine())
    folders = ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "work")]
    assert run.main([*folders, "--only", "kernel,inventory,photos,nvjpeg", "--at-once", "2"]) == 0
    assert order[:2] == ["inventory", "photos"] and set(order[2:]) == {"kernel", "nvjpeg"}
    assert run._options([]).at_once == 1


def test_packages_for_remote_storage_may_be_absent():
    """A machine without a registry: fastfeed's local sources and feeds still import."""
    program = (
        "import sys; [sys.modules.__setitem__(name, None) for name in "
        "('fsspec', 'google_crc32c', 'rich', 'typer', 'pyarrow', 'tensorflow', 'pynvml')]\n"
        "from benchmarks.gpu_check.parts import bare\n"
        "print(bare.fill())\n"
        "import fastfeed as ff; ff.Feed, ff.ImageFolder, ff.Arrays\n"
        "from fastfeed.backends import dali\n"
        "from benchmarks.gpu_check.parts import agree, faults, overlap, rates\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "google_crc32c" in done.stdout
