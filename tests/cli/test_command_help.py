"""Help of every command: a sentence or two, examples that parse, then frequent options; within a
screen.
"""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import ROOT as FOLDER
from helpers.commands import CliRunner
from helpers.products import in_turn

from fastfeed.cli import COMMANDS, app, main
from fastfeed.cli.screen import help as command_help
from fastfeed.errors import ConfigError

LINES = 32
LONGER = {"": 34, "preprocess": 41}  # which list commands
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
    return command_help.paragraphs(ALL[name].help)[1]


def parse(words: list[str]) -> Any:
    """The context of the command that these words call."""
    name, *arguments = words
    command = ROOT.commands[name]
    if hasattr(command, "commands"):
        inner = arguments.pop(0) if arguments[0] in command.commands else "run"
        command = command.commands[inner]
    return command.make_context(name, arguments)


@pytest.mark.parametrize(("name", "columns"), in_turn(ALL, [80, 120]))
def test_examples_come_before_arguments_and_options_and_a_screen_holds_it(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = screen(name, columns, monkeypatch).splitlines()
    assert lines[0].startswith(f"Usage: {f'fastfeed {name}'.strip()} [OPTIONS]")
    titles = [line for line in lines if re.fullmatch(r"[A-Z][\w ]*:", line)]
    assert titles[0] == "Examples:" and "Options:" in titles
    assert len(lines) <= LONGER.get(name, LINES)
    assert (
        max(map(len, [*lines, *screen(name, columns, monkeypatch, "--help-all").splitlines()]))
        <= columns
    )
    assert not [line for line in lines if line != line.rstrip()]


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
    if more := re.fullmatch(rf"fastfeed {name} --help-all shows (\d+) more options\.", last):
        listed = [
            set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.M)) for text in (shown, everything)
        ]
        assert len(listed[1] - listed[0]) == int(more[1])
    else:
        assert everything == shown


def test_exit_codes_of_jobs_are_in_the_help_as_in_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = screen("preprocess", 120, monkeypatch, "--help-all")
    documented = (FOLDER / "docs" / "preprocess.md").read_text()
    for code in ("2 wrong arguments", "130 Ctrl-C", "143 SIGTERM"):
        assert code in shown and code in documented


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("preproces a b", "'preprocess'"),
        ("frobnicate", "frobnicate"),
        ("preprocess verfy shards/", "'verify'"),
        ("plan photos/ --world-siz 8", "--world-size"),
        ("preprocess a b --sise 3", "--size"),
        ("doctor -q", "-q"),
        ("--frob", "--frob"),
        ("plan", "SOURCE"),
        ("preprocess bad photos/ shards/", "--output"),
        ("plan photos/ --batch 0", "--batch"),
    ],
)
def test_a_mistake_is_answered_with_the_name_and_the_help(
    words: str, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fastfeed", *words.split()])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err.splitlines()
    assert said[1].startswith("Try 'fastfeed") and answer in said[-1], said


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
    assert CliRunner().invoke(app, name.split()).output.strip() == shown.strip()


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


def test_paragraphs_of_a_docstring() -> None:
    text, examples = command_help.paragraphs(
        "A\n    a.\n\n    Examples:\n        fastfeed x  # y\n        fastfeed z  # y\n\n    Notes."
    )
    assert text == ["A a.", "Notes."] and examples == ["fastfeed x  # y", "fastfeed z  # y"]


def test_defaults_and_flags_of_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = " ".join(screen("profile", 120, monkeypatch, "--help-all").split())
    assert "--html / --no-html Write report.html to the folder. [default: html]" in shown
    assert "--with TOOL nsys, nvprof" in shown and "[default: auto]" in shown
    assert "-o, --out DIR Folder to record to. Default: a new fastfeed-profile. --html" in shown


def test_fields_of_errors_are_parameters_and_the_table_names_options():
    parameters = {param.name for command in ALL.values() for param in command.params}
    fields, arguments = set(), set()
    for path in (FOLDER / "fastfeed").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arg):
                arguments.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                arguments.add(node.target.id)
            elif (
                isinstance(node, ast.Call)
                and getattr(getattr(node.func, "value", node.func), "id", "") == "ConfigError"
            ):
                fields |= {
                    k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)
                }
    assert len(fields) > 50
    variables = {field for field in fields if field.isupper()}  # of the environment
    assert fields - variables <= arguments | parameters | {"validation_data"}  # that is of `fit`
    table = command_help._ARGUMENTS
    assert set(table.values()) <= parameters
    assert set(table) <= arguments - parameters


@pytest.mark.parametrize(
    ("field", "text", "shown"),
    [
        ("quality", "quality must be >= 1, got 0", "--quality must be >= 1, got 0"),
        ("label", "Table: label must be a column", "--label must be a column"),
        ("extras", "extras must be 'module:function'", "--with must be 'module:function'"),
        ("image", "Table: no column 'x'", "--image: Table: no column 'x'"),
        ("lanes", "lanes must be >= 1", "lanes must be >= 1"),
    ],
)
def test_an_error_names_the_option_of_its_field(field, text, shown):
    error = ConfigError(text, field=field)
    command_help._with_option(error, ALL["preprocess run"].params)
    assert str(error) == shown
