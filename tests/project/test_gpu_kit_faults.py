"""What may be wrong with a machine, or with what came to it: one sentence each, and the other steps
run.
"""

# ruff: noqa: F811  fixtures
import contextlib
import importlib
import json
import subprocess
import types
from pathlib import Path

import pytest
from helpers.gpu_kits import call, files, kit, packed, smi  # noqa: F401  fixtures

PROBE = """#!/bin/sh
echo '{rows}'
exit {code}
"""


def test_a_damaged_part_is_one_sentence_and_the_steps_run(call, packed):
    folder, _ = packed
    content = bytearray((folder / "part-02").read_bytes())
    content[500] ^= 1
    (folder / "part-02").write_bytes(content)
    code, said, found = call({"plain": (), "wants": ("no_such_module",)})
    assert (
        said.splitlines().count(
            "part-02 is damaged (its SHA-256 is not the manifest's): copy it again."
        )
        == 1
    )
    assert found["plain"]["state"] == "ok" and found["wants"]["state"] == "not run" and code == 2
    assert found["wants"]["reason"].startswith("no_such_module is not here; part-02 is damaged")


def test_a_part_that_has_not_arrived_is_one_sentence_and_the_steps_run(call, packed):
    folder, _ = packed
    kept = (folder / "part-02").read_bytes()
    (folder / "part-02").unlink()
    steps = {"plain": (), "wants": ("json_of_the_part",)}
    code, said, found = call(steps)
    sentence = f"part-02 has not arrived: copy it to {folder} and run the same command again."
    assert said.splitlines().count(sentence) == 1
    assert found["plain"]["state"] == "ok" and code == 2
    assert found["wants"]["reason"] == f"json_of_the_part is not here; {sentence}"
    (folder / "part-02").write_bytes(kept)
    assert "has not arrived" not in call(steps)[1]


def test_no_manifest_and_changed_code_are_said(call, packed):
    folder, _ = packed
    changed = folder / "benchmarks" / "gpu_check" / "marks.py"
    changed.write_text(changed.read_text() + "\n")
    assert "benchmarks/gpu_check/marks.py is not as it was packed" in call({"plain": ()})[1]
    (folder / "manifest.json").write_text("{")
    assert "manifest.json is damaged" in call({"plain": ()})[1]
    (folder / "manifest.json").unlink()
    assert "manifest.json is missing" in call({"plain": ()})[1]


