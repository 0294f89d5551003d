"""`fastfeed doctor`: what this machine offers a feed, and what to install or fix.

`collect()` gathers facts and imports no framework; `doctor_advice` derives what to do; `render()`
prints both.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from importlib import import_module, metadata
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import typer
from rich.table import Table
from rich.text import Text

from fastfeed.cli.doctor.machine import (
    Advice,
    GpuInfo,
    MachineReport,
    extension_rows,
    find_extension,
)
from fastfeed.cli.screen import streams
from fastfeed.cli.screen.help import flag
from fastfeed.cli.screen.streams import Console
from fastfeed.distributed.cores import cgroup_limits
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.system.processes import memory_bytes, open_files, usable_cores

if TYPE_CHECKING:
    from fastfeed.cli.doctor.machine import MachineReport

DALI = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")
FRAMEWORKS = ("tensorflow", "tensorflow-cpu", "tf-nightly", "keras", "jax", "torch", "ray")
CODECS = {"libjpeg_turbo": "libjpeg-turbo", "webp": "libwebp", "zlib": "zlib", "libtiff": "libtiff"}
CODECS |= {"jpg_2000": "OpenJPEG", "avif": "libavif"}  # PIL.features name -> what people call it

FEW_FILES = 1024  # Linux gives this many by default; with less, a feed over many shards runs out
BACKENDS = ("tensorflow", "tensorflow-cpu", "tf-nightly", "jax", "torch")  # of Keras
# what the native extension is compiled with, by the program that installs it (docs/installing.md)
PACKAGES = {
    "apt-get": "apt-get install g++ libjpeg-dev libwebp-dev libhwy-dev python3-dev",
    "dnf": "dnf install gcc-c++ libjpeg-turbo-devel libwebp-devel highway-devel python3-devel",
    "conda": "conda install cxx-compiler libjpeg-turbo libwebp-base libhwy",
}


def doctor(as_json: Annotated[bool, flag("Print the report as JSON.", "--json")] = False) -> None:
    """Show what this machine offers, and what to install or fix.

    Checks hardware, libraries and ranks. The exit code is 1 if something has to be fixed.

    Examples:
        fastfeed doctor                    # in the environment of the trainer
        srun -n 1 fastfeed doctor          # on the machine that will train
        fastfeed doctor --json             # for a script
    """
    report = collect()
    with streams.report() as console:
        if as_json:
            typer.echo(json.dumps(asdict(report), indent=2))
        else:
            render(report, console)
    if any(advice.problem for advice in report.advice):
        raise typer.Exit(1)


def installed(name: str) -> str | None:
    """The version of an installed distribution, without importing it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def collect(
    *,
    environ: Mapping[str, str] | None = None,
    version: Callable[[str], str | None] = installed,
    nvml: Any = "pynvml",
    kernel: str | ModuleType = "fastfeed._native",
) -> MachineReport:
    """Inspect this machine for everything that `fastfeed doctor` reports.

    The arguments let tests replace the environment, packages, NVML and kernel.
    """
    try:
        world = World.detect(environ)
        world_error = None
    except ConfigError as error:
        world = None
        world_error = str(error)
    quota, memory_limit = cgroup_limits()
    cores = os.cpu_count() or 1
    pillow = version("pillow")
    report = MachineReport(
        fastfeed=version("fastfeed"),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        cores=cores,
        cores_affinity=min(usable_cores(), cores),
        cores_quota=quota,
        memory=memory_bytes(),
        memory_limit=memory_limit,
        open_files=open_files(),
        pillow=pillow,
        codecs=_codecs() if pillow else {},
        kernel=find_extension(kernel),
        dali=_versions(DALI, version),
        vips=version("pyvips"),
        frameworks=_versions(FRAMEWORKS, version),
        world=world,
        world_error=world_error,
        package_manager=next(filter(shutil.which, PACKAGES), None),
        cache=_cache(),
        **find_gpus(nvml),
    )
    return with_advice(report)


def with_advice(report: MachineReport) -> MachineReport:
    """The report, together with the advice that follows from it."""
    advice = tuple(advise(report))
    is_broken = any(each.problem for each in advice)
    return replace(report, advice=advice, next=None if is_broken else next_command(report))


