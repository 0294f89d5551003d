"""`make gpu-check` on the processor: every part runs or says why not, and the report has its
form.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.needs import needs

# looked for, not imported: JAX changes the environment of what is started later
pytestmark = [pytest.mark.slow, needs("nvidia", "torch", "jax")]
ROOT = Path(__file__).parents[2]
PARTS = ["photos", "rates", "steps", "faults", "agree", "overlap"]


@pytest.fixture
def gpu_check(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.gpu_check.{name}")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("gpu-check") / "report.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu_check",
        "--cpu",
        "--quick",
        "--minutes",
        "3",
        "--out",
        str(out),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said == json.loads(out.read_text())
    return said


def test_every_part_is_ok_or_says_that_it_needs_a_gpu(report):
    assert list(report["parts"]) == PARTS
    for name, part in report["parts"].items():
        assert part["seconds"] >= 0
        if part["ok"] is True:
            assert part["figures"], name
        else:
            assert part["ok"] == "not run" and "needs a GPU" in part["reason"]
    assert [name for name in PARTS if report["parts"][name]["ok"] is not True] == [
        "steps",
        "overlap",
    ]


def test_the_report_says_where_and_with_what(report):
    assert (report["on"], report["quick"]) == ("processor", True)
    assert report["machine"]["cores"] >= 1 and report["machine"]["cpu"]
    assert (
        report["versions"]["numpy"]
        and report["versions"]["torch"]
        and "nvidia-dali-cuda130" in report["versions"]
    )


def test_rates_compare_ours_with_dali_on_both_sets(report):
    for name in ("imagenet", "stock"):
        found = report["parts"]["rates"]["figures"][name]
        assert found["errors"] == {}
        assert {"cpu kernel", "nvimagecodec", "hybrid, dali"} <= set(found["singly"])
        assert all(
            rate["images_per_second"] > 0 and rate["cpu_ms"] > 0
            for rate in found["singly"].values()
        )
        assert any(who.startswith("DALI, ") for who in found["singly"])


def test_faults_and_agreement_were_looked_at(report):
    for found in report["parts"]["faults"]["figures"].values():
        assert found["batches"] == 60 and found["bad_named"] == 50
    agree = report["parts"]["agree"]["figures"]
    assert "RandomResizedCrop" in agree["levels against cpu"]
    assert all(
        found["samples"] == 48 and found["differ"] == 0
        for found in agree["batches of 4 and 12"].values()
    )
    assert len(agree["order of streams"]) >= 8


def test_a_part_that_raises_is_recorded_and_the_next_one_runs(
    gpu_check, monkeypatch, tmp_path, capsys
):
    main, setting = gpu_check("__main__"), gpu_check("setting")
    told = setting.Setting(True, True, 1, tmp_path, None)

    def raises(_):
        raise setting.Wrong(["3 of 4 batches had wrong pixels"], {"good": 1})

    monkeypatch.setattr(gpu_check("overlap"), "run", raises)
    found = main.one("overlap", told, "", 100.0)
    assert found["ok"] is False and found["figures"] == {"good": 1}
    assert (
        "3 of 4 batches had wrong pixels" in found["reason"]
        and "raise setting.Wrong" in found["traceback"]
    )
    late = main.one("overlap", told, "", 1.0)
    assert (
        late["ok"] == "not run"
        and "the time budget is spent" in late["reason"]
        and told.left_out == ["overlap"]
    )
    main.table({"parts": {"overlap": found}, "left_out": told.left_out})
    assert "FAILED" in capsys.readouterr().out


def test_a_part_that_did_not_run_is_an_error_unless_no_gpu_was_expected(gpu_check):
    ended = gpu_check("__main__").ended
    good, skipped, bad = {"ok": True}, {"ok": "not run"}, {"ok": False}
    assert ended({"parts": {"rates": good, "steps": skipped}}, cpu=True) == 0
    assert ended({"parts": {"rates": good, "steps": skipped}}, cpu=False) == 1
    assert ended({"parts": {"rates": skipped}}, cpu=True) == 1
    assert ended({"parts": {"rates": bad, "steps": good}}, cpu=True) == 1


def test_packages_for_remote_storage_may_be_absent():
    """A machine without a registry: fastfeed's local sources and feeds still import."""
    program = (
        "import sys; [sys.modules.__setitem__(name, None) for name in "
        "('fsspec', 'google_crc32c', 'rich', 'typer', 'pyarrow', 'tensorflow', 'pynvml')]\n"
        "from benchmarks.gpu_check import bare\n"
        "print(bare.fill())\n"
        "import fastfeed as ff; ff.Feed, ff.ImageFolder, ff.Arrays\n"
        "from fastfeed.backends import dali\n"
        "from benchmarks.gpu_check import agree, faults, overlap, rates, steps\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "google_crc32c" in done.stdout


def test_time_that_two_sets_of_spans_share(gpu_check):
    common_ms = gpu_check("overlap").common_ms
    copies, steps = np.array([[0.0, 2.0], [5, 6]]), np.array([[1.0, 3.0], [5.5, 9]])
    assert common_ms(copies, steps) == 1.5
    assert common_ms(copies, steps[:0]) == 0
