"""Batches made in a helper process and handed over through shared memory, for trainers whose Python
is busy.
"""
