"""Unknown commands and options, missing and bad arguments, as errors of fastfeed: one line, with
the next step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import typer

from fastfeed.errors import ConfigError

__all__ = ["as_config_errors", "nearest", "no_command"]

# of Click, or of the copy of Click in newer versions of Typer
_UsageError: Any = typer.BadParameter.__mro__[1]


@contextmanager
def as_config_errors(ctx: Any) -> Iterator[None]:
    """Raise errors in arguments as ConfigError.

    A command that is inside of another one has done so already.
    """
    try:
        yield
    except _UsageError as error:
        raise ConfigError(_sentence(error, error.ctx or ctx)) from None


def no_command(name: str, commands: Sequence[str], path: str) -> ConfigError:
    """No command has this name."""
    near = nearest(name, commands)
    return ConfigError(
        f"no command {name!r}; "
        + (f"did you mean {near!r}?" if near else f"{path} --help lists the commands")
    )


def nearest(name: str, names: Sequence[str]) -> str:
    """The name that is spelled most like this one; "" if none is like it."""
    return next(iter(get_close_matches(name, names, 1)), "")


def _sentence(error: Any, ctx: Any) -> str:
    path = ctx.command_path
    if hasattr(error, "possibilities"):  # no such option
        options = [
            option
            for param in ctx.command.get_params(ctx)
            for option in (*param.opts, *param.secondary_opts)
        ]
        near = nearest(error.option_name, options)
        next_step = f"did you mean {near!r}?" if near else f"{path} --help-all lists the options"
        return f"no option {error.option_name!r} for {path}; {next_step}"
    if hasattr(error, "param_type"):  # a missing parameter
        if error.param.param_type_name == "option":
            return f"{path} needs {max(error.param.opts, key=len)}; {path} --help has examples"
        name = error.param.metavar or error.param.name.upper()
        return (
            f"{path} needs {name}; usage:"
            f" {' '.join([path, *ctx.command.collect_usage_pieces(ctx)])}"
        )
    message = " ".join(error.format_message().split()).rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; {path} --help-all explains the options"
