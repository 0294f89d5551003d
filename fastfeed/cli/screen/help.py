"""The screen of `fastfeed COMMAND --help`: usage, a sentence or two, examples, arguments, options,
notes.

It is made of the command's docstring and parameters, so that it is the same with every version of
Typer. A docstring is a paragraph, a section `Examples:` with one command per line, and notes, which
are printed below the options.

--help fits one screen: it shows the options without a panel, which are the frequent ones.
--help-all also shows those of every panel, and the epilog.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from fastfeed.cli.screen import streams, usage_errors

__all__ = [
    "HELP",
    "HELP_ALL",
    "Command",
    "Group",
    "HelpSections",
    "columns",
    "panels",
    "split",
    "usage",
]

HELP_ALL = "--help-all"
HELP = ("-h", "--help", HELP_ALL)  # the names of the help option
_EVERYTHING = "fastfeed.help_all"  # key in the context's meta: whether all options are shown

_WIDEST = 30  # characters of the first column; the text of a longer name is below it
_NARROWEST = 20  # of the second
_NAMED = 3  # options that the line about --help-all names
_NO_BREAK = "\ufffc"  # a space at which no line ends: Rich breaks at all that Unicode has
_EXAMPLES = re.compile(r"(?:^|\n)Examples:\n((?:(?: {4}.*)?\n?)+)")
_OPTION = r"(?<![\w-])--?[a-z][\w-]*"


@dataclass(frozen=True, slots=True)
class HelpSections:
    """A docstring in parts."""

    summary: str
    examples: tuple[str, ...]  # lines of a shell, each with a comment
    notes: str


class Command(TyperCommand):
    """A command with such a screen."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Errors are those of fastfeed."""
        ctx.meta[_EVERYTHING] = _wants_everything(args)
        with usage_errors.as_config_errors(ctx):
            return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] SOURCE`."""
        return usage(self.get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the screen, as wide as the terminal."""
        formatter.write(_screen(self, ctx, self.get_params(ctx)))


class Group(TyperGroup):
    """A group of commands with such a screen, which is also printed where there are no
    arguments.
    """

    default_command = ""  # the command that need not be named

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Help is printed in here."""
        with nullcontext() if parent is not None else streams.command_output():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Commands print in here."""
        with nullcontext() if ctx.parent is not None else streams.command_output():
            return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Typer's `no_args_is_help` depends on help that prints itself."""
        if not args and not ctx.resilient_parsing:
            with streams.report():
                typer.echo(ctx.get_help())
            raise typer.Exit(2)
        ctx.meta[_EVERYTHING] = _wants_everything(args)
        with usage_errors.as_config_errors(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Errors are those of fastfeed."""
        if (
            args
            and self.get_command(ctx, args[0]) is None
            and args[0][:1] != "-"
            and not ctx.resilient_parsing
        ):
            raise usage_errors.no_command(args[0], list(self.commands), ctx.command_path)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the screen, as wide as the terminal."""
        formatter.write(_screen(self, ctx, self.shown_params(ctx)))

    def shown_params(self, ctx: Any) -> list[Any]:
        """Parameters on the screen."""
        return self.get_params(ctx)


def split(help: str | None) -> HelpSections:
    """The parts of a docstring, or of a command's `help`."""
    text = inspect.cleandoc(help or "").partition("\f")[0]
    found = _EXAMPLES.search(text)
    if found is None:
        return HelpSections(text.strip(), (), "")
    examples = tuple(line.strip() for line in found[1].splitlines() if line.strip())
    return HelpSections(text[: found.start()].strip(), examples, text[found.end() :].strip())


def panels(params: Iterable[Any]) -> dict[str, list[Any]]:
    """Arguments and options by the title that they are shown under, in order; frequent options
    under "Options".
    """
    shown: dict[str, list[Any]] = {"Arguments": [], "Options": []}
    for param in params:
        if getattr(param, "hidden", False):
            continue
        title = "Arguments" if param.param_type_name == "argument" else "Options"
        shown.setdefault(getattr(param, "rich_help_panel", None) or title, []).append(param)
    return {title: listed for title, listed in shown.items() if listed}


def columns(param: Any) -> tuple[str, str, str]:
    """`-o, --out FILE`, its help, and `[default: ...]` or nothing."""
    if param.param_type_name == "argument":
        return _argument(param), param.help or "", ""
    shorts, longs = (
        [n for n in param.opts if n.startswith("--") is is_long] for is_long in (False, True)
    )
    if HELP_ALL in longs:  # Click has them in any order
        return ", ".join(HELP), "Show the frequent options, or all of them, and exit.", ""
    name = ", ".join([*shorts, "/".join([*longs, *param.secondary_opts])])
    if not param.is_flag:
        name += f" {param.metavar or 'VALUE'}"
    return name, getattr(param, "help", None) or "", _default(param)


def _screen(command: Any, ctx: Any, params: list[Any]) -> str:
    console = Console(highlight=False)
    with console.capture() as captured:
        for line in _lines(command, ctx, params, console):
            console.print(line, soft_wrap=True)
    return captured.get()


def _lines(command: Any, ctx: Any, params: list[Any], console: Console) -> Iterator[Text]:
    sections = split(command.help)
    pieces = " ".join(command.collect_usage_pieces(ctx))
    yield Text.assemble(("Usage: ", "yellow"), (ctx.command_path, "bold"), f" {pieces}")
    yield Text("")
    yield from _wrapped(Text(" ".join(sections.summary.split())), console)
    if sections.examples:
        yield from _title("Examples")
        for example in sections.examples:
            text = Text(f"  {example}")
            text.highlight_regex(r"  # .*$", "dim")
            yield text
    everything = ctx.meta.get(_EVERYTHING, False)
    listed, more = panels(params), ""
    if not everything:
        listed, more = _frequent(listed, ctx.command_path, getattr(command, "commands", {}))
    parts = [_parameters(listed, console), _commands(command, console, everything)]
    for part in parts if "Arguments" in listed else reversed(parts):
        yield from part
    for paragraph in filter(
        None, [*sections.notes.split("\n\n"), command.epilog if everything else "", more]
    ):
        yield Text("")
        yield from _wrapped(_styled(" ".join(paragraph.split())), console)


def _wants_everything(args: list[str]) -> bool:
    return HELP_ALL in args[: args.index("--") if "--" in args else None]


def _frequent(
    listed: dict[str, list[Any]], path: str, commands: Any
) -> tuple[dict[str, list[Any]], str]:
    """What --help shows of the options, and the line about the others, if there are any."""
    # those of a group are rare
    kept = () if commands and "Arguments" not in listed else ("Arguments", "Options")
    shown = {title: params for title, params in listed.items() if title in kept}
    if shown == listed:
        return listed, ""
    shown = {
        title: [p for p in params if HELP_ALL not in p.opts] for title, params in shown.items()
    }
    options = [
        p
        for title, params in listed.items()
        if title != "Arguments"
        for p in params
        if HELP_ALL not in p.opts
    ]
    others = [
        max(param.opts, key=len) for param in options if param not in shown.get("Options", [])
    ]
    what = ", ".join(others) if len(others) <= _NAMED else f"all {len(options)} options"
    return shown, f"{path} {HELP_ALL} shows {what}."


def _parameters(listed: dict[str, list[Any]], console: Console) -> Iterator[Text]:
    shown = [(title, [columns(param) for param in params]) for title, params in listed.items()]
    width = _width(name for _, rows in shown for name, _, _ in rows)
    for title, rows in shown:
        yield from _title(title)
        for name, text, default in rows:
            yield from _row(name, _styled(text, default), width, console)


def _commands(command: Any, console: Console, everything: bool) -> Iterator[Text]:
    """Commands of a group under the titles that they have, each with its first sentence."""
    default = getattr(command, "default_command", "")
    inner = {
        name: c
        for name, c in getattr(command, "commands", {}).items()
        if everything or name != default
    }
    titles = dict.fromkeys(_panel(each) for each in inner.values())
    width = _width(inner)
    for title in titles:
        yield from _title(title)
        for name, each in inner.items():
            if _panel(each) == title and not each.hidden:
                text = each.short_help or re.split(r"(?<=[.?])\s", split(each.help).summary)[0]
                yield from _row(name, Text(" ".join(text.split())), width, console)


def _panel(command: Any) -> str:
    title = getattr(command, "rich_help_panel", None)
    return title if isinstance(title, str) else "Commands"


def _title(title: str) -> tuple[Text, Text]:
    return Text(""), Text(f"{title}:", style="bold")


def _styled(text: str, default: str = "") -> Text:
    styled = Text.assemble(text, (f" {default.replace(' ', _NO_BREAK)}", "dim") if default else "")
    styled.highlight_regex(_OPTION, "cyan")
    return styled


def _row(name: str, text: Text, width: int, console: Console) -> Iterator[Text]:
    """A name and its text, which continues below itself."""
    lines = list(_wrapped(text, console, width + 4)) or [Text("")]
    first = Text(f"  {name}")
    first.highlight_regex(rf"^  \w[\w-]*|{_OPTION}", "cyan")
    if len(name) > width:
        yield first
    else:
        first.append(" " * (width + 4 - len(first)))
        first.append_text(lines.pop(0))
        first.rstrip()
        yield first
    for line in lines:
        yield Text(" " * (width + 4)).append_text(line)


def _width(names: Iterable[str]) -> int:
    return max((len(name) for name in names if len(name) <= _WIDEST), default=0)


def _wrapped(text: Text, console: Console, indent: int = 0) -> Iterator[Text]:
    for line in text.wrap(console, max(console.width - indent, _NARROWEST)):
        line.rstrip()
        yield Text(line.plain.replace(_NO_BREAK, " "), spans=line.spans)


def usage(params: Iterable[Any]) -> list[str]:
    """`[OPTIONS] SOURCE`, of these parameters."""
    words = [
        _argument(param)
        for param in params
        if param.param_type_name == "argument" and not param.hidden
    ]
    return ["[OPTIONS]", *words]


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    if " " in name:  # says it all
        return name
    name += "..." if param.nargs == -1 else ""
    return name if param.required else f"[{name}]"


def _default(param: Any) -> str:
    """From the declaration alone: nothing is asked of the environment."""
    if param.required:
        return "[required]"
    value, shown = param.default, getattr(param, "show_default", False)
    if not shown or value is None or callable(value) or value in ("", [], ()):
        return ""
    if param.is_flag:
        names = param.opts if value else param.secondary_opts
        return f"[default: {names[-1].lstrip('-')}]" if param.secondary_opts else ""
    value = getattr(value, "value", value)
    return f"[default: {value:g}]" if isinstance(value, float) else f"[default: {value}]"
