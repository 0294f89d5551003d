"""Reads Chrome trace JSON of PyTorch, JAX or TensorFlow."""

from fastfeed.profiler.readers.chrome.reader import knows, read

__all__ = ["knows", "read"]
