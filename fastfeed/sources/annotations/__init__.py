"""Boxes and masks of samples."""