def test_no_gpu_is_one_sentence_and_the_rest_runs(call, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    code, said, found = call({"plain": (), "on-gpu": ("gpu",), "many": ("gpus",)})
    assert (
        said.count(
            "no GPU is here (nvidia-smi: FileNotFoundError): only what needs none will run\n"
        )
        == 1
    )
    assert (found["plain"]["state"], found["on-gpu"]["reason"]) == (
        "ok",
        "no GPU is here",
    ) and code == 2
    assert found["many"]["reason"] == "two GPUs or more are needed, none here"


def test_an_old_driver_leaves_out_what_needs_a_newer_one(call, smi, kit, monkeypatch):
    smi(driver="535.230.02")
    monkeypatch.setattr(kit("look"), "_modules", lambda *_: {"nvidia.dali", "nvidia.nvimgcodec"})
    _, said, found = call({"on-gpu": ("gpu",), "dali": ("DALI",)})
    sentence = "driver 535.230.02 is older than packages for CUDA 13 want (580 or newer)"
    assert said.count(f"\n{sentence}") + said.startswith(sentence) == 1
    assert found["on-gpu"]["state"] == "ok" and found["dali"]["reason"].startswith(sentence)


@pytest.mark.parametrize(("packed_for", "here"), [("", "8.0"), ("9.0", "9.0"), ("9.0", "8.0")])
def test_a_kit_for_other_gpus_leaves_out_what_was_made_smaller(
    call, smi, kit, packed, monkeypatch, packed_for, here
):
    smi(capability=here)
    folder, manifest = packed
    (folder / "manifest.json").write_text(json.dumps(manifest | {"gpu": packed_for}))
    monkeypatch.setattr(kit("look"), "_modules", lambda *_: {"nvidia.dali", "nvidia.nvimgcodec"})
    _, said, found = call({"on-gpu": ("gpu",), "dali": ("DALI",)})
    sentence = (
        "the kit was packed for GPUs of compute capability 9.0, NVIDIA H200 has 8.0: DALI and"
        " nvImageCodec are left out"
    )
    assert found["on-gpu"]["state"] == "ok"
    if packed_for in ("", here):
        assert found["dali"]["state"] == "ok" and sentence not in said
    else:
        assert found["dali"]["reason"].startswith(sentence)
        assert sum(line.startswith(sentence) for line in said.splitlines()) == 1


def test_a_gpu_that_others_fill_is_said(call, smi):
    smi(free=9000)
    _, said, found = call({"on-gpu": ("gpu",)})
    assert "NVIDIA H200 has 9.0 of 143.8 GB free: someone else computes on it" in said
    assert found["on-gpu"]["state"] == "ok"


def test_dali_that_is_absent_is_said_and_tried_again_when_it_came(call, smi, kit, monkeypatch):
    smi()
    monkeypatch.setattr(kit("look"), "_modules", lambda *_: {"torch"})
    code, _, found = call({"plain": (), "dali": ("torch", "DALI")})
    assert found["dali"]["reason"] == "nvidia.dali and nvidia.nvimgcodec are not here" and code == 2
    monkeypatch.setattr(
        kit("look"), "_modules", lambda *_: {"torch", "nvidia.dali", "nvidia.nvimgcodec"}
    )
    code, said, found = call({"plain": (), "dali": ("torch", "DALI")})
    assert (
        found["dali"]["state"] == "ok" and "[plain] ok, from an earlier call" in said and code == 0
    )


@pytest.mark.parametrize("absent", ["nvidia.dali", "nvidia.nvimgcodec"])
def test_one_of_the_two_decoders_that_is_absent_is_named_alone(call, smi, kit, monkeypatch, absent):
    smi()
    there = {"torch", "nvidia.dali", "nvidia.nvimgcodec"} - {absent}
    monkeypatch.setattr(kit("look"), "_modules", lambda *_: there)
    code, said, found = call(
        {"plain": (), "on-gpu": ("gpu", "torch"), "dali": ("gpu", "torch", "DALI")}
    )
    assert (
        found["dali"]["reason"] == f"{absent} is not here"
        and said.count(f"{absent} is not here") == 2
    )
    assert {found[name]["state"] for name in ("plain", "on-gpu")} == {"ok"} and code == 2


def test_a_gpu_without_any_memory_left_is_said_before_its_steps(call, smi):
    smi(free=0)
    _, said, found = call({"plain": (), "on-gpu": ("gpu",)})
    assert "NVIDIA H200 has 0.0 of 143.8 GB free: someone else computes on it" in said
    assert {one["state"] for one in found.values()} == {"ok"}


def test_what_nvidia_smi_does_not_tell_is_one_sentence_each_and_the_steps_run(
    call, smi, kit, monkeypatch
):
    """As containers and shared GPUs have it."""
    smi(driver="[N/A]", free="[N/A]")
    monkeypatch.setattr(kit("look"), "_modules", lambda *_: {"nvidia.dali", "nvidia.nvimgcodec"})
    code, said, found = call({"plain": (), "on-gpu": ("gpu",), "dali": ("DALI",)})
    assert said.count("nvidia-smi does not tell the driver's version ([N/A]): taken as new\n") == 1
    assert (
        said.count(
            "nvidia-smi does not tell how much memory of NVIDIA H200 is free ([N/A] MiB and 143771"
            " MiB)\n"
        )
        == 1
    )
    assert {one["state"] for one in found.values()} == {"ok"} and code == 0


def test_packages_that_take_too_long_to_look_for_are_one_sentence(call, kit, monkeypatch):
    machine = kit("look")
    monkeypatch.setattr(machine, "PROBE_SECONDS", 0)
    code, said, found = call({"plain": (), "wants": ("torch",)})
    sentence = (
        "which packages are here is not known (TimeoutExpired): only steps that need none will"
        " run\n"
    )
    assert said.count(sentence) == 1 and code == 2
    assert found["plain"]["state"] == "ok" and found["wants"]["reason"] == "torch is not here"


def test_a_kernel_that_takes_too_long_to_load_is_one_sentence(kit, monkeypatch, tmp_path):
    unpack = kit("kit.unpack")
    monkeypatch.setattr(unpack, "LOAD_SECONDS", 0)
    assert unpack.kernel_loads({}, tmp_path) == "TimeoutExpired: it could not be tried"
    assert (
        unpack.kernel_loads({}, tmp_path, "no-such-python")
        == "FileNotFoundError: it could not be tried"
    )


def test_nvidia_smi_that_hangs_does_not_end_the_inventory(smi, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    machine = importlib.import_module("benchmarks.gpu_check.steps.inventory")
    smi()

    run = subprocess.run

    def hangs(command, **more):
        if command[0] == "nvidia-smi":
            raise subprocess.TimeoutExpired(command, 60)
        return run(command, **more)

    monkeypatch.setattr(machine.subprocess, "run", hangs)
    assert machine.described()["gpus"] == "not known: nvidia-smi: TimeoutExpired"


@pytest.fixture
def probe(kit, monkeypatch, tmp_path):
    """Runs the step `nvjpeg` with a program that prints these rows; what was noted."""

    def run(rows: str, code: int):
        step, program = kit("steps.nvjpeg"), tmp_path / "probe"
        program.write_text(PROBE.format(rows=rows, code=code))
        program.chmod(0o755)
        monkeypatch.setattr(step, "compiled", lambda work: (program, {}))
        notes: dict = {}
        sets = types.SimpleNamespace(sets={"imagenet": Path("photos")})
        step.run(
            types.SimpleNamespace(
                work=tmp_path,
                seconds=60,
                left=lambda: 60.0,
                part=contextlib.nullcontext,
                left_out=[],
                stand_in=False,
                figures=notes,
                note=notes.__setitem__,
                setting=lambda: sets,
            )
        )
        return notes["imagenet"]

    return run


def test_a_gpu_without_the_jpeg_engine_is_a_result(probe):
    """Not a failure: CUDA's rates follow, and `loads` has those of DALI and nvImageCodec."""
    row = '{"row": "no JPEG engine", "reason": "this GPU has no JPEG engine: CUDA decodes"}'
    rate = '{"row": "CUDA, no engine", "batch": 64, "threads": 2, "images_per_second": 900.0}'
    found = probe(f"{row}\n{rate}", 0)
    assert found["no JPEG engine"] == {"reason": "this GPU has no JPEG engine: CUDA decodes"}
    assert found["CUDA, no engine, batch 64, 2 threads"]["images_per_second"] == 900.0


@pytest.mark.parametrize(
    "words",
    [
        "no CUDA-capable device is detected",
        "CUDA driver version is insufficient for CUDA runtime version",
    ],
)
def test_the_probes_own_words_where_it_finds_no_gpu_or_an_old_driver(kit, probe, words):
    with pytest.raises(kit("steps.nvjpeg").NotRun, match=f"^no GPU is here: {words}$"):
        probe(f'{{"row": "no GPU", "reason": "no GPU is here: {words}"}}', 2)
