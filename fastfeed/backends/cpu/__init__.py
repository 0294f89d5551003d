"""The reference backend on the CPU: NumPy, OpenCV and the C++ kernel."""
