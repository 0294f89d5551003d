"""The op list on the processor (NumPy, OpenCV and the C++ kernel): it defines what ops mean."""
