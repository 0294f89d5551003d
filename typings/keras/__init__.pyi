"""Keras is not typed; without this, `import keras` in the package would be fastfeed.keras to pyright."""

from typing import Any

def __getattr__(name: str) -> Any: ...
