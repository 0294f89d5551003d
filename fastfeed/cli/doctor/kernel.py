"""Facts about the kernel for `fastfeed doctor`: libraries, instruction set, Huffman decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

__all__ = ["NOT_BUILT", "KernelInfo", "find_kernel", "kernel_rows"]

NOT_BUILT = "not built: feeds do not start"


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """The kernel of this installation, on this machine."""

    libjpeg: str | None  # version of libjpeg-turbo; None: older kernels do not say
    bundled: bool  # inside the wheel, else the system's
    simd: bool  # libjpeg-turbo was built with SIMD
    instruction_set: str | None  # the kernel's own, the fastest that this machine has
    huffman: str  # why libjpeg's own Huffman decoders are used; "": the kernel's are
    libwebp: str = ""  # its version; "": Pillow decodes WebP


def find_kernel(module: str | ModuleType = "fastfeed._native") -> KernelInfo | None:
    """None: it was not built, or cannot be loaded here."""
    try:
        native = import_module(module) if isinstance(module, str) else module
    except ImportError:
        return None
    sets = native.instruction_sets() if hasattr(native, "instruction_sets") else []
    return KernelInfo(
        libjpeg=getattr(native, "LIBJPEG_TURBO", None),
        bundled=getattr(native, "LIBJPEG_BUNDLED", False),
        simd=getattr(native, "LIBJPEG_SIMD", False),
        instruction_set=sets[0] if sets else None,
        huffman=(
            native.libjpeg_huffman_reason() if hasattr(native, "libjpeg_huffman_reason") else ""
        ),
        libwebp=getattr(native, "LIBWEBP", ""),
    )


def kernel_rows(info: KernelInfo | None) -> Iterator[tuple[str, str]]:
    """Rows of the report: title and plain text."""
    if info is None:
        yield "JPEG kernel", NOT_BUILT
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
    yield "JPEG kernel", ", ".join(parts)
    if info.huffman:
        yield "Huffman", f"decoded by libjpeg, at half the speed: {info.huffman}"
