"""Millions of photographs into training shards: planned first, committed whole, resumable, the same bytes from any engine."""
