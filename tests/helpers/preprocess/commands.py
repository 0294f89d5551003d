"""`fastfeed preprocess` as a user types it, in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from fastfeed.cli import app
from fastfeed.errors import FastfeedError


def preprocess(*words: str) -> tuple[int, str]:
    """Exit code, and all that is printed or raised."""
    done = CliRunner().invoke(app, ["preprocess", *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        if not isinstance(done.exception, FastfeedError):
            raise done.exception
        return 2, str(done.exception)
    return done.exit_code, done.output
