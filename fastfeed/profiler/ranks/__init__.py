"""Several ranks of one run: matching their collectives, aligning their clocks, attributing their
waits.
"""
