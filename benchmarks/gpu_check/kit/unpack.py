"""Wheels into a folder that comes first on the path; the source is built where the wheel does not
fit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

SOURCE = "fastfeed-source.tar.gz"  # built there, should the wheel not fit
LOAD_SECONDS = 120
# packages of NVIDIA are installed in two places: ours, and PyTorch's
_NAMESPACE = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"


def wheels(files: list[Path], site: Path) -> list[str]:
    """Extract those that are not there yet; a sentence for each that cannot be."""
    site.mkdir(parents=True, exist_ok=True)
    wrong = []
    for path in files:
        stamp = site / f".{path.name}"
        if path.suffix != ".whl" or stamp.exists():
            continue
        try:
            _extract(path, site)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            wrong.append(f"{path.name} could not be unpacked: {error}")
        else:
            stamp.touch()
    if (site / "nvidia").is_dir():
        (site / "nvidia" / "__init__.py").write_text(_NAMESPACE)
    return wrong


def _extract(path: Path, site: Path) -> None:
    root = site.resolve()
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            head, _, rest = info.filename.partition("/")
            if head.endswith(
                ".data"
            ):  # purelib and platlib belong here; scripts and headers are not needed
                kind, _, name = rest.partition("/")
                if kind not in ("purelib", "platlib"):
                    continue
                info.filename = name
            if not (root / info.filename).resolve().is_relative_to(root):
                raise ValueError(f"{info.filename!r} lies outside")
            if info.filename and not info.is_dir():
                archive.extract(info, site)


def kernel_loads(environ: dict[str, str], folder: Path, python: str = sys.executable) -> str:
    """Empty if fastfeed comes with its kernel, else why not. folder: an empty one, or Python would
    import from here.
    """
    command = [python, "-c", "import fastfeed._native"]
    try:
        done = subprocess.run(
            command,
            env=environ,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LOAD_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: it could not be tried"
    return (
        ""
        if done.returncode == 0
        else (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    )


def build(archive: Path, site: Path, work: Path, seconds: float) -> str:
    """Build the source into `site` with the machine's build tools; empty, or a sentence."""
    tree = work / "source"
    with tarfile.open(archive) as packed:
        packed.extractall(tree, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
        "--no-index",
    ]
    command += [
        "--no-build-isolation",
        "--no-deps",
        "--no-compile",
        "--upgrade",
        "--target",
        str(site),
        str(tree),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"building fastfeed took longer than {seconds:.0f} s: Pillow decodes instead place."
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"fastfeed could not be built here ({last}): steps that need it are left out."
    return ""


def paths(kit: Path, site: Path, work: Path, stand_in: bool) -> dict[str, str]:
    """The environment of every step."""
    environ = dict(os.environ)
    found = [str(site), str(kit), *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    environ["PYTHONPATH"] = os.pathsep.join(found)
    # JAX shares the GPU with PyTorch and DALI
    environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    environ["FASTFEED_CACHE"] = str(work / "cache")  # what is measured here is this machine's
    environ["PYTHONUNBUFFERED"] = environ["PYTHONFAULTHANDLER"] = (
        "1"  # where a step crashed is in its log
    )
    environ["PYTHONSAFEPATH"] = "1"  # the folder of the call may hold a fastfeed without its kernel
    if stand_in:
        environ |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
        # compiling takes longer than what is compiled
        environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    return environ
