"""Targets of shards, and atomic commits of files."""
