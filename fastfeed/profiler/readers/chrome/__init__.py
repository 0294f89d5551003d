"""Reads Chrome trace JSON of PyTorch, JAX or TensorFlow."""
