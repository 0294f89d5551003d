"""A feed's ops as a function of items, for other loaders and for servers."""

from fastfeed.feed.transform.config import TransformConfig
from fastfeed.feed.transform.transform import Transform, of_config

__all__ = ["Transform", "TransformConfig", "of_config"]
