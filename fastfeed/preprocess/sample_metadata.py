"""What samples carry in addition to their images and labels."""

from __future__ import annotations

from dataclasses import dataclass

from fastfeed.errors import ConfigError
from fastfeed.preprocess.image_recipe import check_choice, is_int_in

__all__ = ["EXIF_FIELDS", "Metadata"]

EXIF_FIELDS = ("time", "camera", "lens", "gps")


@dataclass(frozen=True, slots=True)
class Metadata:
    """What samples carry of their source files, and of a function of yours, in addition to labels,
    captions, columns.

    Args:
        absolute_uri (bool): Write the full path or URL of the source file, not the one relative to
            the source. Default: False.
        exif (tuple[str, ...]): Of "time", "camera", "lens", "gps": written as metadata columns
            `exif_time` and the like. Default: ().
        extras (str): "module:function", called in the workers with a list of Samples. It returns a
            mapping for each: NumPy arrays become arrays of the shards, "text" the caption, all else
            metadata columns. Of a class, an object is created in each worker and called. "" calls
            nothing. Default: "".
        extras_batch (int): Samples per call, at least 1. A process that dies in a call with one
            sample costs that sample, with more the job ends. Default: 16.

    Raises:
        ConfigError: If `exif` names anything else, or `extras` is no module and function.

    Example:
        >>> from fastfeed.preprocess import Metadata
        >>> Metadata(exif=["time", "camera"]).exif
        ('time', 'camera')
    """

    absolute_uri: bool = False
    exif: tuple[str, ...] = ()
    extras: str = ""
    extras_batch: int = 16

    def __post_init__(self) -> None:
        object.__setattr__(self, "exif", tuple(self.exif))
        for name in self.exif:
            check_choice("exif", name, EXIF_FIELDS)
        module, _, function = (
            self.extras.partition(":") if isinstance(self.extras, str) else ("", "", "")
        )
        if self.extras and not (module and function):
            raise ConfigError(f"extras must be 'module:function', got {self.extras!r}")
        if not is_int_in(self.extras_batch, 1, 1 << 16):
            raise ConfigError(f"extras_batch must be in [1, 65536], got {self.extras_batch!r}")
