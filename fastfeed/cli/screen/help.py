"""Commands with a help screen in sections: text, examples, arguments, options.

A docstring is a paragraph or two and a section `Examples:` with one command per line. --help fits
one screen: it shows options without a panel; --help-all also shows those of every panel.
"""

from __future__ import annotations

import inspect
import re
from contextlib import nullcontext
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from fastfeed.cli.screen import streams
from fastfeed.errors import ConfigError

HELP_ALL = "--help-all"
HELP = ("-h", "--help", HELP_ALL)  # the names of the help option
SETTINGS = {"help_option_names": list(HELP), "max_content_width": 120}  # of a context of Click
# panels
MORE = "More options"
ACCESS = "Access"
_EVERYTHING = "fastfeed.help_all"  # key in the context's meta: whether all options are shown
_EXAMPLES = "Examples:"


def argument(metavar: str, help: str) -> Any:
    """A positional argument of a command, for `Annotated`."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def option(metavar: str, help: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option with a value, for `Annotated`; only --help-all shows those with a panel."""
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **more)


def flag(help: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option without a value, for `Annotated`."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def paragraphs(help: str | None) -> tuple[list[str], list[str]]:
    """The paragraphs of a docstring, and the lines of its examples."""
    blocks = [block.strip() for block in inspect.cleandoc(help or "").split("\n\n")]
    examples = [line.strip() for b in blocks if b.startswith(_EXAMPLES) for line in b.split("\n")]
    return [" ".join(b.split()) for b in blocks if not b.startswith(_EXAMPLES)], examples[1:]


def panels(params: list[Any], ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Names and help of arguments and options, by the title that they are shown under."""
    shown: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for param in params:
        if param.param_type_name == "argument":
            shown["Arguments"].append((_argument(param), param.help or ""))
        elif record := param.get_help_record(ctx):
            names = ", ".join(HELP) if HELP_ALL in param.opts else record[0]  # in any order
            title = getattr(param, "rich_help_panel", None) or "Options"
            # older versions of Typer write "[" as markup of Rich
            shown.setdefault(title, []).append((names, record[1].replace("\\[", "[")))
    return {title: rows for title, rows in shown.items() if rows}


def usage(params: list[Any]) -> list[str]:
    """Usage line `[OPTIONS] SOURCE` of these parameters."""
    return ["[OPTIONS]", *(_argument(p) for p in params if p.param_type_name == "argument")]


def _argument(param: Any) -> str:
    if " " in param.metavar:
        return param.metavar
    name = param.metavar + ("..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


_ARGUMENTS = {  # name of the option by argument of Python, where they differ
    "classes": "class_",
    "extras": "with_",
    "extras_batch": "with_batch",
    "formats": "only_formats",
    "labels_file": "labels",
    "missing": "drop_unlabeled",
    "samples": "shard_samples",
    "storage": "storage_option",
    "target_storage": "target_option",
}


def _with_option(error: ConfigError, params: list[Any]) -> None:
    """Let the text of an error begin with the option that it is about, if it is about one."""
    name = _ARGUMENTS.get(error.field, error.field)
    for param in params:
        if param.name == name and param.param_type_name == "option":
            option = max(param.opts, key=len)
            text = str(error)
            named = re.match(rf"(\w+:? )?{error.field}(?= )", text)  # perhaps after its owner
            error.args = (option + text[named.end() :] if named else f"{option}: {text}",)


class _Screen:
    """The sections of the screen, as Click asks for them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments, of which --help-all may be one."""
        ctx.meta[_EVERYTHING] = HELP_ALL in args[: args.index("--") if "--" in args else None]
        return super().parse_args(ctx, args)  # type: ignore[misc]

    def shown_params(self, ctx: Any) -> list[Any]:
        """Parameters that the help screen lists."""
        return self.get_params(ctx)  # type: ignore[attr-defined]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the docstring; examples are not wrapped."""
        text, examples = paragraphs(self.help)  # type: ignore[attr-defined]
        for paragraph in text:
            formatter.write_paragraph()
            formatter.write_text(paragraph)
        with formatter.section("Examples"):
            for line in examples:
                formatter.write(f"  {line}\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, options and, for a group, its commands."""
        listed = panels(self.shown_params(ctx), ctx)
        everything = ctx.meta[_EVERYTHING]
        rare = sum(len(rows) for title, rows in listed.items() if title not in _FREQUENT)
        for title, rows in listed.items():
            if everything or title in _FREQUENT:
                with formatter.section(title):
                    formatter.write_dl(rows)
        self.format_commands(ctx, formatter)
        if rare and not everything:
            formatter.write_paragraph()
            formatter.write_text(f"{ctx.command_path} {HELP_ALL} shows {rare} more options.")

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write nothing; a group has commands."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the epilog with --help-all."""
        if ctx.meta[_EVERYTHING]:
            super().format_epilog(ctx, formatter)  # type: ignore[misc]


_FREQUENT = ("Arguments", "Options")


class Command(_Screen, TyperCommand):
    """A command with such a screen."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Usage pieces in the form `[OPTIONS] SOURCE`."""
        return usage(self.get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors name its options."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            _with_option(error, self.params)
            raise


class Group(_Screen, TyperGroup):
    """A group of commands, listed by panel."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse arguments; help is printed in here."""
        with nullcontext() if parent is not None else streams.command_output():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run a command, which prints in here."""
        with nullcontext() if ctx.parent is not None else streams.command_output():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first sentence of each command."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            panel = getattr(command, "rich_help_panel", None)
            title = panel if isinstance(panel, str) else "Commands"
            sections.setdefault(title, []).append((name, command.get_short_help_str(100)))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)
