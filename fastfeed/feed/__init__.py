"""Turns a source, a list of ops and a plan into batches, prepared ahead of the trainer."""

from fastfeed.feed.feed import Feed

__all__ = ["Feed"]
