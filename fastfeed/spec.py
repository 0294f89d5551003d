"""The shape, dtype and layout of a sample between two stages."""

from __future__ import annotations

from dataclasses import dataclass

from fastfeed.errors import ConfigError

__all__ = ["ENCODED", "LAYOUTS", "PIXELS", "Spec"]

LAYOUTS = ("encoded", "HWC", "CHW")
DTYPES = ("uint8", "float16", "float32")


@dataclass(frozen=True, slots=True)
class Spec:
    """Shape, dtype and layout of one sample; a length of None differs from sample to sample."""

    shape: tuple[int | None, ...]
    dtype: str
    layout: str

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ConfigError(f"layout must be one of {', '.join(LAYOUTS)}, got {self.layout!r}")
        if self.dtype not in DTYPES:
            raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")

    @property
    def encoded(self) -> bool:
        """The sample is still a file's bytes."""
        return self.layout == "encoded"

    @property
    def size(self) -> tuple[int | None, int | None]:
        """(height, width) in pixels."""
        if self.encoded:
            return (None, None)
        return self.shape[:2] if self.layout == "HWC" else self.shape[1:]  # type: ignore[return-value]

    @property
    def channels(self) -> int | None:
        """Number of channels."""
        return None if self.encoded else self.shape[-1 if self.layout == "HWC" else 0]

    @property
    def fixed(self) -> bool:
        """All samples have the same shape, so they fit into one batch array."""
        return not self.encoded and None not in self.shape

    def with_size(self, height: int | None, width: int | None) -> Spec:
        """The same with another image size."""
        channels = self.channels
        shape = (height, width, channels) if self.layout == "HWC" else (channels, height, width)
        return Spec(shape, self.dtype, self.layout)

    def as_bytes(self) -> Spec:
        """uint8 HWC pixels of the same size and channels."""
        return Spec((*self.size, self.channels), "uint8", "HWC")

    def __str__(self) -> str:
        if self.encoded:
            return "encoded bytes"
        dims = ", ".join("?" if n is None else str(n) for n in self.shape)
        return f"{self.layout} {self.dtype}[{dims}]"


ENCODED = Spec((None,), "uint8", "encoded")
PIXELS = Spec((None, None, 3), "uint8", "HWC")
