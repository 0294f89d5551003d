"""Decoding by the JPEG engine of an NVIDIA GPU through nvJPEG, without DALI.

- `backend`: compiled programs, which files the CPU decodes instead, and where nvJPEG is.
- `decoder_stream`: decoders of the engine and the work after them, for one batch at a time.
- `windows`: launches the CUDA kernel of `windows.cu`, which makes samples from decoded planes.
"""
