"""`fastfeed preprocess status|stats|verify|preview DST`: reports about a job, from its output."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fastfeed.cli.preprocess import values as preprocess_values
from fastfeed.cli.preprocess.values import job_command
from fastfeed.cli.screen.help import argument, flag, option
from fastfeed.cli.screen.streams import Console, show_facts
from fastfeed.printable import printable

if TYPE_CHECKING:
    from fastfeed.preprocess.reports.bad_groups import BadGroups, Command
    from fastfeed.preprocess.targets.job_state import Job
    from fastfeed.preprocess.targets.target import Target

LINES_S = 10.0  # between plain lines
_NAME = 32  # columns of the name of a class or folder, at most
_GROUPS = 5  # classes and folders shown
_BAR = 24  # columns of the longest bar of a histogram

Place = Annotated[str, argument("DST", "Target of the job.")]
Options = Annotated[list[str] | None, option("N=V", "name=value for fsspec.", "--target-option")]
AsJson = Annotated[bool, flag("Print everything as JSON.", "--json")]


def status(dst: Place, target_option: Options = None, as_json: AsJson = False) -> None:
    """Show progress, and bad images by reason, class and folder.

    Works while it runs, and from other machines.

    Examples:
        fastfeed preprocess status shards/          # shards, bad images, what to do
        fastfeed preprocess status shards/ --json   # for a script
    """
    from fastfeed.preprocess.reports.bad_groups import bad_groups
    from fastfeed.preprocess.reports.status import count_surveyed, job_status
    from fastfeed.preprocess.targets.job_state import open_job

    target = _target(dst, target_option)
    if surveyed := count_surveyed(target):
        facts = {"surveyed": surveyed, "planned": None, "shards": None}
        message = f"at least {surveyed:,} images are surveyed, for duplicates or sizes"
        typer.echo(
            json.dumps(facts) if as_json else f"{printable(dst)}: {message}; there is no plan yet"
        )
        return
    job = open_job(target)
    result = job_status(job)
    command = _command(job, dst, target_option)
    groups = bad_groups(job, command)
    if as_json:
        by_kind = {f"bad_by_{kind.kind}": kind.document() for kind in groups}
        typer.echo(json.dumps(result.document() | by_kind))
        return
    console = Console(emoji=False)
    show_facts(console, dst, result.rows())
    for kind in groups:
        _show_groups(console, kind)
    if groups and job.plan.merged:
        _say("\nTo repair them, name their source:")
        bad = {image.id for image in job.bad}
        for source in job.plan.sources:
            if not bad.isdisjoint(job.plan.image_ids(source).tolist()):
                line = _merged_job_command(job, source, dst, target_option, "update", "--repair")
                _say(f"    {line}", style="dim")
    if result.todo and not result.running:
        _say(f"\nResume:  {command('resume')}")


def _unfinished_source(job: Job, broken: Sequence[int]) -> str:
    """The source of the first shard that is broken, or else not done."""
    shard = job.shards[[*broken, *job.todo, 0][0]]
    id = int(job.plan.order[shard.first])
    return next(part.source for start, part in reversed(job.plan.parts) if start <= id)


def _merged_job_command(
    job: Job, source: str, dst: str, target: list[str] | None, verb: str, *options: str
) -> str:
    """A command line about the images of one source of a merged job."""
    request = job.plan.source_parts(source)[0][1].request
    place = source, dst, job.plan.recipe.metadata.extras
    return job_command(verb, *place, *options, request=request, target=target)


def _command(job: Job, dst: str, target: list[str] | None, broken: Sequence[int] = ()) -> Command:
    """A function that writes a command line about the job, on one line."""
    plan = job.plan
    place = plan.source, dst, plan.recipe.metadata.extras

    def command(verb: str, *options: str) -> str:
        if plan.merged:  # of several sources
            source = _unfinished_source(job, broken)
            return _merged_job_command(job, source, dst, target, verb) if verb == "resume" else ""
        return job_command(verb, *place, *options, request=plan.request, target=target)

    return command


def _show_groups(console: Console, kind: BadGroups) -> None:
    """Print a table of bad images by reason, class or folder, and the commands for its rows."""
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold", max_width=_NAME)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    shown = kind.groups if kind.kind == "reason" else kind.groups[:_GROUPS]
    for group in shown:
        of = f" of {group.planned:,}" if group.planned else ""
        name = printable(group.name, None)
        table.add_row(Text(f"  {name}"), f"{group.images:,}{of}", Text(group.about))
    console.print(Text(f"\nbad, by {kind.kind}", style="bold"))
    console.print(table)
    if more := kind.total - len(shown):
        _say(f"  and {more:,} more, {len(kind.groups) - len(shown):,} of them in --json")
    for line in dict.fromkeys(group.command for group in shown if group.command):
        _say(f"    {line}", style="dim")


def stats(dst: Place, target_option: Options = None, as_json: AsJson = False) -> None:
    """Show what a job read and wrote, and its bottleneck.

    Examples:
        fastfeed preprocess stats shards/          # sizes, shapes, formats, times
        fastfeed preprocess stats shards/ --json   # for a script
    """
    from fastfeed.preprocess.reports import statistics as report

    result = report.statistics(_job(dst, target_option))
    if as_json:
        typer.echo(json.dumps(result.document()))
        return
    console = Console(emoji=False)
    show_facts(console, dst, report.summary(result))
    for title, counts in [
        ("bad, by reason", report.top_rows(result.bad, 12)),
        *report.charts(result),
    ]:
        if counts:
            _histogram(console, title, counts)
    if message := report.bottleneck(result.took):
        _say(f"\n{message[0].upper()}{message[1:]}.")


def verify(
    dst: Place,
    target_option: Options = None,
    fix: Annotated[
        bool,
        flag(
            "Remove broken shards' records, so that a run rebuilds them; write indexes again.",
            "--fix",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read every shard again, and compare checksums.

    Also checks sizes and samples, and lists unexpected files. Exit code 1 if there are problems.

    Examples:
        fastfeed preprocess verify shards/         # report problems only
        fastfeed preprocess verify shards/ --fix   # the next run rebuilds it
    """
    from dataclasses import asdict

    from fastfeed.preprocess.reports.verify import repair, verify
    from fastfeed.printable import format_size

    job = _job(dst, target_option)
    with _status("reading") as bar:
        result = verify(job, lambda done, of: bar.update(f"reading shard {done:,} of {of:,}"))
    fixed = repair(job, result) if fix else []
    if as_json:
        typer.echo(json.dumps(asdict(result) | {"fixed": fixed}))
        raise typer.Exit(1 if result.problems else 0)
    facts = [
        ("shards", f"{result.whole:,} intact of {result.done:,} done, {result.shards:,} planned"),
        ("samples", f"{result.samples:,}"),
        ("read", format_size(result.bytes)),
    ]
    show_facts(Console(emoji=False), dst, facts)
    for problem in result.problems:
        _say(f"  {problem}", style="red")
    if not result.problems:
        _say("All files match their checksums.", style="green")
        return
    resume_command = _command(job, dst, target_option, result.broken)("resume")
    if removed := len(set(fixed) & {shard.name for shard in job.shards}):
        _say(f"the records of {removed:,} shards are removed; to rebuild them:  {resume_command}")
    elif fixed:
        _say(f"written again: {', '.join(fixed)}")
    elif result.broken:
        _say(f"{len(result.broken):,} shards are broken; run with --fix, then:  {resume_command}")
    elif any(problem.kind == "index" for problem in result.problems):
        _say("run with --fix to write the index again")
    raise typer.Exit(1)


