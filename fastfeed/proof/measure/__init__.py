"""Blocks of steps with different inputs, and statistics over them."""
