"""`fastfeed preprocess SRC DST`: a group of commands whose default is `run`."""

from __future__ import annotations

import os
import shlex
from difflib import get_close_matches
from typing import Any

import typer

from fastfeed.cli.preprocess.inspect import preview, stats, status, verify
from fastfeed.cli.preprocess.run import (
    ARGUMENTS,
    ENDED,
    Terminated,
    bad,
    merge,
    resume,
    retry,
    run,
    sigterm_as_exception,
    update,
)
from fastfeed.cli.screen.help import HELP, SETTINGS, Command, Group, usage

_CODES = (
    "Exit codes: 0 all done, bad images are listed; 2 wrong arguments; 3 more bad images"
    " than --max-bad allows, or no image at all; 4 the target, disk or a worker failed; 130 Ctrl-C;"
    " 143 SIGTERM. Finished shards are always kept."
)


class WithRun(Group):
    """Group that runs `run` by default and shows its options and the commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`photos/ shards/ --size 256` is `run photos/ shards/ --size 256`."""
        ctx.meta[ARGUMENTS] = list(args)
        if args and args[0] not in self.commands and args[0] not in HELP:
            near = args[0].isalpha() and get_close_matches(args[0], self.commands, 1)
            if near and not ctx.resilient_parsing and not os.path.exists(args[0]):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
            args = ["run", *args]
        elif args[1:] and args[0] != "run" and os.path.isdir(args[0]) > os.path.isdir(args[1]):
            typer.echo(
                f"fastfeed: {args[0]} is interpreted as the command; for the folder of that name"
                f" use: fastfeed preprocess run {shlex.join(args)}",
                err=True,
            )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; SIGTERM ends it like Ctrl-C, so that it leaves no lock in a job."""
        try:
            with sigterm_as_exception():
                return super().invoke(ctx)
        except Terminated:
            typer.echo("fastfeed: stopped", err=True)
            raise typer.Exit(ENDED) from None

    def shown_params(self, ctx: Any) -> list[Any]:
        """Options of `run`, then the group's own."""
        return [*self.commands["run"].params, *self.get_params(ctx)]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Usage of `run`, which need not be named."""
        return [*usage(self.commands["run"].params), "or COMMAND ..."]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Commands and the options of `run`."""
        own = super().shell_complete(ctx, incomplete)
        return [*own, *self.commands["run"].shell_complete(ctx, incomplete)]


preprocess = typer.Typer(
    cls=WithRun,
    help=run.__doc__,
    epilog=_CODES,
    context_settings=SETTINGS,
    no_args_is_help=True,
    rich_markup_mode=None,
)
preprocess.command("run", cls=Command, epilog=_CODES, short_help="Build shards; the default.")(run)
for _command in (resume, retry, update, bad, merge, status, stats, verify, preview):
    preprocess.command(_command.__name__, cls=Command)(_command)
