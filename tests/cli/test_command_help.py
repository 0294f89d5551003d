"""Help of every command: a sentence or two, examples that parse, then options; within a screen of 80 columns."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fastfeed.cli import COMMANDS, app, command_help

LINES = 45
LONGER = {"preprocess": 100, "preprocess run": 90}  # two screens; frequent options come first
ROOT: Any = typer.main.get_command(app)


def commands() -> dict[str, Any]:
    """Every command by its words; "" is `fastfeed` itself."""
    found = {"": ROOT}
    for name, command in ROOT.commands.items():
        found[name] = command
        found |= {f"{name} {inner}": each for inner, each in getattr(command, "commands", {}).items()}
    return found


ALL = commands()


def screen(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = CliRunner().invoke(app, [*name.split(), "--help"])
    assert done.exit_code == 0, done.output
    return done.stdout


def examples(name: str) -> list[str]:
    return list(command_help.split(ALL[name].help).examples)


def parse(words: list[str]) -> Any:
    """The context of the command that these words call."""
    name, *arguments = words
    command = ROOT.commands[name]
    if hasattr(command, "commands"):
        inner = arguments.pop(0) if arguments[0] in command.commands else "run"
        command = command.commands[inner]
    return command.make_context(name, arguments)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("columns", [80, 120])
def test_examples_come_before_arguments_and_options_and_a_screen_holds_it(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = screen(name, columns, monkeypatch).splitlines()
    assert lines[0].startswith(f"Usage: {f'fastfeed {name}'.strip()} [OPTIONS]")
    titles = [line for line in lines if re.fullmatch(r"[A-Z][\w ]*:", line)]
    assert titles[0] == "Examples:" and {"Options:"} < set(titles)
    assert 1 <= lines.index("Examples:") - 3 <= 3, "a sentence or two before the examples"
    assert len(lines) <= LONGER.get(name, LINES)
    assert max(map(len, lines)) <= columns
    assert not [line for line in lines if line != line.rstrip()] and "<" not in "".join(lines)


@pytest.mark.parametrize("name", ALL)
def test_two_to_four_examples_that_parse_with_aligned_comments(name: str) -> None:
    lines = examples(name)
    assert 2 <= len(lines) <= 4
    assert len({len(re.sub(r" # .*", "", line)) for line in lines}) == 1
    for line in lines:
        words = shlex.split(line, comments=True)
        words = words[words.index("fastfeed") + 1 :]
        assert " ".join(words).startswith(name.removesuffix(" run")), "an example of another command"
        assert parse(words).command is not None


def test_an_option_that_is_not_there_does_not_parse() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["plan", "photos/", "--no-such-option"])


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_shown_and_those_with_a_value_say_of_what_kind(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = screen(name, 80, monkeypatch)
    for param in ALL[name].params:
        if param.param_type_name == "argument" or param.hidden:
            continue
        assert param.help, param.name
        assert param.is_flag or param.metavar, f"--{param.name} needs a metavar"
        for option in (*param.opts, *param.secondary_opts):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown), option


def test_the_first_sentence_of_a_command_fits_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = screen("", 80, monkeypatch)
    for name in COMMANDS.keys() & ALL.keys():
        assert re.search(rf"\n  {name} +[A-Z][^\n]*\.\n", listed), name


@pytest.mark.parametrize("name", ["", "preprocess"])
def test_no_arguments_are_answered_with_help(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen(name, 80, monkeypatch)
    done = CliRunner().invoke(app, name.split())
    assert (done.exit_code, done.stdout) == (2, shown)


def test_the_tab_key_completes_commands_and_options() -> None:
    """As the script of `fastfeed --show-completion bash` asks."""

    def completed(*words: str) -> list[str]:
        asked = {"_ROOT_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(["fastfeed", *words])}
        asked |= {"COMP_CWORD": str(len(words))}
        return CliRunner().invoke(app, [], env=asked, prog_name="root").stdout.split()

    assert completed("pl") == ["plan"]
    assert completed("plan", "--world") == ["--world-size"]
    assert completed("preprocess", "photos/", "shards/", "--sub") == ["--subsampling"]
    assert completed("preprocess", "--dry") == ["--dry-run"], "options of run, which need not be said"
    assert completed("preprocess", "verify", "--f") == ["--fix"]


def test_sections_of_a_docstring() -> None:
    parts = command_help.split("A.\n\nB.\n\nExamples:\n    fastfeed x  # y\n\n    fastfeed z  # y\n\nNotes.\n\nMore.")
    assert parts.summary == "A.\n\nB." and parts.notes == "Notes.\n\nMore."
    assert parts.examples == ("fastfeed x  # y", "fastfeed z  # y")
    assert command_help.split("Only this.") == command_help.HelpSections("Only this.", (), "")


def test_defaults_and_flags_of_two_names() -> None:
    shown = {param.name: command_help.columns(param) for param in ALL["profile"].params}
    assert shown["html"] == ("--html/--no-html", "Write report.html to the folder.", "[default: html]")
    assert shown["tool"][0] == "--with TOOL" and shown["tool"][2] == "[default: auto]"
    assert shown["out"][0] == "-o, --out DIR" and shown["out"][2] == ""
    assert command_help.columns(ALL["plan"].params[4])[2] == "[default: 1000]"
