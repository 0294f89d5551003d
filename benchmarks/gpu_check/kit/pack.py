"""`make gpu-kit`: build/gpu-kit with parts of at most 50 MB, a manifest with their SHA-256, and
run.py.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.kit import contents, parts, unpack
from benchmarks.gpu_check.kit.slim import slim

ROOT = Path(__file__).resolve().parents[3]
CODE = ("benchmarks/gpu_check",)
_LARGE = 5_000_000  # bytes of a package that is made smaller
_TREE = ("pyproject.toml", "README.md", "LICENSE", "packaging/licenses", "fastfeed")
WITHOUT = """
NO WHEEL WITH THE KERNEL TRAVELS. The other machine would build fastfeed from its source, which
takes minutes of its time, a C++ compiler, CMake, scikit-build-core, nanobind and the headers of
libjpeg-turbo and Highway. If one of them is missing there, Pillow decodes, and no rate of the
native extension, of hybrid or of training says anything.
"""
ADVICE = (
    "Install Python 3.12 or newer, a C++ compiler and NASM, or name them: make gpu-kit"
    " ARGS='--python PATH', or ARGS='--wheel FILE' with a wheel from the release. To send the"
    " source alone: make gpu-kit ARGS=--without-kernel."
)
_RUN = '''"""What to do is in benchmarks/gpu_check/README.md; `python3 run.py --help` has the options."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchmarks.gpu_check.run import main

sys.exit(main())
'''


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="gpu-kit", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "gpu-kit", help="folder of the kit"
    )
    parser.add_argument(
        "--part-mb", type=float, default=50, help="size of a part at most, MB (10^6 bytes)"
    )
    parser.add_argument("--python", default=_python(), help="that builds the wheel, 3.12 or newer")
    parser.add_argument("--wheel", type=Path, help="fastfeed's wheel, instead of building one")
    parser.add_argument(
        "--gpu",
        type=float,
        help="compute capability of the other machine's GPU, such as 9.0: a third of the size",
    )
    parser.add_argument(
        "--without-kernel",
        action="store_true",
        help="build none: the other machine builds the source",
    )
    parser.add_argument(
        "--code-alone",
        action="store_true",
        help="no packages: run.py and its code, for this machine (`make gpu-check`)",
    )
    options = parser.parse_args(arguments)
    if options.code_alone:
        packed(options.out, [], options.part_mb, "{}.{}".format(*sys.version_info[:2]))
        return
    work = options.out.parent / f"{options.out.name}-work"
    wheel = options.wheel or (None if options.without_kernel else built(options.python, work))
    if wheel is None:
        print(WITHOUT, flush=True)
        if not options.without_kernel:
            sys.exit(f"No kit was packed. {ADVICE}")
    packages = contents.download(work / "packages")
    if missing := contents.lacking([*([wheel] if wheel else []), *packages]):
        sys.exit(
            f"These would be missing there: {'; '.join(missing)}. Add them to"
            " benchmarks/gpu_check/kit/contents.py."
        )
    if options.gpu:
        packages = slimmed(packages, work / f"slim-{options.gpu:g}", round(10 * options.gpu))
    files = [*([wheel] if wheel else []), source(work), *packages]
    told = packed(
        options.out,
        files,
        options.part_mb,
        contents.PYTHON,
        f"{options.gpu:.1f}" if options.gpu else "",
    )
    size = sum(part["bytes"] for part in told["parts"].values())
    print(
        f"{len(told['parts'])} parts, {size / 1e6:.0f} MB in all, {options.out}; next:"
        f" {options.out / 'README.md'}"
    )


def slimmed(packages: list[Path], folder: Path, generation: int) -> list[Path]:
    """NVIDIA's with device code for this compute capability alone; those of an earlier call are
    used again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    large = [
        path
        for path in packages
        if path.name.startswith("nvidia_") and path.stat().st_size > _LARGE
    ]
    for path in large:
        if not (folder / path.name).is_file():
            print(f"making {path.name} smaller, which takes minutes for DALI", flush=True)
            slim(path, folder / path.name, generation, contents.PYTHON)
    return [folder / path.name if path in large else path for path in packages]


def packed(
    out: Path, files: list[Path], part_mb: float, python: str, gpu: str = ""
) -> dict[str, Any]:
    """Make the folder; the manifest. gpu: the compute capability that the packages are for; "" for
    all.
    """
    out.mkdir(parents=True, exist_ok=True)
    manifest = parts.write(files, out, int(part_mb * 1e6))
    (out / "run.py").write_text(_RUN)
    shutil.copy(ROOT / "benchmarks" / "gpu_check" / "README.md", out / "README.md")
    code: dict[str, str] = {}
    shutil.rmtree(out / "benchmarks", ignore_errors=True)
    for path in _code():
        name = path.relative_to(ROOT)
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, out / name)
        code[str(name)] = parts.sha256(path)
    (
        out / "benchmarks" / "__init__.py"
    ).touch()  # a package of this name that is installed there would come first
    manifest |= {"format": 1, "python": python, "gpu": gpu, "commit": commit(), "code": code}
    (out / parts.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def _code() -> list[Path]:
    found = [
        path
        for name in CODE
        for path in sorted([ROOT / name, *(ROOT / name).rglob("*")])
        if path.is_file()
    ]
    return [path for path in found if path.suffix in (".py", ".cpp", ".md")]


def _python() -> str:
    """A Python of the other machine's version or newer: one wheel serves them all."""
    names = ["python3.12", "python3.13", "python3.14"]
    names += map(str, sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python3")))
    for name in names:
        try:
            if (
                subprocess.run(
                    [name, "-c", ""], capture_output=True, timeout=60, check=False
                ).returncode
                == 0
            ):
                return name
        except (OSError, subprocess.TimeoutExpired):
            continue
    return names[0]


def built(python: str, work: Path) -> Path | None:
    """The wheel of this tree, with its kernel; None, with a sentence, where it cannot be built
    here.
    """
    command = [
        sys.executable,
        str(ROOT / "packaging" / "wheels.py"),
        "--python",
        python,
        "--out",
        str(work / "wheel"),
    ]
    shutil.rmtree(work / "wheel", ignore_errors=True)
    done = subprocess.run([*command, "--work", str(work / "build")], check=False)
    found = sorted((work / "wheel").glob("fastfeed-*.whl"))
    if done.returncode or not found:
        print(f"The wheel was not built with {python}.")
        return None
    if wrong := _loads(python, found[0], work / "unpacked"):
        print(f"The wheel's kernel does not load: {wrong}.")
        return None
    return found[0]


def _loads(python: str, wheel: Path, folder: Path) -> str:
    """Empty if its kernel can be imported, else why not: symbols are only looked up then."""
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return unpack.kernel_loads(
        dict(os.environ, PYTHONPATH=str(folder), PYTHONSAFEPATH="1"), folder, python
    )


def source(work: Path) -> Path:
    """The source tree as an archive."""
    work.mkdir(parents=True, exist_ok=True)
    path = work / unpack.SOURCE

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if "__pycache__" in info.name or info.name.endswith((".so", ".pyc")):
            return None
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(path, "w:gz") as archive:
        for name in _TREE:
            archive.add(ROOT / name, name, filter=plain)
    return path


def commit() -> str | None:
    """Of this tree."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def toy_wheel(folder: Path) -> Path:
    """A wheel of one module, for the dry run: it takes the packages' place."""
    path = folder / "gpu_kit_toy-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("gpu_kit_toy.py", f"filling = {os.urandom(150_000).hex()!r}\n")
    return path


if __name__ == "__main__":
    main()
