"""Several ranks: matching collectives, clock offsets, who waited for whom."""
