"""The nvjpeg backend against what NVIDIA ships, none of which needs a GPU: its headers, its
compiler, its library.
"""

import ctypes
import importlib.util
import itertools
import re
import subprocess
from pathlib import Path

import pytest
from helpers.cuda_on_cpu import needs_compiler
from helpers.jpegs import NO_KERNEL, native

from fastfeed.backends.nvjpeg import backend

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "fastfeed/backends/nvjpeg/windows.cu"
ENTRIES = ("unsigned char", "unsigned short", "unsigned int")


def packaged(pattern: str) -> list[Path]:
    """Files of NVIDIA's Python packages."""
    spec = importlib.util.find_spec("nvidia")
    folders = (
        [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
    )
    return sorted(path for folder in folders for path in folder.glob(pattern))


@needs_compiler
def test_declarations_are_those_of_the_headers():
    includes = {
        path.parent for name in ("cuda.h", "nvjpeg.h") for path in packaged(f"*/include/{name}")
    }
    if not packaged("*/include/cuda.h") or not packaged("*/include/nvjpeg.h"):
        pytest.skip(
            "needs NVIDIA's headers: pip install nvidia-nvjpeg nvidia-cuda-runtime nvidia-cuda-crt"
        )
    options = [f"-I{folder}" for folder in [*sorted(includes), ROOT / "fastfeed/native/gpu"]]
    source = ROOT / "tests/helpers/nvjpeg_abi.cpp"
    command = [
        "c++",
        "-std=c++17",
        "-fsyntax-only",
        "-Wno-deprecated-declarations",
        *options,
        str(source),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:4000]


@pytest.mark.parametrize(
    "gpu",
    [
        pytest.param("sm_80", marks=pytest.mark.nightly),
        pytest.param("sm_90", marks=pytest.mark.slow),  # test_nvjpeg_pixels runs it
    ],
)  # A100, H100: the oldest with a JPEG engine, and the first that ran
def test_the_kernel_compiles_with_nvidias_compiler(gpu):
    found = packaged("*/lib/libnvrtc.so.1[0-9]")
    if not found:
        pytest.skip("needs NVIDIA's run-time compiler: pip install nvidia-cuda-nvrtc")
    nvrtc, source = ctypes.CDLL(str(found[-1])), SOURCE.read_bytes()
    for entry, filter in itertools.product(ENTRIES, range(4)):
        options = (
            "--std=c++17",
            "--fmad=false",
            f"-DENTRY={entry}",
            f"-DFILTER={filter}",
            f"-arch={gpu}",
        )
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        assert (
            nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"windows.cu", 0, None, None)
            == 0
        )
        failed = nvrtc.nvrtcCompileProgram(program, len(options), given)
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        assert not failed and not log.value, log.value.decode()
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        assert size.value > 1000
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@pytest.mark.skipif(native is None, reason=NO_KERNEL)
def test_the_library_itself_has_all_functions():
    """Without a driver it is not loaded: a library that stands for the driver has what is asked of
    that one.
    """
    if not packaged("*/lib/libnvjpeg.so.1[0-9]"):
        pytest.skip("needs nvJPEG: pip install nvidia-nvjpeg")
    found = ctypes.CDLL(backend.find_nvjpeg(13))
    names = re.findall(
        r'find\(library, nvjpeg, "(\w+)"',
        (ROOT / "fastfeed/native/gpu/nvjpeg_api.cpp").read_text("utf-8"),
    )
    assert len(names) == 16 and [name for name in names if not hasattr(found, name)] == []
