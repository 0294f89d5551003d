"""Ops: descriptions of what to do to an image, as data.

The `__all__` of each module that holds ops are its public names; those names together are the
package's.
"""

from fastfeed.arguments import checked
from fastfeed.ops import (
    augmix,
    color,
    compose,
    convert,
    crops,
    decode,
    distort,
    erasing,
    filters,
    function,
    geometry,
    labels,
    levels,
    map,
    mix,
    object_crops,
    policy,
    timm_policy,
    views,
    warp,
)
from fastfeed.ops.augmix import *
from fastfeed.ops.color import *
from fastfeed.ops.compose import *
from fastfeed.ops.convert import *
from fastfeed.ops.crops import *
from fastfeed.ops.decode import *
from fastfeed.ops.distort import *
from fastfeed.ops.erasing import *
from fastfeed.ops.filters import *
from fastfeed.ops.function import *
from fastfeed.ops.geometry import *
from fastfeed.ops.labels import *
from fastfeed.ops.levels import *
from fastfeed.ops.map import *
from fastfeed.ops.mix import *
from fastfeed.ops.object_crops import *
from fastfeed.ops.policy import *
from fastfeed.ops.timm_policy import *
from fastfeed.ops.views import *
from fastfeed.ops.warp import *

__all__: list[str] = []
__all__ += decode.__all__
__all__ += geometry.__all__
__all__ += convert.__all__
__all__ += compose.__all__
__all__ += labels.__all__
__all__ += mix.__all__
__all__ += filters.__all__
__all__ += erasing.__all__
__all__ += color.__all__
__all__ += levels.__all__
__all__ += warp.__all__
__all__ += distort.__all__
__all__ += views.__all__
__all__ += function.__all__
__all__ += map.__all__
__all__ += crops.__all__
__all__ += object_crops.__all__
__all__ += policy.__all__
__all__ += timm_policy.__all__
__all__ += augmix.__all__

OPS: tuple[type, ...] = tuple(
    globals()[name] for name in __all__ if hasattr(globals()[name], "kind")
)
for _op in OPS:
    checked(_op)
