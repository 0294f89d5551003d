"""Advice of `fastfeed doctor`: problems, improvements, and a command to try next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from fastfeed.cli.doctor.machine import Advice

if TYPE_CHECKING:
    from fastfeed.cli.doctor.machine import MachineReport

FEW_FILES = 1024  # Linux gives this many by default; with less, a feed over many shards runs out
BACKENDS = ("tensorflow", "tensorflow-cpu", "tf-nightly", "jax", "torch")  # of Keras
# what the native extension is compiled with, by the program that installs it (docs/installing.md)
PACKAGES = {
    "apt-get": "apt-get install g++ libjpeg-dev libwebp-dev libhwy-dev python3-dev",
    "dnf": "dnf install gcc-c++ libjpeg-turbo-devel libwebp-devel highway-devel python3-devel",
    "conda": "conda install cxx-compiler libjpeg-turbo libwebp-base libhwy",
}


def advise(report: MachineReport) -> Iterator[Advice]:
    """Advice for a report: problems first, optional advice last."""
    if report.world_error:
        yield Advice(
            f"The launcher's environment cannot be read: {report.world_error}.", problem=True
        )
    if not report.pillow:
        yield Advice("Pillow is missing; every feed needs it:", "pip install pillow", problem=True)
    yield from _gpu(report)
    yield from _kernel(report)
    if report.open_files and 0 <= report.open_files[0] < FEW_FILES:
        yield Advice(
            f"Only {report.open_files[0]} files may be open at once; for many shards:",
            "ulimit -n 4096",
        )
    yield from _frameworks(report)
    if not report.vips:
        yield Advice(
            "For PNGs and TIFFs left to Pillow, in less memory:",
            _extra("vips"),
            optional=True,
        )


def next_command(report: MachineReport) -> str:
    """A next command to try if nothing has to be fixed, with a comment."""
    if "keras" in report.frameworks and any(
        name.startswith(("tensorflow", "tf-")) for name in report.frameworks
    ):
        return "fastfeed demo  # trains on generated photographs"
    if report.gpus:
        return "fastfeed profile -- python train.py  # why is the GPU idle?"
    return "fastfeed show PHOTOS/  # what a trainer will see"


def reinstall(name: str = "fastfeed") -> str:
    """The command that reinstalls fastfeed from its original source."""
    try:
        origin = json.loads(metadata.distribution(name).read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {}
    url = urlsplit(str(origin.get("url", "")))
    place = unquote(url.path) if url.scheme == "file" else url.geturl() or name
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install --force-reinstall --no-deps --no-cache-dir {editable}{shlex.quote(place)}"


def _gpu(report: MachineReport) -> Iterator[Advice]:
    dali, cuda = report.dali, report.cuda
    extra = None if cuda is None or cuda < (12, 0) else "cuda13" if cuda >= (13, 0) else "cuda12"
    shown = f"{cuda[0]}.{cuda[1]}" if cuda else ""
    if len(dali) > 1:
        command = f"pip uninstall -y {' '.join(dali)} && {_extra(extra or 'cuda13')}"
        yield Advice(
            "Both DALI builds are installed and overwrite each other's files. Keep one:",
            command,
            True,
        )
    elif cuda and not extra:
        yield Advice(
            f"The NVIDIA driver stops at CUDA {shown}; update it to one for CUDA 12 or newer."
        )
    elif "nvidia-dali-cuda130" in dali and extra == "cuda12":
        command = f"pip uninstall -y nvidia-dali-cuda130 && {_extra('cuda12')}"
        yield Advice(f"DALI is built for CUDA 13, but the driver stops at CUDA {shown}:", command)
    elif extra and not dali:
        yield Advice(f"To decode on the GPU (the driver runs CUDA {shown}):", _extra(extra))
    if report.no_gpu and report.no_gpu.startswith("unknown: nvidia-ml-py"):
        yield Advice("To see GPUs, here and in fastfeed watch:", "pip install nvidia-ml-py")
    elif report.no_gpu and report.no_gpu.startswith("not readable"):
        yield Advice(
            "The NVIDIA driver does not respond correctly. To see what it reports:", "nvidia-smi"
        )


def _kernel(report: MachineReport) -> Iterator[Advice]:
    kernel = report.kernel
    if kernel is None:
        packages = PACKAGES.get(report.package_manager or "")
        command = (
            f"{packages} && {reinstall()}" if packages else f"FASTFEED_BUNDLED=1 {reinstall()}"
        )
        needs = "" if packages else " (with a C++ compiler and NASM)"
        text = "The native extension is missing; every feed needs it. A wheel has it"
        if report.platform.startswith("Windows"):
            yield Advice(f"{text}.", problem=True)
        else:
            yield Advice(f"{text}; to build it{needs}:", command, problem=True)
    elif kernel.huffman and not kernel.bundled:
        text = (
            "With the libjpeg-turbo that fastfeed builds itself (with NASM), JPEGs decode twice as"
            " fast:"
        )
        yield Advice(text, f"FASTFEED_BUNDLED=1 {reinstall()}")


def _frameworks(report: MachineReport) -> Iterator[Advice]:
    if not report.frameworks.keys() - {"ray"}:
        text = (
            "No framework is installed, so feeds yield NumPy arrays. To install Keras (or tf, jax,"
            " torch):"
        )
        yield Advice(text, _extra("keras,tf"), optional=True)
    elif "keras" in report.frameworks and not report.frameworks.keys() & set(BACKENDS):
        yield Advice("Keras has no backend. To install TensorFlow (or jax, torch):", _extra("tf"))


def _extra(names: str) -> str:
    return f"pip install 'fastfeed[{names}]'"
