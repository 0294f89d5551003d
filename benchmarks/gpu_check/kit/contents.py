"""Which packages travel: what fastfeed and the steps need and a machine with PyTorch, JAX and CuPy
lacks.

In order of worth, since parts may arrive one at a time: all that is not DALI is in the first.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from pathlib import Path

PYTHON = "3.12"
PACKAGES = (
    # what fastfeed imports, its commands, and nets in Keras
    "fsspec==2026.9.0",
    "google-crc32c==1.9.0",
    "nvidia-ml-py==13.615.71",
    "typer==0.18.0",
    "click==8.2.1",
    "shellingham==1.5.4",
    "rich==15.0.0",
    "markdown-it-py==4.3.0",
    "mdurl==0.1.2",
    "pygments==2.21.0",
    "packaging==26.3",
    "keras==3.15.1",
    "absl-py==2.5.1",
    "h5py==3.14.0",
    "namex==0.1.0",
    "optree==0.20.0",
    # the program that asks the engine itself
    "nvidia-nvjpeg==13.3.2.43",
    # DALI's: below and with it
    "astunparse==1.6.3",
    "gast==0.7.0",
    "six==1.17.0",
    "makefun==1.16.0",
    "libcst==1.9.0",
    "pyyaml==6.0.3",
    "nvtx==0.2.17",
    "nvidia-nvimgcodec-cu13==0.9.0.20",
    "nvidia-dali-cuda130==2.4.0",
    # other formats than JPEG, in which nothing here is stored
    "nvidia-libnvcomp-cu13==5.3.0.16",
    "nvidia-nvjpeg2k-cu13==0.11.0.51",
    "nvidia-nvtiff-cu13==0.8.0.82",
)
# on the other machine, with PyTorch, torchvision and JAX; OpenCV may be missing, then steps without
# it run
THERE = ("numpy", "pillow", "opencv-python-headless", "ml-dtypes", "typing-extensions")
_UNUSED = ("wheel",)  # that astunparse asks for and does not import
# pip takes each literally: none stands for the older ones
_PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (39, 35, 34, 31, 28, 27, 24, 17, 12, 5)]
_PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]


def download(into: Path, packages: tuple[str, ...] = PACKAGES) -> list[Path]:
    """The wheels, in this order; those of an earlier call are used again."""
    into.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "-q",
        "--no-deps",
    ]
    command += [
        "--only-binary=:all:",
        "--python-version",
        PYTHON,
        "--implementation",
        "cp",
        "-d",
        str(into),
    ]
    for platform in _PLATFORMS:
        command += ["--platform", platform]
    missing = [package for package in packages if _find(into, package) is None]
    if missing and subprocess.run([*command, *missing], check=False).returncode:
        sys.exit(
            f"pip could not download {', '.join(missing)}: see its message above; a package index"
            " must be reachable."
        )
    return [found for package in packages if (found := _find(into, package)) is not None]


def _find(into: Path, package: str) -> Path | None:
    name, version = package.split("==")
    stem = f"{name.replace('-', '_')}-{version}".lower()
    return next(
        (path for path in sorted(into.glob("*.whl")) if path.name.lower().startswith(f"{stem}-")),
        None,
    )


def lacking(wheels: Iterable[Path]) -> list[str]:
    """What these wheels require that neither travels with them nor is there: "keras wants
    absl-py".
    """
    wants: list[tuple[str, str]] = []
    names = {*THERE, *_UNUSED}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            inside = next(
                name
                for name in archive.namelist()
                if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)
            )
            told = Parser().parsestr(archive.read(inside).decode())
        name = _plain(told["Name"])
        names.add(name)
        wants += [(name, requirement) for requirement in told.get_all("Requires-Dist") or []]
    asked = {
        (name, _plain(re.split(r"[^\w.-]", text, maxsplit=1)[0]))
        for name, text in wants
        if _applies(text)
    }
    return sorted(f"{name} wants {other}" for name, other in asked if other not in names)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _applies(requirement: str) -> bool:
    """Whether it is for this Python on Linux; extras are not asked for."""
    marker = requirement.partition(";")[2]
    if "extra" in marker or "Windows" in marker or "win32" in marker:
        return False
    found = re.search(r'python_version\s*(<|>=|==|>|<=)\s*"3\.(\d+)"', marker)
    own, asked = (int(PYTHON.split(".")[1]), int(found[2])) if found else (0, 0)
    return (
        not found
        or {
            "<": own < asked,
            "<=": own <= asked,
            "==": own == asked,
            ">": own > asked,
            ">=": own >= asked,
        }[found[1]]
    )
