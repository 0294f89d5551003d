"""Compares two results, and checks limits in CI."""
