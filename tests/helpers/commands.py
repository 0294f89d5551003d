"""How tests run Python as a program of its own."""

from __future__ import annotations

__all__ = ["STRICT"]

# Options of Python: warnings are errors, but for those that old versions of Typer cause by importing names of Click
# that a later Click is going to remove.
STRICT = ("-W", "error", "-W", "ignore::DeprecationWarning:typer")
