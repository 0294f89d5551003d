"""Reads XPlanes of JAX or TensorFlow."""
