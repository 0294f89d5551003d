"""Keras adapter: PyDataset, checks, epoch callbacks, backup."""
