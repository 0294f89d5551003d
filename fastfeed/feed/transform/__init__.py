"""A feed's ops as a function of items, for other loaders and for servers."""

from fastfeed.feed.transform.transform import Transform, feed_transform

__all__ = ["Transform", "feed_transform"]
