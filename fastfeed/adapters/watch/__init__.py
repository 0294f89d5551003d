"""Callbacks and wrappers that monitor training steps and foreign loaders."""
