"""Decoding by the JPEG engine of an NVIDIA GPU through nvJPEG, without DALI.

- `backend`: compiled programs, and which files the CPU decodes instead.
- `library`: finds nvJPEG.
- `windows`: launches the CUDA kernel of `windows.cu`, which makes samples from decoded planes.
"""
