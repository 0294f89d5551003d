"""`fastfeed preprocess status|stats|verify|preview DST`: what a job has done, read from what it has written."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastfeed.cli import preprocess_options as o
from fastfeed.cli.table import show_facts

if TYPE_CHECKING:
    from fastfeed.preprocess.state import Job
    from fastfeed.preprocess.targets.target import Target

__all__ = ["preview", "stats", "status", "verify"]

_BAR = 24  # columns of a histogram's longest bar

Place = Annotated[str, typer.Argument(metavar="DST", help="Where the job writes.", show_default=False)]
Options = Annotated[list[str] | None, typer.Option("--target-option", metavar="N=V", help="name=value for fsspec.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def status(dst: Place, target_option: Options = None, as_json: AsJson = False) -> None:
    """How far a job is, from the files alone: also while it runs, and from another machine."""
    from fastfeed.preprocess.reports.status import count_surveyed, job_status

    target = _target(dst, target_option)
    if looked := count_surveyed(target):
        facts = {"surveyed": looked, "planned": None, "shards": None}
        said = f"at least {looked:,} photographs are looked at, for duplicates or sizes; there is no plan yet"
        typer.echo(json.dumps(facts) if as_json else f"{dst}: {said}")
        return
    found = job_status(_open(target))
    if as_json:
        typer.echo(json.dumps(found.document()))
        return
    _print(dst, found.rows())
    if found.todo and not found.running:
        _say(f"\nGo on:  fastfeed preprocess resume {shlex.quote(dst)}")


def stats(dst: Place, target_option: Options = None, as_json: AsJson = False) -> None:
    """What kinds of photographs a job met, what became of them, and what limits its speed."""
    from fastfeed.preprocess.reports.statistics import (
        aspect,
        bins,
        bottleneck,
        megapixel,
        statistics,
        summary,
        top_rows,
    )

    found = statistics(_job(dst, target_option))
    if as_json:
        typer.echo(json.dumps(found.document()))
        return
    _print(dst, summary(found))
    tally = found.tally
    console = Console(emoji=False)
    for title, counted in (
        ("bad, by reason", top_rows(found.bad, 12)),
        ("formats", top_rows(tally.formats, 8)),
        ("megapixels", bins(tally.megapixels, megapixel)),
        ("width : height", bins(tally.aspects, aspect)),
        ("colors", top_rows(tally.modes, 8)),
        ("profiles", top_rows(tally.icc, 8)),
        ("EXIF orientations", top_rows(tally.orientations, 8)),
        ("sizes written, height x width", top_rows(tally.sizes, 8)),
    ):
        if counted:
            _histogram(console, title, counted)
    if said := bottleneck(found.took):
        _say(f"\n{said[0].upper()}{said[1:]}.")


def verify(
    dst: Place,
    target_option: Options = None,
    fix: Annotated[bool, typer.Option("--fix", help="Forget broken shards, so that a run makes them again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read every shard again: checksums, sizes, samples as readers see them, strange files. Exit code 1 if any."""
    from dataclasses import asdict

    from fastfeed.preprocess.reports.progress import format_size
    from fastfeed.preprocess.reports.verify import repair, verify

    job = _job(dst, target_option)
    with Console(stderr=True, emoji=False).status("reading") if sys.stderr.isatty() else _Nothing() as bar:
        found = verify(job, lambda done, of: bar.update(f"reading shard {done:,} of {of:,}"))
    fixed = repair(job, found) if fix else []
    if as_json:
        typer.echo(json.dumps(asdict(found) | {"fixed": fixed}))
        raise typer.Exit(1 if found.problems else 0)
    told = [
        ("shards", f"{found.whole:,} whole of {found.done:,} done, {found.shards:,} planned"),
        ("samples", f"{found.samples:,}"),
        ("read", format_size(found.bytes)),
    ]
    _print(dst, told)
    for problem in found.problems:
        _say(f"  {problem}", style="red")
    if not found.problems:
        _say("All that is there is as it was written.", style="green")
        return
    again = f"fastfeed preprocess resume {shlex.quote(dst)}"
    if fixed:
        _say(f"{len(fixed):,} shards are forgotten; to make them again:  {again}")
    elif found.broken:
        _say(f"{len(found.broken):,} shards are broken; --fix forgets them, then:  {again}")
    raise typer.Exit(1)


def preview(
    dst: Place,
    shards: Annotated[int, typer.Option(min=1, max=1000, help="Shards to draw, spread over the job.")] = 8,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="First samples of each.")] = 24,
    side: Annotated[int, typer.Option(min=32, max=1024, help="Of a sample, pixels.")] = 160,
    target_option: Options = None,
) -> None:
    """Draw contact sheets of shards, and one page with them, the numbers, and what is bad: _job/preview/."""
    from fastfeed.preprocess.reports.preview import preview as draw

    written = draw(_job(dst, target_option), shards=shards, count=count, side=side)
    for name in written:
        _say(f"{dst.rstrip('/')}/{name}")


def _job(dst: str, options: list[str] | None) -> Job:
    return _open(_target(dst, options))


def _target(dst: str, options: list[str] | None) -> Target:
    from fastfeed.preprocess.targets.target import open_target

    return open_target(dst, o.target_options({"target_option": options}), writes=False)


def _open(target: Target) -> Job:
    from fastfeed.preprocess.state import open_job

    return open_job(target)


def _print(title: str, facts: list[tuple[str, str]]) -> None:
    show_facts(Console(emoji=False), title, facts)


def _histogram(console: Console, title: str, counted: list[tuple[str, int]]) -> None:
    console.print(Text(f"\n{title}", style="bold"))
    most, table = max(n for _, n in counted), Table.grid(padding=(0, 2))
    table.add_column(min_width=16, overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, style="green")
    blocks = (console.encoding or "").lower().startswith("utf")
    for name, n in counted:
        table.add_row(Text(f"  {name}"), f"{n:,}", ("█" if blocks else "#") * max(round(_BAR * n / most), 1))
    console.print(table)


def _say(text: str, style: str = "") -> None:
    Console(soft_wrap=True, emoji=False).print(text, markup=False, highlight=False, soft_wrap=True, style=style)


class _Nothing:
    """In place of a bar."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def update(self, text: str) -> None:
        pass
