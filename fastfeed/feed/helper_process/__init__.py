"""Batches made in a helper process and handed over through shared memory."""
