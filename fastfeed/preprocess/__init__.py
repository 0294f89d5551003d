"""Millions of photographs into training shards: planned first, committed whole, resumable.

The bytes depend on the plan alone, not on workers, engine, or how often the job was broken off.
"""
