"""Ranks: which one this process is, its GPU and its share of the machine's cores."""
