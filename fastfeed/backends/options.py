"""Options for where images are decoded: on the CPU, the GPU, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.base import check_integer
from fastfeed.ops.program.program import Program

DecodeBy = Literal["auto", "cpu", "gpu", "hybrid", "native", "pillow"]

CPU = ("auto", "cpu", "native", "pillow")
GPU = ("gpu", "hybrid")
ENGINES = {"dali": "dali", "nvjpeg": "nvjpeg"}  # and the backend of each


@checked
@runs_on_gpu("dali")
@dataclass(frozen=True, slots=True)
class GpuDecode:
    """Options of decoding on a GPU.

    `Feed(decode="gpu")` and `decode="hybrid"` are shorthands for two settings.

    Args:
        engine (str): "dali", DALI's mixed decoder; "nvjpeg", the JPEG engine of an A100, A30, H100,
            H200 or newer GPU, with DALI only for lists of ops that do more than crop, resize, flip,
            pad, convert and mix. Default: "dali".
        hw_load (float | None): Share of JPEGs for the hardware JPEG engine, in [0, 1]. Default:
            None, with DALI the value measured on this machine, or 0.9 for compute capability 9.0
            (H100, H200) and 0.65 for others; with nvJPEG all that the engine decodes. Not with
            nvJPEG, whose other decoder is the native extension.
        cpu_share (float | None): Share of JPEGs decoded by the native extension, in [0, 1]; None is
            measured in the first batches, and may be 0. Default: 0.0.
        lanes (int): Batches in progress on a GPU at once, at least 1. Default: 2.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.GpuDecode(cpu_share=0.3)
        GpuDecode(engine='dali', hw_load=None, cpu_share=0.3, lanes=2)
    """

    engine: Literal["dali", "nvjpeg"] = "dali"
    hw_load: float | None = None
    cpu_share: float | None = 0.0
    lanes: int = 2

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError.of("engine", f"one of {', '.join(ENGINES)}", self.engine)
        for name in ("hw_load", "cpu_share"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not 0 <= value <= 1):
                raise ConfigError.of(name, "in [0, 1], or None", value)
        check_integer("lanes", self.lanes, 1)
        if self.engine == "nvjpeg" and self.hw_load is not None:
            raise ConfigError(
                f"nvjpeg has no decoder but the engine, got hw_load={self.hw_load!r}; use"
                " cpu_share",
                field="hw_load",
            )


def as_gpu_decode(decode: str | GpuDecode, engine: Literal["dali", "nvjpeg"]) -> GpuDecode:
    """The options that "auto", "cpu", "gpu" and "hybrid" stand for with an engine."""
    if isinstance(decode, GpuDecode):
        return decode
    # the last was slower than "gpu" on an H200, on DALI
    shares = {
        "auto": 0.0,
        "cpu": 1.0,
        "gpu": 0.0,
        "hybrid": None,
    }
    return GpuDecode(engine, cpu_share=shares[decode])


def check_pixels(program: Program, backend: str) -> None:
    """Raise ConfigError for images that a GPU's backend cannot make."""
    if backend == "cpu":
        return
    decode = program.decode
    # of DALI, the CPU decodes gray
    taken, what = ((1, 3), "gray or RGB") if backend == "dali" else ((3,), "RGB")
    is_deep = decode is None and not program.pixels.has_kernel
    if is_deep or (decode and (decode.channels not in taken or decode.dtype != "uint8")):
        got = decode or program.pixels
        raise ConfigError(
            f'backend="{backend}" makes {what} of 8 bits, got {got}; use backend="cpu"',
            field="backend",
        )
    if any(part.spec.dtype == "bfloat16" for part in (program, *program.others)):
        raise ConfigError(
            f'backend="{backend}" cannot make bfloat16, got {program.spec}; use'
            ' ToFloat("float16"), or backend="cpu"',
            field="backend",
        )


def choose(decode: Any, backend: Any, backends: Any) -> tuple[Any, Any]:
    """(backend, decode) from the user's arguments.

    GPU decoding selects a GPU's backend, anything else the cpu backend.
    """
    on_gpu = isinstance(decode, GpuDecode) or decode in GPU
    if not on_gpu and decode not in CPU:
        raise ConfigError.of("decode", f"one of {', '.join((*CPU, *GPU))}, or a GpuDecode", decode)
    meant = ENGINES[decode.engine] if isinstance(decode, GpuDecode) else "dali" if on_gpu else "cpu"
    backend = backend or meant
    if backend not in backends:
        raise ConfigError.of("backend", f"one of {', '.join(backends)}", backend)
    if backend == "cpu" and on_gpu:
        raise ConfigError(
            f'backend="cpu" decodes on the CPU, got decode={decode!r}; leave backend out',
            field="decode",
        )
    if backend == "cpu":
        return backend, "auto" if decode == "cpu" else decode
    if decode in ("native", "pillow"):
        raise ConfigError(
            f'decode={decode!r} is the cpu backend\'s; with backend="{backend}" use auto, cpu, gpu'
            " or hybrid",
            field="decode",
        )
    if isinstance(decode, GpuDecode) and backend != meant:
        raise ConfigError(
            f'backend="{backend}" has no engine="{decode.engine}"; leave backend out',
            field="backend",
        )
    return backend, decode
