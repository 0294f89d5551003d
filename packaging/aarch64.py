"""Build the wheel for Linux on aarch64 from another machine: `make wheel ARCH=aarch64`.

zig is the compiler. Python for aarch64, from Debian's packages, runs the build under QEMU, so that
tags, headers and names are those of the other machine; CMake, Ninja and zig run natively.
LIBJPEG_SOURCE, LIBWEBP_SOURCE and HIGHWAY_SOURCE are as for `make wheel`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from debian import unpack
from wheels import CONSTRAINTS, LARGEST, ROOT, commit_time

TARGET, TAG = "aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64"
TOOLS = ("ziglang==0.17.1", "cmake==4.4.0", "ninja==1.13.2", "wheel==0.47.0", "abi3audit==0.0.26")
DEBIAN = (
    "python3.13-minimal",
    "libpython3.13-stdlib",
    "libpython3.13-dev",
    "libffi8",
    "libsqlite3-0",
    "libstdc++6",
    "zlib1g",
)
PLATFORMS = (
    "manylinux_2_28_aarch64",
    "manylinux_2_27_aarch64",
    "manylinux_2_17_aarch64",
    "manylinux2014_aarch64",
)
# of what the tests below need; the package's own dependencies come from its wheel
TEST_NEEDS = ("pytest", "pytest-timeout", "hypothesis", "xxhash", "pyarrow", "pyyaml")
# a test takes seconds there; what decoding and ops give is compared with this machine
# (machine_pixels.py)
TESTS = ("tests/decode/test_executor.py", "tests/laws/test_instruction_sets.py::test_names")
# they start Python as a program, which the native extension of this machine cannot do
LEFT_OUT = ("forked_child_reads", "process_ends_while_a_daemon_thread")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the wheel")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "aarch64", help="folder for the build"
    )
    parser.add_argument(
        "--test", nargs="*", metavar="TESTS", help="also run these tests of the tree under QEMU"
    )
    parser.add_argument(
        "--reference",
        type=Path,
        default=ROOT / ".venv" / "bin" / "python",
        help=(
            "Python of this machine with fastfeed and its kernel, whose pixels --test compares with"
        ),
    )
    arguments = parser.parse_args()
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if not qemu:
        sys.exit("QEMU runs Python for aarch64 (Debian, Ubuntu: apt-get install qemu-user-static).")
    machine = Machine(arguments.work.resolve(), qemu)
    machine.prepare()
    wheel = machine.build(arguments.out.resolve())
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.2f} MB")
    if arguments.test is not None:
        sys.exit(
            machine.test(wheel, arguments.test or TESTS) or machine.compare(arguments.reference)
        )


class Machine:
    """The other machine: its Python under QEMU, and the compiler for it, in one folder."""

    def __init__(self, work: Path, qemu: str) -> None:
        self.work, self.qemu = work, qemu
        self.root, self.tools, self.backend = work / "root", work / "tools", work / "backend"
        self.python = work / "bin" / "python"

    def prepare(self) -> None:
        """Fetch what is not there yet."""
        if not (self.tools / "bin" / "cmake").exists():
            subprocess.run([sys.executable, "-m", "venv", str(self.tools)], check=True)
            subprocess.run([str(self.tools / "bin" / "pip"), "install", "-q", *TOOLS], check=True)
        if not self.backend.exists():
            backend = [need for need in CONSTRAINTS if not need.startswith(("cmake", "ninja"))]
            self._install(self.backend, [*backend, "packaging"])
        if not (self.root / "usr" / "bin" / "python3.13").exists():
            unpack("trixie", "arm64", DEBIAN, self.root)
        self.python.parent.mkdir(parents=True, exist_ok=True)
        interpreter = self.root / "usr" / "bin" / "python3.13"
        _script(self.python, f'exec {self.qemu} -L {self.root} {interpreter} "$@"')
        for tool in ("cc", "c++"):
            _script(self.work / "bin" / tool, f'exec {self._zig} {tool} -target {TARGET} "$@"')
        for tool in ("ar", "ranlib"):
            _script(self.work / "bin" / tool, f'exec {self._zig} {tool} "$@"')
        names = {"C_COMPILER": "cc", "CXX_COMPILER": "c++", "AR": "ar", "RANLIB": "ranlib"}
        names |= {
            f"{language}_COMPILER_{tool.upper()}": tool
            for language in ("C", "CXX")
            for tool in ("ar", "ranlib")
        }
        lines = ["set(CMAKE_SYSTEM_NAME Linux)", "set(CMAKE_SYSTEM_PROCESSOR aarch64)"]
        lines += [f"set(CMAKE_{name} {self.work / 'bin' / tool})" for name, tool in names.items()]
        (self.work / "toolchain.cmake").write_text("\n".join(lines) + "\n")
        # Python.h asks for this one header below the name of the machine; all others must be zig's
        headers = self.work / "include" / "aarch64-linux-gnu"
        headers.mkdir(parents=True, exist_ok=True)
        if not (headers / "python3.13").is_symlink():
            (headers / "python3.13").symlink_to(
                self.root / "usr/include/aarch64-linux-gnu/python3.13"
            )

    def build(self, out: Path) -> Path:
        """The wheel, checked and with its tag."""
        folder = self.work / "raw"
        shutil.rmtree(folder, ignore_errors=True)
        settings = {
            "cmake.define.Python_EXECUTABLE": str(self.python),
            "cmake.define.Python_INCLUDE_DIR": str(self.root / "usr/include/python3.13"),
            "build-dir": str(self.work / "build"),
        }
        environ = dict(os.environ, FASTFEED_BUNDLED="1", PYTHONPATH=str(self.backend))
        environ["CMAKE_TOOLCHAIN_FILE"] = str(self.work / "toolchain.cmake")
        # with the stable ABI, Python.h no longer includes stdio.h, on which nanobind counts
        environ["CXXFLAGS"] = f"-I{self.work / 'include'} -include stdio.h -Wno-macro-redefined"
        environ["PATH"] = f"{self.tools / 'bin'}{os.pathsep}{environ['PATH']}"
        environ.setdefault("SOURCE_DATE_EPOCH", commit_time())
        code = (
            f"from scikit_build_core import build; build.build_wheel({str(folder)!r}, {settings!r})"
        )
        subprocess.run([str(self.python), "-c", code], cwd=ROOT, env=environ, check=True)
        (wheel,) = folder.glob("fastfeed-*.whl")
        self._check(wheel)
        retag = [
            str(self.tools / "bin" / "wheel"),
            "tags",
            "--remove",
            "--platform-tag",
            TAG,
            str(wheel),
        ]
        subprocess.run(retag, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = folder.glob("fastfeed-*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out))

    def _check(self, wheel: Path) -> None:
        """Exit with what is wrong with it."""
        shutil.unpack_archive(wheel, self.work / "unpacked", "zip")
        (kernel,) = (self.work / "unpacked" / "fastfeed").glob("_native*.so")
        symbols = subprocess.check_output(["readelf", "--dyn-syms", "-W", str(kernel)], text=True)
        versions = {
            tuple(map(int, found.split("."))) for found in re.findall(r"@GLIBC_([\d.]+)", symbols)
        }
        faults = [] if max(versions) <= (2, 17) else [f"it needs glibc {max(versions)}"]
        if wheel.stat().st_size > LARGEST:
            faults.append(
                f"at most {LARGEST / 1e6:.0f} MB, got {wheel.stat().st_size / 1e6:.2f} MB"
            )
        if subprocess.run(
            [str(self.tools / "bin" / "abi3audit"), "--strict", "-s", str(wheel)], check=False
        ).returncode:
            faults.append("symbols that are not in the stable ABI")
        if faults:
            sys.exit(f"{wheel.name} cannot be released: {'; '.join(faults)}.")

    def test(self, wheel: Path, tests: list[str] | tuple[str, ...]) -> int:
        """Run tests of a copy of the tree, without the package itself, with the wheel.

        The exit status.
        """
        site, tree = self.work / "site", self.work / "tree"
        if not (site / "pytest_timeout.py").exists():
            self._install(site, TEST_NEEDS)
        shutil.rmtree(site / "fastfeed", ignore_errors=True)
        self._install(site, [str(wheel)])
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir()
        shutil.copytree(ROOT / "tests", tree / "tests")
        shutil.copy(ROOT / "pyproject.toml", tree)
        shutil.copy(ROOT / "packaging" / "machine_pixels.py", tree)
        # warnings of other packages' newest versions are no errors here
        options = ["-P", "-m", "pytest", "-o", "filterwarnings=default", "-m", "not slow", *tests]
        options += ["-k", " and ".join(f"not {name}" for name in LEFT_OUT)]
        environ = dict(os.environ, PYTHONPATH=str(site), PYTHONDONTWRITEBYTECODE="1")
        return subprocess.run(
            [str(self.python), *options], cwd=tree, env=environ, check=False
        ).returncode

    def compare(self, reference: Path) -> int:
        """Decode and augment the same files on both machines, after `test`.

        The exit status: 0 for the same bytes.
        """
        tree, folder = self.work / "tree", self.work / "pixels"
        folder.mkdir(exist_ok=True)
        files, ours, theirs = (str(folder / f"{name}.npz") for name in ("files", "ours", "theirs"))
        script = "machine_pixels.py"
        native = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        emulated = native | {"PYTHONPATH": str(self.work / "site")}
        for python, environ, arguments in (
            (reference, native, ("files", files)),
            (reference, native, ("record", files, ours)),
            (self.python, emulated, ("record", files, theirs)),
            (reference, native, ("compare", ours, theirs)),
        ):
            code = subprocess.run(
                [str(python), script, *arguments], cwd=tree, env=environ, check=False
            ).returncode
            if code:
                return code
        return 0

    def _install(self, folder: Path, needs: list[str] | tuple[str, ...]) -> None:
        """Wheels for the other machine into a folder."""
        command = [
            str(self.tools / "bin" / "pip"),
            "install",
            "-q",
            "--upgrade",
            "--target",
            str(folder),
        ]
        command += ["--python-version", "3.13", "--implementation", "cp", "--only-binary=:all:"]
        for abi in ("cp313", "abi3", "none"):
            command += ["--abi", abi]
        for platform in PLATFORMS:
            command += ["--platform", platform]
        subprocess.run([*command, *needs], check=True)

    @property
    def _zig(self) -> str:
        return f"{self.tools / 'bin' / 'python'} -m ziglang"


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


if __name__ == "__main__":
    main()
