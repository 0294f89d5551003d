"""Backends that run the op list: `cpu` (NumPy and OpenCV, the reference) and `dali`."""
