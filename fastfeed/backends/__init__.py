"""Backends that run the op list: `cpu` (native threads, or NumPy and OpenCV: the definition),
`dali`, `nvjpeg`.

`base` has their contracts and `options` what users choose; `gpu_memory` and `decode_share` are the
GPU backends'.
"""
