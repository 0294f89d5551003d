"""Attributes the idle time of one device: every nanosecond gets exactly one cause."""
