"""How tests run Python as a program of its own, and `fastfeed` in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from fastfeed.cli import app
from fastfeed.errors import FastfeedError

# Options of Python: warnings are errors, but for those that old versions of Typer cause by
# importing names of Click that a later Click is going to remove.
STRICT = ("-W", "error", "-W", "ignore::DeprecationWarning:typer")


def fastfeed(*words: str) -> tuple[int, str]:
    """Exit code, and all that is printed or raised."""
    done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        if not isinstance(done.exception, FastfeedError):
            raise done.exception
        return 2, str(done.exception)
    return done.exit_code, done.output
