"""Backends that run the op list: `cpu` (native threads), `dali`, `nvjpeg`.

`base` has their contracts and `options` what users choose; `gpu_memory` and `decode_share` are the
GPU backends'.
"""
