"""Facts about a machine that `fastfeed doctor` reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from fastfeed.distributed.world import World


@dataclass(frozen=True, slots=True)
class GpuInfo:
    name: str
    memory: int | None  # bytes; None if the GPU shares the machine's memory


@dataclass(frozen=True, slots=True)
class MachineReport:
    """Everything `fastfeed doctor` knows. None or an empty collection: not available."""

    fastfeed: str | None
    python: str
    platform: str
    cores: int  # of the machine
    cores_affinity: int  # that this process may run on
    cores_quota: float | None  # cgroup limit, in cores
    memory: int | None  # bytes of the machine
    memory_limit: int | None  # bytes, cgroup limit
    open_files: tuple[int, int] | None  # (soft, hard) limit of descriptors, -1 is none
    pillow: str | None
    codecs: dict[str, str]  # Pillow's libraries, with versions
    kernel: ExtensionInfo | None  # the native extension
    dali: dict[str, str]
    frameworks: dict[str, str]
    world: World | None
    world_error: str | None
    gpus: tuple[GpuInfo, ...] = ()
    no_gpu: str | None = None  # why none was found
    driver: str | None = None
    vips: str | None = None  # pyvips
    cuda: tuple[int, int] | None = None  # newest CUDA that the driver runs
    package_manager: str | None = (
        None  # that could install what the native extension is compiled with
    )
    # folder of indexes and tables, its bytes, and how many it may have
    cache: tuple[str, int, int] | None = None
    advice: tuple[Advice, ...] = ()
    next: str | None = None  # a command to try; None: something has to be fixed first


@dataclass(frozen=True, slots=True)
class Advice:
    """One recommendation of `fastfeed doctor`.

    `problem`: feeds do not work until it is followed. `optional`: fine without it.
    """

    text: str
    command: str | None = None
    problem: bool = False
    optional: bool = False


NOT_BUILT = "not built: feeds do not start"


@dataclass(frozen=True, slots=True)
class ExtensionInfo:
    """The native extension of this installation, on this machine."""

    libjpeg: str | None  # version of libjpeg-turbo; None: older ones do not say
    bundled: bool  # inside the wheel, else the system's
    simd: bool  # libjpeg-turbo was built with SIMD
    instruction_set: str | None  # the native extension's own, the fastest that this machine has
    huffman: str  # why libjpeg's own Huffman decoders are used; "": the native extension's are
    libwebp: str = ""  # its version; "": Pillow decodes WebP


def find_extension(module: str | ModuleType = "fastfeed._native") -> ExtensionInfo | None:
    """None: it was not built, or cannot be loaded here."""
    try:
        native = import_module(module) if isinstance(module, str) else module
    except ImportError:
        return None
    sets = native.instruction_sets() if hasattr(native, "instruction_sets") else []
    return ExtensionInfo(
        libjpeg=getattr(native, "LIBJPEG_TURBO", None),
        bundled=getattr(native, "LIBJPEG_BUNDLED", False),
        simd=getattr(native, "LIBJPEG_SIMD", False),
        instruction_set=sets[0] if sets else None,
        huffman=(
            native.libjpeg_huffman_reason() if hasattr(native, "libjpeg_huffman_reason") else ""
        ),
        libwebp=getattr(native, "LIBWEBP", ""),
    )


def extension_rows(info: ExtensionInfo | None) -> Iterator[tuple[str, str]]:
    """Rows of the report: title and plain text."""
    if info is None:
        yield "extension", NOT_BUILT
        return
    parts = ["built"]
    if info.libjpeg:
        place = "bundled" if info.bundled else "the system's"
        parts.append(
            f"libjpeg-turbo {info.libjpeg} ({place}, {'with' if info.simd else 'without'} SIMD)"
        )
    if info.libwebp:
        parts.append(f"libwebp {info.libwebp}")
    if info.instruction_set:
        parts.append(f"instruction set {info.instruction_set}")
    yield "extension", ", ".join(parts)
    if info.huffman:
        yield "Huffman", f"decoded by libjpeg, at half the speed: {info.huffman}"
