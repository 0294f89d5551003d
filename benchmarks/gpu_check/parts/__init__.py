"""Contestants, inputs and comparisons that several steps use."""
