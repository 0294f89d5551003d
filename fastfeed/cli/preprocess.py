"""`fastfeed preprocess SRC DST`: a group of commands whose default is `run`."""

from __future__ import annotations

import os
import shlex
from typing import Any

import typer
from typer.core import TyperGroup

from fastfeed.cli.preprocess_inspect import preview, stats, status, verify
from fastfeed.cli.preprocess_messages import in_options
from fastfeed.cli.preprocess_run import ARGUMENTS, resume, retry, run
from fastfeed.errors import ConfigError, SourceError

__all__ = ["preprocess"]

_HELP = ("-h", "--help")
_CODES = (
    "Exit codes: 0 all done, bad photographs are listed; 2 wrong arguments; 3 more bad ones than --max-bad; "
    "4 the target or disk failed; 130 Ctrl-C. Finished shards are always kept."
)


class WithRun(TyperGroup):
    """Passes arguments that are not a command to `run`; the help shows the options of `run`, then the commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`photos/ shards/ --size 256` is `run photos/ shards/ --size 256`."""
        ctx.meta[ARGUMENTS] = list(args)
        if args and args[0] not in self.commands and args[0] not in _HELP:
            args = ["run", *args]
        elif len(args) > 1 and args[0] != "run" and os.path.isdir(args[0]) and not os.path.isdir(args[1]):
            typer.echo(
                f"fastfeed: {args[0]} is interpreted as the command; for the folder of that name use: "
                f"fastfeed preprocess run {shlex.join(args)}",
                err=True,
            )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Errors name options."""
        try:
            return super().invoke(ctx)
        except (ConfigError, SourceError) as error:
            if len(error.args) == 1:
                error.args = (in_options(str(error)),)
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Options of `run`, then commands."""
        own, self.params = self.params, [*self.commands["run"].params, *self.params]
        try:
            super().format_help(ctx, formatter)
        finally:
            self.params = own


preprocess = typer.Typer(
    cls=WithRun, no_args_is_help=True, help=run.__doc__, epilog=_CODES, subcommand_metavar="or COMMAND ...",
    context_settings={"help_option_names": list(_HELP)},
)  # fmt: skip
preprocess.command("run", epilog=_CODES, help="The default; needed if SRC has the name of a command.")(run)
preprocess.command("resume")(resume)
preprocess.command("retry")(retry)
preprocess.command("status")(status)
preprocess.command("stats")(stats)
preprocess.command("verify")(verify)
preprocess.command("preview")(preview)
