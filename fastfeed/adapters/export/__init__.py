"""Exports the deterministic part of a list of ops, as a Keras layer or an ONNX graph."""
