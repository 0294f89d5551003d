"""Help of every command: a sentence or two, examples that parse, then frequent options; within a
screen.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import ROOT as FOLDER
from typer.testing import CliRunner

from fastfeed.cli import COMMANDS, app, main
from fastfeed.cli.screen import help as command_help
from fastfeed.errors import ConfigError

LINES = 24
LONGER = {"": 30, "preprocess": 30, "profile": 28}  # commands; and a note on exit codes
ROOT: Any = typer.main.get_command(app)


def commands() -> dict[str, Any]:
    """Every command by its words; "" is `fastfeed` itself."""
    found = {"": ROOT}
    for name, command in ROOT.commands.items():
        found[name] = command
        found |= {
            f"{name} {inner}": each for inner, each in getattr(command, "commands", {}).items()
        }
    return found


ALL = commands()


def screen(name: str, columns: int, monkeypatch: pytest.MonkeyPatch, option: str = "--help") -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = CliRunner().invoke(app, [*name.split(), option])
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
    assert titles[0] == "Examples:" and (name == "" or "Options:" in titles)
    assert 1 <= lines.index("Examples:") - 3 <= 3, "a sentence or two before the examples"
    assert len(lines) <= LONGER.get(name, LINES)
    assert (
        max(map(len, [*lines, *screen(name, columns, monkeypatch, "--help-all").splitlines()]))
        <= columns
    )
    assert not [line for line in lines if line != line.rstrip()] and "<" not in "".join(lines)


@pytest.mark.parametrize("name", ALL)
def test_two_to_four_examples_that_parse_with_aligned_comments(name: str) -> None:
    lines = examples(name)
    assert 2 <= len(lines) <= 4
    assert len({len(re.sub(r" # .*", "", line)) for line in lines}) == 1
    for line in lines:
        words = shlex.split(line, comments=True)
        words = words[words.index("fastfeed") + 1 :]
        assert " ".join(words).startswith(name.removesuffix(" run")), (
            "an example of another command"
        )
        assert parse(words).command is not None


def test_an_option_that_is_not_there_does_not_parse() -> None:
    with pytest.raises(ConfigError, match="no option '--no-such-option'"):
        parse(["plan", "photos/", "--no-such-option"])


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_shown_and_those_with_a_value_say_of_what_kind(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = screen(name, 80, monkeypatch, "--help-all")
    for param in ALL[name].params:
        if param.param_type_name == "argument" or param.hidden:
            continue
        assert param.help, param.name
        assert param.is_flag or param.metavar, f"--{param.name} needs a metavar"
        for option in (*param.opts, *param.secondary_opts):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown), option


@pytest.mark.parametrize("name", ALL)
def test_the_last_line_leads_to_the_options_that_are_not_on_the_screen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, everything = (
        screen(name, 120, monkeypatch, option) for option in ("--help", "--help-all")
    )
    last = shown.splitlines()[-1]
    path = f"fastfeed {name}".strip()
    if option := re.match(rf"{path} --help-all shows (?:all (\d+) options|([\w, -]+))\.$", last):
        assert (
            len(everything.splitlines()) > len(shown.splitlines())
            and "-h, --help, --help-all" in everything
        )
        if option[1]:
            own = ALL["preprocess run" if name == "preprocess" else name].params
            assert int(option[1]) == sum(param.param_type_name == "option" for param in own)
        for word in (option[2] or "").split(", "):
            assert word in everything
    else:
        assert everything == shown and "-h, --help, --help-all" in shown


def test_exit_codes_of_jobs_are_in_the_help_as_in_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen("preprocess", 120, monkeypatch, "--help-all")
    documented = (FOLDER / "docs" / "preprocess.md").read_text()
    for code in ("2 wrong arguments", "130 Ctrl-C", "143 SIGTERM"):
        assert code in shown and code in documented


MISTAKES = {  # what follows `fastfeed`, and the line that answers it
    "preproces a b": "no command 'preproces'; did you mean 'preprocess'?",
    "frobnicate": "no command 'frobnicate'; fastfeed --help lists the commands",
    "preprocess verfy shards/": "no command 'verfy'; did you mean 'verify'?",
    "plan photos/ --world-siz 8": (
        "no option '--world-siz' for fastfeed plan; did you mean '--world-size'?"
    ),
    "preprocess a b --sise 3": (
        "no option '--sise' for fastfeed preprocess run; did you mean '--size'?"
    ),
    "doctor -q": "no option '-q' for fastfeed doctor; fastfeed doctor --help-all lists the options",
    "--frob": "no option '--frob' for fastfeed; fastfeed --help-all lists the options",
    "plan": "fastfeed plan needs SOURCE; usage: fastfeed plan [OPTIONS] SOURCE",
    "preprocess retry shards/": (
        "fastfeed preprocess retry needs --reason; fastfeed preprocess retry --help has examples"
    ),
    "plan photos/ --batch 0": (
        "invalid value for '--batch' / '-b'; fastfeed plan --help-all explains the options"
    ),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_answered_by_one_line_with_the_next_step(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fastfeed", *words.split()])
    with pytest.raises(SystemExit, match="2"):
        main()
    # why: in the words of each version of Typer
    answer = re.sub(r"(?<='-b'): [^;]*", "", capsys.readouterr().err)
    assert answer == f"fastfeed: {MISTAKES[words]}\n"


def test_a_folder_with_a_name_like_a_command_is_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "statu").mkdir()
    monkeypatch.setattr("sys.argv", ["fastfeed", "preprocess", "statu", "shards"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "no images below" in capsys.readouterr().err


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
    assert completed("preprocess", "--dry") == ["--dry-run"], (
        "options of run, which need not be said"
    )
    assert completed("preprocess", "verify", "--f") == ["--fix"]


def test_sections_of_a_docstring() -> None:
    parts = command_help.split(
        "A.\n\nB.\n\nExamples:\n    fastfeed x  # y\n\n    fastfeed z  # y\n\nNotes.\n\nMore."
    )
    assert parts.summary == "A.\n\nB." and parts.notes == "Notes.\n\nMore."
    assert parts.examples == ("fastfeed x  # y", "fastfeed z  # y")
    assert command_help.split("Only this.") == command_help.HelpSections("Only this.", (), "")


def test_defaults_and_flags_of_two_names() -> None:
    shown = {param.name: command_help.columns(param) for param in ALL["profile"].params}
    assert shown["html"] == (
        "--html/--no-html",
        "Write report.html to the folder.",
        "[default: html]",
    )
    assert shown["tool"][0] == "--with TOOL" and shown["tool"][2] == "[default: auto]"
    assert shown["out"][0] == "-o, --out DIR" and shown["out"][2] == ""
    assert command_help.columns(ALL["plan"].params[4])[2] == "[default: 1000]"
