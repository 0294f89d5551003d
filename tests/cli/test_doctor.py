"""What doctor says of machines that we do not have: fakes go in as arguments, texts come out."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import typer
from helpers.commands import CliRunner
from rich.console import Console

from fastfeed.cli.doctor.command import (
    PACKAGES,
    advise,
    collect,
    doctor,
    reinstall,
    render,
    with_advice,
)
from fastfeed.cli.doctor.machine import ExtensionInfo, GpuInfo, MachineReport, find_extension

BASE = {"fastfeed": "0.1.0", "pillow": "12.0.0", "pyvips": "3.2.0"}
BUILT = ExtensionInfo(libjpeg="3.1.3", bundled=True, simd=True, instruction_set="AVX2", huffman="")
BOTH = {"nvidia-dali-cuda120": "2.4.0", "nvidia-dali-cuda130": "2.4.0"}
NO_DRIVER = "none: no NVIDIA driver answers (NVML Shared Library Not Found)"


class NVMLError(Exception):
    pass


def nvml(cuda: int = 13000, count: int = 2, **other: Any) -> SimpleNamespace:
    """pynvml as it answers on a machine with two H200."""
    calls = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=150754820096),
        "nvmlSystemGetCudaDriverVersion": lambda: cuda,
        "nvmlSystemGetDriverVersion": lambda: "580.95.05",
    }
    return SimpleNamespace(**(calls | other))


def fails(text: str) -> Any:
    def call(*_: object) -> None:
        raise NVMLError(text)

    return call


NO_NVML = nvml(nvmlInit=fails("NVML Shared Library Not Found"))


def look(
    packages: Mapping[str, str] | None = None,
    gpu: Any = NO_NVML,
    environ: Mapping[str, str] | None = None,
) -> MachineReport:
    """collect() on a machine that is the same wherever the tests run."""
    report = collect(
        environ=environ or {},
        version=(BASE | dict(packages or {})).get,
        nvml=gpu,
        kernel="no_such_module",
    )
    codecs = {"libjpeg-turbo": "3.1.1", "libwebp": "1.6.0"}
    report = replace(
        report,
        python="3.11.7",
        platform="Linux 6.1 x86_64",
        cores=8,
        cores_affinity=8,
        cores_quota=None,
        codecs=codecs,
    )
    report = replace(
        report,
        memory=64 << 30,
        memory_limit=None,
        open_files=(4096, 4096),
        package_manager=None,
        cache=None,
    )
    frameworks = report.frameworks or {"keras": "3.15.1", "jax": "0.10.2"}
    return with_advice(replace(report, kernel=BUILT, frameworks=frameworks))


def text(report: MachineReport, width: int = 80) -> str:
    out = io.StringIO()
    render(report, Console(file=out, width=width))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_a_machine_without_gpu_is_fine() -> None:
    assert (
        text(look({"keras": "3.15.1", "torch": "2.13.0"}))
        == "fastfeed 0.1.0, Python 3.11.7, Linux 6.1 x86_64\n"
        "\n"
        "Machine\n"
        "  CPU cores       8 of 8 usable\n"
        "  memory          64.0 GiB\n"
        "  open files      4096\n"
        "  GPU             none: no NVIDIA driver answers (NVML Shared Library Not Found)\n"
        "\n"
        "Decode\n"
        "  extension       built, libjpeg-turbo 3.1.3 (bundled, with SIMD), instruction\n"
        "                  set AVX2\n"
        "  Pillow          12.0.0 (libjpeg-turbo 3.1.1, libwebp 1.6.0)\n"
        "  DALI            not installed\n"
        "  pyvips          3.2.0\n"
        "\n"
        "Frameworks\n"
        "  keras           3.15.1\n"
        "  torch           2.13.0\n"
        "\n"
        "Ranks\n"
        "  this process    rank 0 of 1 (local 0 of 1), no launcher in the environment\n"
        "\n"
        "All fine. Next:  fastfeed show PHOTOS/  # what a trainer will see"
    )


def test_limits_of_a_container_are_shown() -> None:
    report = replace(
        look(), cores_affinity=6, cores_quota=2.5, memory_limit=8 << 30, open_files=(1024, -1)
    )
    assert "  CPU cores       2.5 of 8 usable (affinity 6, quota 2.5)\n" in text(report)
    assert "  memory          8.0 GiB of 64.0 GiB (cgroup limit)\n" in text(report)
    assert "  open files      1024 (can be raised to no limit)\n" in text(report)


def test_gpus_and_ranks_are_shown() -> None:
    launched = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    shown = text(look({"nvidia-dali-cuda130": "2.4.0"}, nvml(), launched))
    assert (
        "  GPU 0           NVIDIA H200, 140.4 GiB\n  GPU 1           NVIDIA H200, 140.4 GiB\n"
        in shown
    )
    assert "  driver          580.95.05, runs CUDA 13.0\n" in shown
    assert "  DALI            2.4.0 (nvidia-dali-cuda130)\n" in shown
    assert "  this process    rank 1 of 4 (local 1 of 2), found by torchrun\n" in shown
    assert (
        "  read from       torchrun: RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2\n" in shown
    )
    assert shown.endswith(
        "\nAll fine. Next:  fastfeed profile -- python train.py  # why is the GPU idle?"
    )


@pytest.mark.parametrize(
    ("packages", "cuda", "advice"),
    [
        (
            {},
            13000,
            (
                "To decode on the GPU (the driver runs CUDA 13.0):\n     pip install"
                " 'fastfeed[cuda13]'"
            ),
        ),
        (
            {},
            12040,
            (
                "To decode on the GPU (the driver runs CUDA 12.4):\n     pip install"
                " 'fastfeed[cuda12]'"
            ),
        ),
        ({}, 11080, "The NVIDIA driver stops at CUDA 11.8; update it to one for CUDA 12 or newer."),
        (
            {"nvidia-dali-cuda130": "2.4.0"},
            12080,
            (
                "DALI is built for CUDA 13, but the driver stops at CUDA 12.8:\n"
                "     pip uninstall -y nvidia-dali-cuda130 && pip install 'fastfeed[cuda12]'"
            ),
        ),
    ],
)
def test_driver_decides_the_extra(packages: dict[str, str], cuda: int, advice: str) -> None:
    report = look(packages, nvml(cuda))
    assert f"\nTo do:\n  1. {advice}\n\nNext:  fastfeed profile -- " in text(report, 120)
    assert not any(advice.problem for advice in report.advice)


def test_dali_for_cuda_12_runs_on_a_newer_driver() -> None:
    assert look({"nvidia-dali-cuda120": "2.4.0"}, nvml(13000)).advice == ()


def test_both_dali_builds_are_a_problem() -> None:
    for gpu, extra in [(nvml(13000), "cuda13"), (nvml(12040), "cuda12"), (NO_NVML, "cuda13")]:
        report = look(BOTH, gpu)
        assert [advice.problem for advice in report.advice] == [True]
        assert text(report).endswith(
            "\nTo fix:\n  1. Both DALI builds are installed and overwrite each other's files. Keep"
            " one:\n     pip uninstall -y nvidia-dali-cuda120 nvidia-dali-cuda130 && pip install"
            f" 'fastfeed[{extra}]'"
        )


def test_unreadable_launcher_is_a_problem_and_keeps_its_text() -> None:
    report = look(environ={"RANK": "4", "WORLD_SIZE": "4"})
    assert report.world is None
    assert "  this process    unknown, see below\n" in text(report)
    assert text(report, 300).endswith(
        "\nTo fix:\n  1. The launcher's environment cannot be read: torchrun: RANK=4 WORLD_SIZE=4,"
        " one process per machine assumed: rank must be in [0, 4), got 4; pass the global rank, not"
        " the local one, or unset RANK."
    )


def test_missing_and_doubled_packages() -> None:
    bare = collect(environ={}, version=lambda name: None, nvml="no_such_module")
    assert bare.no_gpu == "unknown: nvidia-ml-py is not installed"
    shown = text(replace(bare, open_files=None))
    assert shown.startswith("fastfeed (source tree, not installed), Python ")
    assert "  Pillow          not installed\n  DALI            not installed\n" in shown
    assert "  none            fastfeed feeds NumPy arrays without one\n" in shown
    assert "Pillow is missing; every feed needs it:\n     pip install pillow\n" in shown
    assert "fastfeed watch:\n     pip install nvidia-ml-py\n" in shown
    assert "\nOptional:\n  1. No framework is installed, so feeds yield NumPy arrays." in shown
    assert "less memory:\n     pip install 'fastfeed[vips]'" in shown and bare.next is None


def test_without_the_kernel_it_says_how_to_build_it() -> None:
    report = replace(look(), kernel=None)
    for manager, packages in PACKAGES.items():
        [advice] = advise(replace(report, package_manager=manager))
        assert advice.command == f"{packages} && {reinstall()}" and advice.problem
    [advice] = advise(report)
    assert (
        advice.command == f"FASTFEED_BUNDLED=1 {reinstall()}"
        and "(with a C++ compiler and NASM)" in advice.text
    )
    [advice] = advise(replace(report, platform="Windows 11 AMD64"))
    assert advice.command is None and advice.text.endswith("A wheel has it.")
    assert reinstall("no-such-package").endswith(" no-such-package")


def test_a_keras_without_a_backend_and_a_machine_that_can_run_the_demo() -> None:
    assert [each.command for each in look({"keras": "3.15.1"}).advice] == [
        "pip install 'fastfeed[tf]'"
    ]
    ready = look({"keras": "3.15.1", "tensorflow-cpu": "2.21.0"})
    assert text(ready).endswith(
        "\nAll fine. Next:  fastfeed demo  # trains on generated photographs"
    )


def test_a_driver_that_fails_leads_to_nvidia_smi() -> None:
    assert look(gpu=nvml(nvmlDeviceGetName=fails("GPU is lost"))).advice[0].command == "nvidia-smi"


def test_few_open_files() -> None:
    report = replace(look(), open_files=(256, 4096))
    [advice] = advise(report)
    assert advice.text == "Only 256 files may be open at once; for many shards:"
    assert advice.command == "ulimit -n 4096"


def kernel(**other: object) -> ModuleType:
    """fastfeed._native as it describes itself."""
    module = ModuleType("native")
    facts = {"LIBJPEG_TURBO": "3.1.3", "LIBJPEG_SIMD": True, "LIBJPEG_BUNDLED": True, "LIBWEBP": ""}
    calls = {"instruction_sets": lambda: ["AVX2", "SSE4"], "libjpeg_huffman_reason": lambda: ""}
    vars(module).update(facts | calls | other)
    return module


def test_the_kernel_names_its_libjpeg_and_instruction_set() -> None:
    wheel = replace(look(), kernel=find_extension(kernel()))
    assert (
        "  extension       built, libjpeg-turbo 3.1.3 (bundled, with SIMD), instruction set AVX2\n"
        in text(wheel, 120)
    )
    system = kernel(
        LIBJPEG_TURBO="2.1.5", LIBJPEG_BUNDLED=False, LIBJPEG_SIMD=False, instruction_sets=list
    )
    shown = text(replace(look(), kernel=find_extension(system)), 120)
    assert (
        "  extension       built, libjpeg-turbo 2.1.5 (the system's, without SIMD)\n  Pillow"
        in shown
    )


def test_a_libjpeg_that_decodes_alone_is_told_of() -> None:
    reason = "libjpeg-turbo 9.9.0 is not one of the known versions, 2.0 to 3.2"
    info = find_extension(kernel(libjpeg_huffman_reason=lambda: reason))
    assert info is not None
    shown = text(replace(look(), kernel=info), 160)
    assert f"\n  Huffman         decoded by libjpeg, at half the speed: {reason}\n" in shown
    assert not [*advise(replace(look(), kernel=info))], (
        "nothing can be done about the one inside the wheel"
    )
    [advice] = advise(replace(look(), kernel=replace(info, bundled=False)))
    assert advice.command == f"FASTFEED_BUNDLED=1 {reinstall()}"


def test_a_kernel_built_earlier_is_shown_without_its_version() -> None:
    assert "  extension       built\n" in text(
        replace(look(), kernel=find_extension(ModuleType("native")))
    )


def test_nvml_may_fail_halfway() -> None:
    shared = look(gpu=nvml(nvmlDeviceGetMemoryInfo=fails("Not Supported")))
    assert shared.gpus == (GpuInfo("NVIDIA H200", None), GpuInfo("NVIDIA H200", None))
    assert "  GPU 0           NVIDIA H200, memory unknown\n" in text(shared)
    assert (
        look(gpu=nvml(nvmlDeviceGetName=fails("GPU is lost"))).no_gpu == "not readable: GPU is lost"
    )
    assert look(gpu=nvml(count=0)).no_gpu == "none"


def test_command_prints_json_and_exit_codes() -> None:
    app = typer.Typer()
    app.command()(doctor)
    clean: dict[str, str | None] = dict.fromkeys(
        ("RANK", "WORLD_SIZE", "SLURM_JOB_ID", "SLURM_STEP_NUM_TASKS")
    )
    shown = CliRunner().invoke(app, ["--json"], env=clean)
    facts = json.loads(shown.stdout)
    assert shown.exit_code == (1 if any(advice["problem"] for advice in facts["advice"]) else 0)
    assert set(facts) == set(MachineReport.__dataclass_fields__)
    assert facts["world"]["found_by"] == "default: no launcher in the environment"
    broken = CliRunner().invoke(app, [], env=clean | {"RANK": "4", "WORLD_SIZE": "4"})
    assert broken.exit_code == 1
    assert (
        "To fix:\n  1. The launcher's environment cannot be read: torchrun: RANK=4" in broken.stdout
    )


def test_doctor_imports_no_framework() -> None:
    code = (
        "import sys; from fastfeed.cli.doctor.command import collect; collect();print([name for name in"
        " ('tensorflow', 'keras', 'jax', 'torch', 'ray', 'nvidia.dali', 'cv2') if name in"
        " sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
