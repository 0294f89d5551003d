"""The reference backend on the CPU: NumPy, OpenCV and the C++ kernel.

backend          native threads where the kernel is built, otherwise reference
native_program   one native call per batch; native_ops says how the kernel runs each op
reference        the same in Python, which defines what ops mean: chain runs kernels/ image by image
functions, masks, mixing    user functions; masks; MixUp, CutMix and Mosaic
"""
