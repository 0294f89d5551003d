"""Bytes of a photograph into bytes of a smaller one, and what that takes."""
