"""Transforms the bytes of a photograph into those of a smaller one: decoding, scaling, color,
encoding.
"""
