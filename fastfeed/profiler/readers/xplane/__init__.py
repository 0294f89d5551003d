"""Reads XPlanes of JAX or TensorFlow."""

from fastfeed.profiler.readers.xplane.reader import knows, read

__all__ = ["knows", "read"]
