"""Runs the decode tests on other versions of libjpeg-turbo, and compares the pixels: `make
test-libjpeg ARCHIVES=...`.

Each archive is built as a shared library, which takes the place of the system's for the kernel that
is installed here. `git archive --prefix=libjpeg-turbo-3.2.0/ -o 3.2.0.tar.gz 3.2.0` in a clone of
libjpeg-turbo makes one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "libjpeg"
# pixels of files of every kind that the kernel reads itself, whole and in windows, by both
# decoders; and files that it makes of whole ones, whose planes are scaled one by one
HASH = """
import hashlib, io, itertools, sys
import numpy as np
from PIL import Image, ImageFile
ImageFile.MAXBLOCK = 1 << 22
import fastfeed._native as native
assert not native.libjpeg_huffman_reason(), native.libjpeg_huffman_reason()
loaded = [line.split()[-1] for line in open("/proc/self/maps") if "libjpeg.so" in line and "pillow" not in line]
assert set(loaded) == {sys.argv[1]}, (loaded, sys.argv[1])
sum, y = hashlib.sha256(), np.mgrid[:203, :157]
for progressive, subsampling, quality, rows in itertools.product((0, 1), (0, 1, 2), (30, 90, 100), (0, 1)):
    pixels = np.stack([y[0] * 3 % 251, y[1] * 5 % 241, np.random.default_rng(quality).integers(0, 255, y[0].shape)], -1)
    file = io.BytesIO()
    more = {"restart_marker_rows": rows} if rows else {}
    Image.fromarray(pixels.astype(np.uint8)).save(
        file, "jpeg", quality=quality, subsampling=subsampling, progressive=bool(progressive), **more)
    for box in ((0, 0, 203, 157), (31, 17, 100, 64), (8, 8, 16, 16)):
        for shape in ((64, 64), (17, 33)):
            out = np.zeros((1, *shape, 3), np.uint8)
            codes = np.zeros(1, np.int8)
            native.Pool(1).decode([file.getvalue()], np.array([box], float), np.zeros((1, 2), bool), out, codes, 1,
                                  1 << 30, 1.0)
            assert codes[0] == 0, codes
            sum.update(out.tobytes())
    whole = np.array([(0.0, 0.0, 203.0, 157.0)])
    for shape, subsampled in itertools.product(((64, 50), (33, 25), (203, 157)), (False, True)):
        codes = np.zeros(1, np.int8)
        how = 2, 1 << 30, 2.0, (255, 255, 255), 90, subsampled, False
        sum.update(*native.Pool(1).recode(
            [file.getvalue()], whole, np.zeros((1, 2), bool), np.array([shape]), codes, *how))
        assert codes[0] == 0, codes
print(sum.hexdigest())
"""


def main() -> None:
    if not sys.argv[1:]:
        sys.exit(
            "Pass archives of libjpeg-turbo: make test-libjpeg ARCHIVES='2.1.5.tar.gz 3.2.0.tar.gz'"
        )
    hashes: dict[str, str] = {}
    for archive in map(Path, sys.argv[1:]):
        library = shared_library(archive)
        environ = dict(
            os.environ, LD_LIBRARY_PATH=str(library.parent), PYTHONPATH=str(ROOT / "tests")
        )
        command = [sys.executable, "-c", HASH, str(library)]
        name = library.parent.parent.name
        hashes[name] = subprocess.check_output(command, env=environ, cwd=ROOT, text=True).strip()
        print(f"{name}: pixels {hashes[name][:16]}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "tests/decode"]
        if subprocess.run(command, check=False, env=environ, cwd=ROOT).returncode:
            sys.exit(f"The decode tests fail with libjpeg-turbo {name}.")
    if len(set(hashes.values())) > 1:
        sys.exit(f"The pixels differ between versions of libjpeg-turbo: {hashes}.")
    print(f"The same pixels, and all tests pass, with libjpeg-turbo {', '.join(hashes)}.")


def shared_library(archive: Path) -> Path:
    """The file of libjpeg.so.62, built from the archive."""
    with tarfile.open(archive) as files:
        name = files.getnames()[0].split("/")[0]
        folder = WORK / name.removeprefix("libjpeg-turbo-")
        done = sorted((folder / "lib").glob("libjpeg.so.62.*"))
        if done:
            return done[0]
        shutil.rmtree(folder, ignore_errors=True)
        files.extractall(folder / "source", filter="data")
    options = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DREQUIRE_SIMD=ON",
        "-DWITH_TURBOJPEG=OFF",
        "-DENABLE_STATIC=OFF",
    ]
    options += ["-DWITH_TOOLS=OFF", "-DWITH_TESTS=OFF", "-DCMAKE_POLICY_VERSION_MINIMUM=3.5"]
    build = ["cmake", "-S", str(folder / "source" / name), "-B", str(folder / "build"), *options]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    command = ["cmake", "--build", str(folder / "build"), "--target", "jpeg", "--parallel"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (folder / "lib").mkdir()
    for file in (folder / "build").glob("libjpeg.so*"):
        shutil.copy(file, folder / "lib", follow_symlinks=False)
    return sorted((folder / "lib").glob("libjpeg.so.62.*"))[0]


if __name__ == "__main__":
    main()
