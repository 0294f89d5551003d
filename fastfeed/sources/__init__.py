"""Where samples come from."""

from fastfeed.sources.arrays import Arrays
from fastfeed.sources.base import Source
from fastfeed.sources.folder import ImageFolder

__all__ = ["Arrays", "ImageFolder", "Source"]