def find_gpus(nvml: Any) -> dict[str, Any]:
    """The last fields of MachineReport: GPUs and driver, or why none was found.

    `nvml` is the module or its name.
    """
    if isinstance(nvml, str):
        try:
            nvml = import_module(nvml)
        except ImportError:
            return {"no_gpu": "unknown: nvidia-ml-py is not installed"}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"no_gpu": f"none: no NVIDIA driver answers ({error})"}
    try:
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        gpus = tuple([GpuInfo(nvml.nvmlDeviceGetName(h), _gpu_memory(nvml, h)) for h in handles])
        number = nvml.nvmlSystemGetCudaDriverVersion()
        driver = nvml.nvmlSystemGetDriverVersion()
        cuda = (number // 1000, number % 1000 // 10)  # 12040 is 12.4
        return {"gpus": gpus, "no_gpu": None if gpus else "none", "driver": driver, "cuda": cuda}
    except nvml.NVMLError as error:
        return {"no_gpu": f"not readable: {error}"}
    finally:
        nvml.nvmlShutdown()


def render(report: MachineReport, console: Console) -> None:
    """Print the report for a person."""
    fastfeed = f"fastfeed {report.fastfeed or '(source tree, not installed)'}"
    console.print(Text(f"{fastfeed}, Python {report.python}, {report.platform}", style="bold"))
    for title, rows in sections(report):
        table = Table.grid(padding=(0, 2))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in rows:
            # Text: brackets are not markup here; filled up, as versions of Rich differ in what a
            # least width includes
            table.add_row(Text(f"  {name}".ljust(16)), Text(value))
        console.print(Text(f"\n{title}", style="bold"))
        console.print(table)
    optional = [advice for advice in report.advice if advice.optional]
    needed = [advice for advice in report.advice if not advice.optional]
    if needed:
        broken = any(advice.problem for advice in needed)
        title, style = ("To fix:", "bold red") if broken else ("To do:", "bold yellow")
        _list(needed, title, style, console)
    if optional:
        _list(optional, "Optional:", "bold", console)
    if report.next:
        text = Text("\nNext:  " if needed else "\nAll fine. Next:  ", style="bold green")
        console.print(text.append(report.next, style="default"), soft_wrap=True)


def _list(all_advice: list[Advice], title: str, style: str, console: Console) -> None:
    console.print(Text(f"\n{title}", style=style))
    for number, advice in enumerate(all_advice, 1):
        line = Table.grid(padding=(0, 1))
        line.add_row(f"  {number}.", Text(advice.text))
        console.print(line)
        if advice.command:  # never wrapped: it is there to be copied
            console.print(Text(f"     {advice.command}", style="bold"), soft_wrap=True)


def sections(report: MachineReport) -> list[tuple[str, list[tuple[str, str]]]]:
    """The report as titled rows of plain text."""
    usable = min(report.cores_affinity, report.cores_quota or report.cores_affinity)
    why = [f"affinity {report.cores_affinity}"] if report.cores_affinity < report.cores else []
    why += [f"quota {report.cores_quota:g}"] if report.cores_quota else []
    cores = f"{usable:g} of {report.cores} usable" + (f" ({', '.join(why)})" if why else "")
    memory = _gib(report.memory)
    if report.memory_limit and report.memory_limit < (report.memory or 1 << 60):
        memory = f"{_gib(report.memory_limit)} of {memory} (cgroup limit)"
    machine = [("CPU cores", cores), ("memory", memory)]
    if report.open_files:
        soft, hard = (f"{limit}" if limit >= 0 else "no limit" for limit in report.open_files)
        files = soft if soft == hard else f"{soft} (can be raised to {hard})"
        machine.append(("open files", files))
    if report.cache and report.cache[1]:
        folder, size, limit = report.cache
        used = f"{size / 1e9:.1f} of {limit / 1e9:g} GB"
        machine.append(("cache", f"{used} of indexes and tables in {folder}"))
    machine += [
        (f"GPU {i}", f"{gpu.name}, {_gib(gpu.memory)}") for i, gpu in enumerate(report.gpus)
    ]
    machine += [("GPU", report.no_gpu)] if report.no_gpu else []
    if report.driver and report.cuda:
        machine.append(("driver", f"{report.driver}, runs CUDA {report.cuda[0]}.{report.cuda[1]}"))
    codecs = ", ".join(f"{name} {version}" for name, version in report.codecs.items())
    decode = [
        *extension_rows(report.kernel),
        ("Pillow", f"{report.pillow} ({codecs})" if report.pillow else "not installed"),
        ("DALI", _listed(report.dali) or "not installed"),
        ("pyvips", report.vips or "not installed"),
    ]
    world = [("this process", str(report.world or "unknown, see below"))]
    if report.world and not report.world.found_by.startswith("default"):
        world.append(("read from", report.world.found_by))
    none = [("none", "fastfeed feeds NumPy arrays without one")]
    frameworks = [*report.frameworks.items()] or none
    return [
        ("Machine", machine),
        ("Decode", decode),
        ("Frameworks", frameworks),
        ("Ranks", world),
    ]


def _cache() -> tuple[str, int, int] | None:
    from fastfeed.sources.cache_folder import cache_folder, cache_limit, cache_size

    try:
        folder = cache_folder()
        return str(folder), cache_size(folder), cache_limit()
    except ConfigError:  # a source says so
        return None


def _versions(names: tuple[str, ...], version: Callable[[str], str | None]) -> dict[str, str]:
    return {name: number for name in names if (number := version(name)) is not None}


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{version} ({name})" for name, version in versions.items())


def _codecs() -> dict[str, str]:
    features = import_module("PIL.features")
    return {title: version for name, title in CODECS.items() if (version := features.version(name))}


def _gpu_memory(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:
        return None


def _gib(size: int | None) -> str:
    return "memory unknown" if size is None else f"{size / 2**30:.1f} GiB"


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
    dali = report.dali
    cuda = report.cuda
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