def preview(
    dst: Place,
    shards: Annotated[
        int, option("N", "Shards to draw, spread over the job.", min=1, max=1000)
    ] = 8,
    count: Annotated[int, option("N", "Samples per shard.", "--count", "-n", min=1, max=1000)] = 24,
    side: Annotated[int, option("N", "Side of a sample in pixels.", min=32, max=1024)] = 160,
    target_option: Options = None,
) -> None:
    """Write contact sheets of shards, and a page about the job.

    The page has statistics and bad images; all of it is written to __job/preview/ in DST.

    Examples:
        fastfeed preprocess preview shards/                     # 8 shards
        fastfeed preprocess preview shards/ --shards 2 -n 100   # 2 x 100 samples
    """
    from fastfeed.preprocess.reports.preview import preview as draw

    job = _job(dst, target_option)
    with _status("drawing") as bar:
        names = draw(
            job,
            command=_command(job, dst, target_option),
            shards=shards,
            count=count,
            side=side,
            on_shard=lambda done, of: bar.update(f"drawing shard {done:,} of {of:,}"),
        )
    for name in names:
        _say(f"{dst.rstrip('/')}/{name}")


def _target(dst: str, storage_options: list[str] | None) -> Target:
    from fastfeed.preprocess.targets.target import open_target

    options = preprocess_values.target_options(storage_options)
    return open_target(dst, options, writes=False)


def _job(dst: str, storage_options: list[str] | None) -> Job:
    from fastfeed.preprocess.targets.job_state import open_job

    return open_job(_target(dst, storage_options))


def _histogram(console: Console, title: str, counts: list[tuple[str, int]]) -> None:
    console.print(Text(f"\n{title}", style="bold"))
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=16, overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, style="green")
    block = "█" if (console.encoding or "").lower().startswith("utf") else "#"
    largest = max(n for _, n in counts)
    for name, n in counts:
        bar = block * max(round(_BAR * n / largest), 1)
        table.add_row(Text(f"  {name}"), f"{n:,}", bar)
    console.print(table)


def _say(text: str, style: str = "") -> None:
    Console().plain(text, style)


def _status(text: str) -> Any:
    """Show a status line on a terminal, else plain lines."""
    return Console(stderr=True, emoji=False).status(text) if sys.stderr.isatty() else _Lines()


class _Lines:
    """A plain line every LINES_S, in place of a status line."""

    def __enter__(self) -> _Lines:
        self._last = monotonic()
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def update(self, text: str) -> None:
        if monotonic() - self._last >= LINES_S:
            self._last = monotonic()
            typer.echo(text, err=True)
