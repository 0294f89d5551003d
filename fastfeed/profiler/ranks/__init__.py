"""Ranks of one run: matching collectives, aligning clocks, attributing waits."""
