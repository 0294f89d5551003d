"""Opens TIFFs whose pixels stay as they are stored: what turns them upright is the same for all formats."""

from __future__ import annotations

from PIL import ExifTags, TiffImagePlugin

__all__ = ["TiffFile"]


class TiffFile(TiffImagePlugin.TiffImageFile):
    """A TIFF in its stored orientation. Pillow would turn it while loading, by its tag or by its XMP."""

    def _setup(self) -> None:
        if ExifTags.Base.Orientation in self.tag_v2:
            del self.tag_v2[ExifTags.Base.Orientation]
        super()._setup()

    def load_end(self) -> None:
        """Leave the pixels as they are."""
