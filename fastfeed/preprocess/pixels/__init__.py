"""Decoding, scaling, color conversion and encoding of one image."""
