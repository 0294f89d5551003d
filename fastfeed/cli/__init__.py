"""The `fastfeed` command: one file per subcommand, one row each in COMMANDS."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fastfeed.cli.demo import demo
from fastfeed.cli.doctor.command import doctor
from fastfeed.cli.index import index
from fastfeed.cli.plan.command import plan
from fastfeed.cli.preprocess.group import preprocess
from fastfeed.cli.prove import prove
from fastfeed.cli.screen import streams
from fastfeed.cli.screen.help import SETTINGS, Command, Group, flag
from fastfeed.cli.show.command import show
from fastfeed.cli.traces.analyze import analyze
from fastfeed.cli.traces.diff import diff
from fastfeed.cli.traces.profile import profile
from fastfeed.cli.watch import watch
from fastfeed.errors import FastfeedError
from fastfeed.version import __version__

__all__ = ["COMMANDS", "app", "main"]

COMMANDS = {
    "doctor": doctor,  # what this machine offers
    "demo": demo,  # the main job, end to end
    "show": show,  # a contact sheet of what the trainer will see
    "preprocess": preprocess,  # images into shards, once for all runs
    "index": index,  # list a folder or index shards, once for all runs
    "plan": plan,  # what every rank of a cluster will read
    "watch": watch,  # whether running trainers wait
    "profile": profile,  # record a command and explain why its GPU was idle
    "analyze": analyze,  # the same for existing traces
    "diff": diff,  # compare two runs
    "prove": prove,  # measure a trainer with and without its input
}
_TITLES = {  # in the help: the first command under each
    "doctor": "Start here",
    "preprocess": "Prepare the data",
    "watch": "Find out why a GPU waits",
}

app = typer.Typer(
    name="fastfeed",
    cls=Group,
    context_settings=SETTINGS,
    no_args_is_help=True,
    rich_markup_mode=None,
)
_title = ""
for _name, _command in COMMANDS.items():
    _title = _TITLES.get(_name, _title)
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name, rich_help_panel=_title)
        continue
    # after the first word, options are those of the command that `profile` and `prove` run
    _settings = {"allow_interspersed_args": False} if _command in (profile, prove) else None
    app.command(_name, cls=Command, context_settings=_settings, rich_help_panel=_title)(_command)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"fastfeed {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, flag("Show the version and exit.", "--version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Keep training GPUs busy: images in, augmented batches out.

    Examples:
        fastfeed doctor                          # check this machine
        fastfeed show photos/                    # draw what a trainer will see
        fastfeed preprocess photos/ shards/      # build shards of images
        fastfeed profile -- python train.py      # why was the GPU idle?
    """


def main() -> None:
    """Run a command. A FastfeedError is printed without a traceback; exit code 2."""
    streams.remember_errors()
    try:
        app(prog_name="fastfeed")
    except FastfeedError as error:
        streams.fail(f"fastfeed: {error}")
        if error.help_url:
            streams.fail(f"See {error.help_url}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
