"""A source, a list of ops and a plan become batches, made ahead of the trainer."""

from fastfeed.feed.feed import Feed

__all__ = ["Feed"]
