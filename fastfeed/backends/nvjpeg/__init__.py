"""Decoding by the JPEG engine of an NVIDIA GPU through nvJPEG, without DALI.

- `backend`: compiled programs, and which files the CPU decodes instead.
- `decoder_stream`: decoders of the engine and the work after them, for one batch at a time.
- `library`: finds nvJPEG.
- `windows`: launches the CUDA kernel of `windows.cu`, which makes samples from decoded planes.
"""
