"""Who runs the op list: `cpu` (NumPy and OpenCV, defines the meaning) or `dali`."""
