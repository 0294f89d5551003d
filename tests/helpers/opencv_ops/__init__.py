"""The meaning of ops in OpenCV and NumPy, image by image: what native threads have to reproduce."""
