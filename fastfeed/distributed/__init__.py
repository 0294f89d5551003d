"""Ranks: the rank of this process, its GPU and its share of the machine's cores."""
