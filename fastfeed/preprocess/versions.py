"""What the shards' bytes depend on beside the recipe: libraries, by version."""

from __future__ import annotations

import importlib
import socket

from PIL import __version__ as _PILLOW
from PIL import features

from fastfeed.decode.native import is_built
from fastfeed.errors import ConfigError
from fastfeed.preprocess.pixels.decode import libvips
from fastfeed.preprocess.plan import JobPlan, version_differences
from fastfeed.preprocess.recipe import Recipe
from fastfeed.version import __version__

__all__ = ["check_here", "versions"]

_OF_PILLOW = {  # by our names; of several, the first that it was built with
    "libjpeg": ("libjpeg_turbo",),
    "littlecms": ("littlecms2",),
    "webp": ("webp",),
    "avif": ("avif",),
    "openjpeg": ("jpg_2000",),
    "libtiff": ("libtiff",),
    "zlib": ("zlib_ng", "zlib"),
}


def versions(recipe: Recipe) -> dict[str, str]:
    """Of all that decodes, scales, converts, encodes and packs, in this process; "none" for what is not there."""
    found = {"pillow": _PILLOW}
    for name, several in _OF_PILLOW.items():
        known = (features.version(feature) for feature in several)
        found[name] = next((version for version in known if version), "none")
    vips = libvips()
    found["kernel"] = f"{__version__}, {importlib.import_module('fastfeed._native').LIBJPEG}" if is_built() else "none"
    found["vips"] = vips.VERSION if vips else "none"
    if recipe.packing.format == "parquet":
        from importlib.metadata import version

        found["pyarrow"] = version("pyarrow")
    return found


def check_here(plan: JobPlan) -> None:
    """That this process, of whatever machine, makes the bytes that the plan's machine would. ConfigError."""
    if plan.made_with and (lines := version_differences(plan.made_with, versions(plan.recipe))):
        raise ConfigError(
            f"{socket.gethostname()} has other libraries than the machine that made the plan: {', '.join(lines)}; "
            "shards would not be the same: install the same versions everywhere"
        )
