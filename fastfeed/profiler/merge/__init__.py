"""Merges the feed's own timeline into a GPU trace."""
