"""Versions of the libraries that the shards' bytes depend on, in addition to the recipe."""

from __future__ import annotations

import importlib
import socket

from PIL import __version__ as _PILLOW
from PIL import features

from fastfeed.decode.formats import heic
from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.plan import JobPlan, version_differences
from fastfeed.preprocess.model.recipe import Recipe
from fastfeed.preprocess.pixels.image_info import libvips
from fastfeed.runtime.extension import is_built
from fastfeed.version import __version__

_OF_PILLOW = {  # by our names; the first feature that Pillow was built with
    "libjpeg": ("libjpeg_turbo",),
    "littlecms": ("littlecms2",),
    "webp": ("webp",),
    "avif": ("avif",),
    "openjpeg": ("jpg_2000",),
    "libtiff": ("libtiff",),
    "zlib": ("zlib_ng", "zlib"),
}


def versions(recipe: Recipe) -> dict[str, str]:
    """Versions of all libraries that bytes depend on; "none" if absent.

    Of fastfeed itself the minor version: within one, pixels stay the same and jobs resume.
    """
    result = {"pillow": _PILLOW}
    own = ".".join(__version__.split(".")[:2])
    for name, feature_names in _OF_PILLOW.items():
        candidates = (features.version(feature) for feature in feature_names)
        result[name] = next((version for version in candidates if version), "none")
    vips = libvips()
    result["kernel"] = (
        f"{own}, {importlib.import_module('fastfeed._native').LIBJPEG}" if is_built() else "none"
    )
    result["vips"] = vips.VERSION if vips else "none"
    if package := heic.installed():  # only then: plans of machines without it stay as they were
        result["heic"] = package
    if recipe.packing.format == "parquet":
        from importlib.metadata import version

        result["pyarrow"] = version("pyarrow")
    return result


def check_here(plan: JobPlan) -> None:
    """ConfigError if this process would write other bytes than the machine that made the plan."""
    if plan.made_with and (lines := version_differences(plan.made_with, versions(plan.recipe))):
        raise ConfigError(
            f"{socket.gethostname()} has other libraries than the machine that made the plan:"
            f" {', '.join(lines)}; shards would differ: install the same versions everywhere"
        )
